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
mod link;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use crate::budget::Budget;
use crate::reassembly::Violation;
use crate::time::Time;
use crate::wire::{FlowKey, HEADER_BYTES, Header, Kind, Opening, Refusal};

use flow::Flow;
pub use flow::Queued;
use link::Link;

/// A flow without traffic for this long is forgotten, its source having vanished.
pub const FORGET_AFTER: Duration = Duration::from_secs(60);

/// A link of this gateway, as [`Transit::add_link`] numbered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(u32);

/// Which of a link's two lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Small frames.
    Urgent,
    /// The others.
    Bulk,
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
    /// Nothing to do: it was stale, or repeated what is known.
    Dropped,
}

/// Something that leaves; to be given back to [`Transit::handle_departure`].
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    flow: u32,
    label: u32,
    charge: u64,
    /// Bytes on the wire.
    pub bytes: usize,
    /// How many frames.
    pub frames: u32,
}

/// What a gateway has carried and carries; all counters only grow.
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
}

/// Every flow that crosses one gateway. See the [module](self) for the order of calls.
#[derive(Debug)]
pub struct Transit<B> {
    flows: Vec<Option<Flow<B>>>,
    vacant: Vec<u32>,
    by_key: HashMap<FlowKey, u32>,
    links: Vec<Option<Link>>,
    vacant_links: Vec<u32>,
    budget: Budget,
    /// The flow of the last run: runs of one flow come together.
    last: Option<(FlowKey, u32)>,
    queued_bytes: u64,
    counters: Counters,
}

