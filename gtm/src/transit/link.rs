//! The links of a gateway, and what waits for each of them.

use std::collections::VecDeque;

use super::Lane;
use super::pace::{HeldBack, LINK_QUANTUM_BYTES, RATES_OF_LINK};
use crate::time::Time;
use crate::wire::{FlowKey, HEADER_BYTES};

/// Bytes that a flow may send in one turn: a default fragment with its header.
pub(super) const QUANTUM_BYTES: usize = (64 << 10) + 64;

/// Control frames that wait for a link at most, besides one for every flow that a gateway
/// can have. What is beyond is dropped: sources ask again.
pub(super) const SPARE_CONTROL_FRAMES: usize = 1024;

/// A link of a gateway, as [`Transit::add_link`](super::Transit::add_link) numbered it. It
/// never stands for another one, even when this one is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId {
    index: u32,
    serial: u64,
}

/// The links that are up.
#[derive(Debug)]
pub(super) struct Links {
    slots: Vec<Option<(u64, Link)>>,
    vacant: Vec<u32>,
    next_serial: u64,
}

impl Links {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            next_serial: 0,
        }
    }

    pub(super) fn add(&mut self, link: Link) -> LinkId {
        let serial = self.next_serial;
        self.next_serial += 1;
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // A process has far fewer descriptors than 32 bits count.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.slots[index as usize] = Some((serial, link));
        LinkId { index, serial }
    }

    /// Forgets a link; `false` if that was done before.
    pub(super) fn remove(&mut self, id: LinkId) -> bool {
        let is_up = self.contains(id);
        if is_up {
            self.slots[id.index as usize] = None;
            self.vacant.push(id.index);
        }
        is_up
    }

    pub(super) fn contains(&self, id: LinkId) -> bool {
        self.at(id).is_some()
    }

    pub(super) fn at(&self, id: LinkId) -> Option<&Link> {
        match self.slots.get(id.index as usize) {
            Some(Some((serial, link))) if *serial == id.serial => Some(link),
            _ => None,
        }
    }

    pub(super) fn at_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        match self.slots.get_mut(id.index as usize) {
            Some(Some((serial, link))) if *serial == id.serial => Some(link),
            _ => None,
        }
    }
}

/// A flow that has its turn at a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) flow: u32,
    pub(super) weight: u32,
}

/// Flows that have something for one lane, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    order: VecDeque<Turn>,
    /// Of all of them.
    weight: u64,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whose turn it is.
    pub(super) fn first(&self) -> Option<u32> {
        self.order.front().map(|turn| turn.flow)
    }

    pub(super) const fn weight(&self) -> u64 {
        self.weight
    }

    pub(super) fn push(&mut self, turn: Turn) {
        self.weight += u64::from(turn.weight);
        self.order.push_back(turn);
    }

    /// The first one has had its turn.
    pub(super) fn take_first(&mut self) {
        if let Some(turn) = self.order.pop_front() {
            self.weight -= u64::from(turn.weight);
        }
    }

    fn forget(&mut self, flow: u32) {
        self.order.retain(|turn| turn.flow != flow);
        self.weight = self.order.iter().map(|turn| u64::from(turn.weight)).sum();
    }
}

/// How much each lane of a link has sent, in 256ths of a byte for each flow of weight 1 that waited.
#[derive(Debug, Default)]
struct LanesSent {
    urgent: u64,
    bulk: u64,
}

impl LanesSent {
    /// Whoever has nothing to send saves nothing up.
    fn rest(&mut self, urgent: bool, bulk: bool) {
        if urgent {
            self.urgent = self.urgent.max(self.bulk);
        }
        if bulk {
            self.bulk = self.bulk.max(self.urgent);
        }
    }

    /// The one that has sent less first; what is small where there is no difference.
    const fn order(&self) -> [Lane; 2] {
        if self.bulk < self.urgent {
            [Lane::Bulk, Lane::Urgent]
        } else {
            [Lane::Urgent, Lane::Bulk]
        }
    }

    fn note(&mut self, lane: Lane, bytes: usize, weight: u64) {
        let sent = match lane {
            Lane::Urgent => &mut self.urgent,
            Lane::Bulk => &mut self.bulk,
        };
        let more = ((bytes as u64) << 8) / weight.max(1);
        *sent += more;
        // Who cannot send, as its connection takes nothing, saves no more up than a turn.
        let turn = more.max((LINK_QUANTUM_BYTES as u64) << 8);
        let least = sent.saturating_sub(turn);
        self.urgent = self.urgent.max(least);
        self.bulk = self.bulk.max(least);
        // Their difference is what counts.
        let both = self.urgent.min(self.bulk);
        self.urgent -= both;
        self.bulk -= both;
    }
}

