//! Everything that a session knows, behind one lock.
//!
//! [`Core`] holds flows, links and what has arrived; it makes no system call. The lock is
//! held for a batch of frames at a time, never while a thread sends, receives or sleeps.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use madgate_gtm::outgoing::Settings;
use madgate_gtm::wire::{Flags, Kind, Opening, Refusal, checksum};
use madgate_gtm::{
    Budget, FlowKey, Header, Incoming, OpenVerdict, Outgoing, Placement, Reassembly, Record, Time,
    Violation,
};

use super::crumbs::Crumbs;
use super::flows::{InFlow, OutFlow, ReadyFlows};
use super::inbox::Broken;
use super::links::Link;
use crate::cluster::{ChannelId, Cluster, EndpointSettings, NodeId};
use crate::conductor::{LinkKind, LinkRequest};
use crate::topology::Routes;

/// How often flows are looked at for what is due, while there is something.
const SWEEP: Duration = Duration::from_millis(10);

/// How long at most until the next look, while a flow has deadlines: what arrives or is
/// packed meanwhile may bring a nearer one.
const SWEEP_MOST: Duration = Duration::from_millis(50);

/// Two small messages within this time are a burst: the second and what follows gather.
const BURST: Duration = Duration::from_micros(20);

/// Bytes that gather before the packing thread sends them itself.
const GATHER_BYTES: usize = 64 << 10;

/// Whether a small message gathers with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gathers {
    /// It is to be sent now.
    No,
    /// The progress thread sends it in a moment.
    Yes,
    /// As `Yes`, but the thread has to be told.
    Start,
}

/// Where a payload that is still arriving belongs.
#[derive(Debug)]
pub(crate) enum Destination {
    /// In memory of its own: it is kept, or dropped, when it is there.
    Buffer,
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

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) node: NodeId,
    incarnation: u64,
    settings: EndpointSettings,
    routes: Vec<Option<Routes>>,

    pub(crate) out_flows: Vec<OutFlow>,
    out_by_key: HashMap<(u32, u16), u32>,
    /// The last flow that was asked for: messages to one node come together.
    out_last: Option<((u32, u16), u32)>,

    pub(crate) in_flows: Vec<InFlow>,
    in_by_key: HashMap<FlowKey, u32>,
    in_last: Option<(FlowKey, u32)>,
    pub(crate) channels: Vec<ReadyFlows>,
    pub(crate) budget: Budget,

    pub(crate) links: Vec<Option<Link>>,
    pub(crate) dialed: HashMap<LinkRequest, u32>,
    pub(crate) dirty: Vec<u32>,
    /// Links to ask the conductor for.
    pub(crate) to_dial: Vec<LinkRequest>,
    /// Links that failed when something was sent: the driver closes them.
    pub(crate) broken: Vec<u32>,
    /// Peers that have answered a challenge.
    pub(crate) heard: Vec<(NodeId, u64)>,
    /// Links that the conductor need not dial any more.
    pub(crate) to_cancel: Vec<LinkRequest>,
    /// Lanes that sleepers are to be woken for when they take more: link, is bulk.
    pub(crate) blocked: Vec<u32>,

    /// Acknowledgements to come, oldest first.
    timed: VecDeque<(Time, u32)>,
    sweep_at: Option<Time>,
    /// Threads that wait without driving.
    pub(crate) waiters: usize,
    pub(crate) is_closed: bool,
    next_seed: u64,
}

impl Core {
    pub(crate) fn new(cluster: Arc<Cluster>, node: NodeId, incarnation: u64) -> Self {
        let settings = cluster.endpoint_settings().clone();
        let memory = cluster.endpoint_memory_bytes(node);
        let routes = cluster
            .channel_ids()
            .map(|channel| {
                cluster
                    .is_in_channel(node, channel)
                    .then(|| Routes::new(Arc::clone(&cluster), channel))
            })
            .collect();
        let channels = cluster
            .channel_ids()
            .map(|_| ReadyFlows::default())
            .collect();
        Self {
            node,
            incarnation,
            routes,
            out_flows: Vec::new(),
            out_by_key: HashMap::new(),
            out_last: None,
            in_flows: Vec::new(),
            in_by_key: HashMap::new(),
            in_last: None,
            channels,
            budget: Budget::new(memory),
            links: Vec::new(),
            dialed: HashMap::new(),
            dirty: Vec::new(),
            to_dial: Vec::new(),
            broken: Vec::new(),
            heard: Vec::new(),
            to_cancel: Vec::new(),
            blocked: Vec::new(),
            timed: VecDeque::new(),
            sweep_at: None,
            waiters: 0,
            is_closed: false,
            next_seed: incarnation,
            settings,
            cluster,
        }
    }

