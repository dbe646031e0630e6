//! Frames that arrive: what each of them changes, before anybody is told.

#[cfg(test)]
pub(super) mod tests;

use bytes::Bytes;
use madgate_gtm::wire::{Flags, Kind, Opening, Refusal, checksum};
use madgate_gtm::{
    FORGET_AFTER, FlowKey, Header, OpenVerdict, Placement, Reassembly, Record, Time, Violation,
};

use super::core::Core;
use super::crumbs::Crumbs;
use super::early;
use super::flows::InFlow;
use super::inbox::Broken;
use super::input::Origin;
use super::kept::{Contents, KeptSlot};
use crate::cluster::{ChannelId, NodeId};

/// Where a payload that is still arriving belongs.
#[derive(Debug)]
pub(crate) enum Destination {
    /// In memory of its own: it is kept, or dropped, when it is there.
    Buffer,
    /// The same, unless frames before it come soon, over the other lane: they may say where it belongs.
    Early,
    /// Straight in the block that is being unpacked, from this byte on.
    Straight {
        /// What the flow's reassembly will be.
        after: Reassembly,
        /// The part of the block.
        record: Record,
        ends_message: bool,
    },
}

/// A block that a thread is unpacking right now, while it drives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) flow: u32,
    /// Bytes of the block that are there.
    pub(crate) filled: u64,
    pub(crate) length: u64,
    pub(crate) receive: madgate_gtm::wire::ReceiveMode,
}

impl Wanted {
    /// Bytes of the block that are not there.
    pub(crate) fn missing(&self) -> usize {
        usize::try_from(self.length - self.filled).unwrap_or(usize::MAX)
    }
}

/// Why a frame of a member cannot be used; its link is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameFault {
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Wire(#[from] madgate_gtm::wire::WireError),
    #[error("a frame for rank {destination} arrived at rank {node}")]
    NotForUs { destination: u32, node: u32 },
    #[error("a frame of rank {0} arrived on a link that its route does not use")]
    WrongLink(u32),
    #[error("a frame of channel {0}, which does not exist")]
    NoSuchChannel(u16),
}

impl Core {
    /// A control frame arrived on `link`.
    pub(crate) fn handle_control(
        &mut self,
        link: u32,
        header: &Header,
        now: Time,
    ) -> Result<(), FrameFault> {
        if !header.is_intact_control() {
            return Ok(());
        }
        match header.kind {
            Kind::Credit | Kind::Refusal | Kind::Held => self.handle_answer(link, header, now),
            Kind::Ping => {
                if let Some(link) = &mut self.links[link as usize] {
                    link.push_control(&Header::echo(Kind::Pong, header.position));
                }
                self.mark_dirty(link);
            }
            Kind::Pong => {
                // Nobody but a peer that was asked has something to say.
                if let Some(link) = &mut self.links[link as usize]
                    && std::mem::take(&mut link.is_challenged)
                {
                    self.heard.push((link.request.peer, link.peer_incarnation));
                }
            }
            Kind::Data => {}
            Kind::Probe => {
                self.check_destination(header)?;
                let known = match self.find_in_flow(&header.flow) {
                    Some(index) if self.in_flows[index as usize].link == Some(link) => {
                        self.in_flows[index as usize].flow.handle_probe(header, now)
                            && self.offer_credit(index)
                    }
                    _ => false,
                };
                if !known {
                    self.refuse(link, header, Refusal::Unknown);
                }
            }
            Kind::Close | Kind::Lost => {
                let Some(index) = self.find_in_flow(&header.flow) else {
                    return Ok(());
                };
                let budget = &mut self.budget;
                let flow = &mut self.in_flows[index as usize];
                if flow.link != Some(link) || flow.flow.label() != header.label {
                    return Ok(());
                }
                flow.held.clear();
                // An honest source closes no flow in the middle of a message.
                if header.kind == Kind::Close && flow.reassembly.message().is_none() {
                    flow.flow.close(budget);
                    flow.shrink_if_idle();
                } else {
                    flow.flow.suspend(budget, now);
                    self.lost_at = Some(now);
                }
            }
        }
        Ok(())
    }

