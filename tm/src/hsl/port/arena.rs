//! A contiguous arena of registered memory: what is packed from and unpacked into it needs no
//! translation, and no copy (the papers' `MPI_Malloc_MPC`; report 004, section II.2.7).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::hsl::put::Address;
use crate::local::memory::SharedBytes;

/// Allocations begin at multiples of this.
const ALIGN: usize = 128;

/// The arena of one side. Allocating is not for the data path: it locks, and looks through what
/// is free.
#[derive(Clone)]
pub struct Arena {
    shared: Arc<Shared>,
}

struct Shared {
    bytes: SharedBytes,
    capacity: usize,
    /// Free ranges in order, none of which touch: beginning and length. There are at most as
    /// many as allocations, and one.
    free: Mutex<Vec<(usize, usize)>>,
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, Vec<(usize, usize)>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arena {
    /// The `capacity` bytes at `at` of registered memory, as far as whole units of it go.
    pub(super) fn new(bytes: SharedBytes, at: usize, capacity: usize) -> Self {
        let capacity = capacity - capacity % ALIGN;
        let free = if capacity == 0 {
            Vec::new()
        } else {
            vec![(at, capacity)]
        };
        Self {
            shared: Arc::new(Shared {
                bytes,
                capacity,
                free: Mutex::new(free),
            }),
        }
    }

    /// Bytes that it has in all.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// `length` bytes in a row, with whatever is in them; `None` when there are not so many free
    /// in one place.
    #[must_use]
    pub fn allocate(&self, length: u32) -> Option<ArenaBuffer> {
        let taken = (length as usize).next_multiple_of(ALIGN).max(ALIGN);
        let mut free = self.shared.free();
        let place = free.iter().position(|(_, room)| *room >= taken)?;
        let (at, room) = free[place];
        if room == taken {
            free.remove(place);
        } else {
            free[place] = (at + taken, room - taken);
        }
        drop(free);
        Some(ArenaBuffer {
            arena: self.clone(),
            at,
            length,
        })
    }

    fn give_back(&self, at: usize, length: u32) {
        let mut length = (length as usize).next_multiple_of(ALIGN).max(ALIGN);
        let mut free = self.shared.free();
        let place = free.partition_point(|(start, _)| *start < at);
        if let Some((after, room)) = free.get(place).copied()
            && at + length == after
        {
            length += room;
            free.remove(place);
        }
        if let Some(before) = place.checked_sub(1)
            && free[before].0 + free[before].1 == at
        {
            free[before].1 += length;
        } else {
            free.insert(place, (at, length));
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// Some of an arena's memory. The other side may write it at any time, and does when it is
/// posted: so its bytes are only copied, in and out.
#[derive(Debug)]
pub struct ArenaBuffer {
    arena: Arena,
    at: usize,
    length: u32,
}

impl ArenaBuffer {
    /// Bytes that it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// When they do not fit, as indexing a slice does.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        self.arena.shared.bytes.write(self.at + offset, bytes);
    }

    /// Copies the bytes at `offset` to `into`.
    ///
    /// # Panics
    /// When there are not so many, as indexing a slice does.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        self.arena.shared.bytes.read(self.at + offset, into);
    }

    fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{length} bytes at {offset} of a buffer of {}",
            self.len()
        );
    }

    /// Copies all of it to `to` of this side's memory, outside of every arena.
    pub(super) fn copy_to(&self, memory: &SharedBytes, to: usize) {
        memory.copy_within(self.at, to, self.len());
    }

    pub(super) fn address(&self) -> Address {
        Address(self.at as u64)
    }

    /// Whether it is of this arena.
    pub(super) fn is_of(&self, arena: &Arena) -> bool {
        Arc::ptr_eq(&self.arena.shared, &arena.shared)
    }
}

impl Drop for ArenaBuffer {
    fn drop(&mut self) {
        self.arena.give_back(self.at, self.length);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::local::memory::Mapping;
    use proptest::prelude::*;

    const CAPACITY: usize = 64 * ALIGN;
    const STEPS: usize = if cfg!(miri) { 10 } else { 100 };

    fn arena() -> Arena {
        let memory = Mapping::for_card(ALIGN + CAPACITY).unwrap();
        Arena::new(SharedBytes::new(memory), ALIGN, CAPACITY)
    }

    proptest! {
        /// Buffers never share a byte, and all of the arena is there again at the end.
        #[test]
        fn buffers_are_their_owners(steps in proptest::collection::vec((0..2000_u32, 0..20_usize), 1..STEPS)) {
            let arena = arena();
            let mut held: Vec<(ArenaBuffer, u8)> = Vec::new();
            for (number, (length, drops)) in steps.into_iter().enumerate() {
                if let Some(mut buffer) = arena.allocate(length) {
                    let mark = u8::try_from(number).unwrap();
                    buffer.write(0, &vec![mark; length as usize]);
                    held.push((buffer, mark));
                }
                if drops < held.len() {
                    held.swap_remove(drops);
                }
                for (buffer, mark) in &held {
                    let mut bytes = vec![0; buffer.len()];
                    buffer.read(0, &mut bytes);
                    prop_assert!(bytes == vec![*mark; bytes.len()]);
                }
            }
            drop(held);
            prop_assert!(arena.allocate(u32::try_from(CAPACITY).unwrap()).is_some());
        }
    }

    #[test]
    fn an_arena_that_is_exhausted_says_so() {
        let arena = arena();
        let whole = arena.allocate(u32::try_from(CAPACITY).unwrap()).unwrap();
        assert!(arena.allocate(0).is_none());
        drop(whole);
        assert!(arena.allocate(0).is_some());
    }
}
