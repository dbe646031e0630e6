//! The half of a shared-memory lane that sends: lends its slots, publishes those that are
//! committed, and takes back what the peer has read.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::entry::Entry;
use super::layout::{PUBLISH_AT, RECEIVER_ARMED_AT, RETURN_AT, SENDER_ARMED_AT};
use super::memory::{OwnMemory, PeerMemory};
use super::terms::ShmTerms;
use super::violation;
use crate::lane::{LaneError, LaneSender, LentSlot, Piece, Shape};
use crate::local::LOOKS_BETWEEN_CHECKS;
use crate::local::armed::{ArmedFlag, ArmedWatch};
use crate::local::bell::Bell;
use crate::local::free::Reuse;
use crate::local::loans::Loans;
use crate::local::memory::{OwnWords, PeerWords};
use crate::local::ring::{RingReader, RingWriter};
use crate::poller::Interest;

#[derive(Debug)]
pub(super) struct ShmSender {
    slots: Loans,
    publish: RingWriter<OwnWords, 1>,
    returned: RingReader<PeerWords, 1>,
    armed: ArmedFlag<OwnWords>,
    receiver: ArmedWatch<PeerWords>,
    bell: Bell,
    /// Calls that found nothing since the peer was last known to be there.
    looks: u32,
    closed: bool,
}

impl ShmSender {
    pub(super) fn new(own: &OwnMemory, peer: &PeerMemory, bell: Bell, terms: &ShmTerms) -> Self {
        let entries = own.geometry().ring_entries();
        let row = own.geometry().row();
        Self {
            // They are taken back when none of those is free that are used as a rule: each is used in its turn
            // anyway.
            slots: Loans::new(
                Arc::clone(own.mapping()),
                row,
                Reuse::quarter_in_turn(row.slots),
            )
            .stored(terms.tuning.stores)
            .limited(terms.ahead_bytes),
            publish: RingWriter::new(own.words(PUBLISH_AT, entries)),
            returned: RingReader::new(peer.words(RETURN_AT, entries)),
            armed: ArmedFlag::new(own.words(SENDER_ARMED_AT, 1)),
            receiver: ArmedWatch::new(peer.words(RECEIVER_ARMED_AT, 1)),
            bell,
            looks: 0,
            closed: false,
        }
    }

    /// Takes back all slots that the peer returned, and those that were lent and dropped.
    fn take_back(&mut self) -> Result<(), LaneError> {
        while let Some(Entry { slot, .. }) = self.returned.next().map(Entry::from_words) {
            if !self.slots.take_back(slot) {
                self.closed = true;
                return Err(violation(format!(
                    "it returns slot {slot}, which it does not have"
                )));
            }
        }
        self.slots.collect_unused();
        Ok(())
    }

    /// Hands a filled slot to the peer, and wakes it if it sleeps.
    fn pass_on(&mut self, entry: Entry) {
        self.publish.publish(entry.to_words());
        if self.receiver.must_wake() {
            self.bell.ring();
        }
    }

    /// Sends one unit, which is `pieces` one after the other, in a slot of its own, if one is free.
    #[inline(always)]
    fn send(&mut self, pieces: &[Piece<'_>]) -> Result<bool, LaneError> {
        if self.closed {
            return Err(LaneError::Closed);
        }
        let length = self.slots.row().length_of(pieces)?;
        if self.slots.is_short() {
            self.take_back()?;
        }
        let Some(slot) = self.slots.fill(pieces, length) else {
            return self.note_none_free().map(|()| false);
        };
        self.looks = 0;
        self.armed.disarm();
        self.pass_on(Entry { slot, length });
        Ok(true)
    }

    /// All slots are with the peer, or as much as may be: looks now and then whether it is there.
    fn note_none_free(&mut self) -> Result<(), LaneError> {
        self.looks += 1;
        if self.looks >= LOOKS_BETWEEN_CHECKS {
            self.check_peer()?;
        }
        Ok(())
    }

    fn check_peer(&mut self) -> Result<(), LaneError> {
        self.looks = 0;
        if !self.bell.silence() {
            self.closed = true;
        }
        if self.closed {
            Err(LaneError::Closed)
        } else {
            Ok(())
        }
    }
}

impl LaneSender for ShmSender {
    fn shape(&self) -> Shape {
        let row = self.slots.row();
        Shape::Static {
            slot_bytes: row.slot_bytes as usize,
            slots: row.slots as usize,
        }
    }

    fn only_stores(&self) -> bool {
        true
    }

    fn try_send(&mut self, _pieces: &[Piece<'_>]) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("a stream"))
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        if self.closed {
            return Err(LaneError::Closed);
        }
        if self.slots.is_short() {
            self.take_back()?;
        }
        if let Some(slot) = self.slots.lend() {
            self.looks = 0;
            self.armed.disarm();
            return Ok(Some(slot));
        }
        self.note_none_free().map(|()| None)
    }

    fn commit(&mut self, slot: LentSlot, length: usize) -> Result<(), LaneError> {
        if self.closed {
            return Err(LaneError::Closed);
        }
        let (slot, length) = self.slots.commit(slot, length)?;
        self.pass_on(Entry { slot, length });
        Ok(())
    }

    fn try_send_copy(&mut self, unit: &[u8]) -> Result<bool, LaneError> {
        // With one piece nothing is left of what goes through them.
        self.send(&[Piece::new(unit)])
    }

    fn try_send_gathered(&mut self, pieces: &[Piece<'_>]) -> Result<bool, LaneError> {
        self.send(pieces)
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        // Before arming: a ring that this takes in belongs to an earlier arming, or its
        // cause is found by the look below.
        self.check_peer()?;
        self.armed.arm();
        self.take_back()?;
        if self.slots.has_free() {
            self.armed.disarm();
            return Ok(false);
        }
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.bell.as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {
        // What it finds is told by the next call.
        let _ = self.check_peer();
        self.armed.disarm();
    }
}

impl Drop for ShmSender {
    fn drop(&mut self) {
        self.bell.close();
    }
}
