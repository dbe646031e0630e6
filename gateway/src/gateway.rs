//! The gateway as a process runs it.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender as Closer, bounded};
use madgate_gtm::Budget;
use madgate_tm::Poller;
use madgate_vchannel::cluster::{FRAME_OVERHEAD_BYTES, NetworkId, format_size};
use madgate_vchannel::conductor::{Conductor, EstablishedLink, LinkEvent, Party, WakeParty};
use madgate_vchannel::handshake::{SessionKey, draw_incarnation};
use madgate_vchannel::{Cluster, NodeId, Session};

use crate::batch::Batches;
use crate::counters::Counters;
use crate::drain::{DrainReport, drain};
use crate::engine::{Engine, Hub, HubEnds};
use crate::error::StartError;
use crate::fitting::Fitting;
use crate::keeper::Keeper;
use crate::receiver::Receiver;
use crate::receiver::crew::Crew;
use crate::router::Router;
use crate::sender::Sender;
use crate::waiting::sleepless;

/// The least part of a gateway's memory that must be left for promises when its receivers'
/// batches have theirs.
const LEAST_PROMISED: u64 = 3 << 20;

/// Gateways that are named to who names another node.
const GATEWAYS_NAMED: usize = 4;

/// A gateway: it forwards for as long as it lives.
///
/// - *start*: [`start`](Self::start), [`start_fitted`](Self::start_fitted)
/// - *state*: [`node`](Self::node), [`cluster`](Self::cluster), [`counters`](Self::counters),
///   [`observer`](Self::observer)
/// - *its own messages*: [`session`](Self::session)
/// - *end*: [`drain`](Self::drain), then drop it
#[derive(Debug)]
pub struct Gateway {
    engine: Arc<Engine>,
    session: Session,
    threads: Vec<JoinHandle<()>>,
    /// Dropped to end the keeper.
    stop: Option<Closer<()>>,
}

impl Gateway {
    /// Starts to forward as the node called `node`.
    ///
    /// # Errors
    /// When the node is no gateway of the cluster, its key cannot be read, an address cannot
    /// be listened on, its memory is too small, or the system refuses a thread.
    pub fn start(cluster: Arc<Cluster>, node: &str) -> Result<Self, StartError> {
        Self::start_with(cluster, node, Fitting::none())
    }

    /// The same, with a stage of the application's between the lanes and the engine: each link
    /// is what `fit` makes of it. A stage is a lane around another ([`LaneSender`] and
    /// [`LaneReceiver`]), such as a cipher, a checksum or a counter. What it does for bytes that
    /// come is done by the receiver's thread, and what it does for bytes that leave by whoever
    /// sends: with `handover = "thread"`, both at once.
    ///
    /// `fit` has to keep the number and the request of the link, and what arrives has to be the
    /// frames that the peer has sent.
    ///
    /// [`LaneSender`]: madgate_tm::LaneSender
    /// [`LaneReceiver`]: madgate_tm::LaneReceiver
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_fitted(
        cluster: Arc<Cluster>,
        node: &str,
        fit: impl FnMut(EstablishedLink) -> EstablishedLink + Send + 'static,
    ) -> Result<Self, StartError> {
        Self::start_with(cluster, node, Fitting::new(fit))
    }

    /// How many flows a gateway at `node` admits at once, with what its batches leave of its
    /// memory.
    ///
    /// # Errors
    /// [`StartError::MemoryTooSmall`] when that is too little to [`start`](Self::start).
    pub fn flow_limit(cluster: &Cluster, node: NodeId) -> Result<u32, StartError> {
        let largest_fragment = cluster.largest_fragment_bytes(node);
        let plan = MemoryPlan::new(cluster, node, largest_fragment)?;
        Ok(Budget::new(plan.promised_bytes).flow_limit())
    }

    /// How many threads of a gateway's engine at `node` never sleep, by the settings of its file,
    /// while little comes: with `wait = "spin"`. Where receivers look after each other's networks,
    /// others look too while they have much to do.
    #[must_use]
    pub fn sleepless_threads(cluster: &Cluster, node: NodeId) -> usize {
        let deaf = |network: &NetworkId| cluster.network(*network).never_wakes();
        sleepless(
            cluster.gateway_settings(),
            cluster.networks_of(node).len(),
            cluster.networks_of(node).filter(deaf).count(),
        )
    }

    fn start_with(cluster: Arc<Cluster>, node: &str, fitting: Fitting) -> Result<Self, StartError> {
        let id = cluster.find_node(node).map_err(StartError::UnknownNode)?;
        if !cluster.is_gateway(id) {
            let named = cluster.gateways().take(GATEWAYS_NAMED);
            return Err(StartError::NoGateway {
                node: node.to_owned(),
                gateways: named.map(|id| cluster.node_name(id).to_owned()).collect(),
                more: cluster.gateways().skip(GATEWAYS_NAMED).count(),
            });
        }
        let key = SessionKey::load(cluster.key_file())?;
        let incarnation = draw_incarnation();
        let poller = Poller::new()?;
        let waker = poller.waker();
        let parties: Vec<(Party, WakeParty)> = vec![
            (Party::Endpoint, Arc::new(move || waker.wake())),
            // The keeper waits on the channel of its events itself.
            (Party::Engine, Arc::new(|| {})),
        ];
        let (conductor, mut ports) =
            Conductor::start(Arc::clone(&cluster), id, incarnation, key, parties)?;
        let mut events_of = |party| {
            let at = ports.iter().position(|(owner, _)| *owner == party);
            at.map(|at| ports.swap_remove(at).1)
                .ok_or(StartError::NoEvents)
        };
        let (endpoint, engine) = (events_of(Party::Endpoint)?, events_of(Party::Engine)?);
        let conductor = Arc::new(conductor);
        let session = Session::with_conductor(
            Arc::clone(&cluster),
            id,
            incarnation,
            Arc::clone(&conductor),
            poller,
            endpoint,
        )?;
        Self::with_parts(cluster, id, conductor, engine, fitting, session)
    }

