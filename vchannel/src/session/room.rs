//! Memory for messages of some hundred bytes that are being unpacked.
//!
//! Such a message is the application's from when it is begun, for as long as that likes. So it is copied
//! out of its flow, which holds up nobody then, to memory of just its size class.

use std::cell::Cell;

use madgate_gtm::wire::BUNDLED_BYTES;

/// What is in a room: what was written there before, whoever did.
type Memory = Box<[u8; BUNDLED_BYTES]>;

/// Rooms that a thread keeps for later.
const SPARES: usize = 4;

thread_local! {
    static SPARE: [Cell<Option<Memory>>; SPARES] = const { [const { Cell::new(None) }; SPARES] };
}

/// Memory for one message, or none. It comes from the thread that asks for it, and the thread that drops
/// it keeps it: as many messages at a time as that keeps memory for cost no allocation.
#[derive(Debug, Default)]
pub(super) struct Room(Option<Memory>);

impl Room {
    /// No memory.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Where `length` bytes go, up to [`BUNDLED_BYTES`], over what was there.
    #[inline]
    pub(super) fn make(&mut self, length: usize) -> &mut [u8] {
        &mut self.0.get_or_insert_with(take)[..length]
    }

    /// The first `length` bytes; fewer if there are not so many.
    #[inline]
    pub(super) fn bytes(&self, length: usize) -> &[u8] {
        let memory = self.0.as_deref().map_or(&[][..], |memory| memory);
        memory.get(..length).unwrap_or(memory)
    }
}

impl Drop for Room {
    #[inline]
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            put(memory);
        }
    }
}

/// Memory from this thread's, or new one.
fn take() -> Memory {
    let spare = |spares: &[Cell<Option<Memory>>; SPARES]| spares.iter().find_map(Cell::take);
    // A thread that is ending has none any more.
    let spare = SPARE.try_with(spare).ok().flatten();
    spare.unwrap_or_else(|| Box::new([0; BUNDLED_BYTES]))
}

/// Memory that nothing is in any more becomes this thread's, unless that has enough.
fn put(memory: Memory) {
    let mut memory = Some(memory);
    let _ = SPARE.try_with(|spares| {
        for spare in spares {
            match spare.take() {
                None => return spare.set(memory.take()),
                // It stays there.
                taken => spare.set(taken),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_uses_its_memory_again_and_keeps_some() {
        let place = |room: &mut Room| room.make(1).as_ptr().addr();
        let mut rooms: Vec<_> = (0..SPARES).map(|_| Room::none()).collect();
        let mut before: Vec<_> = rooms.iter_mut().map(place).collect();
        rooms.clear();
        let mut rooms: Vec<_> = (0..3 * SPARES).map(|_| Room::none()).collect();
        let mut after: Vec<_> = rooms.iter_mut().map(place).collect();
        after.truncate(SPARES);
        before.sort_unstable();
        after.sort_unstable();
        assert_eq!(before, after);
        drop(rooms);
        let kept = SPARE.with(|spares| spares.iter().filter_map(Cell::take).count());
        assert_eq!(kept, SPARES);
    }

    #[test]
    fn what_is_written_is_there_in_any_thread() {
        let mut room = Room::none();
        assert!(room.bytes(10).is_empty());
        room.make(BUNDLED_BYTES).fill(7);
        room.make(3).fill(8);
        let room = thread::spawn(move || {
            assert_eq!(room.bytes(4), [8, 8, 8, 7]);
            room
        });
        assert_eq!(
            room.join().unwrap().bytes(BUNDLED_BYTES).len(),
            BUNDLED_BYTES
        );
    }
}
