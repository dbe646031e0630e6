//! Everything that a session knows, behind one lock.
//!
//! [`Core`] holds flows, links and what has arrived; it makes no system call. The lock is
//! held for a batch of frames at a time, never while a thread sends, receives or sleeps.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use madgate_bmm::Policy;
use madgate_gtm::outgoing::Settings;
use madgate_gtm::wire::{Coverage, HEADER_BYTES, SMALL_PAYLOAD_BYTES};
use madgate_gtm::{Budget, FlowKey, Header, Outgoing, Time};

use super::flows::{InFlow, OutFlow, ReadyFlows};
use super::input::InputError;
use super::links::{Link, LinkOutput};
use super::ticker::Order;
use crate::cluster::{ChannelId, Checksum, Cluster, EndpointSettings, NetworkId, NodeId};
use crate::conductor::{LinkKind, LinkRequest};
use crate::topology::Routes;

/// How often at most flows are looked at for what is due.
pub(super) const SWEEP: Duration = Duration::from_millis(10);

/// How long at most until the next look, while a flow is not carried.
pub(super) const SWEEP_MOST: Duration = Duration::from_millis(50);

/// Two short messages within this time are a burst: the second and what follows gather.
const BURST: Duration = Duration::from_micros(20);

/// Bytes that gather before the packing thread sends them itself.
pub(super) const GATHER_BYTES: usize = 32 << 10;

/// Bytes of a message that gathers at most: 16 KiB, and what goes in front of its blocks. What a call
/// costs is little beside what a longer one costs.
const GATHERED_MESSAGE_BYTES: usize = 17 << 10;

/// Bytes of a small message at most. Where sending is storing, only such gather: longer ones have a slot
/// each, whoever sends them.
const SMALL_MESSAGE_BYTES: usize = HEADER_BYTES + SMALL_PAYLOAD_BYTES;

/// How long the progress thread leaves a link to a thread that packs small messages and sends them
/// itself: what one processor has packed costs another dear to send. Of longer ones few gather, and
/// what comes behind them need not wait for that.
const STREAM: Duration = Duration::from_micros(200);

