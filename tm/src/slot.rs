//! Slots of static protocols, as they are lent and received. Unsafe island: it turns the
//! protocols' memory into something that cannot be misused.
//!
//! A protocol keeps its memory, and learns of slots that come back, behind a [`SlotOwner`];
//! a slot holds its owner alive, so that it may outlive the lane and go to any thread.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::piece::Piece;
use crate::room::Room;

/// What keeps the memory of slots, and takes back those that are dropped.
pub(crate) trait SlotOwner: Send + Sync + fmt::Debug {
    /// Slot number `slot` came back: a lent one unused, a received one read. Called once
    /// for each slot made, from any thread.
    fn give_back(&self, slot: u32);
}

/// A slot that a static lane lent: memory to fill, then to
/// [`commit`](crate::LaneSender::commit). One that is dropped goes back unused.
///
/// Another process may see and change already what is put there: who is to be told something that was
/// checked keeps that beside it.
pub struct LentSlot {
    /// `None` once the slot has been committed.
    owner: Option<Arc<dyn SlotOwner>>,
    number: u32,
    /// Invariant: valid for reads and writes while `owner` lives, initialised, and within this
    /// process touched through this slot alone until it is committed or given back; other
    /// processes may access it.
    memory: NonNull<[u8]>,
}

// SAFETY: the memory is reached through this value alone (invariant), so moving the value
// to another thread moves all access; the owner is `Send + Sync`.
unsafe impl Send for LentSlot {}

impl LentSlot {
    /// Lends slot `number` of `owner`.
    ///
    /// # Safety
    /// `memory` must be valid for reads and writes for as long as `owner` lives, and
    /// initialised; nothing in this process may touch it until the slot has been committed
    /// or given back.
    pub(crate) unsafe fn new(
        owner: Arc<dyn SlotOwner>,
        number: u32,
        memory: NonNull<[u8]>,
    ) -> Self {
        Self {
            owner: Some(owner),
            number,
            memory,
        }
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// A range of its memory, to be filled; what an earlier use left is still there.
    ///
    /// # Panics
    /// When the slot does not hold the range, as indexing a slice does.
    pub fn room(&mut self, range: impl RangeBounds<usize>) -> Room<'_> {
        let range = checked(range, self.capacity());
        // SAFETY: `range` is within the memory.
        let part = unsafe { part_of(self.memory, range) };
        // SAFETY: valid and reached through this slot alone (invariant); the room borrows the slot
        // exclusively, which keeps the owner.
        unsafe { Room::from_raw(part) }
    }

    /// Refers to a range of its memory, as it is now.
    ///
    /// # Panics
    /// As [`room`](Self::room).
    #[must_use]
    pub fn piece(&self, range: impl RangeBounds<usize>) -> Piece<'_> {
        let range = checked(range, self.capacity());
        // SAFETY: as in `room`; nobody fills it while the piece borrows the slot.
        unsafe { piece_of(self.memory, range) }
    }

    /// Ends the loan when this slot was lent by `lane`: its number, or the slot back.
    pub(crate) fn redeem<O: SlotOwner>(mut self, lane: &Arc<O>) -> Result<u32, Self> {
        let ours = self
            .owner
            .as_ref()
            .is_some_and(|owner| std::ptr::addr_eq(Arc::as_ptr(owner), Arc::as_ptr(lane)));
        if !ours {
            return Err(self);
        }
        self.owner = None;
        Ok(self.number)
    }

    /// Where it is, to tell it from others, for test doubles of static lanes.
    #[cfg(any(test, feature = "conformance"))]
    #[must_use]
    pub fn address(&self) -> usize {
        self.memory.addr().get()
    }

    /// A slot of its own memory that no lane lent, for test doubles of static lanes.
    #[cfg(any(test, feature = "conformance"))]
    #[must_use]
    pub fn detached(capacity: usize) -> Self {
        let (owner, memory) = DetachedMemory::new(vec![0; capacity]);
        // SAFETY: the memory is a box that `owner` frees when it is dropped, zeroed, and
        // known to this slot alone.
        unsafe { Self::new(owner, 0, memory) }
    }
}