    pub(crate) fn settings(&self) -> &EndpointSettings {
        &self.settings
    }

    // ---- flows that start here ----------------------------------------------------------

    /// The flow to `destination` over `channel`, made when it is asked for first. `None`
    /// when no route leads there.
    pub(crate) fn out_flow(
        &mut self,
        destination: NodeId,
        channel: ChannelId,
        now: impl FnOnce() -> Time,
    ) -> Option<u32> {
        let key = (destination.rank(), channel.0);
        if let Some((last, index)) = self.out_last
            && last == key
        {
            return Some(index);
        }
        let index = match self.out_by_key.get(&key) {
            Some(&index) => index,
            None => self.make_out_flow(destination, channel, now())?,
        };
        self.out_last = Some((key, index));
        Some(index)
    }

    fn make_out_flow(&mut self, destination: NodeId, channel: ChannelId, now: Time) -> Option<u32> {
        let routes = self.routes.get(channel.index())?.as_ref()?;
        let route = routes.route(self.node, destination).ok()?;
        let first = *route.hops.first()?;
        let is_regular = route.hops.len() == 1;
        let kind = if is_regular {
            LinkKind::Regular
        } else {
            LinkKind::Forward
        };
        let request = LinkRequest {
            kind,
            network: first.network,
            peer: first.node,
        };
        let fragment_bytes = if is_regular {
            self.cluster
                .network(first.network)
                .largest_fragment_bytes()
                .min(REGULAR_FRAGMENT_BYTES)
        } else {
            routes.fragment_bytes(&route)
        };
        self.next_seed = self
            .next_seed
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        let settings = Settings {
            flow: FlowKey {
                channel: channel.0,
                source: self.node.rank(),
                destination: destination.rank(),
            },
            incarnation: self.incarnation,
            fragment_bytes,
            checksum_payload: !is_regular,
            give_up_after: self.cluster.link_timeout(),
            seed: self.next_seed,
        };
        let link = self.dialed_link(request, now);
        let mut flow = Outgoing::new(settings, now);
        if self.links[link as usize]
            .as_ref()
            .is_some_and(|link| link.output.is_some())
        {
            flow.handle_link_up(now);
        }
        let index = u32::try_from(self.out_flows.len()).ok()?;
        self.out_flows.push(OutFlow::new(flow, link));
        if let Some(link) = &mut self.links[link as usize] {
            link.flows.push(index);
        }
        self.out_by_key
            .insert((destination.rank(), channel.0), index);
        Some(index)
    }

    fn dialed_link(&mut self, request: LinkRequest, now: Time) -> u32 {
        if let Some(&link) = self.dialed.get(&request) {
            return link;
        }
        let index = self.add_link(Link::new(request, true, now));
        self.dialed.insert(request, index);
        self.dial(index);
        index
    }

    /// Asks for a link that is down, unless it is being dialled.
    fn dial(&mut self, index: u32) {
        if let Some(link) = &mut self.links[index as usize]
            && link.is_dialed
            && !link.is_dialing
            && link.output.is_none()
        {
            link.is_dialing = true;
            self.to_dial.push(link.request);
        }
    }

    /// Stops dialling a link that no flow needs any more.
    fn stop_dialing_if_unused(&mut self, index: u32) {
        let Some(link) = &mut self.links[index as usize] else {
            return;
        };
        let is_used = link
            .flows
            .iter()
            .any(|&flow| !self.out_flows[flow as usize].flow.is_drained());
        if link.is_dialing && !is_used {
            link.is_dialing = false;
            self.to_dial.retain(|asked| *asked != link.request);
            self.to_cancel.push(link.request);
        }
    }

