//! Slots that are lent to be filled: this side's, or those that the other side has granted. Unsafe
//! island: makes slots out of memory, and keeps the books that prove that nobody else here has them.

#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::filled::Filled;
use super::free::{FreeSlots, Reuse};
use super::memory::Mapping;
use crate::copying::{Stores, UnitWriter};
use crate::lane::{LaneError, TOO_LONG};
use crate::piece::Piece;
use crate::slot::{LentSlot, SlotOwner};

/// Where slots of one size lie in a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    /// Where the first one begins.
    pub(crate) at: usize,
    /// How many there are.
    pub(crate) slots: u32,
    /// Bytes that each holds.
    pub(crate) slot_bytes: u32,
    /// From the beginning of one to that of the next.
    pub(crate) stride: usize,
}

impl Row {
    /// Where slot `slot` begins.
    pub(crate) fn slot_at(self, slot: u32) -> usize {
        self.at + slot as usize * self.stride
    }

    /// The slot that comes after `slot` where each has its turn.
    pub(crate) fn after(self, slot: u32) -> u32 {
        if slot < self.slots - 1 { slot + 1 } else { 0 }
    }

    /// Where the last one ends.
    pub(crate) fn end(self) -> usize {
        self.slot_at(self.slots)
    }

    /// The slots that `range` touches.
    pub(crate) fn slots_in(self, range: &Range<usize>) -> Range<u32> {
        let before = |at: usize| {
            let slots = at.saturating_sub(self.at).div_ceil(self.stride);
            u32::try_from(slots).unwrap_or(u32::MAX).min(self.slots)
        };
        let first = range.start.saturating_sub(self.at) / self.stride;
        let first = u32::try_from(first).unwrap_or(u32::MAX);
        first.min(before(range.end))..before(range.end)
    }

    /// Which slot begins at `at`, if one does.
    pub(crate) fn slot_of(self, at: u64) -> Option<u32> {
        let offset = usize::try_from(at).ok()?.checked_sub(self.at)?;
        let slot = u32::try_from(offset / self.stride).ok()?;
        (offset.is_multiple_of(self.stride) && slot < self.slots).then_some(slot)
    }

    /// How long a unit is that is in `pieces`, and has to fit into a slot.
    pub(crate) fn length_of(self, pieces: &[Piece<'_>]) -> Result<u32, LaneError> {
        let add = |length: usize, piece: &Piece<'_>| length.checked_add(piece.len());
        let length = pieces.iter().try_fold(0, add);
        let length = length.and_then(|length| u32::try_from(length).ok());
        let fits = length.filter(|&length| length <= self.slot_bytes);
        fits.ok_or(TOO_LONG)
    }

    /// The first `length` bytes of slot `slot` in `memory`. The pointer is good for reads (and
    /// for writes, where the mapping is) as long as the memory lives.
    pub(crate) fn slot_in(self, memory: &Mapping, slot: u32, length: u32) -> NonNull<[u8]> {
        assert!(
            slot < self.slots
                && length <= self.slot_bytes
                && self.slot_bytes as usize <= self.stride
        );
        memory.range(self.slot_at(slot), length as usize)
    }
}

/// The books of slots.
#[derive(Debug)]
pub(crate) struct Loans {
    shared: Arc<Unused>,
    /// Who has each slot.
    holders: Box<[Holder]>,
    /// Slots that nobody has.
    free: FreeSlots,
    /// How many are with the peer,
    with_peer: usize,
    /// and what is in them.
    filled: Filled,
    writer: UnitWriter,
}

/// Who has a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// Nobody.
    Free,
    /// The caller, to fill it.
    Lent,
    /// The peer, with so many bytes in it.
    Peer(u32),
}

impl Loans {
    /// Over slots that nothing else in this process writes, in memory that no other process can write.
    pub(crate) fn new(memory: Arc<Mapping>, row: Row, reuse: Reuse) -> Self {
        assert!(memory.is_ours_alone());
        let free = FreeSlots::all_of(row.slots, reuse);
        Self::of(memory, row, free, Holder::Free)
    }

    /// Over slots of the peer's, in memory that it may write too. It has all of them until it says
    /// that they [may be filled](Self::take_back). Nothing in this process uses them but what is lent,
    /// and a card, which writes those that were [passed](Self::pass), on the thread that has these books.
    pub(crate) fn granted(memory: Arc<Mapping>, row: Row, reuse: Reuse) -> Self {
        assert!(memory.is_writable());
        let free = FreeSlots::none_of(row.slots, reuse);
        Self::of(memory, row, free, Holder::Peer(0))
    }

