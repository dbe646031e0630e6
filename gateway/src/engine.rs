//! What the engine's threads share.
//!
//! One lock, [`Shared`], holds the flow table and the map of links. It is held for a batch of
//! frames at a time, and taken after a link's output where both are needed, never before. It is held
//! in a system call only where a frame leaves its pipe or slot because it has to wait, or is dropped.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use foldhash::{HashMap, HashSet};
use madgate_gtm::transit::{Lane, LinkId, LinkLimits};
use madgate_gtm::{Budget, Time, Transit};
use madgate_tm::{LaneClass, Protocol, Waker};
use madgate_vchannel::cluster::{GatewaySettings, Handover};
use madgate_vchannel::conductor::{Conductor, LinkRequest};
use madgate_vchannel::{Cluster, NetworkId, NodeId};

use crate::complaints::Complaints;
use crate::counters::{Counters, NetworkCounters, NetworkTally, Tally, add, read};
use crate::dialling::{Asked, Dialling};
use crate::fault::Fault;
use crate::frame::Frame;
use crate::instruments::{Clock, Pipelines, Spent};
use crate::link::Link;
use crate::router::Router;

/// Connections that broke which are warned of in a second at most: a switch takes many with it.
const BREAKAGES_MOST: u64 = 16;

/// Links that wait for one sender's thread at most; when there are more, it looks at all.
const HANDOVERS_MOST: usize = 1024;

/// Everything behind the threads of one gateway.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) node: NodeId,
    pub(crate) settings: GatewaySettings,
    pub(crate) router: Router,
    pub(crate) conductor: Arc<Conductor>,
    pub(crate) dialling: Dialling,
    pub(crate) networks: Vec<Hub>,
    pub(crate) tally: Tally,
    /// About what members do.
    complaints: Complaints,
    /// The same, for connections that broke.
    breakages: Complaints,
    shared: Mutex<Shared>,
    pub(crate) clock: Clock,
    stopping: AtomicBool,
    draining: AtomicBool,
    /// Receivers that wait for memory.
    starving: AtomicUsize,
    /// Whether anything is limited to a rate.
    keeps_rates: bool,
    /// Neighbours that are limited to one, as they are numbered.
    limited: HashMap<(NetworkId, NodeId), usize>,
    /// Bytes from which on a payload may go straight to where it leaves from: into a slot where any
    /// of the networks lends these, or through a pipe.
    pub(crate) straight_from_bytes: usize,
}

/// The flow table, and the links.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) transit: Transit<Frame>,
    pub(crate) links: HashMap<LinkId, Arc<Link>>,
    /// By what flows ask for: those that new ones leave by.
    pub(crate) ways: HashMap<LinkRequest, Arc<Link>>,
    /// Links that flows have asked for.
    pub(crate) asked: HashMap<LinkRequest, Asked>,
    /// Of which the log says that they are gone, or cannot be had: no more than there are ways to
    /// neighbours.
    pub(crate) missed: HashSet<LinkRequest>,
    pub(crate) pipelines: Pipelines,
    /// The most bytes that have waited in flows' queues at once.
    queued_peak_bytes: u64,
}

/// One network's threads, as the others see them.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) network: NetworkId,
    pub(crate) name: String,
    pub(crate) tally: NetworkTally,
    pub(crate) receiver_waker: Waker,
    pub(crate) sender_waker: Waker,
    /// What the two threads spend their time on.
    pub(crate) receiver_spent: Arc<Spent>,
    pub(crate) sender_spent: Arc<Spent>,
    commands: Mutex<Vec<Command>>,
    has_commands: AtomicBool,
    handovers: Sender<Arc<Link>>,
    overflowed: AtomicBool,
    freed: Sender<()>,
    is_starving: AtomicBool,
}

/// The ends of a hub's channels that belong to its threads.
#[derive(Debug)]
pub(crate) struct HubEnds {
    /// For the sender: links with something to send.
    pub(crate) handovers: Receiver<Arc<Link>>,
    /// For the receiver: memory may have become free.
    pub(crate) freed: Receiver<()>,
}