/// Whether a message gathers with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gathers {
    /// It is to be sent now.
    No,
    /// The progress thread sends it in a moment.
    Yes,
    /// As `Yes`, but the thread has to be told.
    Start,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) node: NodeId,
    pub(super) incarnation: u64,
    pub(super) settings: EndpointSettings,
    pub(super) routes: Vec<Option<Routes>>,

    pub(crate) out_flows: Vec<OutFlow>,
    pub(super) out_by_key: HashMap<(u32, u16), u32>,
    /// The last flow that was asked for: messages to one node come together.
    pub(super) out_last: Option<((u32, u16), u32)>,

    pub(crate) in_flows: Vec<InFlow>,
    pub(super) in_by_key: HashMap<FlowKey, u32>,
    pub(super) in_last: Option<(FlowKey, u32)>,
    /// Messages that callers have begun to unpack.
    pub(crate) messages_claimed: u64,
    pub(crate) channels: Vec<ReadyFlows>,
    pub(crate) budget: Budget,

    pub(crate) links: Vec<Option<Link>>,
    pub(crate) dialed: HashMap<LinkRequest, u32>,
    pub(crate) dirty: Vec<u32>,
    /// Links to ask the conductor for.
    pub(crate) to_dial: Vec<LinkRequest>,
    /// Links that failed when something was sent: the driver closes them.
    pub(crate) broken: Vec<(u32, InputError)>,
    /// Peers that have answered a challenge.
    pub(crate) heard: Vec<(NodeId, u64)>,
    /// Links that the conductor need not dial any more.
    pub(crate) to_cancel: Vec<LinkRequest>,
    /// Links with a lane that took less than it was offered, which nobody waits for yet.
    pub(crate) blocked: Vec<u32>,

    /// Acknowledgements to come, oldest first.
    pub(super) timed: VecDeque<(Time, u32)>,
    /// When flows from here are to be looked at for what is due.
    pub(super) sweep_at: Option<Time>,
    /// When the log may next say that nobody carries one.
    pub(super) complain_at: Time,
    /// When those to here whose way is lost are, and links that are dialled for them.
    pub(super) lost_at: Option<Time>,
    /// When sources that have fallen silent are to be looked for.
    pub(super) forget_at: Option<Time>,
    /// Whether there was no deadline before, or none as near: a driver that sleeps does not know.
    pub(super) has_first_deadline: bool,
    /// Callers inside a wait.
    pub(super) callers: usize,
    /// Waits that began so far.
    pub(super) waits: u64,
    /// Whether the ticker looks at this session no longer, until the last caller leaves.
    pub(super) is_forgotten: bool,
    /// `messages_claimed` when that was decided last.
    pub(super) claimed_when_forgotten: Option<u64>,
    /// What the progress thread is to do next.
    pub(super) order: Order,
    pub(super) next_seed: u64,
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
            out_by_key: HashMap::default(),
            out_last: None,
            in_flows: Vec::new(),
            in_by_key: HashMap::default(),
            in_last: None,
            messages_claimed: 0,
            channels,
            budget: Budget::new(memory),
            links: Vec::new(),
            dialed: HashMap::default(),
            dirty: Vec::new(),
            to_dial: Vec::new(),
            broken: Vec::new(),
            heard: Vec::new(),
            to_cancel: Vec::new(),
            blocked: Vec::new(),
            timed: VecDeque::new(),
            sweep_at: None,
            complain_at: Time(0),
            lost_at: None,
            forget_at: None,
            has_first_deadline: false,
            callers: 0,
            waits: 0,
            is_forgotten: false,
            claimed_when_forgotten: None,
            order: Order::Rest,
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
        let fragment_bytes = routes.fragment_bytes(&route);
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
            checksum: self.coverage(
                self.cluster.channel(channel).checksum,
                first.network,
                is_regular,
            ),
            crosses_gateways: !is_regular,
            bundles: self.settings.bundles,
            ramps: self.settings.ramps,
            sized_by_speed: self.settings.sized_by_speed,
            give_up_after: self.cluster.link_timeout(),
            seed: self.next_seed,
        };
        let link = match self.accepted_link(request) {
            Some(link) => link,
            None => {
                let link = self.dialed_link(request);
                self.dial(link);
                link
            }
        };
        let index = u32::try_from(self.out_flows.len()).ok()?;
        self.out_flows
            .push(OutFlow::new(Outgoing::new(settings, now), link));
        self.flow_is_up(index, now);
        if let Some(link) = &mut self.links[link as usize] {
            link.flows.push(index);
        }
        self.out_by_key
            .insert((destination.rank(), channel.0), index);
        Some(index)
    }

    /// The flows of a channel to a node and from it, if there are any.
    pub(super) fn flows_with(
        &self,
        node: NodeId,
        channel: ChannelId,
    ) -> (Option<&OutFlow>, Option<&InFlow>) {
        let there = self.out_by_key.get(&(node.rank(), channel.0));
        let back = self.in_flow(node, channel);
        (
            there.map(|index| &self.out_flows[*index as usize]),
            back.map(|index| &self.in_flows[index as usize]),
        )
    }

    /// What checksums cover on a route that begins on `network`, and ends there if `is_regular`, of a
    /// channel with `checksum`.
    pub(super) fn coverage(
        &self,
        checksum: Checksum,
        network: NetworkId,
        is_regular: bool,
    ) -> Coverage {
        if !is_regular {
            match checksum {
                Checksum::Payload => Coverage::Whole,
                Checksum::Header => Coverage::Header,
            }
        } else if self.settings.unsealed && self.cluster.network(network).stays_in_memory() {
            Coverage::Nothing
        } else {
            Coverage::Header
        }
    }

    /// The link that this node dials for `request`, up or not.
    fn dialed_link(&mut self, request: LinkRequest) -> u32 {
        if let Some(&link) = self.dialed.get(&request) {
            return link;
        }
        let index = self.add_link(Link::new(request, true));
        self.dialed.insert(request, index);
        index
    }

    /// A link that is up because the peer has dialled it, and that serves as well as one
    /// that `request` would bring: of two that talk both ways, one needs to dial.
    pub(super) fn accepted_link(&self, request: LinkRequest) -> Option<u32> {
        let serves = |link: &Link| !link.is_dialed && link.serves() == request && link.is_up();
        let found = |link: &Option<Link>| link.as_ref().is_some_and(serves);
        u32::try_from(self.links.iter().position(found)?).ok()
    }

    /// Asks for a link that is down, unless it is being dialled.
    pub(super) fn dial(&mut self, index: u32) {
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
    pub(super) fn stop_dialing_if_unused(&mut self, index: u32) {
        let Some(link) = &mut self.links[index as usize] else {
            return;
        };
        let is_used = link.awaited_until.is_some()
            || link
                .flows
                .iter()
                .any(|&flow| self.out_flows[flow as usize].flow.is_unfinished());
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
            self.has_first_deadline = true;
        }
    }

    /// A flow may have a nearer deadline than before.
    pub(crate) fn note_deadline(&mut self, index: u32) {
        if let Some(at) = self.out_flows[index as usize].flow.next_deadline()
            && self.sweep_at.is_none_or(|sweep| at < sweep)
        {
            self.sweep_at = Some(at);
            self.has_first_deadline = true;
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

    /// A lane of `link`, whose sending side is `output`, took less than it was offered: the
    /// driver waits until it takes more.
    pub(crate) fn note_blocked(&mut self, index: u32, output: &Arc<LinkOutput>) {
        if self.is_output(index, output)
            && let Some(link) = &mut self.links[index as usize]
        {
            link.is_stalled = true;
            if !self.blocked.contains(&index) {
                self.blocked.push(index);
            }
        }
    }

    /// Whether the lanes of `link` may take more than when they were last found blocked.
    pub(crate) fn takes_more(&self, link: u32) -> bool {
        self.links[link as usize]
            .as_ref()
            .is_none_or(|link| !link.is_stalled || link.output.is_none())
    }

    /// The next link with something to send that no packing thread is about to send itself.
    pub(super) fn take_dirty_left(&mut self, now: Time) -> Option<u32> {
        let links = &mut self.links;
        let is_left = |index: &u32| {
            let link = links[*index as usize].as_ref();
            link.and_then(|link| link.streamed_at)
                .is_none_or(|at| now.since(at) >= STREAM)
        };
        let place = self.dirty.iter().position(is_left)?;
        let index = self.dirty.swap_remove(place);
        if let Some(link) = &mut self.links[index as usize] {
            link.is_dirty = false;
        }
        Some(index)
    }

    /// Whether a message of `bytes` is sent at once or gathers with those that come right after: it
    /// does if it is short and another was sent a moment ago, with nobody waiting in between.
    pub(crate) fn gathers(
        &mut self,
        link: u32,
        bytes: usize,
        now: impl FnOnce() -> Time,
    ) -> Gathers {
        let Some(link) = &mut self.links[link as usize] else {
            return Gathers::No;
        };
        let only_stores = || link.output.as_ref().is_some_and(|it| it.only_stores());
        let is_long =
            bytes > GATHERED_MESSAGE_BYTES || (bytes > SMALL_MESSAGE_BYTES && only_stores());
        if is_long || !self.settings.gather {
            return Gathers::No;
        }
        let waited = link.waits_before != self.waits;
        link.waits_before = self.waits;
        let is_first = link.gathered == 0;
        link.gathered += bytes;
        if link.is_gathering {
            // Who waits for an answer to each message is not to wait for the progress thread too,
            // which goes on as long as it finds something.
            if waited && is_first {
                return Gathers::No;
            }
            if link.gathered < GATHER_BYTES {
                return Gathers::Yes;
            }
            if bytes <= SMALL_MESSAGE_BYTES {
                link.streamed_at = Some(now());
            }
            return Gathers::No;
        }
        if waited {
            return Gathers::No;
        }
        let now = now();
        if now.since(link.last_flush) >= BURST {
            link.last_flush = now;
            return Gathers::No;
        }
        link.is_gathering = true;
        Gathers::Start
    }

    /// How frames that wait for a link leave.
    pub(super) fn policy(&self) -> Policy {
        if self.settings.gather {
            Policy::Gathering
        } else {
            Policy::Eager
        }
    }

    // ---- links --------------------------------------------------------------------------

    /// A link is up; its flows go on. Returns whether the log says that there is none.
    pub(crate) fn link_is_up(&mut self, index: u32, now: Time) -> bool {
        let Some(link) = &mut self.links[index as usize] else {
            return false;
        };
        link.last_error = None;
        let was_missed = mem::take(&mut link.is_missed);
        link.is_dialing = false;
        link.awaited_until = None;
        link.is_challenged = false;
        for flow in link.flows.clone() {
            self.flow_is_up(flow, now);
            self.wake_flow(flow);
        }
        self.take_over_flows(index, now) || was_missed
    }

    /// The link of a flow is up, if it is: it learns that, and what the link carries.
    fn flow_is_up(&mut self, index: u32, now: Time) {
        let OutFlow { flow, link, .. } = &mut self.out_flows[index as usize];
        let link = self.links[*link as usize].as_ref();
        if let Some(output) = link.and_then(|link| link.output.as_ref()) {
            flow.limit_fragments(output.largest_fragment());
            flow.handle_link_up(now);
        }
    }

    /// Flows that wait for a link to be dialled go over one that the peer has dialled. Returns whether
    /// the log says that there is none.
    fn take_over_flows(&mut self, index: u32, now: Time) -> bool {
        let Some(link) = &self.links[index as usize] else {
            return false;
        };
        let request = link.serves();
        if self.accepted_link(request) != Some(index) {
            return false;
        }
        let Some(&dialed) = self.dialed.get(&request) else {
            return false;
        };
        let Some(waits) = self.links[dialed as usize]
            .as_mut()
            .filter(|link| !link.is_up())
        else {
            return false;
        };
        let was_missed = mem::take(&mut waits.is_missed);
        waits.waiting.clear();
        // The conductor sees by itself that it need not be dialled any more.
        waits.is_dialing = false;
        waits.awaited_until = None;
        waits.brings = false;
        for flow in std::mem::take(&mut waits.flows) {
            self.move_flow(flow, index, now);
        }
        self.to_dial.retain(|asked| *asked != request);
        was_missed
    }

    /// A flow goes over another link from now on; it stands in the list of none.
    fn move_flow(&mut self, flow: u32, to: u32, now: Time) {
        let moved = &mut self.out_flows[flow as usize];
        moved.link = to;
        moved.is_waiting = false;
        let Some(link) = &mut self.links[to as usize] else {
            return;
        };
        link.flows.push(flow);
        if link.is_up() {
            self.flow_is_up(flow, now);
            self.wake_flow(flow);
        } else if moved.flow.is_unfinished() {
            self.dial(to);
        }
    }

    /// A link is lost. One that was dialled stays, to be dialled again; one that was
    /// accepted goes, and its flows go over another, which knows `why` they had to. Returns its
    /// number at the conductor.
    pub(crate) fn link_is_lost(&mut self, index: u32, why: String, now: Time) -> Option<u64> {
        let link = self.links[index as usize].as_mut()?;
        link.output.take()?;
        let (id, request) = (link.id, link.serves());
        link.control.clear();
        link.credits.clear();
        link.waiting.clear();
        link.is_gathering = false;
        link.is_stalled = false;
        link.is_dialing = false;
        let flows = std::mem::take(&mut link.flows);
        let is_dialed = link.is_dialed;
        for flow in &mut self.in_flows {
            if flow.link == Some(index) {
                link.brings = true;
                flow.link = None;
                flow.has_credit = false;
                flow.held.clear();
                flow.inbox.copy_kept();
                flow.flow.suspend(&mut self.budget, now);
            }
        }
        if !is_dialed {
            self.links[index as usize] = None;
            self.dirty.retain(|dirty| *dirty != index);
        }
        if !flows.is_empty() {
            let to = match self.accepted_link(request) {
                Some(link) => link,
                None => self.dialed_link(request),
            };
            if let Some(link) = &mut self.links[to as usize] {
                link.last_error = Some(why);
            }
            for flow in flows {
                self.out_flows[flow as usize].flow.handle_link_lost(now);
                self.move_flow(flow, to, now);
            }
        }
        self.await_link(index, now);
        self.broken.retain(|(broken, _)| *broken != index);
        self.blocked.retain(|blocked| *blocked != index);
        self.sweep_at = Some(now);
        self.lost_at = Some(now);
        Some(id)
    }

    /// A caller's wait is over. Returns whether the ticker is to look at the session again: the
    /// progress thread may have to take over.
    pub(super) fn leave(&mut self) -> bool {
        self.callers -= 1;
        self.callers == 0 && mem::take(&mut self.is_forgotten)
    }

    /// Whether there is something to do that the driver does.
    pub(crate) fn has_chores(&self) -> bool {
        let has_links = !self.to_dial.is_empty() || !self.to_cancel.is_empty();
        let has_heard = !self.heard.is_empty();
        has_links || has_heard || !self.dirty.is_empty() || !self.broken.is_empty()
    }

    /// What is sent on a link fails: the driver closes it, if it is still there.
    pub(crate) fn note_broken(&mut self, index: u32, output: &Arc<LinkOutput>, error: InputError) {
        let is_known = self.broken.iter().any(|(broken, _)| *broken == index);
        if !is_known && self.is_output(index, output) {
            self.broken.push((index, error));
        }
    }

    /// Whether `output` still is the sending side of link `index`.
    pub(crate) fn is_output(&self, index: u32, output: &Arc<LinkOutput>) -> bool {
        let link = self.links.get(index as usize).and_then(Option::as_ref);
        let current = link.and_then(|link| link.output.as_ref());
        current.is_some_and(|current| Arc::ptr_eq(current, output))
    }

    // ---- time ---------------------------------------------------------------------------

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let acknowledge = self.timed.front().map(|(at, _)| *at);
        let others = [acknowledge, self.sweep_at, self.lost_at, self.forget_at];
        others.into_iter().flatten().min()
    }

    /// Does what is due. Returns whether what is to be sent for it presses, which only
    /// acknowledgements do not whose sources have ample credit.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> bool {
        let mut presses = false;
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
                    presses |= !flow.flow.has_ample_credit();
                    self.offer_credit(index);
                }
                None => {}
            }
        }
        if self.sweep_at.is_some_and(|at| now >= at) {
            presses = true;
            self.sweep(now);
        }
        if self.forget_at.is_some_and(|at| now >= at) {
            presses = true;
            self.forget_silent(now);
        }
        // Behind that, which may have found that something is lost.
        if self.lost_at.is_some_and(|at| now >= at) {
            presses = true;
            self.break_lost(now);
        }
        presses
    }

    /// Closes flows whose sources have fallen silent, and notes when that is to be looked at again. Where
    /// that goes on, what came of their messages waits for as long as after the loss of a link.
    fn forget_silent(&mut self, now: Time) {
        for flow in &mut self.in_flows {
            flow.flow.handle_timeout(&mut self.budget, now);
            if !flow.flow.is_open() {
                flow.held.clear();
            }
            if flow.flow.suspended_since() == Some(now) {
                self.lost_at = Some(now);
            }
            flow.shrink_if_idle();
        }
        let forgotten = self
            .in_flows
            .iter()
            .filter_map(|flow| flow.flow.forgotten_at());
        self.forget_at = forgotten.min();
    }

    /// Looks at every flow from here for what is due, and at when the next will be.
    fn sweep(&mut self, now: Time) {
        let mut next: Option<Time> = None;
        for index in 0..self.out_flows.len() {
            self.complain_if_stuck(index, now);
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
            if !self.out_flows[index].flow.is_open() {
                at = at.min(now + SWEEP_MOST);
            }
            let at = at.max(now + SWEEP);
            next = Some(next.map_or(at, |next| next.min(at)));
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
            let link = flow.link;
            let reason = self.link_error(link);
            let flow = &mut self.out_flows[index as usize];
            flow.copies.shrink();
            flow.failures.note(failure, reason, messages);
            self.stop_dialing_if_unused(link);
        }
    }

    /// Whether every flow has delivered everything.
    pub(crate) fn is_drained(&self) -> bool {
        self.out_flows.iter().all(|flow| flow.flow.is_drained())
    }
}
