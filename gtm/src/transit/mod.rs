//! Every flow that crosses a gateway.
//!
//! [`Transit`] admits flows, lowers the credit that goes back through it to what this
//! gateway can promise, queues frames that cannot leave at once, and lets flows that share
//! a link take turns. It moves no bytes: frames are handles of the caller's type `B`.
//!
//! The order of calls, for one batch of frames received from a link:
//!
//! 1. per frame (or run of small frames of one flow): [`handle_opening`](Transit::handle_opening),
//!    [`handle_run`](Transit::handle_run) or [`handle_control`](Transit::handle_control); each
//!    answers which link has something to send now;
//! 2. per such link: [`poll_control`](Transit::poll_control) and
//!    [`poll_transmit`](Transit::poll_transmit), until there is nothing or the link takes no more;
//! 3. per departure that the link took: [`handle_departure`](Transit::handle_departure), which
//!    frees the promise and may make credit for the source.
//!
//! Consequences that hold in any topology: a gateway never has to stop reading, because
//! what arrives was promised a place; a flow whose destination stands still fills its own
//! promise and nobody else's; memory is bounded by the [`Budget`].

mod flow;
mod input;
mod link;
mod output;
mod pace;
mod parked;
#[cfg(test)]
mod tests;
mod ways;

use foldhash::HashMap;

use crate::budget::Budget;
use crate::time::{FORGET_AFTER, Time};
use crate::wire::{FlowKey, HEADER_BYTES, Header, Kind, Refusal};

use flow::{Flow, Queued};
pub use link::LinkId;
use link::{Link, Links};
pub use pace::{CATCH_UP, LinkLimits, Rate, Share, Waits};
use pace::{Group, RATES_OF_LINK};
pub use ways::Way;
use ways::Ways;

/// Which of a link's two lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Small frames.
    Urgent,
    /// The others.
    Bulk,
}

impl Lane {
    /// The one that this is not.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Urgent => Self::Bulk,
            Self::Bulk => Self::Urgent,
        }
    }
}

/// Data frames of one flow that arrived together, next to each other, and go on together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The flow.
    pub flow: FlowKey,
    /// Its label.
    pub label: u32,
    /// Position of the first frame.
    pub start: u64,
    /// Position behind the last.
    pub end: u64,
    /// Bytes on the wire, headers included.
    pub bytes: usize,
    /// Bytes of the largest frame, its header included.
    pub largest: usize,
    /// How many frames.
    pub frames: u32,
    /// The lane that they take.
    pub lane: Lane,
}

/// What became of something that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This link has something to send now.
    Send(LinkId),
    /// These two have.
    SendBoth([LinkId; 2]),
    /// Nothing to do: it was stale, or repeated what is known.
    Dropped,
}

/// How a flow passes through a gateway, as [`Transit::passage`] tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// The link that its frames leave by.
    pub to: LinkId,
    /// Charged bytes that its source may still send.
    pub promised: u64,
    /// Whether nothing of it may leave now, as it has used up its own rate.
    pub is_held: bool,
    /// Whether frames of it wait for the bulk lane.
    pub has_queued: bool,
}

/// Something that leaves; to be given back to [`Transit::handle_departure`].
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    flow: u32,
    /// Of the flow's admission.
    serial: u64,
    charge: u64,
    /// Bytes on the wire.
    pub bytes: usize,
    /// How many frames.
    pub frames: u32,
}

/// What a gateway has carried and carries. Counters only grow, but for `parked_flows`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data frames that left.
    pub frames: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Flows that were admitted.
    pub opened: u64,
    /// Openings that were refused for want of memory.
    pub refused: u64,
    /// Data frames dropped because they belonged to no opening in force.
    pub stale: u64,
    /// Control frames dropped because a link's queue of them was full.
    pub control_dropped: u64,
    /// How long flows had used up what they were promised, and a hop ahead had not promised
    /// more, in all, in nanoseconds. A flow counts when that has ended.
    pub parked_ahead_ns: u64,
    /// The same, where a hop ahead had promised more and this gateway had no memory for it.
    pub parked_memory_ns: u64,
    /// Flows that have used up what they were promised now.
    pub parked_flows: u32,
}