    pub(super) fn handle_answer(&mut self, link: u32, header: &Header, now: Time) {
        if header.flow.source != self.node.rank() {
            return;
        }
        let key = (header.flow.destination, header.flow.channel);
        let Some(&index) = self.out_by_key.get(&key) else {
            return;
        };
        let flow = &mut self.out_flows[index as usize];
        if flow.link != link {
            return;
        }
        match header.kind {
            Kind::Credit => {
                flow.flow.handle_credit(header, now);
                if flow.flow.is_drained() {
                    flow.copies.shrink();
                }
            }
            Kind::Held => flow.flow.handle_held(header),
            _ => {
                flow.flow.handle_refusal(header, now);
                tracing::debug!(flow = ?header.flow, reason = ?header.reason(), "flow refused");
                self.note_failure(index, now);
            }
        }
        self.wake_flow(index);
        self.note_deadline(index);
    }

    /// Says, once the header of a data frame is there, where its payload belongs. The
    /// decision holds until [`accept_straight`](Self::accept_straight) or
    /// [`handle_data`](Self::handle_data) is called for it.
    pub(crate) fn destination(
        &mut self,
        link: u32,
        header: &Header,
        descriptor: Option<[u8; 8]>,
        wanted: Option<&Wanted>,
    ) -> Destination {
        let mut straight = || {
            let index = self.find_in_flow(&header.flow)?;
            let flow = &self.in_flows[index as usize];
            if flow.link != Some(link) {
                return None;
            }
            let placement = flow.flow.placement(header).ok()?;
            if placement == Placement::Ahead {
                return Some(Destination::Early);
            }
            let wanted = wanted.filter(|wanted| wanted.flow == index)?;
            let matches = flow.is_claimed
                && flow.inbox.is_empty()
                && !flow.inbox.message_ended()
                && placement == Placement::InOrder;
            if !matches {
                return None;
            }
            let mut after = flow.reassembly;
            let (record, ends_message) = after.handle_fragment(header, descriptor).ok()?;
            let fits = record.offset == wanted.filled
                && record.descriptor.length() == wanted.length
                && record.descriptor.receive == wanted.receive;
            fits.then_some(Destination::Straight {
                after,
                record,
                ends_message,
            })
        };
        straight().unwrap_or(Destination::Buffer)
    }

    /// A payload went straight into the block that is being unpacked. Its checksum was
    /// right if `intact`. Returns whether it counts.
    pub(crate) fn accept_straight(
        &mut self,
        link: u32,
        header: &Header,
        after: Reassembly,
        ends_message: bool,
        intact: bool,
        now: Time,
    ) -> Result<bool, FrameFault> {
        let Some(index) = self.find_in_flow(&header.flow) else {
            return Ok(false);
        };
        let flow = &mut self.in_flows[index as usize];
        if flow.flow.placement(header) != Ok(Placement::InOrder) {
            return Ok(false);
        }
        if !intact {
            self.handle_corrupt(link, index, header);
            return Ok(false);
        }
        flow.flow.accept(header, now);
        flow.reassembly = after;
        flow.inbox.note_straight(ends_message, header.charge());
        let held = self.accept_held(index, now);
        self.judge(link, index, header, held, now)?;
        self.after_accept(index, now);
        Ok(true)
    }

