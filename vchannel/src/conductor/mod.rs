//! One thread per process that does everything slow: it listens, dials, shakes hands and
//! keeps timers, and hands finished links to the parties that own them.
//!
//! ```text
//!   parties                          conductor's thread                      network
//!  ┌────────┐ dial, cancel,  ┌──────┐     ┌───────┐ poll_due   ┌──────────┐
//!  │        │ link_closed, …>│ Door │────>│ Dials │──────────> │ Resolver │──connect──>
//!  │endpoint│                └──────┘     └───────┘            └──────────┘
//!  │ engine │                                 ^ fail, lane_ready     │
//!  │        │                ┌────────┐   ┌───┴────┐   lanes   ┌─────v────┐
//!  │        │<── LinkEvent ──│ Outlet │<──│  link  │<──────────│ Meetings │<──accept───
//!  └────────┘                └────────┘   └────────┘ Pairs     └──────────┘  Doorway
//!                                     Presence decides who may come in
//! ```
//!
//! A connection is a *meeting* until its handshake is over. Those who connect are strangers
//! until then: they have [`STRANGER_SLOTS`] slots and [`HANDSHAKE_TIMEOUT`], and when slots
//! are short, whoever has proved the least for the longest goes first. Members speak as soon
//! as they are connected, so that a flood of connections that say nothing does not keep them
//! out.
//!
//! Start reading in [`Conductor`], then `agent.rs`.

mod agent;
mod complaints;
mod dials;
mod doorway;
mod limits;
mod link;
mod linking;
mod meeting;
mod meetings;
mod orders;
mod outlet;
mod presence;
mod resolver;
#[cfg(test)]
mod tests;
mod twins;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::Receiver;
use madgate_tm::{Endpoint, Interest, Poller};

pub use limits::{
    ATTEMPTS_AT_ONCE, BACKOFF_FIRST, BACKOFF_LONGEST, EVENTS_MOST, HANDSHAKE_TIMEOUT,
    MEMBERS_WAITING_MOST, PRESENCE_CHALLENGE, RESOLVING_TIMEOUT, STRANGER_SLOTS,
};
pub use link::{EstablishedLink, LinkEvent, LinkKind, LinkRequest, Party, WakeParty};

use crate::cluster::{Cluster, NodeId};
use crate::error::remedy;
use crate::handshake::{Member, SessionKey};
use agent::Agent;
use dials::DialKey;
use doorway::Doorway;
use limits::Patience;
use orders::Door;
use outlet::Outlet;

/// A party, and where its events come.
pub type PartyEvents = (Party, Receiver<LinkEvent>);

/// The handle of the conductor's thread, which ends when it is dropped. All calls return at
/// once; what comes of them, comes as [`LinkEvent`]s.
///
/// - **Start**: [`start`](Self::start).
/// - **Links that this process dials**: [`dial`](Self::dial), [`cancel`](Self::cancel).
/// - **Links that are there**: [`link_closed`](Self::link_closed),
///   [`challenge_answered`](Self::challenge_answered).
/// - **End**: [`stop_accepting`](Self::stop_accepting), then drop.
pub struct Conductor {
    door: Arc<Door>,
    thread: Option<JoinHandle<()>>,
}

impl Conductor {
    /// Listens on all networks of `node`, and begins to work for `parties`. Each party gets
    /// the events that concern it, and is woken (from the conductor's thread) after some were
    /// queued. Links of a party that is not there are refused.
    ///
    /// # Errors
    /// When an address of the node cannot be listened on, or the system refuses a thread.
    pub fn start(
        cluster: Arc<Cluster>,
        node: NodeId,
        incarnation: u64,
        key: SessionKey,
        parties: Vec<(Party, WakeParty)>,
    ) -> Result<(Self, Vec<PartyEvents>), StartError> {
        let here = parties.iter().map(|(party, _)| *party).collect();
        let member = Member::new(cluster, node, incarnation, key, here);
        Self::start_with(Arc::new(member), parties, Patience::default())
    }

    fn start_with(
        member: Arc<Member>,
        parties: Vec<(Party, WakeParty)>,
        patience: Patience,
    ) -> Result<(Self, Vec<PartyEvents>), StartError> {
        let poller = Poller::new().map_err(StartError::System)?;
        let doorways = listen(&member, &poller)?;
        let door = Arc::new(Door::new(poller.waker()));
        let mut outlets = Vec::with_capacity(parties.len());
        let mut events = Vec::with_capacity(parties.len());
        for (party, wake) in parties {
            let (outlet, receiver) = Outlet::new(party, wake);
            outlets.push(outlet);
            events.push((party, receiver));
        }
        let agent = Agent::new(
            member,
            patience,
            poller,
            Arc::clone(&door),
            doorways,
            outlets,
        );
        let thread = thread::Builder::new()
            .name("madgate-conductor".to_owned())
            .spawn(move || agent.run())
            .map_err(StartError::System)?;
        let thread = Some(thread);
        Ok((Self { door, thread }, events))
    }