/// What a receiver is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// To receive on a lane from now on.
    Add(Arc<Link>, LaneClass, Box<dyn madgate_tm::LaneReceiver>),
    /// To let go of the lanes of a link.
    Drop(Arc<Link>),
    /// To receive what the peer of a link has said before it left, and to close the link: who sends has
    /// found that it has.
    Left(Arc<Link>, Fault),
}

/// Links that have something to send, each once.
#[derive(Debug, Default)]
pub(crate) struct Touched(Vec<Arc<Link>>);

impl Touched {
    pub(crate) fn add(&mut self, link: &Arc<Link>) {
        if !self.0.iter().any(|known| Arc::ptr_eq(known, link)) {
            self.0.push(Arc::clone(link));
        }
    }

    pub(crate) fn next(&mut self) -> Option<Arc<Link>> {
        self.0.pop()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Hub {
    pub(crate) fn new(
        network: NetworkId,
        name: String,
        receiver_waker: Waker,
        sender_waker: Waker,
    ) -> (Self, HubEnds) {
        let (handovers, handovers_end) = bounded(HANDOVERS_MOST);
        let (freed, freed_end) = bounded(1);
        let hub = Self {
            network,
            name,
            tally: NetworkTally::default(),
            receiver_waker,
            sender_waker,
            receiver_spent: Arc::default(),
            sender_spent: Arc::default(),
            commands: Mutex::default(),
            has_commands: AtomicBool::new(false),
            handovers,
            overflowed: AtomicBool::new(false),
            freed,
            is_starving: AtomicBool::new(false),
        };
        (
            hub,
            HubEnds {
                handovers: handovers_end,
                freed: freed_end,
            },
        )
    }

    /// Tells the receiver something. Bounded by the links, of which each is added and
    /// dropped once.
    pub(crate) fn command(&self, command: Command) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.push(command);
        self.has_commands.store(true, Ordering::Release);
        drop(commands);
        self.receiver_waker.wake();
    }

    /// What the receiver has been told, in order.
    pub(crate) fn take_commands(&self) -> Vec<Command> {
        if !self.has_commands.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_commands.store(false, Ordering::Relaxed);
        std::mem::take(&mut *commands)
    }

    /// Gives a link to the sender's thread.
    pub(crate) fn hand_over(&self, link: &Arc<Link>) {
        if !link.hand_over() {
            return;
        }
        add(&self.tally.handed_over, 1);
        if let Err(TrySendError::Full(link)) = self.handovers.try_send(Arc::clone(link)) {
            link.taken_over();
            self.overflowed.store(true, Ordering::Release);
        }
        self.sender_waker.wake();
    }

    /// What has happened on this network until `now`.
    fn counters(&self, now: Time, sent_frames: u64) -> NetworkCounters {
        NetworkCounters {
            name: self.name.clone(),
            sent_frames,
            receiver: self.receiver_spent.times(now),
            sender: self.sender_spent.times(now),
            mailbox: self.handovers.len(),
            ..self.tally.counters()
        }
    }

    /// Whether links were handed over that the mailbox did not take.
    pub(crate) fn take_overflow(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed) && self.overflowed.swap(false, Ordering::AcqRel)
    }
}