    /// Starts to forward with links that `conductor` brings up.
    fn with_parts(
        cluster: Arc<Cluster>,
        node: NodeId,
        conductor: Arc<Conductor>,
        events: crossbeam_channel::Receiver<LinkEvent>,
        fitting: Fitting,
        session: Session,
    ) -> Result<Self, StartError> {
        let router = Router::new(Arc::clone(&cluster), node);
        let plan = MemoryPlan::new(&cluster, node, router.largest_fragment())?;
        let mut hubs = Vec::new();
        let mut ends = Vec::new();
        for network in cluster.networks_of(node) {
            let pollers = (Poller::new()?, Poller::new()?);
            let name = cluster.network(network).name.clone();
            let (hub, hub_ends) = Hub::new(network, name, pollers.0.waker(), pollers.1.waker());
            hubs.push(hub);
            ends.push((pollers, hub_ends));
        }
        let engine = Arc::new(Engine::new(
            cluster,
            node,
            conductor,
            hubs,
            router,
            plan.promised_bytes,
        ));
        let (stop, stopped) = bounded(0);
        let mut gateway = Self {
            engine,
            session,
            threads: Vec::new(),
            stop: Some(stop),
        };
        let engine = Arc::clone(&gateway.engine);
        let mut receivers = Vec::new();
        let mut senders = Vec::new();
        for (network, ((receiver, sender), HubEnds { handovers, freed })) in
            ends.into_iter().enumerate()
        {
            let batches = Batches::new(engine.settings.depth, plan.batch_bytes);
            receivers.push(Receiver::new(
                Arc::clone(&engine),
                network,
                receiver,
                freed,
                batches,
            ));
            senders.push(Sender::new(Arc::clone(&engine), network, sender, handovers));
        }
        let endpoints = engine.cluster.endpoint_settings().clone();
        let crew = Arc::new(Crew::new(receivers, &engine.settings, endpoints)?);
        for (network, sender) in senders.into_iter().enumerate() {
            let name = &engine.networks[network].name;
            let (crew, its_engine) = (Arc::clone(&crew), Arc::clone(&engine));
            gateway.spawn(format!("madgate-rx-{name}"), move || {
                crew.run(network, &its_engine);
            })?;
            gateway.spawn(format!("madgate-tx-{name}"), move || sender.run())?;
        }
        let keeper = Keeper::new(Arc::clone(&engine), events, fitting, stopped);
        gateway.spawn("madgate-keeper".to_owned(), move || keeper.run())?;
        Ok(gateway)
    }

    /// The node that this is.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.engine.node
    }

    /// The cluster file that it was started with.
    #[must_use]
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.engine.cluster
    }

    /// The gateway's own place in the session, for application code on its node.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// What it has carried and carries.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// Something that tells the same from wherever it is kept, while the gateway runs and after.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer(Arc::clone(&self.engine))
    }

    /// Stops to admit flows and to take data in, and sends what is here, for `within` at most.
    /// What it could not send is dropped when the gateway is: its sources have it still, and
    /// send it again when the gateway is back.
    #[must_use]
    pub fn drain(&self, within: Duration) -> DrainReport {
        drain(&self.engine, Instant::now() + within)
    }

    fn spawn(
        &mut self,
        name: String,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let pins = &self.engine.settings.pin;
        let pin = pins.get(self.threads.len() % pins.len().max(1)).copied();
        let pinned = move || {
            if let Some(id) = pin
                && !core_affinity::set_for_current(core_affinity::CoreId { id })
            {
                tracing::warn!(processor = id, "a thread cannot be pinned to it");
            }
            work();
        };
        self.threads
            .push(thread::Builder::new().name(name).spawn(pinned)?);
        Ok(())
    }
}

/// Tells what a gateway has carried and carries.
#[derive(Debug, Clone)]
pub struct Observer(Arc<Engine>);

impl Observer {
    /// See [`Gateway::counters`].
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A link that came up now would be lost at once.
        self.engine.conductor.stop_accepting();
        self.engine.stop();
        self.stop = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the gateway has panicked");
            }
        }
    }
}

/// How the memory of a gateway is divided.
struct MemoryPlan {
    /// Of each batch.
    batch_bytes: usize,
    promised_bytes: u64,
}

impl MemoryPlan {
    fn new(cluster: &Cluster, node: NodeId, largest_fragment: u32) -> Result<Self, StartError> {
        let settings = cluster.gateway_settings();
        // Fragments are a few MiB at most.
        let largest_frame =
            usize::try_from(largest_fragment).unwrap_or(usize::MAX / 2) + FRAME_OVERHEAD_BYTES;
        // A frame is received in one piece.
        let batch_bytes = settings.batch_bytes.max(largest_frame);
        let batches = cluster.networks_of(node).len() * settings.depth;
        let pools = u64::try_from(batches * batch_bytes).unwrap_or(u64::MAX);
        let memory = cluster.engine_memory_bytes(node);
        match memory.checked_sub(pools) {
            Some(promised_bytes) if promised_bytes >= LEAST_PROMISED => Ok(Self {
                batch_bytes,
                promised_bytes,
            }),
            _ => Err(StartError::MemoryTooSmall {
                memory: format_size(memory),
                pools: format_size(pools),
                batches,
                batch: format_size(u64::try_from(batch_bytes).unwrap_or(u64::MAX)),
                least: format_size(LEAST_PROMISED),
            }),
        }
    }
}