    pub(crate) fn add_link(&mut self, link: Link) -> u32 {
        let vacant = self.links.iter().position(Option::is_none);
        let index = vacant.unwrap_or(self.links.len());
        if index == self.links.len() {
            self.links.push(None);
        }
        self.links[index] = Some(link);
        // Links are bounded by the process's descriptors.
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Something was pushed to a flow, or credit came for it: its link has something to do.
    pub(crate) fn wake_flow(&mut self, index: u32) {
        let flow = &mut self.out_flows[index as usize];
        let link_index = flow.link;
        if !flow.is_waiting && !flow.has_borrower {
            flow.is_waiting = true;
            if let Some(link) = &mut self.links[link_index as usize] {
                link.waiting.push_back(index);
            }
        }
        self.dial(link_index);
        self.mark_dirty(link_index);
        if self.sweep_at.is_none() {
            self.sweep_at = Some(Time(0));
        }
    }

    pub(crate) fn mark_dirty(&mut self, index: u32) {
        if let Some(link) = &mut self.links[index as usize]
            && !link.is_dirty
        {
            link.is_dirty = true;
            self.dirty.push(index);
        }
    }

    /// Queues a control frame for the peer of `link`.
    pub(crate) fn push_control(&mut self, link: u32, header: &Header) {
        if let Some(link) = &mut self.links[link as usize] {
            link.push_control(header);
        }
        self.mark_dirty(link);
    }

    /// A lane of `link` took less than it was offered.
    pub(crate) fn note_blocked(&mut self, link: u32) {
        self.blocked.push(link);
        if let Some(link) = &mut self.links[link as usize] {
            link.is_stalled = true;
        }
    }

    /// Whether the lanes of `link` may take more than when they were last found blocked.
    pub(crate) fn takes_more(&self, link: u32) -> bool {
        self.links[link as usize]
            .as_ref()
            .is_none_or(|link| !link.is_stalled || link.output.is_none())
    }

    /// Whether a small message of `bytes` that was just pushed is sent at once or gathers
    /// with those that come right after: it does if another was sent a moment ago, with
    /// nobody waiting in between.
    pub(crate) fn gathers(
        &mut self,
        link: u32,
        bytes: usize,
        activity: u64,
        now: impl FnOnce() -> Time,
    ) -> Gathers {
        let Some(link) = &mut self.links[link as usize] else {
            return Gathers::No;
        };
        link.gathered += bytes;
        if link.is_gathering {
            return if link.gathered >= GATHER_BYTES {
                Gathers::No
            } else {
                Gathers::Yes
            };
        }
        let waited = link.last_activity != activity;
        link.last_activity = activity;
        if waited || now().since(link.last_flush) >= BURST {
            return Gathers::No;
        }
        link.is_gathering = true;
        Gathers::Start
    }

    // ---- frames that arrive -------------------------------------------------------------

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
            Kind::Credit | Kind::Refusal => self.handle_answer(link, header, now),
            Kind::Ping => {
                if let Some(link) = &mut self.links[link as usize] {
                    link.push_control(&Header::echo(Kind::Pong, header.position));
                }
                self.mark_dirty(link);
            }
            Kind::Pong => {
                if let Some(link) = &self.links[link as usize] {
                    self.heard.push((link.request.peer, link.peer_incarnation));
                }
            }
            Kind::Data => {}
            Kind::Probe => {
                self.check_destination(header)?;
                let known = match self.find_in_flow(header.flow) {
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
                let Some(index) = self.find_in_flow(header.flow) else {
                    return Ok(());
                };
                let budget = &mut self.budget;
                let flow = &mut self.in_flows[index as usize];
                if flow.link != Some(link) || flow.flow.label() != header.label {
                    return Ok(());
                }
                if header.kind == Kind::Close {
                    flow.flow.close(budget);
                } else {
                    flow.held.clear();
                    flow.flow.suspend(budget, now);
                    self.sweep_at.get_or_insert(now + SWEEP);
                }
            }
        }
        Ok(())
    }

