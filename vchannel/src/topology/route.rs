//! A route, and why there is none.

use crate::cluster::{NetworkId, NodeId};

/// One step of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The network that is crossed.
    pub network: NetworkId,
    /// The node at the other end.
    pub node: NodeId,
}

/// The way of messages from one node to another: over gateways, or direct.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Where it begins.
    pub source: NodeId,
    /// The steps; the last leads to the destination. Never empty.
    pub hops: Vec<Hop>,
}

impl Route {
    /// Where it ends.
    #[must_use]
    pub fn destination(&self) -> NodeId {
        self.hops.last().map_or(self.source, |hop| hop.node)
    }

    /// Whether it crosses no gateway: the *regular* path.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.hops.len() == 1
    }

    /// The gateways that it crosses, in order.
    pub fn gateways(&self) -> impl Iterator<Item = NodeId> + '_ {
        let before_last = self.hops.len().saturating_sub(1);
        self.hops[..before_last].iter().map(|hop| hop.node)
    }

    /// Where frames go from node `at`.
    #[must_use]
    pub fn next_hop(&self, at: NodeId) -> Option<Hop> {
        if at == self.source {
            return self.hops.first().copied();
        }
        let reached = self.hops.iter().position(|hop| hop.node == at)?;
        self.hops.get(reached + 1).copied()
    }

    /// Over which network and from which node frames reach node `at`.
    #[must_use]
    pub fn previous_hop(&self, at: NodeId) -> Option<Hop> {
        let reached = self.hops.iter().position(|hop| hop.node == at)?;
        let before = reached
            .checked_sub(1)
            .map_or(self.source, |index| self.hops[index].node);
        Some(Hop {
            network: self.hops[reached].network,
            node: before,
        })
    }

    /// The same route in the other direction.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let before = std::iter::once(self.source).chain(self.gateways());
        let hops = self.hops.iter().zip(before);
        let mut hops: Vec<Hop> = hops
            .map(|(hop, node)| Hop {
                network: hop.network,
                node,
            })
            .collect();
        hops.reverse();
        Self {
            source: self.destination(),
            hops,
        }
    }
}

/// Why a node cannot be sent to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRoute {
    /// No node has this rank.
    #[error("there is no node with rank {rank}")]
    UnknownNode {
        /// The rank.
        rank: u32,
    },
    /// Source and destination are the same.
    #[error("node \"{node}\" would send to itself")]
    ToItself {
        /// The node.
        node: String,
    },
    /// A node is on none of the channel's networks.
    #[error("node \"{node}\" is on none of the networks of channel \"{channel}\"")]
    NotInChannel {
        /// The node.
        node: String,
        /// The channel.
        channel: String,
    },
    /// No gateways lead there.
    #[error("no gateways lead from \"{from}\" to \"{to}\"")]
    Unreachable {
        /// The source.
        from: String,
        /// The destination.
        to: String,
    },
}
