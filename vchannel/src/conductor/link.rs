//! What the conductor is asked for, and what it answers.

use std::fmt;
use std::sync::Arc;

use madgate_tm::Lane;

use crate::cluster::{NetworkId, NodeId};
pub use crate::handshake::LinkKind;

/// One of the two in a process that links are for; they share none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Party {
    /// The session of the application: it gets [`LinkKind::Regular`] and
    /// [`LinkKind::Deliver`] links that others dial.
    Endpoint,
    /// The forwarding engine: it gets [`LinkKind::Forward`] and [`LinkKind::Relay`]
    /// links that others dial.
    Engine,
}

impl Party {
    /// Whose links of a kind are, at the end that is dialled.
    #[must_use]
    pub const fn that_accepts(kind: LinkKind) -> Self {
        match kind {
            LinkKind::Regular | LinkKind::Deliver => Self::Endpoint,
            LinkKind::Forward | LinkKind::Relay => Self::Engine,
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Endpoint => "endpoint",
            Self::Engine => "engine",
        })
    }
}

/// Which link: what for, over which network, and the node at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkRequest {
    /// What it is for.
    pub kind: LinkKind,
    /// The network that it crosses.
    pub network: NetworkId,
    /// The node at the other end.
    pub peer: NodeId,
}

impl LinkRequest {
    /// What those ask for who can use a link that is this at its own end: this one if it was dialled
    /// here, and otherwise one [the other way](Self::back).
    #[must_use]
    pub const fn served_if(self, is_dialed: bool) -> Self {
        if is_dialed { self } else { self.back() }
    }

    /// A link between the same two parties that is dialled by the other one.
    #[must_use]
    pub const fn back(self) -> Self {
        Self {
            kind: self.kind.back(),
            ..self
        }
    }
}

/// A link whose peer has proved that it is a member. It closes when it is dropped; tell
/// the conductor with [`link_closed`](super::Conductor::link_closed).
#[derive(Debug)]
pub struct EstablishedLink {
    /// Which link it is.
    pub request: LinkRequest,
    /// Its number, unique in this process.
    pub id: u64,
    /// The peer's incarnation.
    pub peer_incarnation: u64,
    /// Whether this process dialled it, or accepted it. Flows go both ways in any case.
    pub is_dialed: bool,
    /// For promises and small frames, in both directions.
    pub urgent: Lane,
    /// For large frames, in both directions.
    pub bulk: Lane,
}

/// What a party hears from the conductor.
#[derive(Debug)]
#[non_exhaustive]
pub enum LinkEvent {
    /// A link is there. One that was accepted replaces an earlier one with the same request
    /// and incarnation, whose end its peer may have noticed first.
    Up(Box<EstablishedLink>),
    /// Dialling fails, for a reason that is not the one of the last report. The conductor
    /// goes on dialling.
    DialFailed {
        /// What was dialled.
        request: LinkRequest,
        /// Who was dialled, where, and why it failed: for people.
        error: String,
        /// Whether one end refused the other, which somebody has to mend. The conductor has
        /// logged it then.
        is_refusal: bool,
        /// Attempts since [`dial`](super::Conductor::dial).
        attempts: u32,
    },
    /// Another process claims to be `peer`. Whoever hears from the incarnation that is
    /// present calls [`challenge_answered`](super::Conductor::challenge_answered); when
    /// nobody does within [`PRESENCE_CHALLENGE`](super::PRESENCE_CHALLENGE), it is replaced.
    Challenge {
        /// The node.
        peer: NodeId,
        /// The incarnation that is present.
        incarnation: u64,
    },
    /// An incarnation did not answer a challenge: its links are to be closed (the conductor
    /// has forgotten them).
    PeerReplaced {
        /// The node.
        peer: NodeId,
        /// The incarnation that is gone.
        incarnation: u64,
    },
}

/// Wakes a party's thread after an event was queued for it.
pub type WakeParty = Arc<dyn Fn() + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_serves_both_ends() {
        for (kind, back) in [
            (LinkKind::Regular, LinkKind::Regular),
            (LinkKind::Relay, LinkKind::Relay),
            (LinkKind::Forward, LinkKind::Deliver),
            (LinkKind::Deliver, LinkKind::Forward),
        ] {
            let of = |kind, peer| LinkRequest {
                kind,
                network: NetworkId(3),
                peer: NodeId(peer),
            };
            let request = of(kind, 1);
            assert_eq!(request.back(), of(back, 1));
            assert_eq!(request.back().back(), request);
            assert_eq!(request.served_if(true), request);
            assert_eq!(request.served_if(false), request.back());
        }
    }
}
