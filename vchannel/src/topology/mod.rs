//! Routes: which gateways a message crosses, computed from the cluster file.
//!
//! A route has the fewest hops, then the least declared cost, then the gateways and networks
//! that come first in the file; it is the same in both directions, and the same for all nodes
//! that are on the same networks. Only networks and gateways are searched, so that the number
//! of nodes costs nothing.
//!
//! Start reading in [`Routes`].

mod graph;
mod places;
mod route;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cluster::{ChannelId, Cluster, NodeId};
use graph::{Distances, Graph};

pub use places::{Pairs, Place, count_pairs, places};
pub use route::{Hop, NoRoute, Route};

/// How many distances (one per network and set of destination networks) are remembered.
pub const REMEMBERED_DISTANCES: usize = 1 << 20;

/// Largest fragments between two nodes of one network: nothing on one hop asks for small ones.
pub const DIRECT_FRAGMENT_BYTES: u32 = 1 << 20;

/// The routes of one channel. Cheap to ask from several threads.
#[derive(Debug)]
pub struct Routes {
    cluster: Arc<Cluster>,
    channel: ChannelId,
    graph: Graph,
    remembered: Mutex<Remembered>,
}

impl Routes {
    /// The routes of `channel`. Nothing is computed before it is asked for.
    ///
    /// # Panics
    /// When the channel is not of this cluster.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>, channel: ChannelId) -> Self {
        let graph = Graph::new(&cluster, channel);
        Self {
            cluster,
            channel,
            graph,
            remembered: Mutex::default(),
        }
    }

    /// The channel whose routes these are.
    #[must_use]
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// The route from one node to another.
    ///
    /// # Errors
    /// When there is none.
    pub fn route(&self, from: NodeId, to: NodeId) -> Result<Route, NoRoute> {
        for node in [from, to] {
            if node.index() >= self.cluster.node_count() {
                return Err(NoRoute::UnknownNode { rank: node.rank() });
            }
            if !self.cluster.is_in_channel(node, self.channel) {
                return Err(NoRoute::NotInChannel {
                    node: self.cluster.node_name(node).to_owned(),
                    channel: self.cluster.channel(self.channel).name.clone(),
                });
            }
        }
        if from == to {
            let node = self.cluster.node_name(from).to_owned();
            return Err(NoRoute::ToItself { node });
        }
        let (near, far) = (self.places(from), self.places(to));
        // Both directions are computed from the same end, and so are the same; which end
        // does not depend on ranks, so that nodes of the same networks have the same routes.
        let (low, sources, high, targets) = if near <= far {
            (from, near, to, far)
        } else {
            (to, far, from, near)
        };
        let distances = self.distances(targets);
        let hops = self.graph.walk(&sources, &distances, high);
        let hops = hops.ok_or_else(|| NoRoute::Unreachable {
            from: self.cluster.node_name(from).to_owned(),
            to: self.cluster.node_name(to).to_owned(),
        })?;
        let route = Route { source: low, hops };
        Ok(if from == low { route } else { route.reversed() })
    }

    /// Where the frames of a flow go from node `at`; `None` at the destination, and where the
    /// route does not pass.
    #[must_use]
    pub fn next_hop(&self, at: NodeId, source: NodeId, destination: NodeId) -> Option<Hop> {
        self.route(source, destination).ok()?.next_hop(at)
    }

    /// Where the frames of a flow come from when they reach node `at`: over which network,
    /// from which node. `None` at the source, and where the route does not pass.
    #[must_use]
    pub fn previous_hop(&self, at: NodeId, source: NodeId, destination: NodeId) -> Option<Hop> {
        self.route(source, destination).ok()?.previous_hop(at)
    }

    /// The largest fragment of messages on `route`: through gateways the channel's MTU, between two nodes
    /// of one network [`DIRECT_FRAGMENT_BYTES`], or less where a network on the way carries less.
    #[must_use]
    pub fn fragment_bytes(&self, route: &Route) -> u32 {
        let carried = route
            .hops
            .iter()
            .map(|hop| self.cluster.network(hop.network).largest_fragment_bytes());
        let most = if route.is_direct() {
            DIRECT_FRAGMENT_BYTES
        } else {
            self.cluster.channel(self.channel).mtu
        };
        carried.fold(most, u32::min)
    }

    fn places(&self, node: NodeId) -> Vec<u16> {
        self.graph.places(&self.cluster, node)
    }

    fn distances(&self, targets: Vec<u16>) -> Arc<Distances> {
        // A panic elsewhere cannot leave the cache half-changed in a way that matters.
        let lock = || self.remembered.lock();
        if let Some(known) = lock().tables.get(&targets) {
            return Arc::clone(known);
        }
        let distances = Arc::new(self.graph.distances(&targets));
        lock().remember(targets, Arc::clone(&distances));
        distances
    }
}

/// Distances that were asked for lately; the oldest go first.
#[derive(Debug, Default)]
struct Remembered {
    tables: HashMap<Vec<u16>, Arc<Distances>>,
    order: VecDeque<Vec<u16>>,
}

impl Remembered {
    fn remember(&mut self, targets: Vec<u16>, distances: Arc<Distances>) {
        let tables_at_most = (REMEMBERED_DISTANCES / distances.len().max(1)).max(1);
        while self.tables.len() >= tables_at_most {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.tables.remove(&oldest);
        }
        if self.tables.insert(targets.clone(), distances).is_none() {
            self.order.push_back(targets);
        }
    }
}
