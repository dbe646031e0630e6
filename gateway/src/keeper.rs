//! The keeper, `madgate-keeper`: everything that is not data. It takes links as the conductor
//! brings them up, answers its challenges, and forgets what is forgotten.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use madgate_gtm::Kind;
use madgate_tm::LaneClass;
use madgate_vchannel::NodeId;
use madgate_vchannel::conductor::{EstablishedLink, LinkEvent, LinkRequest};

use crate::engine::{Command, Engine, Touched};
use crate::fault::Fault;
use crate::fitting::Fitting;
use crate::instruments::Stopwatch;
use crate::link::Link;

/// How often flows and links that nobody uses are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// How long flows may wait for a link that cannot be had before somebody is warned: longer than
/// two attempts to dial are apart, as the last one may have been before its peer was there.
const PATIENCE: Duration = Duration::from_secs(2);

/// The thread's state.
#[derive(Debug)]
pub(crate) struct Keeper {
    engine: Arc<Engine>,
    events: Receiver<LinkEvent>,
    /// What becomes of links before they are used.
    fitting: Fitting,
    /// Closed when the engine stops.
    stop: Receiver<()>,
    touched: Touched,
    /// Nobody reads it: what the keeper sends is little.
    watch: Stopwatch,
    /// Links that cannot be had, and why, until somebody has been warned. Most peers that are
    /// absent have left, and nobody needs them.
    absent: HashMap<LinkRequest, String>,
}

impl Keeper {
    pub(crate) fn new(
        engine: Arc<Engine>,
        events: Receiver<LinkEvent>,
        fitting: Fitting,
        stop: Receiver<()>,
    ) -> Self {
        let watch = Stopwatch::new(engine.clock, Arc::default());
        Self {
            watch,
            engine,
            events,
            fitting,
            stop,
            touched: Touched::default(),
            absent: HashMap::new(),
        }
    }

    /// Keeps until the engine stops.
    pub(crate) fn run(mut self) {
        let mut next_sweep = self.engine.now() + SWEEP;
        loop {
            self.warn_of_absent();
            let mut wait = next_sweep.since(self.engine.now());
            if !self.absent.is_empty() {
                wait = wait.min(PATIENCE);
            }
            crossbeam_channel::select! {
                recv(self.events) -> event => match event {
                    Ok(event) => self.handle(event),
                    // The conductor has ended: so will this, soon.
                    Err(_) => match self.stop.recv_timeout(wait) {
                        Err(RecvTimeoutError::Timeout) => {}
                        _ => return,
                    },
                },
                recv(self.stop) -> _ => return,
                default(wait) => {}
            }
            if self.engine.now() >= next_sweep {
                next_sweep = self.engine.now() + SWEEP;
                self.sweep();
            }
            self.engine.serve_all(&mut self.touched, &mut self.watch);
        }
    }

    fn handle(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Up(link) => {
                let link = self.fitting.fit(*link);
                self.install(link);
            }
            LinkEvent::DialFailed {
                request,
                error,
                is_refusal,
                ..
            } => {
                // The conductor has told refusals already.
                if self.engine.go_on_dialling(request) && !is_refusal {
                    tracing::debug!(kind = ?request.kind, "no link to {error}");
                    self.absent.insert(request, error);
                }
            }
            LinkEvent::Challenge { peer, incarnation } => {
                for link in self.links_of(peer, incarnation) {
                    if link.push_echo(Kind::Ping, incarnation) {
                        self.touched.add(&link);
                    }
                }
            }
            LinkEvent::PeerReplaced { peer, incarnation } => {
                for link in self.links_of(peer, incarnation) {
                    self.engine
                        .close_link(&link, &Fault::PeerReplaced, &mut self.touched);
                }
            }
            _ => tracing::debug!("an event of a kind that this version does not know"),
        }
    }

    /// Warns of links that flows have waited for since they were lost, once.
    fn warn_of_absent(&mut self) {
        if self.absent.is_empty() {
            return;
        }
        let now = self.engine.now();
        let mut shared = self.engine.lock();
        self.absent.retain(|request, error| {
            let Some(asked) = shared.asked.get(request) else {
                return false;
            };
            let is_due = |since| now.since(since) >= PATIENCE;
            let warn = asked.needed_since.is_some_and(is_due);
            if warn {
                shared.missed.insert(*request);
                tracing::warn!(kind = ?request.kind, "no link to {error}");
            }
            !warn
        });
    }

    fn links_of(&self, peer: NodeId, incarnation: u64) -> Vec<Arc<Link>> {
        let shared = self.engine.lock();
        let is_its =
            |link: &&Arc<Link>| link.request.peer == peer && link.peer_incarnation == incarnation;
        shared.links.values().filter(is_its).cloned().collect()
    }

    /// A link is up: its threads receive and send on it from now on.
    fn install(&mut self, established: EstablishedLink) {
        let EstablishedLink {
            request,
            id,
            peer_incarnation,
            is_dialed,
            urgent,
            bulk,
        } = established;
        let engine = Arc::clone(&self.engine);
        let is_its = |hub: &crate::engine::Hub| hub.network == request.network;
        let Some(network) = engine.networks.iter().position(is_its) else {
            return;
        };
        let hub = &engine.networks[network];
        if engine.is_draining() || engine.is_stopping() {
            engine.conductor.link_closed(id);
            return;
        }
        let replaced = {
            let shared = engine.lock();
            let is_same =
                |link: &&Arc<Link>| link.request == request && link.is_dialed == is_dialed;
            shared.links.values().find(is_same).cloned()
        };
        let (link, was_missed) = {
            let mut shared = engine.lock();
            let limits = engine.limits_of(request);
            let transit = shared.transit.add_limited_link(limits);
            let link = Arc::new(Link::new(
                transit,
                id,
                request,
                network,
                peer_incarnation,
                is_dialed,
                engine.settings.gather,
                urgent.sender,
                bulk.sender,
            ));
            shared.links.insert(transit, Arc::clone(&link));
            shared.add_way(&link);
            if let Some(asked) = shared.asked.get_mut(&link.serves()) {
                asked.needed_since = None;
            }
            let was_missed = shared.missed.remove(&link.serves());
            (link, was_missed)
        };
        self.absent.remove(&link.serves());
        if let Some(replaced) = replaced {
            engine.close_link(&replaced, &Fault::Replaced, &mut self.touched);
        }
        hub.command(Command::Add(
            Arc::clone(&link),
            LaneClass::Urgent,
            urgent.receiver,
        ));
        hub.command(Command::Add(
            Arc::clone(&link),
            LaneClass::Bulk,
            bulk.receiver,
        ));
        let peer = engine.cluster.node_name(request.peer);
        if was_missed {
            tracing::info!(peer, kind = ?request.kind, network = hub.name, "link is there now");
        } else {
            tracing::debug!(peer, kind = ?request.kind, network = hub.name, is_dialed, "link up");
        }
    }

    /// Forgets flows that are long idle, and stops dialling what nobody asks for.
    fn sweep(&mut self) {
        let now = self.engine.now();
        self.engine.lock().transit.handle_timeout(now);
        self.engine.stop_dialling(now);
    }
}