    /// A large fragment arrived whole on `link`, in a slot that its part of the block may wait in.
    /// Gives the slot back where it is not all as usual, with nothing changed, for
    /// [`handle_data`](Self::handle_data) to see to it; and where a thread waits for the block,
    /// into which it is copied at once.
    pub(crate) fn keep_fragment(
        &mut self,
        origin: Origin,
        header: &Header,
        descriptor: Option<[u8; 8]>,
        slot: KeptSlot,
        wanted: Option<&Wanted>,
        now: Time,
    ) -> Result<Option<KeptSlot>, FrameFault> {
        let Some(index) = self.find_in_flow(&header.flow) else {
            return Ok(Some(slot));
        };
        let flow = &mut self.in_flows[index as usize];
        let link = origin.link;
        let is_usual = flow.link == Some(link)
            && wanted.is_none_or(|wanted| wanted.flow != index)
            && !header.flags.has(Flags::OPEN)
            && !header.flags.has(Flags::ABORT)
            && header.flags.has(Flags::HEADER_ONLY)
            && flow.flow.placement(header) == Ok(Placement::InOrder)
            && (origin.lets_pass(header) || checksum::is_intact(header, &[]));
        let mut after = flow.reassembly;
        let placed = after.handle_fragment(header, descriptor);
        let Some((record, ends_message)) = placed.ok().filter(|_| is_usual) else {
            return Ok(Some(slot));
        };
        flow.reassembly = after;
        flow.inbox.push_kept(record, Contents::Slot(slot), false, 0);
        flow.inbox.end_frame(1, ends_message, header.charge());
        flow.flow.accept(header, now);
        let held = self.accept_held(index, now);
        self.judge(link, index, header, held, now)?;
        self.after_accept(index, now);
        Ok(None)
    }

    /// A data frame arrived whole on `link`; `payload` is its payload, and `shared` the same
    /// bytes in memory that can be kept. Its checksum was right if `intact`. Returns the flow if
    /// it took something in: call [`after_accept`](Self::after_accept) for it, once for all
    /// frames of a batch.
    pub(crate) fn handle_data(
        &mut self,
        link: u32,
        header: &Header,
        payload: &[u8],
        shared: Option<&Bytes>,
        intact: bool,
        now: Time,
    ) -> Result<Option<u32>, FrameFault> {
        let mut payload = payload;
        let mut shared = shared.cloned();
        let index = if header.flags.has(Flags::OPEN) {
            if !intact {
                // The source repeats an opening that is not answered.
                return Ok(None);
            }
            let opening = Opening::parse(payload)?;
            let Some(index) = self.handle_opening(link, header, &opening, now)? else {
                return Ok(None);
            };
            let skip = madgate_gtm::wire::OPENING_BYTES;
            payload = &payload[skip..];
            shared = shared.map(|bytes| bytes.slice(skip..));
            if header.is_bare_opening() {
                return Ok(None);
            }
            index
        } else {
            match self.find_in_flow(&header.flow) {
                Some(index) if self.in_flows[index as usize].link == Some(link) => index,
                _ => {
                    self.check_destination(header)?;
                    self.refuse(link, header, Refusal::Unknown);
                    return Ok(None);
                }
            }
        };
        let flow = &mut self.in_flows[index as usize];
        match flow.flow.placement(header) {
            Ok(Placement::InOrder) => {}
            Ok(Placement::Ahead) if intact => {
                let keep = || shared.unwrap_or_else(|| Bytes::copy_from_slice(payload));
                let held = flow.hold(header, keep);
                let is_violated = held.is_err();
                self.judge(link, index, header, held, now)?;
                return Ok(is_violated.then_some(index));
            }
            Err(violation) if intact => {
                self.judge(link, index, header, Err(violation), now)?;
                return Ok(Some(index));
            }
            // What is damaged may not say where it belongs, and nothing of its source.
            Ok(Placement::Ahead) | Err(_) => {
                self.handle_corrupt(link, index, header);
                return Ok(None);
            }
            Ok(Placement::Duplicate) => {
                flow.flow.acknowledge_again();
                self.offer_credit(index);
                return Ok(None);
            }
            Ok(Placement::Stale) => return Ok(None),
            Ok(Placement::Unknown) => {
                self.refuse(link, header, Refusal::Unknown);
                return Ok(None);
            }
        }
        if !intact {
            self.handle_corrupt(link, index, header);
            return Ok(None);
        }
        let mut taken = self.accept_in_order(index, header, payload, shared.as_ref(), now);
        if taken.is_ok() && !self.in_flows[index as usize].held.is_empty() {
            taken = self.accept_held(index, now);
        }
        self.judge(link, index, header, taken, now)?;
        Ok(Some(index))
    }

