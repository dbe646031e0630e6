//! The networks of a channel and the gateways between them, and the search in it.

use crate::cluster::{ChannelId, Cluster, NetworkId, NodeId};

use super::route::Hop;

/// How far a network is from a set of networks: hops first, then cost. Both count the network
/// itself and the one that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Distance {
    hops: u32,
    cost: u64,
}

const UNREACHABLE: Distance = Distance {
    hops: u32::MAX,
    cost: u64::MAX,
};

/// The distance of every network of the channel, by place.
pub(super) type Distances = Vec<Distance>;

/// Networks and gateways of one channel. Networks are named by their *place* in the channel.
#[derive(Debug)]
pub(super) struct Graph {
    networks: Vec<Place>,
    /// In the order of ranks; only those on two networks of the channel or more.
    gateways: Vec<Gateway>,
}

#[derive(Debug)]
struct Place {
    network: NetworkId,
    cost: u64,
    /// Indices of the gateways on it, in order.
    gateways: Vec<usize>,
}

#[derive(Debug)]
struct Gateway {
    node: NodeId,
    /// In order.
    places: Vec<u16>,
}

impl Graph {
    pub(super) fn new(cluster: &Cluster, channel: ChannelId) -> Self {
        let place = |network: &NetworkId| Place {
            network: *network,
            cost: u64::from(cluster.network(*network).cost),
            gateways: Vec::new(),
        };
        let networks = cluster
            .channel(channel)
            .networks
            .iter()
            .map(place)
            .collect();
        let mut graph = Self {
            networks,
            gateways: Vec::new(),
        };
        for node in cluster.gateways() {
            let places = graph.places(cluster, node);
            if places.len() < 2 {
                continue;
            }
            for place in &places {
                graph.networks[usize::from(*place)]
                    .gateways
                    .push(graph.gateways.len());
            }
            graph.gateways.push(Gateway { node, places });
        }
        graph
    }

    /// The places of the channel's networks that a node is on, in order.
    pub(super) fn places(&self, cluster: &Cluster, node: NodeId) -> Vec<u16> {
        let place = |network: NetworkId| {
            let found = self
                .networks
                .binary_search_by_key(&network, |place| place.network);
            found.ok().and_then(|place| u16::try_from(place).ok())
        };
        cluster.networks_of(node).filter_map(place).collect()
    }

    /// Searches from `targets` outwards, one hop further each round.
    pub(super) fn distances(&self, targets: &[u16]) -> Distances {
        let mut distances = vec![UNREACHABLE; self.networks.len()];
        let mut reached = vec![false; self.gateways.len()];
        let mut edge: Vec<usize> = targets.iter().copied().map(usize::from).collect();
        for place in &edge {
            distances[*place] = Distance {
                hops: 1,
                cost: self.networks[*place].cost,
            };
        }
        while !edge.is_empty() {
            // Every way of this many hops to these networks has been seen: their costs are final.
            let mut gateways: Vec<(usize, Distance)> = Vec::new();
            for place in edge.drain(..) {
                let candidates = self.networks[place].gateways.iter();
                let fresh = candidates.filter(|gateway| !reached[**gateway]);
                gateways.extend(fresh.map(|gateway| (*gateway, distances[place])));
            }
            gateways.sort_unstable();
            gateways.dedup_by_key(|(gateway, _)| *gateway);
            for (gateway, behind) in gateways {
                reached[gateway] = true;
                for place in self.gateways[gateway]
                    .places
                    .iter()
                    .copied()
                    .map(usize::from)
                {
                    let cost = behind.cost + self.networks[place].cost;
                    let distance = Distance {
                        hops: behind.hops + 1,
                        cost,
                    };
                    if distances[place] == UNREACHABLE {
                        edge.push(place);
                    }
                    distances[place] = distances[place].min(distance);
                }
            }
        }
        distances
    }

    /// Walks from the nearest of `sources` to `destination`, which is on every network at
    /// distance 1; where several ways are as short, over the gateways that come first.
    pub(super) fn walk(
        &self,
        sources: &[u16],
        distances: &Distances,
        destination: NodeId,
    ) -> Option<Vec<Hop>> {
        let start = sources.iter().copied().map(usize::from);
        let mut place = start.min_by_key(|place| (distances[*place], *place))?;
        if distances[place] == UNREACHABLE {
            return None;
        }
        let mut hops = Vec::new();
        while distances[place].hops > 1 {
            let here = &self.networks[place];
            let rest = Distance {
                hops: distances[place].hops - 1,
                cost: distances[place].cost - here.cost,
            };
            let (gateway, next) = here.gateways.iter().find_map(|gateway| {
                let gateway = &self.gateways[*gateway];
                let places = gateway.places.iter().copied().map(usize::from);
                let mut nearer = places.filter(|place| distances[*place] == rest);
                nearer.next().map(|next| (gateway.node, next))
            })?;
            hops.push(Hop {
                network: here.network,
                node: gateway,
            });
            place = next;
        }
        hops.push(Hop {
            network: self.networks[place].network,
            node: destination,
        });
        Some(hops)
    }
}
