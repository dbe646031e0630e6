//! The half of a shared-memory lane that receives: finds what the peer published, and
//! returns slots from whatever thread drops them.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bytes::BytesMut;

use super::entry::Entry;
use super::layout::{PUBLISH_AT, RECEIVER_ARMED_AT, RETURN_AT, SENDER_ARMED_AT};
use super::memory::{OwnMemory, PeerMemory};
use super::returns::Returns;
use super::violation;
use crate::lane::{LaneError, LaneReceiver, ReceivedSlot, Shape};
use crate::local::LOOKS_BETWEEN_CHECKS;
use crate::local::armed::{ArmedFlag, ArmedWatch};
use crate::local::arrivals::Arrivals;
use crate::local::bell::Bell;
use crate::local::memory::{OwnWords, PeerWords};
use crate::local::ring::{RingReader, SharedRingWriter};
use crate::local::untold::Untold;
use crate::poller::Interest;

#[derive(Debug)]
pub(super) struct ShmReceiver {
    slots: Arc<Arrivals<Returns>>,
    published: RingReader<PeerWords, 1>,
    armed: ArmedFlag<OwnWords>,
    /// Slots that were read and have not been returned.
    untold: Untold<u32>,
    /// The slot that is likely to come next, if it is worth fetching.
    likely: Option<u32>,
    /// Calls that found nothing since the peer was last known to be there.
    looks: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The peer is there, as far as is known.
    Open,
    /// It is gone; what it published may still be there.
    Ended,
    /// It published something impossible; nothing after that counts.
    Violated,
}

impl ShmReceiver {
    pub(super) fn new(own: &OwnMemory, peer: &PeerMemory, bell: Bell) -> Self {
        let entries = peer.geometry().ring_entries();
        Self {
            slots: Arc::new(Arrivals::new(
                Arc::clone(peer.mapping()),
                peer.geometry().row(),
                Returns::new(
                    SharedRingWriter::new(own.words(RETURN_AT, entries)),
                    ArmedWatch::new(peer.words(SENDER_ARMED_AT, 1)),
                    bell,
                ),
            )),
            published: RingReader::new(peer.words(PUBLISH_AT, entries)),
            armed: ArmedFlag::new(own.words(RECEIVER_ARMED_AT, 1)),
            untold: Untold::new(peer.geometry().slots()),
            likely: None,
            looks: 0,
            state: State::Open,
        }
    }

    /// What `take` makes of the next published slot, or says is wrong with it.
    fn take<R>(
        &mut self,
        take: impl FnOnce(&Arc<Arrivals<Returns>>, u32, u32) -> Result<R, &'static str>,
    ) -> Result<Option<R>, LaneError> {
        if self.state == State::Violated {
            return Err(LaneError::Closed);
        }
        let Some(entry) = self.published.next().map(Entry::from_words) else {
            return Ok(None);
        };
        self.looks = 0;
        self.armed.disarm();
        let Entry { slot, length } = entry;
        self.likely = self.slots.likely_after(slot, length);
        take(&self.slots, slot, length).map(Some).map_err(|what| {
            self.state = State::Violated;
            violation(format!(
                "it publishes {length} bytes in slot {slot}: {what}"
            ))
        })
    }

    /// Returns the slots that were read.
    fn tell(&mut self) {
        if !self.untold.is_empty() {
            self.slots.back().give_all_back(self.untold.take());
        }
    }

    /// Nothing is published now. Returns whether the peer is there, as far as is known: it is
    /// looked for now and then.
    fn is_peer_there(&mut self) -> bool {
        self.looks += 1;
        if self.looks >= LOOKS_BETWEEN_CHECKS {
            self.check_peer();
        }
        self.state == State::Open
    }

    fn check_peer(&mut self) {
        self.looks = 0;
        if self.state == State::Open && !self.slots.back().bell().silence() {
            self.state = State::Ended;
        }
    }
}

impl LaneReceiver for ShmReceiver {
    fn shape(&self) -> Shape {
        let row = self.slots.row();
        Shape::Static {
            slot_bytes: row.slot_bytes as usize,
            slots: row.slots as usize,
        }
    }

    fn try_receive(
        &mut self,
        _straight: &mut [u8],
        _batch: &mut BytesMut,
    ) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("a stream"))
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        self.tell();
        if let Some(slot) = self.take(Arrivals::receive)? {
            return Ok(Some(slot));
        }
        if self.is_peer_there() {
            return Ok(None);
        }
        // It may have published before it went, after the look above.
        let last = self.take(Arrivals::receive)?;
        last.map(Some).ok_or(LaneError::Closed)
    }

    fn try_receive_copy(&mut self, into: &mut BytesMut) -> Result<Option<usize>, LaneError> {
        let mut copy = |slots: &Arc<Arrivals<Returns>>, slot, length| {
            Ok((slots.copy(slot, length, into)?, slot))
        };
        let mut copied = self.take(&mut copy)?;
        if copied.is_none() {
            if self.looks > 0 {
                self.tell();
            }
            if self.is_peer_there() {
                return Ok(None);
            }
            copied = self.take(copy)?;
        }
        let (bytes, slot) = copied.ok_or(LaneError::Closed)?;
        if self.untold.add(slot) {
            self.tell();
        }
        Ok(Some(bytes))
    }

    fn may_have_arrived(&self) -> bool {
        if let Some(slot) = self.likely {
            self.slots.fetch(slot);
        }
        self.published.has_next()
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        // Before arming: a ring that this takes in belongs to an earlier arming, or its
        // cause is found by the look below.
        self.check_peer();
        self.tell();
        self.armed.arm();
        if self.published.has_next() && self.state != State::Violated {
            self.armed.disarm();
            return Ok(false);
        }
        if self.state == State::Open {
            Ok(true)
        } else {
            Err(LaneError::Closed)
        }
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.slots.back().bell().as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {
        self.check_peer();
        self.armed.disarm();
    }
}

impl Drop for ShmReceiver {
    fn drop(&mut self) {
        self.slots.back().bell().close();
    }
}
