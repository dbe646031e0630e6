//! One flow on its way through a gateway.

use std::collections::VecDeque;

use super::pace::{Meter, Share};
use super::parked::Want;
use super::ways::WayOf;
use super::{Lane, LinkId};
use crate::time::Time;
use crate::wire::{DESCRIPTOR_BYTES, FlowKey, HEADER_BYTES, Header, Opening, SMALL_PAYLOAD_BYTES};

/// Frames that wait for their link.
#[derive(Debug)]
pub(super) struct Queued<B> {
    pub(super) frame: B,
    /// The position behind it.
    pub(super) end: u64,
    pub(super) bytes: usize,
    pub(super) charge: u64,
    pub(super) frames: u32,
}

/// The frames of a flow that wait for one lane, and its turn there.
#[derive(Debug)]
pub(super) struct Queue<B> {
    pub(super) frames: VecDeque<Queued<B>>,
    /// Bytes that it may send in this turn.
    pub(super) deficit: usize,
    /// Whether the deficit of this turn has been added.
    pub(super) has_turn: bool,
    /// Whether it stands in the link's order of turns.
    pub(super) waits: bool,
}

impl<B> Queue<B> {
    /// Where the first frame that waits ends. Nothing that comes later ends there or before, not even
    /// behind an opening without a payload.
    pub(super) fn end(&self) -> Option<u64> {
        self.frames.front().map(|first| first.end)
    }

    /// It has no turn until something puts it into the link's order again.
    pub(super) const fn leave(&mut self) {
        self.deficit = 0;
        self.has_turn = false;
        self.waits = false;
    }
}

impl<B> Default for Queue<B> {
    fn default() -> Self {
        Self {
            frames: VecDeque::new(),
            deficit: 0,
            has_turn: false,
            waits: false,
        }
    }
}

/// One flow on its way through a gateway. Positions are in charged bytes.
#[derive(Debug)]
pub(super) struct Flow<B> {
    pub(super) key: FlowKey,
    /// Of this admission: no other of this gateway has it.
    pub(super) serial: u64,
    pub(super) label: u32,
    pub(super) source_incarnation: u64,
    /// The largest frame that its opening allows, header included.
    pub(super) largest_frame: usize,
    /// The link that its frames come from.
    pub(super) from: LinkId,
    /// The link that they leave by.
    pub(super) to: LinkId,
    /// What this gateway has promised the source, together with everybody ahead.
    pub(super) granted: u64,
    /// Where the flow was opened, and everything that arrived since.
    pub(super) received: u64,
    /// Where the flow was opened, and everything that left since.
    pub(super) forwarded: u64,
    /// What the hops ahead have promised.
    pub(super) granted_ahead: u64,
    delivered: u64,
    destination_incarnation: u64,
    /// Whether the link to the source has this flow in its list of credits to send.
    pub(super) credit_pending: bool,
    pub(super) last_heard: Time,
    /// How many turns' worth it sends in one.
    pub(super) weight: u32,
    pub(super) meter: Meter,
    /// Since when its source can send nothing for want of credit, and whose.
    pub(super) parked_since: Option<(Time, Want)>,
    /// Between which groups of links it passes.
    pub(super) way: WayOf,
    urgent: Queue<B>,
    bulk: Queue<B>,
}

/// The largest frame of a flow that was opened so: one of a whole fragment, or a small one.
fn largest_frame(opening: &Opening) -> usize {
    let fragment = usize::try_from(opening.fragment_bytes).unwrap_or(usize::MAX);
    let frame = fragment.saturating_add(HEADER_BYTES + DESCRIPTOR_BYTES);
    frame.max(HEADER_BYTES + SMALL_PAYLOAD_BYTES)
}

impl<B> Flow<B> {
    pub(super) fn new(
        serial: u64,
        header: &Header,
        opening: &Opening,
        from: LinkId,
        to: LinkId,
        (share, debt): (Share, Time),
        now: Time,
    ) -> Self {
        Self {
            key: header.flow,
            serial,
            label: header.label,
            source_incarnation: opening.source_incarnation,
            largest_frame: largest_frame(opening),
            from,
            to,
            granted: header.end_position(),
            received: header.end_position(),
            forwarded: header.position,
            granted_ahead: 0,
            delivered: header.position,
            destination_incarnation: 0,
            credit_pending: false,
            last_heard: now,
            weight: share.weight,
            meter: Meter::owing(share.rate, debt),
            parked_since: None,
            way: WayOf::default(),
            urgent: Queue::default(),
            bulk: Queue::default(),
        }
    }

    /// What is promised and has not left again.
    pub(super) fn outstanding(&self) -> u64 {
        self.granted - self.forwarded
    }

    /// Takes the destination's credit; `false` when no destination that knows this opening
    /// would send it.
    pub(super) fn handle_credit(&mut self, credit: &Header) -> bool {
        if credit.offset < credit.position {
            return false;
        }
        if credit.position > self.received {
            // The answer to a bare opening says how far an earlier one had come.
            if self.has_credit() || self.outstanding() != 0 {
                return false;
            }
            self.granted = credit.position;
            self.received = credit.position;
            self.forwarded = credit.position;
        }
        self.delivered = self.delivered.max(credit.position);
        self.granted_ahead = self.granted_ahead.max(credit.offset);
        self.destination_incarnation = credit.credit_incarnation();
        true
    }

    /// Whether the destination has answered, so that there is credit to pass back.
    pub(super) const fn has_credit(&self) -> bool {
        self.destination_incarnation != 0
    }

    /// The newest credit as this gateway passes it back.
    pub(super) fn credit(&self) -> Header {
        Header::credit(
            self.key,
            self.label,
            self.delivered,
            self.granted.max(self.delivered),
            self.destination_incarnation,
        )
    }

    pub(super) fn queue(&mut self, lane: Lane) -> &mut Queue<B> {
        self.queues_and_meter(lane).0
    }

    /// What waits for a lane, what waits for the other one, and its rate.
    pub(super) fn queues_and_meter(
        &mut self,
        lane: Lane,
    ) -> (&mut Queue<B>, &mut Queue<B>, &mut Meter) {
        let (queue, other) = match lane {
            Lane::Urgent => (&mut self.urgent, &mut self.bulk),
            Lane::Bulk => (&mut self.bulk, &mut self.urgent),
        };
        (queue, other, &mut self.meter)
    }

    /// Whether something of it has come and not left: it waits for its turn, or for a rate.
    pub(super) fn is_held(&self) -> bool {
        !self.is_idle() || self.received != self.forwarded
    }

    /// Whether it stands in an order of turns, or is held back from one.
    pub(super) const fn has_turns(&self) -> bool {
        self.urgent.waits || self.bulk.waits
    }

    pub(super) fn is_idle(&self) -> bool {
        self.urgent.frames.is_empty() && self.bulk.frames.is_empty()
    }

    /// Whether frames of it wait for the bulk lane.
    pub(super) fn has_queued_bulk(&self) -> bool {
        !self.bulk.frames.is_empty()
    }

    pub(super) fn for_each_queued(&mut self, look: &mut impl FnMut(&mut B)) {
        for queued in self.urgent.frames.iter_mut().chain(&mut self.bulk.frames) {
            look(&mut queued.frame);
        }
    }

    pub(super) fn for_each_bytes(&mut self, mut count: impl FnMut(usize)) {
        for queued in self.urgent.frames.iter().chain(&self.bulk.frames) {
            count(queued.bytes);
        }
    }
}
