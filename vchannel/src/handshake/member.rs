//! What a process knows of itself when it shakes hands.

use std::sync::Arc;

use super::error::HandshakeError;
use super::hello::{LinkHello, LinkKind, PeerIdentity};
use super::key::SessionKey;
use super::wire::{PREAMBLE_BYTES, preamble};
use crate::cluster::{Cluster, NetworkId, NodeId};
use crate::conductor::Party;

/// This process as a member of its session, the same for all its handshakes.
#[derive(Debug)]
pub struct Member {
    cluster: Arc<Cluster>,
    identity: PeerIdentity,
    key: SessionKey,
    parties: Vec<Party>,
    preamble: [u8; PREAMBLE_BYTES],
}

impl Member {
    /// `node` in its incarnation, with the parties that accept links.
    #[must_use]
    pub fn new(
        cluster: Arc<Cluster>,
        node: NodeId,
        incarnation: u64,
        key: SessionKey,
        parties: Vec<Party>,
    ) -> Self {
        let preamble = preamble(&cluster.digest());
        Self {
            cluster,
            // Zero stands for "unknown" in frames.
            identity: PeerIdentity {
                node,
                incarnation: incarnation.max(1),
            },
            key,
            parties,
            preamble,
        }
    }

    /// The cluster that it belongs to.
    #[must_use]
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Its node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.identity.node
    }

    /// Its incarnation.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.identity.incarnation
    }

    pub(super) fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    pub(super) fn key(&self) -> &SessionKey {
        &self.key
    }

    pub(super) fn preamble(&self) -> &[u8; PREAMBLE_BYTES] {
        &self.preamble
    }

    /// Whether a connection that came over `network` may be what its peer says it is.
    pub(super) fn check(
        &self,
        hello: &LinkHello,
        network: NetworkId,
    ) -> Result<(), HandshakeError> {
        let cluster = &self.cluster;
        let us = self.node();
        let peer = cluster
            .node_with_rank(hello.node.rank())
            .ok_or(HandshakeError::UnknownNode(hello.node.rank()))?;
        let name = |node| cluster.node_name(node).to_owned();
        if hello.destination != us {
            return Err(HandshakeError::WrongNode {
                wanted: self.name_of_rank(hello.destination),
                found: name(us),
            });
        }
        if peer == us {
            return Err(HandshakeError::NamePresent { node: name(us) });
        }
        if hello.network != network || !cluster.is_on(peer, network) {
            return Err(HandshakeError::NotOnNetwork { node: name(peer) });
        }
        let gateways = match hello.kind {
            LinkKind::Regular => [None, None],
            LinkKind::Forward => [Some(us), None],
            LinkKind::Deliver => [Some(peer), None],
            LinkKind::Relay => [Some(us), Some(peer)],
        };
        for gateway in gateways.into_iter().flatten() {
            if !cluster.is_gateway(gateway) {
                let node = name(gateway);
                return Err(HandshakeError::KindNotAllowed { node });
            }
        }
        let party = Party::that_accepts(hello.kind);
        if !self.parties.contains(&party) {
            let peer = name(peer);
            return Err(HandshakeError::NoSuchParty { peer, party });
        }
        Ok(())
    }

    /// The name of a node, for a rank that a peer sent.
    pub(super) fn name_of_rank(&self, node: NodeId) -> String {
        match self.cluster.node_with_rank(node.rank()) {
            Some(node) => self.cluster.node_name(node).to_owned(),
            None => format!("rank {}", node.rank()),
        }
    }
}