/// Every flow that crosses one gateway. See the [module](self) for the order of calls.
#[derive(Debug)]
pub struct Transit<B> {
    flows: Vec<Option<Flow<B>>>,
    vacant: Vec<u32>,
    by_key: HashMap<FlowKey, u32>,
    links: Links,
    /// Links that share a rate: of networks, and behind them those to neighbours.
    groups: Vec<Option<Group>>,
    networks: usize,
    /// What flows get, by channel.
    shares: Vec<Share>,
    budget: Budget,
    /// Of flows that have a rate and are forgotten, up to when what they sent is paid for; of as many as
    /// may be admitted.
    debts: HashMap<FlowKey, Time>,
    /// The flow of the last run: runs of one flow come together.
    last: Option<(FlowKey, u32)>,
    queued_bytes: u64,
    ways: Ways,
    counters: Counters,
}

impl<B> Transit<B> {
    /// Nothing yet; promises stay within `budget`.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self {
            flows: Vec::new(),
            vacant: Vec::new(),
            by_key: HashMap::default(),
            links: Links::new(),
            groups: Vec::new(),
            networks: 0,
            shares: Vec::new(),
            budget,
            debts: HashMap::default(),
            last: None,
            queued_bytes: 0,
            ways: Ways::default(),
            counters: Counters::default(),
        }
    }

    /// Gives flows the share of their channel: the default, where `shares` does not reach.
    #[must_use]
    pub fn with_shares(mut self, shares: Vec<Share>) -> Self {
        self.shares = shares;
        self
    }

    /// Limits the links of each network and those to each neighbour (see [`LinkLimits`]) to a rate,
    /// where it has one, and notes what waits between networks ([`way`](Self::way)).
    #[must_use]
    pub fn with_rates(mut self, networks: &[Option<Rate>], neighbours: &[Rate]) -> Self {
        debug_assert!(self.flows.is_empty(), "their ways would be forgotten");
        let neighbours = neighbours.iter().copied().map(Some);
        let rates = networks.iter().copied().chain(neighbours);
        self.groups = rates.map(|rate| rate.map(Group::new)).collect();
        self.networks = networks.len();
        self.ways = Ways::between(networks.len());
        self
    }

    // ---- links ----------------------------------------------------------------------

    /// A link is up.
    pub fn add_link(&mut self) -> LinkId {
        self.add_limited_link(LinkLimits::default())
    }

    /// A link is up that may only be so fast.
    pub fn add_limited_link(&mut self, limits: LinkLimits) -> LinkId {
        // Of each flow, the last that its destination said, and that it is gone.
        let control_limit = 2 * self.budget.flow_limit() as usize + link::SPARE_CONTROL_FRAMES;
        let neighbour = limits.neighbour.map(|at| self.networks + at);
        // Who waits for its neighbour's rate takes no turn in its network.
        let groups = [neighbour, limits.network].map(|group| {
            group.filter(|group| self.groups.get(*group).is_some_and(Option::is_some))
        });
        self.links
            .add(Link::new(control_limit, limits.network, groups))
    }

    /// A link is lost: its flows are forgotten, and the ends that are still reached are
    /// told. Frames that were queued for it are dropped (the source still has them).
    /// Returns the links that have something to send now.
    pub fn remove_link(&mut self, lost: LinkId) -> Vec<LinkId> {
        let mut told = Vec::new();
        if !self.links.remove(lost) {
            return told;
        }
        for group in self.groups.iter_mut().flatten() {
            told.extend(group.pass_turn(lost));
        }
        for index in 0..self.flows.len() {
            let Some(flow) = &self.flows[index] else {
                continue;
            };
            let (key, label, from, to) = (flow.key, flow.label, flow.from, flow.to);
            if to == lost {
                // What the destination has said before it left: it may have all there is.
                let last_word = flow.credit_pending.then(|| flow.credit());
                if let Some(credit) = last_word {
                    self.queue_control(from, &credit);
                }
                self.queue_control(from, &Header::refusal(key, label, Refusal::LinkLost, 0));
                told.push(from);
            } else if from == lost {
                self.queue_control(to, &Header::new(Kind::Lost, key, label));
                told.push(to);
            } else {
                continue;
            }
            self.forget(u32::try_from(index).unwrap_or(u32::MAX));
        }
        told.sort_unstable();
        told.dedup();
        told.retain(|link| self.links.contains(*link));
        told
    }

    // ---- time and state -----------------------------------------------------------------

    /// Forgets flows that have been silent for [`FORGET_AFTER`], and what those before have paid for. To be
    /// called every few seconds.
    pub fn handle_timeout(&mut self, now: Time) {
        self.debts.retain(|_, paid_until| *paid_until > now);
        for index in 0..self.flows.len() {
            if self.flows[index]
                .as_ref()
                .is_some_and(|flow| flow.is_idle() && now.since(flow.last_heard) > FORGET_AFTER)
            {
                self.forget(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
    }

    /// How frames of a flow that carry `label` and come from `from` pass through `now`; `None` when
    /// no such opening is in force.
    pub fn passage(
        &mut self,
        from: LinkId,
        flow: FlowKey,
        label: u32,
        now: Time,
    ) -> Option<Passage> {
        let index = self.find(flow)?;
        let flow = self.flow(index);
        let is_in_force = flow.label == label && flow.from == from;
        is_in_force.then(|| Passage {
            to: flow.to,
            promised: flow.granted - flow.received,
            is_held: flow.meter.opens_at(now).is_some(),
            has_queued: flow.has_queued_bulk(),
        })
    }

    /// Whether something waits for `lane` of `link` that its flow's rate lets leave.
    #[must_use]
    pub fn has_queued(&self, link: LinkId, lane: Lane) -> bool {
        self.links
            .at(link)
            .is_some_and(|waiting| !waiting.turns(lane).is_empty())
    }

    /// Whether something for `link` waits until its flow's rate allows more.
    #[must_use]
    pub fn has_held_back(&self, link: LinkId) -> bool {
        self.links
            .at(link)
            .is_some_and(|waiting| !waiting.held_back.is_empty())
    }

    /// Whether control frames wait for `link`.
    #[must_use]
    pub fn has_control(&self, link: LinkId) -> bool {
        self.links
            .at(link)
            .is_some_and(|waiting| !waiting.control.is_empty() || !waiting.credits.is_empty())
    }

    /// Looks at every queued frame, so that the caller can copy those whose memory it
    /// wants back.
    pub fn for_each_queued(&mut self, mut look: impl FnMut(&mut B)) {
        for flow in self.flows.iter_mut().flatten() {
            flow.for_each_queued(&mut look);
        }
    }

    /// Bytes of frames that are queued.
    #[must_use]
    pub const fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// What waits on the way from the links of one group to those of another.
    #[must_use]
    pub fn way(&self, from: usize, to: usize) -> Way {
        self.ways.at(from, to)
    }

    /// The memory behind this gateway's promises.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What was carried so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    // ---- inside -----------------------------------------------------------------------

    fn group(&mut self, at: Option<usize>) -> Option<&mut Group> {
        self.groups.get_mut(at?)?.as_mut()
    }

    fn find(&mut self, key: FlowKey) -> Option<u32> {
        if let Some((last, index)) = self.last
            && last == key
        {
            return Some(index);
        }
        let index = *self.by_key.get(&key)?;
        self.last = Some((key, index));
        Some(index)
    }

    fn flow(&self, index: u32) -> &Flow<B> {
        match &self.flows[index as usize] {
            Some(flow) => flow,
            None => unreachable!("the index of a flow that is forgotten was kept"),
        }
    }

    fn flow_mut(&mut self, index: u32) -> &mut Flow<B> {
        match &mut self.flows[index as usize] {
            Some(flow) => flow,
            None => unreachable!("the index of a flow that is forgotten was kept"),
        }
    }

    fn forget(&mut self, index: u32) {
        if let Some(flow) = &self.flows[index as usize] {
            // The time that it was parked is known up to when it was last heard of.
            self.end_parked(index, flow.last_heard);
        }
        let Some(mut flow) = self.flows[index as usize].take() else {
            return;
        };
        let way = flow.way;
        flow.for_each_bytes(|bytes| {
            self.queued_bytes -= bytes as u64;
            self.ways.unqueue(way, bytes);
        });
        self.budget.release(flow.outstanding());
        self.by_key.remove(&flow.key);
        self.last = None;
        if let Some(debt) = flow.meter.debt()
            && self.debts.len() < self.budget.flow_limit() as usize
        {
            self.debts.insert(flow.key, debt);
        }
        // Its turns at the link would be taken for those of the next flow with this index.
        if flow.has_turns()
            && let Some(link) = self.links.at_mut(flow.to)
        {
            link.forget_turns(index);
        }
        if flow.credit_pending
            && let Some(link) = self.links.at_mut(flow.from)
        {
            link.credits.retain(|waiting| *waiting != index);
        }
        self.vacant.push(index);
    }

    fn queue_control(&mut self, to: LinkId, header: &Header) {
        let Some(link) = self.links.at_mut(to) else {
            return;
        };
        if link.control.len() == link.control_limit {
            self.counters.control_dropped += 1;
            return;
        }
        let frame: [u8; HEADER_BYTES] = header.to_control_frame();
        link.control.push_back(frame);
    }
}