impl<B> Transit<B> {
    /// Nothing yet; promises stay within `budget`.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self {
            flows: Vec::new(),
            vacant: Vec::new(),
            by_key: HashMap::new(),
            links: Vec::new(),
            vacant_links: Vec::new(),
            budget,
            last: None,
            queued_bytes: 0,
            counters: Counters::default(),
        }
    }

    // ---- links ----------------------------------------------------------------------

    /// A link is up.
    pub fn add_link(&mut self) -> LinkId {
        let limit = self.budget.flow_limit() as usize + link::SPARE_CONTROL_FRAMES;
        let link = Some(Link::new(limit));
        if let Some(index) = self.vacant_links.pop() {
            self.links[index as usize] = link;
            return LinkId(index);
        }
        self.links.push(link);
        // A process has far fewer descriptors than 32 bits count.
        LinkId(u32::try_from(self.links.len() - 1).unwrap_or(u32::MAX))
    }

    /// A link is lost: its flows are forgotten, and the ends that are still reached are
    /// told. Frames that were queued for it are dropped (the source still has them).
    /// Returns the links that have something to send now.
    pub fn remove_link(&mut self, lost: LinkId) -> Vec<LinkId> {
        self.links[lost.0 as usize] = None;
        self.vacant_links.push(lost.0);
        let mut told = Vec::new();
        for index in 0..self.flows.len() {
            let Some(flow) = &self.flows[index] else {
                continue;
            };
            let (key, label, from, to) = (flow.key, flow.label, flow.from, flow.to);
            if to == lost {
                self.queue_control(from, &Header::refusal(key, label, Refusal::LinkDown, 0));
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
        told.retain(|link| self.links[link.0 as usize].is_some());
        told
    }

    // ---- input from links -------------------------------------------------------------

    /// A frame that opens a flow arrived from `from`. `to` is where the flow's route leads,
    /// or why it leads nowhere now; `frame` is the whole frame.
    ///
    /// # Errors
    /// When the source breaks its promise; the link is to be closed.
    pub fn handle_opening(
        &mut self,
        from: LinkId,
        header: &Header,
        opening: &Opening,
        to: Result<LinkId, Refusal>,
        frame: B,
        now: Time,
    ) -> Result<Outcome, Violation> {
        let key = header.flow;
        let to = match to {
            Ok(to) if self.links[to.0 as usize].is_some() => to,
            Ok(_) => return Ok(self.refuse(from, header, Refusal::LinkDown)),
            Err(reason) => return Ok(self.refuse(from, header, reason)),
        };
        let mut charge = header.charge();
        match self.by_key.get(&key).copied() {
            Some(index) if self.flow(index).label == header.label => charge = 0,
            Some(index) => {
                let known = self.flow(index);
                if opening.source_incarnation < known.source_incarnation {
                    self.counters.stale += 1;
                    return Ok(Outcome::Dropped);
                }
                self.forget(index);
            }
            None => {}
        }
        let index = match self.by_key.get(&key).copied() {
            Some(index) => index,
            None => {
                if !self.budget.try_admit() {
                    self.counters.refused += 1;
                    return Ok(self.refuse(from, header, Refusal::NoRoom));
                }
                self.counters.opened += 1;
                self.admit(Flow::new(header, opening, from, to, now))
            }
        };
        let bytes = header.frame_bytes();
        self.enqueue(
            index,
            Lane::Urgent,
            Queued {
                frame,
                bytes,
                charge,
                frames: 1,
            },
            now,
        );
        Ok(Outcome::Send(to))
    }

    /// Data frames arrived from `from`.
    ///
    /// # Errors
    /// When they are more than was granted; the link is to be closed.
    pub fn handle_run(
        &mut self,
        from: LinkId,
        run: &Run,
        frame: B,
        now: Time,
    ) -> Result<Outcome, Violation> {
        let Some(index) = self.find(run.flow) else {
            return Ok(self.refuse_stray(from, run.flow, run.label, run.frames));
        };
        let flow = self.flow_mut(index);
        if flow.label != run.label || flow.from != from {
            self.counters.stale += u64::from(run.frames);
            return Ok(Outcome::Dropped);
        }
        let charge = run.end - run.start;
        if run.end > flow.granted || flow.received + charge > flow.granted {
            return Err(Violation::BeyondCredit {
                end: run.end,
                granted: flow.granted,
            });
        }
        flow.received += charge;
        let to = flow.to;
        let queued = Queued {
            frame,
            bytes: run.bytes,
            charge,
            frames: run.frames,
        };
        self.enqueue(index, run.lane, queued, now);
        Ok(Outcome::Send(to))
    }

    /// A control frame arrived from `from`; its checksum is known to be right.
    pub fn handle_control(&mut self, from: LinkId, header: &Header, now: Time) -> Outcome {
        let Some(index) = self.find(header.flow) else {
            return match header.kind {
                Kind::Probe => self.refuse(from, header, Refusal::Unknown),
                _ => Outcome::Dropped,
            };
        };
        let flow = self.flow_mut(index);
        let expected = if header.kind.goes_back() {
            flow.to
        } else {
            flow.from
        };
        if flow.label != header.label || expected != from {
            return match header.kind {
                Kind::Probe => self.refuse(from, header, Refusal::Unknown),
                _ => Outcome::Dropped,
            };
        }
        flow.last_heard = now;
        let (towards_source, towards_destination) = (flow.from, flow.to);
        match header.kind {
            Kind::Credit => {
                if !flow.handle_credit(header) {
                    return Outcome::Dropped;
                }
                self.promise(index, true);
                Outcome::Send(towards_source)
            }
            Kind::Refusal => {
                self.forget(index);
                self.queue_control(towards_source, header);
                Outcome::Send(towards_source)
            }
            Kind::Close | Kind::Lost => {
                self.forget(index);
                self.queue_control(towards_destination, header);
                Outcome::Send(towards_destination)
            }
            Kind::Probe => {
                self.queue_control(towards_destination, header);
                Outcome::Send(towards_destination)
            }
            Kind::Data | Kind::Ping | Kind::Pong => Outcome::Dropped,
        }
    }

    // ---- output -----------------------------------------------------------------------

    /// Appends the control frames that wait for `link` to `out`, up to about `limit` bytes.
    pub fn poll_control(&mut self, link: LinkId, out: &mut Vec<u8>, limit: usize) {
        let Some(Some(waiting)) = self.links.get_mut(link.0 as usize) else {
            return;
        };
        while out.len() < limit
            && let Some(frame) = waiting.control.pop_front()
        {
            out.extend_from_slice(&frame);
        }
        while out.len() < limit {
            let Some(Some(waiting)) = self.links.get_mut(link.0 as usize) else {
                return;
            };
            let Some(index) = waiting.credits.pop_front() else {
                return;
            };
            let Some(Some(flow)) = self.flows.get_mut(index as usize) else {
                continue;
            };
            if flow.from == link && flow.credit_pending {
                flow.credit_pending = false;
                out.extend_from_slice(&flow.credit().to_control_frame());
            }
        }
    }

    /// Takes what is next for `lane` of `link`, about `limit` bytes, flows taking turns
    /// (deficit round robin).
    pub fn poll_transmit(
        &mut self,
        link: LinkId,
        lane: Lane,
        limit: usize,
        mut take: impl FnMut(B, Departure),
    ) {
        let mut taken = 0;
        while taken < limit {
            let Some(Some(waiting)) = self.links.get_mut(link.0 as usize) else {
                return;
            };
            let Some(&index) = waiting.turns(lane).front() else {
                return;
            };
            let Some(Some(flow)) = self.flows.get_mut(index as usize) else {
                waiting.turns(lane).pop_front();
                continue;
            };
            let label = flow.label;
            let queue = flow.queue(lane);
            if !queue.has_turn {
                queue.deficit += link::QUANTUM_BYTES;
                queue.has_turn = true;
            }
            while taken < limit
                && let Some(first) = queue.frames.front()
                && first.bytes <= queue.deficit
            {
                let Some(first) = queue.frames.pop_front() else {
                    break;
                };
                queue.deficit -= first.bytes;
                taken += first.bytes;
                self.queued_bytes -= first.bytes as u64;
                let Queued {
                    frame,
                    bytes,
                    charge,
                    frames,
                } = first;
                take(
                    frame,
                    Departure {
                        flow: index,
                        label,
                        charge,
                        bytes,
                        frames,
                    },
                );
            }
            let empty = queue.frames.is_empty();
            if empty {
                queue.deficit = 0;
                queue.waits = false;
            } else if taken >= limit {
                // Its turn goes on when the link takes more.
                return;
            }
            queue.has_turn = false;
            let turns = waiting.turns(lane);
            turns.pop_front();
            if !empty {
                turns.push_back(index);
            }
        }
    }

    /// What was taken has left this gateway. Returns the link on which credit can go back
    /// now, if any can.
    pub fn handle_departure(&mut self, departure: &Departure) -> Option<LinkId> {
        self.counters.frames += u64::from(departure.frames);
        self.counters.bytes += departure.bytes as u64;
        let flow = self.flows.get_mut(departure.flow as usize)?.as_mut()?;
        if flow.label != departure.label {
            return None;
        }
        let before = flow.outstanding();
        flow.forwarded += departure.charge;
        self.budget.change(before, flow.outstanding());
        self.promise(departure.flow, false)
    }

    // ---- time and state -----------------------------------------------------------------

    /// Forgets flows that have been silent for [`FORGET_AFTER`]. To be called every few
    /// seconds.
    pub fn handle_timeout(&mut self, now: Time) {
        for index in 0..self.flows.len() {
            if self.flows[index]
                .as_ref()
                .is_some_and(|flow| flow.is_idle() && now.since(flow.last_heard) > FORGET_AFTER)
            {
                self.forget(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
    }

    /// Whether something waits for `lane` of `link`.
    #[must_use]
    pub fn has_queued(&self, link: LinkId, lane: Lane) -> bool {
        match self.links.get(link.0 as usize) {
            Some(Some(link)) => !link.turns_ref(lane).is_empty(),
            _ => false,
        }
    }

    /// Whether control frames wait for `link`.
    #[must_use]
    pub fn has_control(&self, link: LinkId) -> bool {
        match self.links.get(link.0 as usize) {
            Some(Some(link)) => !link.control.is_empty() || !link.credits.is_empty(),
            _ => false,
        }
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

    fn admit(&mut self, flow: Flow<B>) -> u32 {
        let key = flow.key;
        self.budget.change(0, flow.outstanding());
        let index = if let Some(index) = self.vacant.pop() {
            self.flows[index as usize] = Some(flow);
            index
        } else {
            self.flows.push(Some(flow));
            // Bounded by the budget's flow limit, itself 32 bits.
            u32::try_from(self.flows.len() - 1).unwrap_or(u32::MAX)
        };
        self.by_key.insert(key, index);
        index
    }

    fn forget(&mut self, index: u32) {
        let Some(mut flow) = self.flows[index as usize].take() else {
            return;
        };
        flow.for_each_bytes(|bytes| self.queued_bytes -= bytes as u64);
        self.budget.release(flow.outstanding());
        self.by_key.remove(&flow.key);
        self.last = None;
        // Its turns at the link would be taken for those of the next flow with this index.
        if let Some(Some(link)) = self.links.get_mut(flow.to.0 as usize) {
            link.forget_turns(index);
        }
        if flow.credit_pending
            && let Some(Some(link)) = self.links.get_mut(flow.from.0 as usize)
        {
            link.credits.retain(|waiting| *waiting != index);
        }
        self.vacant.push(index);
    }

    fn enqueue(&mut self, index: u32, lane: Lane, queued: Queued<B>, now: Time) {
        self.queued_bytes += queued.bytes as u64;
        let flow = self.flow_mut(index);
        flow.last_heard = now;
        let to = flow.to;
        let queue = flow.queue(lane);
        queue.frames.push_back(queued);
        if !queue.waits {
            queue.waits = true;
            if let Some(Some(link)) = self.links.get_mut(to.0 as usize) {
                link.turns(lane).push_back(index);
            }
        }
    }

    /// Promises the source as much as the destination grants and the budget allows. With
    /// `news` there is something to tell the source in any case.
    fn promise(&mut self, index: u32, news: bool) -> Option<LinkId> {
        let flow = self.flows[index as usize].as_mut()?;
        let before = flow.outstanding();
        if !news && (flow.granted >= flow.granted_ahead || flow.credit_pending) {
            return None;
        }
        let allowed = flow.forwarded + self.budget.allowance(before);
        let target = flow.granted_ahead.min(allowed).max(flow.granted);
        let more = target - flow.granted;
        // Few large promises rather than many small ones, unless the source may be out.
        let is_worth_it = more >= before / 2 || flow.received == flow.granted;
        if !news && (more == 0 || !is_worth_it) {
            return None;
        }
        flow.granted = target;
        self.budget.change(before, flow.outstanding());
        let from = flow.from;
        if !flow.credit_pending && flow.has_credit() {
            flow.credit_pending = true;
            if let Some(Some(link)) = self.links.get_mut(from.0 as usize) {
                link.credits.push_back(index);
            }
        }
        Some(from)
    }

    fn refuse(&mut self, to: LinkId, header: &Header, reason: Refusal) -> Outcome {
        self.queue_control(to, &Header::refusal(header.flow, header.label, reason, 0));
        Outcome::Send(to)
    }

    /// Frames of a flow that is not known: says so once, not once per frame.
    fn refuse_stray(&mut self, from: LinkId, flow: FlowKey, label: u32, frames: u32) -> Outcome {
        self.counters.stale += u64::from(frames);
        let Some(Some(link)) = self.links.get_mut(from.0 as usize) else {
            return Outcome::Dropped;
        };
        if link.last_stray == Some((flow, label)) {
            return Outcome::Dropped;
        }
        link.last_stray = Some((flow, label));
        self.queue_control(from, &Header::refusal(flow, label, Refusal::Unknown, 0));
        Outcome::Send(from)
    }

    fn queue_control(&mut self, to: LinkId, header: &Header) {
        let Some(Some(link)) = self.links.get_mut(to.0 as usize) else {
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
