//! One thread per process that does everything slow: it listens, dials, shakes hands and
//! keeps timers, and hands finished links to the parties that own them.

mod link;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

pub use link::{EstablishedLink, LinkEvent, LinkKind, LinkRequest, Party, WakeParty};

use crate::cluster::{Cluster, NodeId};
use crate::handshake::SessionKey;

/// How long an incarnation that is present has to answer when another one claims its name.
pub const PRESENCE_CHALLENGE: Duration = Duration::from_secs(2);

/// The handle of the conductor's thread, which ends when it is dropped.
#[derive(Debug)]
pub struct Conductor {}

impl Conductor {
    /// Listens on all networks of `node`, and begins to work for `parties`. Each party gets
    /// the events that concern it, and is woken (from the conductor's thread) after one was
    /// queued.
    ///
    /// # Errors
    /// When an address of the node cannot be listened on, or the system refuses a thread.
    pub fn start(
        cluster: Arc<Cluster>,
        node: NodeId,
        incarnation: u64,
        key: SessionKey,
        parties: Vec<(Party, WakeParty)>,
    ) -> Result<(Self, Vec<(Party, Receiver<LinkEvent>)>), StartError> {
        let _ = (cluster, node, incarnation, key, parties);
        Err(StartError {})
    }

    /// Dials until the link is up or [cancelled](Self::cancel). Never blocks. What is being
    /// dialled already is not dialled twice.
    pub fn dial(&self, party: Party, request: LinkRequest) {
        let _ = (party, request);
    }

    /// Stops dialling. The link may just have come up: its event is then on its way.
    pub fn cancel(&self, party: Party, request: LinkRequest) {
        let _ = (party, request);
    }

    /// A party has closed a link, or found it closed.
    pub fn link_closed(&self, id: u64) {
        let _ = id;
    }

    /// A party has heard from the incarnation that was challenged.
    pub fn challenge_answered(&self, peer: NodeId, incarnation: u64) {
        let _ = (peer, incarnation);
    }
}

/// Why a conductor cannot start.
#[derive(Debug, thiserror::Error)]
#[error("not there yet")]
pub struct StartError {}
