//! Slots that the peer publishes: found in its ring, and returned from whatever thread drops them.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bytes::BytesMut;

use super::entry::Entry;
use super::layout::{PUBLISH_AT, RECEIVER_ARMED_AT, RETURN_AT, SENDER_ARMED_AT};
use super::memory::{OwnMemory, PeerMemory};
use super::returns::Returns;
use super::violation;
use crate::lane::{LaneError, ReceivedSlot};
use crate::local::armed::{ArmedFlag, ArmedWatch};
use crate::local::arrivals::Arrivals;
use crate::local::bell::Bell;
use crate::local::memory::{OwnWords, PeerWords};
use crate::local::receiver::{FilledSlots, SlotReceiver};
use crate::local::ring::{RingReader, SharedRingWriter};
use crate::local::untold::Untold;
use crate::poller::Interest;

/// The half of a shared-memory lane that receives.
pub(super) type ShmReceiver = SlotReceiver<PublishedSlots>;

/// The receiving half of a lane between these.
pub(super) fn receiver(own: &OwnMemory, peer: &PeerMemory, bell: Bell) -> ShmReceiver {
    SlotReceiver::new(PublishedSlots::new(own, peer, bell))
}

#[derive(Debug)]
pub(super) struct PublishedSlots {
    slots: Arc<Arrivals<Returns>>,
    published: RingReader<PeerWords, 1>,
    armed: ArmedFlag<OwnWords>,
    /// The slot that is likely to come next, if it is worth fetching.
    likely: Option<u32>,
}

impl PublishedSlots {
    fn new(own: &OwnMemory, peer: &PeerMemory, bell: Bell) -> Self {
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
            likely: None,
        }
    }

    /// The next published slot.
    #[inline(always)]
    fn next(&mut self) -> Option<Entry> {
        let entry = self.published.next().map(Entry::from_words)?;
        self.armed.disarm();
        self.likely = self.slots.likely_after(entry.slot, entry.length);
        Some(entry)
    }

    fn bell(&self) -> &Bell {
        self.slots.back().bell()
    }
}

/// What is wrong with a slot that was published.
#[cold]
fn violates(slot: u32, length: u32, what: &str) -> LaneError {
    violation(format!(
        "it publishes {length} bytes in slot {slot}: {what}"
    ))
}

impl FilledSlots for PublishedSlots {
    type Read = u32;

    fn count(&self) -> u32 {
        self.slots.row().slots
    }

    fn slot_bytes(&self) -> u32 {
        self.slots.row().slot_bytes
    }

    fn receive(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        let Some(Entry { slot, length }) = self.next() else {
            return Ok(None);
        };
        let received = self.slots.receive(slot, length);
        received
            .map(Some)
            .map_err(|what| violates(slot, length, what))
    }

    // For every frame, from one place: a call and what it returns are a tenth of it.
    #[inline(always)]
    fn copy(
        &mut self,
        into: &mut BytesMut,
        read: &mut Untold<u32>,
    ) -> Result<Option<usize>, LaneError> {
        let Some(Entry { slot, length }) = self.next() else {
            return Ok(None);
        };
        let copied = self.slots.copy(slot, length, into);
        let bytes = copied.map_err(|what| violates(slot, length, what))?;
        read.add(slot);
        Ok(Some(bytes))
    }

    fn give_back(&mut self, read: impl Iterator<Item = u32>) {
        self.slots.back().give_all_back(read);
    }

    fn may_have_next(&self) -> bool {
        if let Some(slot) = self.likely {
            self.slots.fetch(slot);
        }
        self.published.has_next()
    }

    fn has_next(&mut self) -> bool {
        self.published.has_next()
    }

    fn arm(&mut self) -> bool {
        self.armed.arm();
        true
    }

    fn disarm(&mut self) {
        self.armed.disarm();
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.bell().as_fd(), Interest::Readable)
    }

    fn acknowledge(&mut self) -> bool {
        self.bell().silence()
    }

    fn is_peer_there(&mut self) -> bool {
        self.bell().silence()
    }

    fn close(&mut self) {
        self.bell().close();
    }
}