    fn handle_answer(&mut self, link: u32, header: &Header, now: Time) {
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
        if header.kind == Kind::Credit {
            flow.flow.handle_credit(header, now);
        } else {
            flow.flow.handle_refusal(header, now);
            tracing::debug!(flow = ?header.flow, reason = ?header.reason(), "flow refused");
            self.note_failure(index, now);
        }
        self.wake_flow(index);
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
            let wanted = wanted?;
            let index = self.find_in_flow(header.flow)?;
            let flow = &self.in_flows[index as usize];
            let matches = index == wanted.flow
                && flow.link == Some(link)
                && flow.is_claimed
                && flow.inbox.is_empty()
                && !flow.inbox.message_ended()
                && flow.flow.placement(header) == Ok(Placement::InOrder);
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
        let Some(index) = self.find_in_flow(header.flow) else {
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
        self.accept_held(link, index, now)?;
        self.after_accept(index, now);
        Ok(true)
    }

    /// A data frame arrived whole on `link`; `payload` is its payload, and `shared` the same
    /// bytes in memory that can be kept.
    pub(crate) fn handle_data(
        &mut self,
        link: u32,
        header: &Header,
        payload: &[u8],
        shared: Option<&Bytes>,
        now: Time,
    ) -> Result<(), FrameFault> {
        let mut payload = payload;
        let mut shared = shared.cloned();
        let index = if header.flags.has(Flags::OPEN) {
            if !checksum::is_intact(header, payload) {
                // The source repeats an opening that is not answered.
                return Ok(());
            }
            let opening = Opening::parse(payload)?;
            let Some(index) = self.handle_opening(link, header, &opening, now)? else {
                return Ok(());
            };
            let skip = madgate_gtm::wire::OPENING_BYTES;
            payload = &payload[skip..];
            shared = shared.map(|bytes| bytes.slice(skip..));
            if header.is_bare_opening() {
                return Ok(());
            }
            index
        } else {
            match self.find_in_flow(header.flow) {
                Some(index) if self.in_flows[index as usize].link == Some(link) => index,
                _ => {
                    self.check_destination(header)?;
                    self.refuse(link, header, Refusal::Unknown);
                    return Ok(());
                }
            }
        };
        let flow = &mut self.in_flows[index as usize];
        match flow.flow.placement(header)? {
            Placement::InOrder => {}
            Placement::Ahead => {
                let kept = shared.unwrap_or_else(|| Bytes::copy_from_slice(payload));
                flow.held.insert(header.position, (*header, kept));
                return Ok(());
            }
            Placement::Duplicate => {
                flow.flow.acknowledge_again();
                self.offer_credit(index);
                return Ok(());
            }
            Placement::Stale => return Ok(()),
            Placement::Unknown => {
                self.refuse(link, header, Refusal::Unknown);
                return Ok(());
            }
        }
        // An opening's checksum, which covers the opening too, was looked at above.
        if !header.flags.has(Flags::OPEN) && !checksum::is_intact(header, payload) {
            self.handle_corrupt(link, index, header);
            return Ok(());
        }
        self.accept_in_order(index, header, payload, shared.as_ref(), now)?;
        self.accept_held(link, index, now)?;
        self.after_accept(index, now);
        Ok(())
    }

    /// Takes in the frames that were held and are in order now.
    fn accept_held(&mut self, link: u32, index: u32, now: Time) -> Result<(), Violation> {
        while let Some((header, payload)) = self.in_flows[index as usize].take_held() {
            if !checksum::is_intact(&header, &payload) {
                self.handle_corrupt(link, index, &header);
                return Ok(());
            }
            self.accept_in_order(index, &header, &payload, Some(&payload), now)?;
        }
        Ok(())
    }

    fn accept_in_order(
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
                Some(bytes) => inbox.push_shared(record, bytes.slice(skip..), false, 0),
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

    fn after_accept(&mut self, index: u32, now: Time) {
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
            self.offer_due_credit(index);
        }
    }

    /// As [`offer_credit`](Self::offer_credit), if some is due.
    fn offer_due_credit(&mut self, index: u32) {
        let flow = &self.in_flows[index as usize];
        if !flow.has_credit && flow.flow.is_credit_due(&self.budget) {
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

    fn handle_opening(
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
                let window = self.settings.window_bytes;
                let flow = Incoming::new(key, self.incarnation, window, now);
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
        Ok(Some(index))
    }

    fn check_destination(&self, header: &Header) -> Result<(), FrameFault> {
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
    fn check_source(&self, link: u32, header: &Header) -> Result<(), FrameFault> {
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

    fn handle_corrupt(&mut self, link: u32, index: u32, header: &Header) {
        tracing::warn!(flow = ?header.flow, position = header.position, "a frame arrived corrupt");
        let flow = &mut self.in_flows[index as usize];
        flow.held.clear();
        flow.flow.close(&mut self.budget);
        self.refuse(link, header, Refusal::Corrupt);
    }

    fn refuse(&mut self, link: u32, header: &Header, reason: Refusal) {
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

    fn find_in_flow(&mut self, key: FlowKey) -> Option<u32> {
        if let Some((last, index)) = self.in_last
            && last == key
        {
            return Some(index);
        }
        let index = *self.in_by_key.get(&key)?;
        self.in_last = Some((key, index));
        Some(index)
    }

    // ---- links --------------------------------------------------------------------------

    /// A link is up; its flows go on.
    pub(crate) fn link_is_up(&mut self, index: u32, now: Time) {
        let Some(link) = &mut self.links[index as usize] else {
            return;
        };
        link.last_error = None;
        link.is_dialing = false;
        link.last_heard = now;
        let flows = link.flows.clone();
        for flow in flows {
            self.out_flows[flow as usize].flow.handle_link_up(now);
            self.wake_flow(flow);
        }
    }

    /// A link is lost. One that was dialled stays, to be dialled again; one that was
    /// accepted goes. Returns its number at the conductor.
    pub(crate) fn link_is_lost(&mut self, index: u32, now: Time) -> Option<u64> {
        let link = self.links[index as usize].as_mut()?;
        link.output.take()?;
        let id = link.id;
        link.control.clear();
        link.is_gathering = false;
        if link.is_dialed {
            link.waiting.clear();
            let mut flows_need_it = false;
            for &index in &link.flows {
                let flow = &mut self.out_flows[index as usize];
                flow.is_waiting = false;
                flow.flow.handle_link_lost(now);
                flows_need_it |= !flow.flow.is_drained();
            }
            link.is_dialing = false;
            if flows_need_it {
                self.dial(index);
            }
        } else {
            for flow in &mut self.in_flows {
                if flow.link == Some(index) {
                    flow.link = None;
                    flow.has_credit = false;
                    flow.held.clear();
                    flow.flow.suspend(&mut self.budget, now);
                }
            }
            self.links[index as usize] = None;
            self.dirty.retain(|dirty| *dirty != index);
        }
        self.sweep_at = Some(now);
        Some(id)
    }

    // ---- time ---------------------------------------------------------------------------

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let acknowledge = self.timed.front().map(|(at, _)| *at);
        match (acknowledge, self.sweep_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        while let Some(&(at, index)) = self.timed.front()
            && now >= at
        {
            self.timed.pop_front();
            let flow = &mut self.in_flows[index as usize];
            flow.is_timed = false;
            match flow.flow.next_deadline() {
                Some(next) if next > now => {
                    flow.is_timed = true;
                    self.timed.push_back((next, index));
                }
                Some(_) => {
                    self.offer_credit(index);
                }
                None => {}
            }
        }
        if self.sweep_at.is_some_and(|at| now >= at) {
            self.sweep(now);
        }
    }

    /// Looks at every flow for what is due, and at when the next will be.
    fn sweep(&mut self, now: Time) {
        let mut next: Option<Time> = None;
        for index in 0..self.out_flows.len() {
            let slot = &mut self.out_flows[index];
            let Some(mut at) = slot.flow.next_deadline() else {
                continue;
            };
            // The thread that sends borrowed memory does what is due itself.
            if now >= at && !slot.has_borrower {
                let number = u32::try_from(index).unwrap_or(u32::MAX);
                slot.flow.handle_timeout(now);
                let idle_retry = slot.flow.next_deadline();
                self.note_failure(number, now);
                self.wake_flow(number);
                let Some(again) = idle_retry else { continue };
                at = again;
            }
            let at = at.clamp(now + SWEEP, now + SWEEP_MOST);
            next = Some(next.map_or(at, |next| next.min(at)));
        }
        let limit = self.cluster.link_timeout();
        for flow in &mut self.in_flows {
            let Some(since) = flow.flow.suspended_since() else {
                continue;
            };
            if flow.reassembly.message().is_none() {
                continue;
            }
            let at = since + limit;
            if now >= at {
                flow.break_message(Broken::SourceLost);
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        self.sweep_at = next;
    }

    /// If the flow has failed: keeps why, for callers to be told, and readies it for what
    /// is packed next.
    pub(crate) fn note_failure(&mut self, index: u32, now: Time) {
        let flow = &mut self.out_flows[index as usize];
        if flow.has_borrower {
            // The thread that sends notices, and lets go of what it lent first.
            return;
        }
        if let Some((failure, messages)) = flow.flow.take_failure(now) {
            flow.failure_told = messages.is_empty();
            flow.failure = Some((failure, messages));
            let link = flow.link;
            self.stop_dialing_if_unused(link);
        }
    }

    /// Whether every flow has delivered everything.
    pub(crate) fn is_drained(&self) -> bool {
        self.out_flows.iter().all(|flow| flow.flow.is_drained())
    }
}

/// Fragments of regular messages: nothing on one hop asks for small ones.
pub(crate) const REGULAR_FRAGMENT_BYTES: u32 = 1 << 20;
