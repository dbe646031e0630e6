//! An endpoint in the hands of a test: there is no library, and what becomes of each write is what
//! the test says.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::domain::Facts;
use super::posting::{BATCH, Completion, Origin, Posted, Posting, Target};
use crate::local::memory::Mapping;

/// An endpoint, and the test's hand on it.
#[derive(Debug, Clone)]
pub(super) struct Simulated {
    facts: Arc<Facts>,
    source: Arc<Mapping>,
    network: Arc<Mutex<Network>>,
}

/// What is on its way.
#[derive(Debug)]
pub(super) struct Network {
    /// What becomes of whatever is posted.
    pub(super) answer: Posted,
    /// Places of operations that go on.
    pub(super) going_on: VecDeque<usize>,
    /// Receives that are posted again.
    pub(super) receives: Vec<usize>,
    pub(super) completions: VecDeque<Result<Completion, i32>>,
    pub(super) written: VecDeque<Written>,
}

/// A write that was posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) to: Target,
    pub(super) length: usize,
    pub(super) notice: Option<u32>,
}

impl Simulated {
    /// Sends from `source`.
    pub(super) fn new(facts: Facts, source: Arc<Mapping>) -> Self {
        Self {
            facts: Arc::new(facts),
            source,
            network: Arc::new(Mutex::new(Network {
                answer: Posted::Yes,
                going_on: VecDeque::new(),
                receives: Vec::new(),
                completions: VecDeque::new(),
                written: VecDeque::new(),
            })),
        }
    }

    pub(super) fn network(&self) -> MutexGuard<'_, Network> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes operation number `which` of those that go on; `false` when there is none.
    pub(super) fn complete(&self, which: usize) -> bool {
        let mut network = self.network();
        let count = network.going_on.len().max(1);
        let Some(place) = network.going_on.remove(which % count) else {
            return false;
        };
        network.completions.push_back(Ok(Completion {
            place: Some(place),
            notice: None,
        }));
        true
    }
}

impl Network {
    fn post(&mut self, place: Option<usize>, written: Written) -> Posted {
        if self.answer == Posted::Yes {
            self.written.push_back(written);
            if let Some(place) = place {
                assert!(!self.going_on.contains(&place), "{place} is used twice");
                self.going_on.push_back(place);
            }
        }
        self.answer
    }
}

impl Posting for Simulated {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn source(&self) -> &Arc<Mapping> {
        &self.source
    }

    fn write(
        &self,
        place: usize,
        (from, length): (&Origin, usize),
        to: Target,
        notice: Option<u32>,
        delivered: bool,
    ) -> Posted {
        // What is not there panics.
        match from {
            Origin::Source(offset) => _ = self.source.range(*offset, length),
            Origin::Lent(lent, offset) => _ = lent.range(*offset, length),
        }
        let mut network = self.network();
        let is_ordered = self.facts.ordered_bytes > 0;
        assert!(is_ordered != delivered, "nobody waits for this in vain");
        if !is_ordered && notice.is_some() {
            let before = &network.going_on;
            assert!(before.is_empty(), "it is told of before it is there");
        }
        let written = Written { to, length, notice };
        network.post(Some(place), written)
    }

    fn inject(&self, bytes: &[u8], to: Target, notice: Option<u32>) -> Posted {
        assert!(bytes.len() <= self.facts.inject_bytes);
        let length = bytes.len();
        self.network().post(None, Written { to, length, notice })
    }

    fn post_receive(&self, place: usize) -> Posted {
        let mut network = self.network();
        if network.answer == Posted::Yes {
            network.receives.push(place);
        }
        network.answer
    }

    fn read(&self, into: &mut [Completion; BATCH]) -> Result<usize, i32> {
        let mut network = self.network();
        let mut count = 0;
        for place in into {
            match network.completions.pop_front() {
                Some(Ok(completion)) => *place = completion,
                // What came before is told first.
                Some(Err(error)) if count > 0 => {
                    network.completions.push_front(Err(error));
                    break;
                }
                Some(Err(error)) => return Err(error),
                None => break,
            }
            count += 1;
        }
        Ok(count)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn may_wait(&self) -> bool {
        self.network().completions.is_empty()
    }
}
