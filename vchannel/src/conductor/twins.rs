//! The two lanes of a link, until both are there.

use std::collections::HashMap;
use std::time::Instant;

use madgate_tm::{Lane, LaneClass};

use super::link::LinkRequest;

/// Up to one lane of each class.
#[derive(Debug, Default)]
pub(super) struct Twins {
    urgent: Option<Lane>,
    bulk: Option<Lane>,
}

impl Twins {
    /// Adds a lane, in place of one of its class; both, when both are there.
    pub(super) fn add(&mut self, class: LaneClass, lane: Lane) -> Option<(Lane, Lane)> {
        match class {
            LaneClass::Urgent => self.urgent = Some(lane),
            LaneClass::Bulk => self.bulk = Some(lane),
        }
        match (self.urgent.take(), self.bulk.take()) {
            (Some(urgent), Some(bulk)) => Some((urgent, bulk)),
            (urgent, bulk) => {
                *self = Self { urgent, bulk };
                None
            }
        }
    }
}

/// Which link an accepted lane belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PairKey {
    pub(super) request: LinkRequest,
    pub(super) incarnation: u64,
    /// The number that the peer gave it.
    pub(super) link: u64,
}

/// Accepted lanes that wait for their twins.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    waiting: HashMap<PairKey, (Twins, Instant)>,
}

impl Pairs {
    /// Adds a lane, which waits until `until`; both, when both are there.
    pub(super) fn add(
        &mut self,
        key: PairKey,
        class: LaneClass,
        lane: Lane,
        until: Instant,
    ) -> Option<(Lane, Lane)> {
        let (twins, _) = self
            .waiting
            .entry(key)
            .or_insert_with(|| (Twins::default(), until));
        let pair = twins.add(class, lane)?;
        self.waiting.remove(&key);
        Some(pair)
    }

    /// Drops the lanes that have waited long enough; returns how many.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|_, (_, until)| *until > now);
        before - self.waiting.len()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|(_, until)| *until).min()
    }
}
