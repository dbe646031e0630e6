//! The way of events to a party.

use std::collections::VecDeque;
use std::fmt;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::limits::EVENTS_MOST;
use super::link::{LinkEvent, Party, WakeParty};

/// Events for one party: a bounded queue, and what did not fit.
pub(super) struct Outlet {
    pub(super) party: Party,
    queue: Sender<LinkEvent>,
    wake: WakeParty,
    /// Bounded by what was under way when the queue filled up, as nothing new begins then.
    backlog: VecDeque<LinkEvent>,
}

impl Outlet {
    pub(super) fn new(party: Party, wake: WakeParty) -> (Self, Receiver<LinkEvent>) {
        let (queue, receiver) = bounded(EVENTS_MOST);
        let backlog = VecDeque::new();
        let outlet = Self {
            party,
            queue,
            wake,
            backlog,
        };
        (outlet, receiver)
    }

    /// Queues an event, after those that wait.
    pub(super) fn push(&mut self, event: LinkEvent) {
        self.backlog.push_back(event);
    }

    /// Whether events wait for the party to take some.
    pub(super) fn is_clogged(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Gives the party what its queue takes. Calls `lost` with each event that nobody will
    /// ever take.
    pub(super) fn flush(&mut self, mut lost: impl FnMut(LinkEvent)) {
        let mut has_news = false;
        while let Some(event) = self.backlog.pop_front() {
            match self.queue.try_send(event) {
                Ok(()) => has_news = true,
                Err(TrySendError::Full(event)) => {
                    self.backlog.push_front(event);
                    break;
                }
                Err(TrySendError::Disconnected(event)) => lost(event),
            }
        }
        if has_news {
            (self.wake)();
        }
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet")
            .field("party", &self.party)
            .field("backlog", &self.backlog.len())
            .finish_non_exhaustive()
    }
}