    fn of(memory: Arc<Mapping>, row: Row, free: FreeSlots, holder: Holder) -> Self {
        let slots = row.slots as usize;
        Self {
            shared: Arc::new(Unused {
                memory,
                row,
                slots: Mutex::new(Vec::new()),
                any: AtomicBool::new(false),
            }),
            holders: vec![holder; slots].into_boxed_slice(),
            with_peer: slots - free.len(),
            filled: Filled::new(),
            free,
            writer: UnitWriter::new(Stores::Cached),
        }
    }

    /// The same, of which those that are [filled](Self::fill) are stored like this.
    pub(crate) fn stored(mut self, stores: Stores) -> Self {
        self.writer = UnitWriter::new(stores);
        self
    }

    /// The same, of which none is filled while there are `bytes` in those that the peer has, or as many as
    /// [`LEAST_AHEAD`](crate::LEAST_AHEAD) of them hold if that is more.
    pub(crate) fn limited(mut self, bytes: usize) -> Self {
        self.filled = self.filled.limited(bytes, self.shared.row);
        self
    }

    /// Where they lie.
    pub(crate) fn row(&self) -> Row {
        self.shared.row
    }

    /// Whether one can be lent.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty() && !self.filled.is_enough()
    }

    /// Whether none can be lent of those that are [used as a rule](Reuse::FewInTurn).
    pub(crate) fn is_short(&self) -> bool {
        self.free.is_short() || self.filled.is_enough()
    }

    /// How many are lent, as far as has been looked.
    pub(crate) fn lent(&self) -> usize {
        self.holders.len() - self.free.len() - self.with_peer
    }

    /// Lends a slot that nobody has, unless enough are filled.
    pub(crate) fn lend(&mut self) -> Option<LentSlot> {
        if self.filled.is_enough() {
            return None;
        }
        let slot = self.free.take()?;
        self.holders[slot as usize] = Holder::Lent;
        let Unused { memory, row, .. } = &*self.shared;
        let bytes = row.slot_in(memory, slot, row.slot_bytes);
        let owner: Arc<dyn SlotOwner> = self.shared.clone();
        // SAFETY: the memory stays mapped for writing while `shared` lives, which keeps it,
        // and is initialised, as all that is mapped. The slot was free: it was lent to nobody, or
        // has been given back by whom it was lent to (`collect_unused`), or by the peer that had
        // it (`take_back`), and it is not lent again, nor passed, before one of these.
        Some(unsafe { LentSlot::new(owner, slot, bytes) })
    }

    /// Fills a slot that nobody has with a copy of `pieces`, one after the other, which have `length` bytes in
    /// all, for the peer, unless enough are filled. Inlined, so that of what goes through them nothing is left
    /// where there is one.
    #[inline(always)]
    pub(crate) fn fill(&mut self, pieces: &[Piece<'_>], length: u32) -> Option<u32> {
        if self.filled.is_enough() {
            return None;
        }
        let slot = self.free.next()?;
        let Unused { memory, row, .. } = &*self.shared;
        let mut filled = 0;
        for piece in pieces {
            let from = piece.memory();
            assert!(from.len() <= row.slot_bytes as usize - filled);
            let to = memory.range(row.slot_at(slot) + filled, from.len());
            // SAFETY: the memory stays mapped for writing while `shared` lives, and has as many
            // bytes there (`range`), which are the slot's (asserted). It was free, so nothing
            // else in this process refers to it (see `lend`); a piece is valid for reads, and lies
            // elsewhere, as none refers to a slot that is free. (Another process may write what it
            // refers to, which spoils only the copy.)
            unsafe { self.writer.copy(from, to) };
            filled += from.len();
        }
        self.free.take();
        self.give(slot, length);
        Some(slot)
    }

    /// Passes a slot that nobody has on to the peer, to be filled with `length` bytes by the card: its
    /// number.
    pub(crate) fn pass(&mut self, length: u32) -> Option<u32> {
        let slot = self.free.take()?;
        self.give(slot, length);
        Some(slot)
    }

    /// The peer has `slot` from now on, with `length` bytes in it.
    fn give(&mut self, slot: u32, length: u32) {
        self.holders[slot as usize] = Holder::Peer(length);
        self.with_peer += 1;
        self.filled.add(length);
    }

    /// The first `length` bytes of a slot that is the peer's, as they are now.
    ///
    /// # Panics
    /// When it is not, or holds fewer.
    pub(crate) fn bytes_of(&self, slot: u32, length: u32) -> Piece<'_> {
        assert!(self.is_with_peer(slot));
        let Unused { memory, row, .. } = &*self.shared;
        let bytes = row.slot_in(memory, slot, length);
        // SAFETY: the memory stays mapped while `shared` lives, which the piece borrows. No other
        // thread of this process writes the slot meanwhile: to be filled it would have to be lent
        // (`lend`, `fill`) or passed, which takes these books for writing, and what was passed before
        // is written by the card on this thread (`granted`), which the piece does not leave.
        unsafe { Piece::from_raw(bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Passes a slot that was lent here on to the peer, with `length` bytes in it: its number,
    /// and that length.
    pub(crate) fn commit(
        &mut self,
        slot: LentSlot,
        length: usize,
    ) -> Result<(u32, u32), LaneError> {
        let fits = u32::try_from(length).ok();
        let fits = fits.filter(|_| length <= slot.capacity());
        let length = fits.ok_or(LaneError::Misuse("committed more than the slot holds"))?;
        let slot = slot
            .redeem(&self.shared)
            .map_err(|_| LaneError::Misuse("committed a slot of another lane"))?;
        self.give(slot, length);
        Ok((slot, length))
    }

    /// The peer says that it has read `slot`; whether it had it.
    pub(crate) fn take_back(&mut self, slot: u32) -> bool {
        let is_with_peer = self.take_from_peer(slot);
        if is_with_peer {
            self.free.put(slot);
        }
        is_with_peer
    }

    /// The peer does not have `slot` any longer; whether it had it.
    fn take_from_peer(&mut self, slot: u32) -> bool {
        let Some(holder @ &mut Holder::Peer(length)) = self.holders.get_mut(slot as usize) else {
            return false;
        };
        *holder = Holder::Free;
        self.with_peer -= 1;
        self.filled.remove(length);
        true
    }

    /// Whether the peer has `slot`.
    pub(crate) fn is_with_peer(&self, slot: u32) -> bool {
        matches!(self.holders.get(slot as usize), Some(Holder::Peer(_)))
    }

    /// A slot that is with the peer is none of its after all: it was not told.
    ///
    /// # Panics
    /// When it is not with the peer.
    pub(crate) fn take_back_untold(&mut self, slot: u32) {
        assert!(self.take_from_peer(slot));
        self.free.put_unused(slot);
    }

    /// Takes in the slots that were lent and dropped.
    pub(crate) fn collect_unused(&mut self) {
        if self.shared.any.load(Ordering::Acquire) {
            let mut unused = self.shared.slots();
            self.shared.any.store(false, Ordering::Relaxed);
            for slot in unused.drain(..) {
                self.holders[slot as usize] = Holder::Free;
                self.free.put_unused(slot);
            }
        }
    }
}

/// Where lent slots go that are dropped unused, from any thread.
#[derive(Debug)]
struct Unused {
    memory: Arc<Mapping>,
    row: Row,
    slots: Mutex<Vec<u32>>,
    /// Whether it is worth to lock.
    any: AtomicBool,
}

impl Unused {
    fn slots(&self) -> MutexGuard<'_, Vec<u32>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotOwner for Unused {
    fn give_back(&self, slot: u32) {
        let mut slots = self.slots();
        slots.push(slot);
        self.any.store(true, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_range_touches_the_slots_that_it_has_bytes_of() {
        let row = Row {
            at: 100,
            slots: 3,
            slot_bytes: 10,
            stride: 16,
        };
        for (range, slots) in [
            (0..100, 0..0),
            (0..101, 0..1),
            (100..110, 0..1),
            (109..117, 0..2),
            (116..117, 1..2),
            (120..140, 1..3),
            (132..1000, 2..3),
            (0..usize::MAX, 0..3),
            (148..1000, 3..3),
            (1000..2000, 3..3),
        ] {
            assert_eq!(row.slots_in(&range), slots, "{range:?}");
        }
    }
}