impl Engine {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        node: NodeId,
        conductor: Arc<Conductor>,
        networks: Vec<Hub>,
        router: Router,
        promised_bytes: u64,
    ) -> Self {
        let shares: Vec<_> = cluster
            .channels()
            .iter()
            .map(|channel| channel.share)
            .collect();
        let rates: Vec<_> = networks
            .iter()
            .map(|hub| cluster.network(hub.network).rate)
            .collect();
        let settings = cluster.gateway_settings();
        let lends = |hub: &Hub| cluster.network(hub.network).protocol != Protocol::Tcp;
        let straight_from_bytes = if networks.iter().any(lends) {
            settings.direct_bytes.min(settings.splice_from_bytes)
        } else {
            settings.splice_from_bytes
        };
        let known = &cluster;
        let of_network = |hub: &Hub| {
            let network = hub.network;
            let nodes = known.nodes_on(network);
            nodes.filter_map(move |node| Some(((network, node), known.node_rate(node)?)))
        };
        let (limited, neighbours): (Vec<_>, Vec<_>) = networks.iter().flat_map(of_network).unzip();
        let keeps_rates = rates.iter().any(Option::is_some)
            || shares.iter().any(|share| share.rate.is_some())
            || !neighbours.is_empty();
        let transit = Transit::new(Budget::new(promised_bytes))
            .with_shares(shares)
            .with_rates(&rates, &neighbours);
        let limited = limited.into_iter().enumerate();
        let limited = limited.map(|(at, neighbour)| (neighbour, at)).collect();
        let shared = Shared {
            transit,
            links: HashMap::default(),
            ways: HashMap::default(),
            asked: HashMap::default(),
            missed: HashSet::default(),
            pipelines: Pipelines::new(networks.len()),
            queued_peak_bytes: 0,
        };
        Self {
            settings: settings.clone(),
            straight_from_bytes,
            router,
            cluster,
            node,
            conductor,
            dialling: Dialling::default(),
            networks,
            tally: Tally::default(),
            complaints: Complaints::new(1),
            breakages: Complaints::new(BREAKAGES_MOST),
            shared: Mutex::new(shared),
            clock: Clock::start(),
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            starving: AtomicUsize::new(0),
            keeps_rates,
            limited,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The time, where rates are kept: what leaves does not need it otherwise.
    pub(crate) fn rate_time(&self) -> Time {
        if self.keeps_rates {
            self.now()
        } else {
            Time(0)
        }
    }

    /// Whose rates a link shares: those of its network and, with what else leads there, of its
    /// neighbour.
    pub(crate) fn limits_of(&self, request: LinkRequest) -> LinkLimits {
        let mut networks = self.networks.iter();
        let neighbour = (request.network, request.peer);
        LinkLimits {
            network: networks.position(|hub| hub.network == request.network),
            neighbour: self.limited.get(&neighbour).copied(),
        }
    }

    /// The threads of a network.
    pub(crate) fn hub(&self, network: NetworkId) -> Option<&Hub> {
        self.networks.iter().find(|hub| hub.network == network)
    }

    pub(crate) fn hands_over(&self) -> bool {
        self.settings.handover == Handover::Thread
    }

    // ---- the end --------------------------------------------------------------------

    /// Ends every thread.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// No flow is admitted and no data taken in any longer.
    pub(crate) fn begin_draining(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn wake_all(&self) {
        for hub in &self.networks {
            hub.receiver_waker.wake();
            hub.sender_waker.wake();
        }
    }

    // ---- memory that receivers wait for -------------------------------------------------

    /// A receiver begins to wait for memory, or has ended to.
    pub(crate) fn starve(&self, hub: &Hub, starving: bool) {
        hub.is_starving.store(starving, Ordering::SeqCst);
        if starving {
            self.starving.fetch_add(1, Ordering::SeqCst);
        } else {
            self.starving.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Something has left: receivers that wait for memory look again.
    pub(crate) fn feed(&self) {
        if self.starving.load(Ordering::SeqCst) == 0 {
            return;
        }
        for hub in self
            .networks
            .iter()
            .filter(|hub| hub.is_starving.load(Ordering::SeqCst))
        {
            // A full channel has told it already.
            let _ = hub.freed.try_send(());
        }
    }

    /// Copies every frame that waits out of the receivers' memory, and has those of the
    /// links concerned copied at once for a while. Returns the bytes that were copied.
    pub(crate) fn detach_all(&self) -> usize {
        let now = self.now();
        let mut total = 0;
        let mut links = Vec::new();
        {
            let mut shared = self.lock();
            let Shared {
                transit,
                links: all,
                ..
            } = &mut *shared;
            transit.for_each_queued(|frame| {
                let bytes = frame.detach();
                self.tally.note_parked(bytes);
                total += bytes;
            });
            for link in all.values() {
                let waits = [Lane::Urgent, Lane::Bulk]
                    .iter()
                    .any(|lane| transit.has_queued(link.transit, *lane));
                if waits {
                    link.slow_down(now);
                }
                links.push(Arc::clone(link));
            }
        }
        for link in links {
            // An output that is locked is being sent from.
            let Some(mut output) = self.try_hold(&link) else {
                continue;
            };
            for lane in output.lanes() {
                lane.outbox.for_each_queued(|buffer, frame| {
                    let bytes = buffer.detach();
                    if let Some(frame) = frame {
                        frame.stay.note_parked(bytes);
                    }
                    self.tally.note_parked(bytes);
                    total += bytes;
                });
            }
        }
        total
    }

    // ---- links ------------------------------------------------------------------------

    /// Whether frames wait to be sent on a link. Those that it was given already may be anywhere.
    fn is_awaited(&self, link: &Link) -> bool {
        let shared = self.lock();
        let waits = |lane| shared.transit.has_queued(link.transit, lane);
        let has_queued = [Lane::Urgent, Lane::Bulk].into_iter().any(waits);
        has_queued || shared.transit.has_held_back(link.transit)
    }

    /// Closes a link, once: its flows are forgotten, their other ends told, and both threads
    /// of its network let go of it. Not to be called with the link's output locked.
    pub(crate) fn close_link(&self, link: &Arc<Link>, fault: &Fault, touched: &mut Touched) {
        if !link.close() {
            return;
        }
        let peer = self.cluster.node_name(link.request.peer);
        let complaints = if fault.is_misbehaviour() {
            add(&self.tally.misbehaved, 1);
            Some(&self.complaints)
        } else if fault.is_damage() {
            add(&self.tally.corrupt, 1);
            Some(&self.complaints)
        } else {
            // A node that leaves may close its socket while something is still sent to it that it has no
            // use for: an answer, or credit. Nothing is lost by that.
            let has_left = fault.is_reset() && !self.is_awaited(link);
            (fault.is_breakage() && !has_left).then_some(&self.breakages)
        };
        let warning = complaints.and_then(|complaints| complaints.may_warn(self.now()));
        match warning {
            Some(withheld) => {
                tracing::warn!(peer, kind = ?link.request.kind, withheld, "link closed: {fault}");
            }
            None => tracing::debug!(peer, kind = ?link.request.kind, "link closed: {fault}"),
        }
        {
            let mut shared = self.lock();
            shared.links.remove(&link.transit);
            shared.end_way(link);
            if warning.is_some() && !shared.ways.contains_key(&link.serves()) {
                shared.missed.insert(link.serves());
            }
            for told in shared.transit.remove_link(link.transit) {
                if let Some(told) = shared.links.get(&told) {
                    touched.add(told);
                }
            }
        }
        self.conductor.link_closed(link.id);
        if let Some(hub) = self.hub(link.request.network) {
            hub.command(Command::Drop(Arc::clone(link)));
            hub.hand_over(link);
        }
    }

    /// Counts frames of `from` that were dropped because they are corrupt.
    pub(crate) fn note_corrupt(&self, from: &Link, frames: u32) {
        if frames == 0 {
            return;
        }
        add(&self.tally.corrupt, u64::from(frames));
        if let Some(withheld) = self.complaints.may_warn(self.now()) {
            let peer = self.cluster.node_name(from.request.peer);
            tracing::warn!(peer, frames, withheld, "frames arrived corrupt");
        }
    }

    /// Says that a flow is refused because the nodes disagree about the cluster.
    pub(crate) fn note_disagreement(&self, source: u32, fragment_bytes: u32) {
        if let Some(withheld) = self.complaints.may_warn(self.now()) {
            tracing::warn!(
                source = self
                    .cluster
                    .node_with_rank(source)
                    .map(|node| self.cluster.node_name(node)),
                fragment_bytes,
                withheld,
                "a flow is refused: its fragments are larger than its way carries; have all \
                 nodes the same `mtu` and `slot_bytes`?"
            );
        }
    }

    // ---- what people see -----------------------------------------------------------------

    pub(crate) fn counters(&self) -> Counters {
        let now = self.now();
        let mut counters = Counters {
            copies: read(&self.tally.copies),
            copied_bytes: read(&self.tally.copied_bytes),
            parked_copies: read(&self.tally.parked_copies),
            parked_bytes: read(&self.tally.parked_bytes),
            corrupt: read(&self.tally.corrupt),
            misbehaved: read(&self.tally.misbehaved),
            uptime: now.since(Time(0)),
            ..Counters::default()
        };
        let mut shared = self.lock();
        shared.transit.count_parked(now);
        let carried = shared.transit.counters();
        counters.frames = carried.frames;
        counters.bytes = carried.bytes;
        counters.flows_opened = carried.opened;
        counters.refused = carried.refused;
        counters.stale = carried.stale;
        counters.control_dropped = carried.control_dropped;
        let budget = shared.transit.budget();
        counters.flows = budget.flows();
        counters.flow_limit = budget.flow_limit();
        counters.promised_bytes = budget.promised();
        counters.links = shared.links.len();
        counters.queued_bytes = shared.transit.queued_bytes();
        counters.queued_peak_bytes = shared.queued_peak_bytes;
        counters.parked_flows = carried.parked_flows;
        counters.parked_ahead = Duration::from_nanos(carried.parked_ahead_ns);
        counters.parked_memory = Duration::from_nanos(carried.parked_memory_ns);
        let sent = |to| shared.pipelines.frames_to(to);
        let networks = self.networks.iter().enumerate();
        counters.networks = networks
            .map(|(at, hub)| hub.counters(now, sent(at)))
            .collect();
        shared.pipelines.divide(&counters.networks);
        let names: Vec<&str> = self.networks.iter().map(|hub| &*hub.name).collect();
        let way = |from, to| shared.transit.way(from, to);
        counters.pipelines = shared.pipelines.counters(&names, way);
        let spliced = counters.pipelines.iter().map(|way| way.spliced_frames);
        counters.spliced_frames = spliced.sum();
        counters
    }
}

impl Shared {
    /// A link is up: new flows leave by it, unless they have another.
    pub(crate) fn add_way(&mut self, link: &Arc<Link>) {
        let way = self.ways.entry(link.serves());
        way.or_insert_with(|| Arc::clone(link));
    }

    /// A link is closed: new flows leave by another, if there is one. If not, it is dialled when one
    /// asks for it: most peers that are gone have left, and nobody needs them.
    fn end_way(&mut self, closed: &Arc<Link>) {
        let served = closed.serves();
        let is_way = |way: &Arc<Link>| Arc::ptr_eq(way, closed);
        if !self.ways.get(&served).is_some_and(is_way) {
            return;
        }
        let other = self.links.values().find(|link| link.serves() == served);
        if let Some(other) = other.map(Arc::clone) {
            self.ways.insert(served, other);
        } else {
            self.ways.remove(&served);
            self.asked.remove(&served);
        }
    }

    /// Notes how much waits in flows' queues, if it never was more.
    pub(crate) fn note_queued(&mut self) {
        self.queued_peak_bytes = self.queued_peak_bytes.max(self.transit.queued_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use madgate_tm::LaneError;

    use super::*;
    use crate::fixture::Fixture;

    /// Whether a link that ends like this is warned of.
    fn is_warned_of(kind: ErrorKind, waits: bool) -> bool {
        let fixture = Fixture::new();
        let (engine, link) = (&fixture.engine, fixture.link());
        if waits {
            fixture.wait_for(&link, 0);
        }
        let fault = Fault::from(LaneError::from(io::Error::from(kind)));
        engine.close_link(&link, &fault, &mut Touched::default());
        let mut quiet = 0;
        while engine.breakages.may_warn(Time(0)).is_some() {
            quiet += 1;
        }
        quiet < BREAKAGES_MOST
    }

    #[test]
    fn a_peer_that_nothing_waits_for_may_leave_by_a_reset() {
        assert!(!is_warned_of(ErrorKind::ConnectionReset, false));
        assert!(!is_warned_of(ErrorKind::BrokenPipe, false));
        assert!(is_warned_of(ErrorKind::ConnectionReset, true));
        assert!(is_warned_of(ErrorKind::TimedOut, false));
    }
}
