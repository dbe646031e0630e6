//! Who has which slot. Unsafe island: makes slots out of the memory, and keeps the books
//! that prove that nobody else has them.

#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;

use super::armed::ArmedWatch;
use super::bell::Bell;
use super::memory::{OwnMemory, OwnWords, PeerMemory, PeerWords};
use super::ring::{Entry, SharedRingWriter};
use crate::slot::{LentSlot, ReceivedSlot, SlotOwner};

/// The books of this side's slots.
#[derive(Debug)]
pub(super) struct OwnSlots {
    shared: Arc<Unused>,
    /// Who has each slot.
    holders: Box<[Holder]>,
    /// Slots that nobody has; the last one was used last, and is lent first, while the
    /// caches still know it.
    free: Vec<u32>,
}

/// Who has a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// Nobody.
    Free,
    /// The caller, to fill it.
    Lent,
    /// The peer.
    Peer,
}

impl OwnSlots {
    pub(super) fn new(memory: Arc<OwnMemory>) -> Self {
        let slots = memory.geometry().slots();
        Self {
            shared: Arc::new(Unused {
                memory,
                slots: Mutex::new(Vec::new()),
                any: AtomicBool::new(false),
            }),
            holders: vec![Holder::Free; slots as usize].into_boxed_slice(),
            free: (0..slots).rev().collect(),
        }
    }

    pub(super) fn memory(&self) -> &OwnMemory {
        &self.shared.memory
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Lends a slot that nobody has.
    pub(super) fn lend(&mut self) -> Option<LentSlot> {
        let slot = self.free.pop()?;
        self.holders[slot as usize] = Holder::Lent;
        let owner: Arc<dyn SlotOwner> = self.shared.clone();
        // SAFETY: the memory stays mapped for writing while `shared` lives, which keeps it,
        // and began as zeros. The slot was free: it was lent to nobody, or has been given
        // back by whom it was lent to (`collect_unused`), or by the peer after it was
        // redeemed (`take_back`), and it is not lent again before one of these. No other
        // process can map it for writing (sealed).
        Some(unsafe { LentSlot::new(owner, slot, self.shared.memory.slot(slot)) })
    }

    /// Fills a slot that nobody has with a copy of `unit`, for the peer.
    pub(super) fn fill(&mut self, unit: &[u8]) -> Option<u32> {
        let slot = *self.free.last()?;
        let memory = self.shared.memory.slot(slot);
        assert!(unit.len() <= memory.len());
        self.free.pop();
        self.holders[slot as usize] = Holder::Peer;
        // SAFETY: the memory stays mapped for writing while `shared` lives, and holds `unit`
        // (asserted). The slot was free, so nothing else in this process refers to it (see
        // `lend`), and no other process can write it; `unit` lies elsewhere, as a slice of
        // this process never refers to a slot that is free.
        unsafe { ptr::copy_nonoverlapping(unit.as_ptr(), memory.as_ptr().cast(), unit.len()) };
        Some(slot)
    }

    /// Passes a slot that was lent here on to the peer; one that was not comes back.
    pub(super) fn redeem(&mut self, slot: LentSlot) -> Result<u32, LentSlot> {
        let slot = slot.redeem(&self.shared)?;
        self.holders[slot as usize] = Holder::Peer;
        Ok(slot)
    }

    /// The peer says that it has read `slot`; whether it had it.
    pub(super) fn take_back(&mut self, slot: u32) -> bool {
        match self.holders.get_mut(slot as usize) {
            Some(holder @ Holder::Peer) => *holder = Holder::Free,
            _ => return false,
        }
        self.free.push(slot);
        true
    }

    /// Takes in the slots that were lent and dropped.
    pub(super) fn collect_unused(&mut self) {
        if self.shared.any.load(Ordering::Acquire) {
            let mut unused = self.shared.slots();
            self.shared.any.store(false, Ordering::Relaxed);
            for slot in unused.drain(..) {
                self.holders[slot as usize] = Holder::Free;
                self.free.push(slot);
            }
        }
    }
}

/// Where lent slots go that are dropped unused, from any thread.
#[derive(Debug)]
struct Unused {
    memory: Arc<OwnMemory>,
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

/// The books of the peer's slots, which received ones are returned to when they are
/// dropped, from any thread.
#[derive(Debug)]
pub(super) struct PeerSlots {
    memory: Arc<PeerMemory>,
    /// Which of them are here.
    held: Box<[AtomicBool]>,
    returns: SharedRingWriter<OwnWords>,
    sender: ArmedWatch<PeerWords>,
    bell: Bell,
}

impl PeerSlots {
    pub(super) fn new(
        memory: Arc<PeerMemory>,
        returns: SharedRingWriter<OwnWords>,
        sender: ArmedWatch<PeerWords>,
        bell: Bell,
    ) -> Self {
        let held = (0..memory.geometry().slots())
            .map(|_| AtomicBool::new(false))
            .collect();
        Self {
            memory,
            held,
            returns,
            sender,
            bell,
        }
    }