    /// Who answers for what no honest source sends: the peer, if it is the source. A gateway does
    /// not look into messages, and others send over its link too: there the flow is closed and its
    /// source refused, and nobody else is touched.
    fn judge(
        &mut self,
        link: u32,
        index: u32,
        header: &Header,
        taken: Result<(), Violation>,
        now: Time,
    ) -> Result<(), FrameFault> {
        let Err(violation) = taken else { return Ok(()) };
        let flow = &mut self.in_flows[index as usize];
        flow.break_message(Broken::Misbehaved);
        let link_is_shared = self.links[link as usize]
            .as_ref()
            .is_some_and(|link| !link.is_regular());
        if !link_is_shared {
            self.give_back(index);
            return Err(violation.into());
        }
        // What arrived before is not to be taken for lost.
        flow.flow.acknowledge_again();
        let credit = flow.flow.poll_credit(&mut self.budget, now);
        flow.flow.close(&mut self.budget);
        if let Some(credit) = credit
            && let Some(link) = &mut self.links[link as usize]
        {
            link.push_control(&credit);
        }
        let source = self.cluster.node_with_rank(header.flow.source);
        let source = source.map_or("", |source| self.cluster.node_name(source));
        tracing::warn!(source, flow = ?header.flow, "a source sent what no node of this session sends: {violation}");
        self.refuse(link, header, Refusal::Corrupt);
        Ok(())
    }

    /// Takes in the frames that were held and are in order now.
    pub(super) fn accept_held(&mut self, index: u32, now: Time) -> Result<(), Violation> {
        while let Some((header, payload)) = self.in_flows[index as usize].take_held() {
            self.accept_in_order(index, &header, &payload, Some(&payload), now)?;
        }
        Ok(())
    }

    pub(super) fn accept_in_order(
        &mut self,
        index: u32,
        header: &Header,
        payload: &[u8],
        shared: Option<&Bytes>,
        now: Time,
    ) -> Result<(), Violation> {
        let has_begun = self.in_flows[index as usize].reassembly.message().is_some();
        let accepted = self.take_in(index, header, payload, shared, now);
        if accepted.is_err() && has_begun {
            // What was taken in of the message goes with it, so no rest completes it, however often
            // that is sent.
            self.in_flows[index as usize].flow.give_up_message();
        }
        accepted
    }

    fn take_in(
        &mut self,
        index: u32,
        header: &Header,
        payload: &[u8],
        shared: Option<&Bytes>,
        now: Time,
    ) -> Result<(), Violation> {
        let flow = &mut self.in_flows[index as usize];
        let charge = header.charge();
        if header.flags.has(Flags::ABORT) {
            flow.flow.accept(header, now);
            let held = std::mem::take(&mut flow.held);
            flow.break_message(Broken::Aborted);
            flow.held = held;
            flow.flow.consume(charge, &mut self.budget);
            return Ok(());
        }
        let inbox = &mut flow.inbox;
        if header.flags.has(Flags::BUNDLE) {
            flow.reassembly.handle_small(header, payload, |_, _| {})?;
            inbox.push_bundle(payload, charge);
            flow.flow.accept(header, now);
            return Ok(());
        }
        let is_whole = header.block == 0
            && header.flags.has(Flags::DESCRIBED.with(Flags::END))
            && payload.len() <= early::RECORDS_BYTES;
        if is_whole {
            flow.reassembly.handle_small(header, payload, |_, _| {})?;
            inbox.push_whole(payload, charge);
            flow.flow.accept(header, now);
            return Ok(());
        }
        let mut pushed = 0;
        let ended = if payload.len() <= madgate_gtm::wire::SMALL_PAYLOAD_BYTES {
            let stays_whole = header.flags.has(Flags::DESCRIBED) && Crumbs::are_many(payload);
            let mut first = None;
            let ended = flow
                .reassembly
                .handle_small(header, payload, |record, bytes| {
                    if stays_whole {
                        first.get_or_insert(record);
                    } else {
                        inbox.push_copy(record, bytes, false, 0);
                        pushed += 1;
                    }
                })?;
            if let Some(first) = first {
                inbox.push_crumbs(Crumbs::new(&first, payload));
                pushed = 1;
            }
            ended
        } else {
            let described = header.flags.has(Flags::DESCRIBED);
            let descriptor = if described {
                payload.first_chunk().copied()
            } else {
                None
            };
            let (record, ended) = flow.reassembly.handle_fragment(header, descriptor)?;
            let skip = if described {
                madgate_gtm::wire::DESCRIPTOR_BYTES
            } else {
                0
            };
            match shared {
                Some(bytes) => {
                    inbox.push_kept(record, Contents::Shared(bytes.slice(skip..)), false, 0);
                }
                None => inbox.push_copy(record, &payload[skip..], false, 0),
            }
            pushed = 1;
            ended
        };
        if pushed > 0 || ended {
            inbox.end_frame(pushed, ended, charge);
        }
        flow.flow.accept(header, now);
        Ok(())
    }

