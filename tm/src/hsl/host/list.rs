//! The half of the card that receives: a list in this side's memory, which the other side's card
//! writes.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::credit::Head;
use super::{ListPlace, Mode};
use crate::hsl::counters::Tally;
use crate::hsl::put::{Lending, NodeNumber, PutError, Received, Receiving};
use crate::hsl::received::ReceivedList;
use crate::local::armed::ArmedFlag;
use crate::local::bell::Bell;
use crate::local::memory::{Mapping, OwnWords};
use crate::poller::Interest;

/// A list of received messages.
#[derive(Debug)]
pub struct HostList {
    mode: Mode,
    list: ReceivedList,
    head: Head<OwnWords>,
    armed: ArmedFlag<OwnWords>,
    bell: Arc<Bell>,
    tally: Arc<Tally>,
}

impl HostList {
    /// The list at `place` of `own`, which `peer` writes.
    pub(crate) fn new(
        own: &Arc<Mapping>,
        place: ListPlace,
        peer: NodeNumber,
        mode: Mode,
        bell: Arc<Bell>,
    ) -> Self {
        Self {
            mode,
            head: Head::new(own.words(place.head_at, 1)),
            armed: ArmedFlag::new(own.words(place.armed_at, 1)),
            list: ReceivedList::new(own, place, peer),
            bell,
            tally: Tally::new(),
        }
    }
}

impl Receiving for HostList {
    #[inline(always)]
    fn next_received(&mut self) -> Result<Option<Received>, PutError> {
        let head = &self.head;
        self.list.next(|read| head.tell(read))
    }

    fn keep_out_of(&mut self, slots: Arc<dyn Lending>) {
        self.list.keep_out_of(slots);
    }

    fn has_next(&mut self) -> bool {
        self.list.has_next()
    }

    fn may_have_next(&self) -> bool {
        self.list.has_next()
    }

    fn arm(&mut self) -> bool {
        if self.mode == Mode::Polling {
            return false;
        }
        self.armed.arm();
        if self.has_next() {
            self.armed.disarm();
            return false;
        }
        true
    }

    fn disarm(&mut self) {
        self.armed.disarm();
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.bell.as_fd(), Interest::Readable)
    }

    fn acknowledge(&mut self) -> bool {
        self.tally.interrupts.add(1);
        self.bell.silence()
    }

    fn is_peer_there(&mut self) -> bool {
        self.bell.silence()
    }

    fn close(&mut self) {
        self.bell.close();
    }
}