/// What waits for one link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) control: VecDeque<[u8; HEADER_BYTES]>,
    pub(super) control_limit: usize,
    /// Flows whose newest credit waits to go back on this link; each stands here once.
    pub(super) credits: VecDeque<u32>,
    /// The flow whose frames were last found to be unknown.
    pub(super) last_stray: Option<(FlowKey, u32)>,
    urgent_turns: Turns,
    bulk_turns: Turns,
    /// What each lane has sent, by the weight of the flows that wait for it.
    sent: LanesSent,
    /// The network that it is of.
    pub(super) network: Option<usize>,
    /// The groups that it shares a rate with.
    pub(super) groups: [Option<usize>; RATES_OF_LINK],
    /// Flows with something for it that must not send now.
    pub(super) held_back: HeldBack,
    /// When something has left over it.
    pub(super) last_departure: Time,
}

impl Link {
    pub(super) fn new(
        control_limit: usize,
        network: Option<usize>,
        groups: [Option<usize>; RATES_OF_LINK],
    ) -> Self {
        Self {
            control: VecDeque::new(),
            control_limit,
            credits: VecDeque::new(),
            last_stray: None,
            urgent_turns: Turns::default(),
            bulk_turns: Turns::default(),
            sent: LanesSent::default(),
            network,
            groups,
            held_back: HeldBack::default(),
            last_departure: Time(0),
        }
    }

    /// The flows that have something for `lane`, in the order of their turns.
    pub(super) const fn turns(&self, lane: Lane) -> &Turns {
        match lane {
            Lane::Urgent => &self.urgent_turns,
            Lane::Bulk => &self.bulk_turns,
        }
    }

    /// See [`turns`](Self::turns).
    pub(super) const fn turns_mut(&mut self, lane: Lane) -> &mut Turns {
        match lane {
            Lane::Urgent => &mut self.urgent_turns,
            Lane::Bulk => &mut self.bulk_turns,
        }
    }

    /// Which lane is next where a rate says how much may leave: the one that has sent less for each
    /// flow.
    pub(super) fn lane_order(&mut self) -> [Lane; 2] {
        let [urgent, bulk] = [Lane::Urgent, Lane::Bulk].map(|lane| self.turns(lane).is_empty());
        self.sent.rest(urgent, bulk);
        self.sent.order()
    }

    /// `bytes` have left by a lane where flows of this weight in all waited.
    pub(super) fn note_sent(&mut self, lane: Lane, bytes: usize, weight: u64) {
        self.sent.note(lane, bytes, weight);
    }

    /// Flows that may send again take their turns.
    pub(super) fn release_due(&mut self, now: Time) {
        while let Some((turn, lane)) = self.held_back.pop_due(now) {
            self.turns_mut(lane).push(turn);
        }
    }

    pub(super) fn forget_turns(&mut self, flow: u32) {
        self.urgent_turns.forget(flow);
        self.bulk_turns.forget(flow);
        self.held_back.forget(flow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: usize = LINK_QUANTUM_BYTES;

    #[test]
    fn a_lane_whose_connection_took_nothing_makes_up_for_one_turn() {
        for (open, blocked) in [(Lane::Urgent, Lane::Bulk), (Lane::Bulk, Lane::Urgent)] {
            let mut sent = LanesSent::default();
            for _ in 0..1000 {
                sent.note(open, TURN / 4, 1);
            }
            assert_eq!(sent.order(), [blocked, open]);
            sent.note(blocked, TURN + 1, 1);
            assert_eq!(sent.order(), [open, blocked]);
        }
    }

    #[test]
    fn a_frame_that_is_longer_than_a_turn_is_made_up_for() {
        let mut sent = LanesSent::default();
        sent.note(Lane::Bulk, 4 * TURN, 1);
        for _ in 0..4 {
            assert_eq!(sent.order(), [Lane::Urgent, Lane::Bulk]);
            sent.note(Lane::Urgent, TURN, 1);
        }
        sent.note(Lane::Urgent, 1, 1);
        assert_eq!(sent.order(), [Lane::Bulk, Lane::Urgent]);
    }
}