    /// What follows once frames of a flow were taken in: its messages can be claimed, credit
    /// and acknowledgements are due or have a time.
    pub(super) fn after_accept(&mut self, index: u32, now: Time) {
        let flow = &mut self.in_flows[index as usize];
        if flow.is_discarding {
            self.drain_discarded(index);
        }
        self.give_back(index);
        let flow = &mut self.in_flows[index as usize];
        if !flow.is_ready && flow.has_message() {
            flow.is_ready = true;
            self.channels[usize::from(flow.channel)]
                .flows
                .push_back(index);
        }
        let flow = &mut self.in_flows[index as usize];
        if !flow.is_timed
            && let Some(at) = flow.flow.next_deadline()
        {
            flow.is_timed = true;
            self.timed.push_back((at.max(now), index));
        }
        self.offer_due_credit(index);
    }

    /// The message that was dropped half-unpacked: reads and forgets what came of it.
    pub(crate) fn drain_discarded(&mut self, index: u32) {
        let flow = &mut self.in_flows[index as usize];
        if flow.inbox.discard_message() {
            flow.is_discarding = false;
            self.unclaim(index);
        }
        self.give_back(index);
    }

    /// The message of a flow has been unpacked (or drained): the next one can be.
    pub(crate) fn unclaim(&mut self, index: u32) {
        let flow = &mut self.in_flows[index as usize];
        flow.is_claimed = false;
        flow.inbox.begin_message();
        if !flow.is_ready && flow.has_message() {
            flow.is_ready = true;
            self.channels[usize::from(flow.channel)]
                .flows
                .push_back(index);
        }
    }

    /// Gives credit back for what was read.
    pub(crate) fn give_back(&mut self, index: u32) {
        let flow = &mut self.in_flows[index as usize];
        let consumed = flow.inbox.take_consumed();
        if consumed > 0 {
            flow.flow.consume(consumed, &mut self.budget);
            flow.shrink_if_idle();
            self.offer_due_credit(index);
        }
    }

    /// As [`offer_credit`](Self::offer_credit), if some is due.
    pub(crate) fn offer_due_credit(&mut self, index: u32) {
        let flow = &self.in_flows[index as usize];
        if !flow.has_credit && flow.flow.is_credit_due(&self.budget) {
            self.offer_credit(index);
        }
    }

    /// Tells every source now what has arrived of it.
    pub(super) fn acknowledge_all(&mut self) {
        for index in 0..u32::try_from(self.in_flows.len()).unwrap_or(u32::MAX) {
            self.in_flows[index as usize].flow.acknowledge_again();
            self.offer_credit(index);
        }
    }

    /// The flow may have credit to give: its link looks when it is flushed.
    pub(crate) fn offer_credit(&mut self, index: u32) -> bool {
        let flow = &mut self.in_flows[index as usize];
        let Some(link) = flow.link else { return false };
        if !flow.has_credit {
            flow.has_credit = true;
            if let Some(link) = &mut self.links[link as usize] {
                link.credits.push_back(index);
            }
        }
        self.mark_dirty(link);
        true
    }