    pub(super) fn memory(&self) -> &PeerMemory {
        &self.memory
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// The slot that the peer published with `entry`, or what is wrong with that. For the
    /// receiving half alone.
    pub(super) fn receive(self: &Arc<Self>, entry: Entry) -> Result<ReceivedSlot, &'static str> {
        let Entry { slot, length } = entry;
        // Only the receiving half sets the flag, and who drops the slot clears it, so a load
        // and a store do.
        self.check(entry)?.store(true, Ordering::Relaxed);
        let owner: Arc<dyn SlotOwner> = self.clone();
        // SAFETY: slot and length are within the memory (checked above, and by `slot`),
        // which stays mapped while `self` lives; it is mapped for reading, so nothing here
        // writes it.
        Ok(unsafe { ReceivedSlot::new(owner, slot, self.memory.slot(slot, length)) })
    }
}

impl PeerSlots {
    /// Appends the bytes of the slot that the peer published with `entry` to `into` and gives
    /// the slot back; how many they are, or what is wrong. For the receiving half alone.
    pub(super) fn copy(&self, entry: Entry, into: &mut BytesMut) -> Result<usize, &'static str> {
        let Entry { slot, length } = entry;
        self.check(entry)?;
        let memory = self.memory.slot(slot, length);
        let start = into.len();
        into.resize(start + memory.len(), 0);
        let target = &mut into[start..];
        // SAFETY: the memory is mapped for reading while `self` lives (`slot`, which checks
        // its bounds too), and `target` is as long. It is memory of this process's own, so they
        // do not overlap. That the peer may write meanwhile spoils only the copy.
        unsafe {
            ptr::copy_nonoverlapping(memory.as_ptr().cast(), target.as_mut_ptr(), target.len());
        }
        self.pass_back(slot);
        Ok(memory.len())
    }

    /// Whether the peer may publish that; the mark of who has the slot.
    fn check(&self, entry: Entry) -> Result<&AtomicBool, &'static str> {
        let Entry { slot, length } = entry;
        let held = self
            .held
            .get(slot as usize)
            .ok_or("there is no such slot")?;
        if length > self.memory.geometry().slot_bytes() {
            return Err("the slot is smaller");
        }
        // An honest peer publishes a slot again only after it has read its return, which was
        // released after the flag was cleared: relaxed is enough to see it cleared.
        if held.load(Ordering::Relaxed) {
            return Err("the slot has not been returned");
        }
        Ok(held)
    }

    fn pass_back(&self, slot: u32) {
        self.returns.publish(Entry { slot, length: 0 });
        if self.sender.must_wake() {
            self.bell.ring();
        }
    }
}

impl SlotOwner for PeerSlots {
    fn give_back(&self, slot: u32) {
        self.held[slot as usize].store(false, Ordering::Relaxed);
        self.pass_back(slot);
    }
}