    /// Dials until the link is up or [cancelled](Self::cancel), or one is that the peer has dialled
    /// and that serves as well: the [other way](LinkRequest::back). What is being dialled already is
    /// not dialled twice.
    pub fn dial(&self, party: Party, request: LinkRequest) {
        let key = DialKey { party, request };
        self.door.order(|orders| {
            orders.dials.insert(key, true);
        });
    }

    /// Stops dialling. The link may just have come up: its event is then on its way.
    pub fn cancel(&self, party: Party, request: LinkRequest) {
        let key = DialKey { party, request };
        self.door.order(|orders| {
            orders.dials.insert(key, false);
        });
    }

    /// A party has closed a link, or found it closed.
    pub fn link_closed(&self, id: u64) {
        self.door.order(|orders| orders.closed.push(id));
    }

    /// A party has heard from the incarnation that was challenged.
    pub fn challenge_answered(&self, peer: NodeId, incarnation: u64) {
        self.door
            .order(|orders| orders.answered.push((peer, incarnation)));
    }

    /// Takes no more connections; links that are there stay, and dialling goes on.
    pub fn stop_accepting(&self) {
        self.door.order(|orders| orders.stop_accepting = true);
    }
}

impl Drop for Conductor {
    fn drop(&mut self) {
        self.door.order(|orders| orders.stop = true);
        if let Some(thread) = self.thread.take()
            // A party may hold the last handle, and let it go while it is being woken.
            && thread.thread().id() != thread::current().id()
        {
            // A panic there has been reported there.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Conductor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conductor").finish_non_exhaustive()
    }
}

/// Listens on all networks of a node.
fn listen(member: &Member, poller: &Poller) -> Result<Vec<Doorway>, StartError> {
    let (cluster, node) = (member.cluster(), member.node());
    let mut doorways = Vec::new();
    for (token, network) in (0..).zip(cluster.networks_of(node)) {
        let Some(endpoint) = cluster.address(node, network) else {
            continue;
        };
        let about = cluster.network(network);
        let failed = |source| StartError::Listen {
            node: cluster.node_name(node).to_owned(),
            network: about.name.clone(),
            endpoint: endpoint.clone(),
            source,
        };
        let listener = madgate_tm::listen(&endpoint, &about.tuning).map_err(failed)?;
        poller
            .add(&listener, token, Interest::Readable)
            .map_err(failed)?;
        doorways.push(Doorway::new(network, listener));
    }
    Ok(doorways)
}

/// Why a conductor cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address of the node cannot be listened on.
    #[error("{node} cannot listen on {network} at {endpoint}{}", hint(.endpoint, .source))]
    Listen {
        /// The node.
        node: String,
        /// The network.
        network: String,
        /// The address.
        endpoint: Endpoint,
        /// Why not.
        source: io::Error,
    },
    /// The system refuses descriptors or a thread.
    #[error("the system refuses what the conductor needs{}", remedy(.0))]
    System(#[source] io::Error),
}

/// What to do about it.
fn hint(endpoint: &Endpoint, error: &io::Error) -> String {
    use io::ErrorKind as Kind;
    let folder = match endpoint {
        Endpoint::Shm { directory, .. } | Endpoint::Hsl { directory, .. } => Some(directory),
        _ => None,
    };
    let known = remedy(error);
    match (error.kind(), folder) {
        _ if !known.is_empty() => known.to_owned(),
        (Kind::AddrInUse, _) => "; is this node running already?".to_owned(),
        (Kind::AddrNotAvailable, _) => {
            "; is this host the one that the cluster file names?".to_owned()
        }
        (Kind::PermissionDenied, Some(folder)) => format!(
            "; all nodes of this network run as one user, who may make the folder {} and write in it",
            folder.display()
        ),
        // What stands in the way there is named.
        (Kind::AlreadyExists, Some(folder)) if folder.is_dir() => String::new(),
        (
            Kind::NotFound | Kind::NotADirectory | Kind::AlreadyExists | Kind::ReadOnlyFilesystem,
            Some(folder),
        ) => format!(
            "; {} cannot be made as a folder: write another `directory` for this network",
            folder.display()
        ),
        (Kind::PermissionDenied, None) => {
            "; ports below 1024 are for root: write a higher one in the cluster file".to_owned()
        }
        // What the network is to have and the system does not: the error says what to do.
        (Kind::Unsupported, _) => String::new(),
        (_, None) => "; is the address in the cluster file one of this host's?".to_owned(),
        _ => String::new(),
    }
}