    pub(super) fn handle_opening(
        &mut self,
        link: u32,
        header: &Header,
        opening: &Opening,
        now: Time,
    ) -> Result<Option<u32>, FrameFault> {
        self.check_destination(header)?;
        self.check_source(link, header)?;
        let key = header.flow;
        let index = match self.in_by_key.get(&key) {
            Some(&index) => index,
            None => {
                let flow = self.incoming(key, now);
                let index = u32::try_from(self.in_flows.len()).unwrap_or(u32::MAX);
                self.in_flows
                    .push(InFlow::new(flow, key.source, key.channel));
                self.in_by_key.insert(key, index);
                index
            }
        };
        let flow = &mut self.in_flows[index as usize];
        match flow
            .flow
            .handle_opening(header, opening, &mut self.budget, now)
        {
            OpenVerdict::Admitted {
                abandon_message,
                source_restarted,
            } => {
                flow.held.clear();
                if abandon_message {
                    let why = if source_restarted {
                        Broken::SourceRestarted
                    } else {
                        Broken::Aborted
                    };
                    flow.break_message(why);
                }
                if flow.link != Some(link) {
                    flow.link = Some(link);
                    flow.has_credit = false;
                }
            }
            OpenVerdict::Repeated => {}
            OpenVerdict::Stale => return Ok(None),
            OpenVerdict::Refused(reason) => {
                let incarnation = self.incarnation;
                if let Some(link) = &mut self.links[link as usize] {
                    link.push_control(&Header::refusal(key, header.label, reason, incarnation));
                }
                self.mark_dirty(link);
                return Ok(None);
            }
        }
        self.give_back(index);
        self.offer_credit(index);
        // Somebody has to look when its source falls silent.
        self.forget_at.get_or_insert(now + FORGET_AFTER);
        Ok(Some(index))
    }

    pub(super) fn check_destination(&self, header: &Header) -> Result<(), FrameFault> {
        let destination = header.flow.destination;
        if destination != self.node.rank() {
            return Err(FrameFault::NotForUs {
                destination,
                node: self.node.rank(),
            });
        }
        if usize::from(header.flow.channel) >= self.channels.len() {
            return Err(FrameFault::NoSuchChannel(header.flow.channel));
        }
        Ok(())
    }

    /// A source is only heard on the link that its route uses.
    pub(super) fn check_source(&self, link: u32, header: &Header) -> Result<(), FrameFault> {
        let wrong = FrameFault::WrongLink(header.flow.source);
        let Some(link) = &self.links[link as usize] else {
            return Err(wrong);
        };
        let Some(source) = self.cluster.node_with_rank(header.flow.source) else {
            return Err(wrong);
        };
        let routes = self
            .routes
            .get(usize::from(header.flow.channel))
            .and_then(Option::as_ref);
        let previous = routes.and_then(|routes| routes.previous_hop(self.node, source, self.node));
        let right = previous.is_some_and(|hop| {
            hop.node == link.request.peer
                && hop.network == link.request.network
                && link.is_regular() == (hop.node == source)
        });
        if right { Ok(()) } else { Err(wrong) }
    }

    /// The source is refused, and opens the flow again, if it still is there.
    pub(super) fn handle_corrupt(&mut self, link: u32, index: u32, header: &Header) {
        tracing::warn!(flow = ?header.flow, position = header.position, "a frame arrived corrupt");
        let flow = &mut self.in_flows[index as usize];
        flow.held.clear();
        flow.flow.close_for_now(&mut self.budget);
        self.refuse(link, header, Refusal::Corrupt);
    }

    pub(super) fn refuse(&mut self, link: u32, header: &Header, reason: Refusal) {
        if let Some(link) = &mut self.links[link as usize] {
            link.push_control(&Header::refusal(
                header.flow,
                header.label,
                reason,
                self.incarnation,
            ));
        }
        self.mark_dirty(link);
    }

    /// The flow from `source` over `channel`, if anything of it ever came.
    pub(crate) fn in_flow(&self, source: NodeId, channel: ChannelId) -> Option<u32> {
        let key = FlowKey {
            channel: channel.0,
            source: source.rank(),
            destination: self.node.rank(),
        };
        self.in_by_key.get(&key).copied()
    }

    #[inline]
    pub(super) fn find_in_flow(&mut self, key: &FlowKey) -> Option<u32> {
        if let Some((last, index)) = &self.in_last
            && last == key
        {
            return Some(*index);
        }
        let index = *self.in_by_key.get(key)?;
        self.in_last = Some((*key, index));
        Some(index)
    }
}
