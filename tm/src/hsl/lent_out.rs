//! Memory of this process that a card reads, or the other side writes, while nobody here refers
//! to it. Unsafe island: takes vectors apart, and puts them together again.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::put::{Name, Target};
use crate::hsl::host::FOREIGN;

/// Memory of this process that somebody else may be using: nobody here refers to it until it is
/// back.
#[derive(Debug)]
pub struct LentOut {
    /// Invariant: came from a `Vec` whose length and capacity are its length.
    memory: NonNull<[u8]>,
    /// Whether another process knows the address, which this one cannot keep from it.
    is_told: bool,
}

// SAFETY: it owns the memory like the vector that it came from, and gives out no reference.
unsafe impl Send for LentOut {}
// SAFETY: as above: shared, it only gives out addresses.
unsafe impl Sync for LentOut {}

impl LentOut {
    /// Takes memory away from this process.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self {
            memory: NonNull::from(Box::leak(bytes.into_boxed_slice())),
            is_told: false,
        }
    }

    /// `length` bytes at `offset`. The pointer is good for reads and writes as long as this is
    /// there.
    pub(crate) fn range(&self, offset: usize, length: usize) -> NonNull<[u8]> {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.memory.len()),
            "{length} bytes at {offset} of {}",
            self.memory.len()
        );
        // SAFETY: `offset` is within the memory, which is one allocation.
        let start = unsafe { self.memory.cast::<u8>().add(offset) };
        NonNull::slice_from_raw_parts(start, length)
    }
}

impl Target for LentOut {
    fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// The address, which a card of this host writes to without asking. From here on the memory is
    /// never freed until [`back`](Target::back).
    fn tell(&mut self) -> (u64, Name) {
        self.is_told = true;
        let address = self.memory.as_ptr().cast::<u8>().expose_provenance();
        (FOREIGN | address as u64, Name::default())
    }

    fn back(self) -> Vec<u8> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the pointer came from `Box::leak` (`new`) and is used once: `this` is not
        // dropped.
        unsafe { Box::from_raw(this.memory.as_ptr()) }.into_vec()
    }
}

impl Drop for LentOut {
    fn drop(&mut self) {
        // What the other side was told of it may still write: that memory must not become
        // anything else, and is lost. It is at most what was posted when a connection ended.
        if !self.is_told {
            // SAFETY: the pointer came from `Box::leak` (`new`) and is used no more.
            drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_write_is_there_when_it_is_back() {
        let mut lent = LentOut::new(vec![1; 10]);
        let (address, _) = lent.tell();
        let start = lent.range(4, 3).cast::<u8>();
        assert_eq!(address & !FOREIGN, start.addr().get() as u64 - 4);
        // SAFETY: three bytes of memory that nobody refers to (`range`).
        unsafe { start.write_bytes(7, 3) };
        assert_eq!(lent.back(), [1, 1, 1, 1, 7, 7, 7, 1, 1, 1]);
        drop(LentOut::new(vec![1; 10]));
    }

    #[test]
    #[should_panic(expected = "7 bytes at 4 of 10")]
    fn a_range_beyond_the_end_panics() {
        let _ = LentOut::new(vec![1; 10]).range(4, 7);
    }
}