impl Drop for LentSlot {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.give_back(self.number);
        }
    }
}

impl fmt::Debug for LentSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentSlot")
            .field("number", &self.number)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// A slot that arrived: memory of the peer's, mapped here to be read. Dropping it gives it
/// back to the peer.
///
/// The peer should not write it meanwhile, but could: its bytes are only ever copied out or
/// handed to the kernel, and must be checked after that, not before.
pub struct ReceivedSlot {
    owner: Arc<dyn SlotOwner>,
    number: u32,
    /// Invariant: valid for reads while `owner` lives; other processes may write it.
    memory: NonNull<[u8]>,
}

// SAFETY: the memory is only read, through raw pointers; any thread may do that. The owner
// is `Send + Sync` and takes slots back from any thread.
unsafe impl Send for ReceivedSlot {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for ReceivedSlot {}

impl ReceivedSlot {
    /// Hands out slot `number` of `owner`'s peer.
    ///
    /// # Safety
    /// `memory` must be valid for reads for as long as `owner` lives; nothing in this
    /// process may write it before the slot is given back.
    pub(crate) unsafe fn new(
        owner: Arc<dyn SlotOwner>,
        number: u32,
        memory: NonNull<[u8]>,
    ) -> Self {
        Self {
            owner,
            number,
            memory,
        }
    }

    /// Bytes that were committed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether none were.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `offset` on, as many as `into` holds.
    ///
    /// # Panics
    /// When the slot does not hold that many, as indexing a slice does.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        let length = into.len();
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{length} bytes at {offset} of a slot of {}",
            self.len()
        );
        self.piece(offset..offset + length).copy_to(into);
    }

    /// Refers to a range of the slot, to send it on or to copy it.
    ///
    /// # Panics
    /// When the slot does not hold the range, as indexing a slice does.
    #[must_use]
    pub fn piece(&self, range: impl RangeBounds<usize>) -> Piece<'_> {
        let range = checked(range, self.len());
        // SAFETY: `range` is within the memory, which is valid for reads while the owner lives
        // (invariant); the piece borrows this slot, which keeps the owner.
        unsafe { piece_of(self.memory, range) }
    }

    /// A slot of its own memory that no lane received, for test doubles of static lanes.
    #[cfg(any(test, feature = "conformance"))]
    #[must_use]
    pub fn detached(bytes: Vec<u8>) -> Self {
        let (owner, memory) = DetachedMemory::new(bytes);
        // SAFETY: the memory is a box that `owner` frees when it is dropped; nobody writes
        // it.
        unsafe { Self::new(owner, 0, memory) }
    }
}

impl Drop for ReceivedSlot {
    fn drop(&mut self) {
        self.owner.give_back(self.number);
    }
}

impl fmt::Debug for ReceivedSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedSlot")
            .field("number", &self.number)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// The bytes that a range names of a slot that holds so many.
fn checked(range: impl RangeBounds<usize>, length: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => length,
    };
    assert!(
        start <= end && end <= length,
        "bytes {start}..{end} of a slot of {length}"
    );
    start..end
}

/// # Safety
/// `range` is within `memory`, which is one allocation or mapping.
unsafe fn part_of(memory: NonNull<[u8]>, range: Range<usize>) -> NonNull<[u8]> {
    // SAFETY: its start is within the memory, or at its end.
    let start = unsafe { memory.cast::<u8>().add(range.start) };
    NonNull::slice_from_raw_parts(start, range.len())
}

/// # Safety
/// As [`part_of`]; and the memory is valid for reads for all of `'a`.
unsafe fn piece_of<'a>(memory: NonNull<[u8]>, range: Range<usize>) -> Piece<'a> {
    // SAFETY: as the caller promises.
    let part = unsafe { part_of(memory, range) };
    // SAFETY: as above.
    unsafe { Piece::from_raw(part.as_ptr().cast(), part.len()) }
}

