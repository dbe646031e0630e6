//! How the peer's slots go back to it.

use super::entry::Entry;
use crate::local::armed::ArmedWatch;
use crate::local::arrivals::GoesBack;
use crate::local::bell::Bell;
use crate::local::memory::{OwnWords, PeerWords};
use crate::local::ring::SharedRingWriter;

/// The return ring, and what wakes a sender that waits for a slot.
#[derive(Debug)]
pub(super) struct Returns {
    ring: SharedRingWriter<OwnWords, 1>,
    sender: ArmedWatch<PeerWords>,
    bell: Bell,
}

impl Returns {
    pub(super) fn new(
        ring: SharedRingWriter<OwnWords, 1>,
        sender: ArmedWatch<PeerWords>,
        bell: Bell,
    ) -> Self {
        Self { ring, sender, bell }
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }
}

impl Returns {
    /// Returns all of these, and wakes the peer for them once if it sleeps.
    pub(super) fn give_all_back(&self, slots: impl Iterator<Item = u32>) {
        for slot in slots {
            self.ring.publish(Entry { slot, length: 0 }.to_words());
        }
        if self.sender.must_wake() {
            self.bell.ring();
        }
    }
}

impl GoesBack for Returns {
    fn give_back(&self, slot: u32) {
        self.give_all_back([slot].into_iter());
    }
}
