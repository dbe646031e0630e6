//! What parties ask of the conductor, until its thread looks.

use std::collections::HashMap;

use madgate_tm::Waker;
use parking_lot::Mutex;

use super::dials::DialKey;
use crate::cluster::NodeId;

/// The door to the conductor's thread: never blocks for longer than a few instructions.
#[derive(Debug)]
pub(super) struct Door {
    orders: Mutex<Orders>,
    waker: Waker,
}

/// What was asked since the thread looked last. Each part is bounded by what the parties have:
/// links that they may want, links that they had, nodes that were challenged.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Whether to dial, or to stop; only the last word counts.
    pub(super) dials: HashMap<DialKey, bool>,
    pub(super) closed: Vec<u64>,
    pub(super) answered: Vec<(NodeId, u64)>,
    /// Take no more connections.
    pub(super) stop_accepting: bool,
    /// End.
    pub(super) stop: bool,
}

impl Door {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            orders: Mutex::default(),
            waker,
        }
    }

    /// Adds to the orders and wakes the thread.
    pub(super) fn order(&self, give: impl FnOnce(&mut Orders)) {
        give(&mut self.orders.lock());
        self.waker.wake();
    }

    pub(super) fn take(&self) -> Orders {
        std::mem::take(&mut self.orders.lock())
    }
}