/// Heap memory that plays one slot.
#[cfg(any(test, feature = "conformance"))]
#[derive(Debug)]
struct DetachedMemory(NonNull<[u8]>);

#[cfg(any(test, feature = "conformance"))]
// SAFETY: the pointer owns a box of bytes and is used by `drop` alone.
unsafe impl Send for DetachedMemory {}
#[cfg(any(test, feature = "conformance"))]
// SAFETY: as above; `&DetachedMemory` reaches no memory.
unsafe impl Sync for DetachedMemory {}

#[cfg(any(test, feature = "conformance"))]
impl DetachedMemory {
    fn new(bytes: Vec<u8>) -> (Arc<Self>, NonNull<[u8]>) {
        let memory = NonNull::from(Box::leak(bytes.into_boxed_slice()));
        (Arc::new(Self(memory)), memory)
    }
}

#[cfg(any(test, feature = "conformance"))]
impl Drop for DetachedMemory {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::leak` and is given back once, here; slots
        // that use the memory keep this owner, so none is left.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[cfg(any(test, feature = "conformance"))]
impl SlotOwner for DetachedMemory {
    fn give_back(&self, _slot: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct Record(Mutex<Vec<u32>>);

    impl SlotOwner for Record {
        fn give_back(&self, slot: u32) {
            self.0.lock().unwrap().push(slot);
        }
    }

    #[test]
    fn a_dropped_loan_goes_back_and_a_redeemed_one_does_not() {
        let (lane, other) = (Arc::new(Record::default()), Arc::new(Record::default()));
        let lend = |number| {
            let memory = NonNull::slice_from_raw_parts(NonNull::<u8>::dangling(), 0);
            // SAFETY: no bytes, which any non-null pointer is valid for.
            unsafe { LentSlot::new(lane.clone(), number, memory) }
        };
        drop(lend(3));
        assert_eq!(lend(4).redeem(&lane).unwrap(), 4);
        let refused = lend(5).redeem(&other).unwrap_err();
        assert_eq!(*lane.0.lock().unwrap(), [3]);
        drop(refused);
        assert_eq!(*lane.0.lock().unwrap(), [3, 5]);
    }

    #[test]
    fn a_lent_slot_can_be_filled_on_another_thread() {
        let mut slot = LentSlot::detached(8);
        let filled = std::thread::spawn(move || {
            slot.room(2..).put(Piece::new(&[7; 6]));
            slot
        });
        let mut bytes = [1; 8];
        assert_eq!(filled.join().unwrap().piece(..).copy_to(&mut bytes), 8);
        assert_eq!(bytes, [0, 0, 7, 7, 7, 7, 7, 7]);
    }

    #[test]
    #[should_panic(expected = "bytes 8..9 of a slot of 8")]
    fn a_room_beyond_the_end_panics() {
        let _ = LentSlot::detached(8).room(8..9);
    }

    #[test]
    fn received_bytes_are_copied_out() {
        let slot = ReceivedSlot::detached((0..10).collect());
        let mut some = [0; 3];
        slot.copy_out(7, &mut some);
        assert_eq!(some, [7, 8, 9]);
        assert_eq!(slot.piece(2..=4).len(), 3);
        assert_eq!(slot.piece(..).len(), 10);
        assert!(slot.piece(10..).is_empty());
    }

    #[test]
    #[should_panic(expected = "2 bytes at 9 of a slot of 10")]
    fn copying_beyond_the_end_panics() {
        ReceivedSlot::detached(vec![0; 10]).copy_out(9, &mut [0; 2]);
    }

    #[test]
    #[should_panic(expected = "of a slot of 10")]
    fn an_offset_that_overflows_panics() {
        ReceivedSlot::detached(vec![0; 10]).copy_out(usize::MAX, &mut [0; 2]);
    }
}
