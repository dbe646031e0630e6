//! Slots that the peer has filled. Unsafe island: hands them out, and keeps the books that
//! prove that each is handed out once.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;

use super::loans::Row;
use super::memory::{FETCHED_BYTES, Mapping};
use crate::copying::copy;
use crate::slot::{ReceivedSlot, SlotOwner};

/// How slots go back to the peer.
pub(crate) trait GoesBack: Send + Sync + fmt::Debug {
    /// Slot `slot` is not needed here any more. Called from any thread.
    fn give_back(&self, slot: u32);
}

/// Memory that may be lent to somebody here.
pub trait Lending: fmt::Debug + Send + Sync {
    /// Whether somebody here has part of `range`, and may be reading it. To be asked by the thread
    /// that lends it: who else asks may be told too late.
    fn is_lent(&self, range: &Range<usize>) -> bool;
}

/// A slot that the peer has filled, and that is nobody else's until it is given back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Claimed {
    slot: u32,
    length: u32,
}

impl Claimed {
    /// Bytes in it.
    pub(crate) fn len(&self) -> usize {
        self.length as usize
    }
}

/// The books of the slots that the peer fills, which go back when they are dropped, from any
/// thread.
#[derive(Debug)]
pub(crate) struct Arrivals<B> {
    memory: Arc<Mapping>,
    row: Row,
    /// Which of them are here.
    held: Box<[AtomicBool]>,
    back: B,
}

impl<B: GoesBack + 'static> Arrivals<B> {
    /// Over slots that nothing in this process writes while they are out.
    pub(crate) fn new(memory: Arc<Mapping>, row: Row, back: B) -> Self {
        let held = (0..row.slots).map(|_| AtomicBool::new(false)).collect();
        Self {
            memory,
            row,
            held,
            back,
        }
    }

    /// Where they lie.
    pub(crate) fn row(&self) -> Row {
        self.row
    }

    /// The slot that is likely to come after this one, of which so many bytes were used, if it is
    /// worth [fetching](Self::fetch).
    pub(crate) fn likely_after(&self, slot: u32, length: u32) -> Option<u32> {
        let is_small = length as usize <= FETCHED_BYTES && self.row.stride >= FETCHED_BYTES;
        is_small.then(|| self.row.after(slot))
    }

    /// Fetches the beginning of a slot that is likely to come next, so that it is there when the
    /// peer says that it is filled.
    pub(crate) fn fetch(&self, slot: u32) {
        self.memory.fetch(self.row.slot_at(slot));
    }

    /// Where they go.
    pub(crate) fn back(&self) -> &B {
        &self.back
    }

    /// Slot `slot`, which the peer says to have filled with `length` bytes, or what is wrong
    /// with that. For the receiving half alone.
    pub(crate) fn receive(
        self: &Arc<Self>,
        slot: u32,
        length: u32,
    ) -> Result<ReceivedSlot, &'static str> {
        let claimed = self.claim(slot, length)?;
        Ok(self.hand_out(claimed))
    }

    /// As [`receive`](Self::receive), for who decides later whether the slot is
    /// [handed out](Self::hand_out) or [copied](Self::copy_claimed).
    pub(crate) fn claim(&self, slot: u32, length: u32) -> Result<Claimed, &'static str> {
        // Only the receiving half sets the flag, and who drops the slot clears it, so a load
        // and a store do.
        self.check(slot, length)?.store(true, Ordering::Relaxed);
        Ok(Claimed { slot, length })
    }

    /// Hands a slot out that was claimed of these books.
    pub(crate) fn hand_out(self: &Arc<Self>, claimed: Claimed) -> ReceivedSlot {
        let Claimed { slot, length } = claimed;
        assert!(self.held[slot as usize].load(Ordering::Relaxed));
        let bytes = self.row.slot_in(&self.memory, slot, length);
        let owner: Arc<dyn SlotOwner> = self.clone();
        // SAFETY: slot and length are within the memory (`slot_in`), which stays mapped while
        // `self` lives; nothing in this process writes it (`new`; a list that puts carried data
        // there is read by the thread that claims, and asks `is_lent` first, which says so since
        // the claim: `ListPlace::carries`).
        unsafe { ReceivedSlot::new(owner, slot, bytes) }
    }

    /// Copies a slot that was claimed of these books to `into`, which is as long. It is nobody's
    /// then, and the caller gives it back: its number.
    pub(crate) fn copy_claimed(&self, claimed: Claimed, into: &mut [u8]) -> u32 {
        let Claimed { slot, length } = claimed;
        assert!(self.held[slot as usize].load(Ordering::Relaxed));
        let bytes = self.row.slot_in(&self.memory, slot, length);
        assert!(bytes.len() == into.len());
        // SAFETY: the memory is mapped for reading while `self` lives (`slot_in`, which checks
        // its bounds too), and `into` is as long. It is memory of this process's own, so they do
        // not overlap. Nothing in this process writes it meanwhile: the list that puts carried
        // data there is read by this thread (`ListPlace::carries`). That the peer may write
        // spoils only the copy.
        unsafe {
            copy(bytes.as_ptr().cast::<u8>(), into.as_mut_ptr(), into.len());
        }
        // Release: what was read of it, has been (`is_lent`).
        self.held[slot as usize].store(false, Ordering::Release);
        slot
    }

    /// Appends the bytes of a slot that the peer says to have filled to `into`; how many they
    /// are, or what is wrong. For the receiving half alone, which then gives the slot back.
    #[inline(always)]
    pub(crate) fn copy(
        &self,
        slot: u32,
        length: u32,
        into: &mut BytesMut,
    ) -> Result<usize, &'static str> {
        self.check(slot, length)?;
        let bytes = self.row.slot_in(&self.memory, slot, length);
        let count = bytes.len();
        into.reserve(count);
        let target = &mut into.spare_capacity_mut()[..count];
        // SAFETY: the memory is mapped for reading while `self` lives (`slot_in`, which checks
        // its bounds too), and `target` is as long. It is memory of this process's own, so they
        // do not overlap. Nothing in this process writes it meanwhile, as in `copy_claimed`; that
        // the peer may spoils only the copy.
        unsafe {
            copy(
                bytes.as_ptr().cast::<u8>(),
                target.as_mut_ptr().cast(),
                count,
            );
        }
        let length = into.len() + count;
        // SAFETY: so many bytes behind those that there were have just been written, within the
        // capacity.
        unsafe { into.set_len(length) };
        Ok(count)
    }

    /// Whether the peer may have filled that; the mark of who has the slot.
    fn check(&self, slot: u32, length: u32) -> Result<&AtomicBool, &'static str> {
        let held = self
            .held
            .get(slot as usize)
            .ok_or("there is no such slot")?;
        if length > self.row.slot_bytes {
            return Err("the slot is smaller");
        }
        // An honest peer fills a slot again only after it has read its return, which was
        // released after the flag was cleared: relaxed is enough to see it cleared.
        if held.load(Ordering::Relaxed) {
            return Err("the slot has not been returned");
        }
        Ok(held)
    }
}

impl<B: GoesBack> Lending for Arrivals<B> {
    fn is_lent(&self, range: &Range<usize>) -> bool {
        // Acquire: who dropped a slot reads it no more.
        let is_held = |slot: u32| self.held[slot as usize].load(Ordering::Acquire);
        self.row.slots_in(range).any(is_held)
    }
}

impl<B: GoesBack> SlotOwner for Arrivals<B> {
    fn give_back(&self, slot: u32) {
        // Release: what was read of it, has been (`is_lent`).
        self.held[slot as usize].store(false, Ordering::Release);
        self.back.give_back(slot);
    }
}
