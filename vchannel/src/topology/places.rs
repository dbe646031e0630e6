//! Places: nodes that are on the same networks of a channel, and so have the same routes.

use std::collections::BTreeMap;

use crate::cluster::{ChannelId, Cluster, NetworkId, NodeId};

/// The nodes of a channel that are on the same of its networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The networks, in the order of their numbers.
    pub networks: Vec<NetworkId>,
    /// The nodes, in the order of ranks. Never empty.
    pub nodes: Vec<NodeId>,
}

/// The places of a channel, in the order of the ranks of their first nodes.
#[must_use]
pub fn places(cluster: &Cluster, channel: ChannelId) -> Vec<Place> {
    let spanned = &cluster.channel(channel).networks;
    let mut places: BTreeMap<Vec<NetworkId>, Vec<NodeId>> = BTreeMap::new();
    for node in cluster.nodes() {
        let networks = cluster.networks_of(node);
        let networks: Vec<NetworkId> = networks
            .filter(|network| spanned.binary_search(network).is_ok())
            .collect();
        if !networks.is_empty() {
            places.entry(networks).or_default().push(node);
        }
    }
    let mut places: Vec<Place> = places
        .into_iter()
        .map(|(networks, nodes)| Place { networks, nodes })
        .collect();
    places.sort_by_key(|place| place.nodes.first().copied());
    places
}

/// How many pairs of nodes a channel connects; each pair counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pairs {
    /// All pairs.
    pub all: u64,
    /// Those without a common network: their messages cross gateways.
    pub crossing: u64,
}

/// Counts the pairs of nodes that a channel's `places` make.
#[must_use]
pub fn count_pairs(places: &[Place]) -> Pairs {
    let size = |place: &Place| u64::try_from(place.nodes.len()).unwrap_or(u64::MAX);
    let among = |count: u64| count * count.saturating_sub(1) / 2;
    let mut nodes_on: BTreeMap<NetworkId, u64> = BTreeMap::new();
    for place in places {
        for network in &place.networks {
            *nodes_on.entry(*network).or_default() += size(place);
        }
    }
    let all = among(places.iter().map(size).sum());
    // Every pair with a common network, once for each common network …
    let common: u64 = nodes_on.values().copied().map(among).sum();
    // … of which those on several common networks count once too often for each but one.
    let several: Vec<&Place> = places
        .iter()
        .filter(|place| place.networks.len() > 1)
        .collect();
    let mut repeated = 0;
    for (index, place) in several.iter().enumerate() {
        repeated += among(size(place)) * excess(place, place);
        for other in &several[index + 1..] {
            repeated += size(place) * size(other) * excess(place, other);
        }
    }
    Pairs {
        all,
        crossing: all - (common - repeated),
    }
}

/// How many networks two places have in common, beyond the first.
fn excess(one: &Place, other: &Place) -> u64 {
    let (mut left, mut right) = (
        one.networks.iter().peekable(),
        other.networks.iter().peekable(),
    );
    let mut common: u64 = 0;
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        match a.cmp(b) {
            std::cmp::Ordering::Less => _ = left.next(),
            std::cmp::Ordering::Greater => _ = right.next(),
            std::cmp::Ordering::Equal => {
                common += 1;
                left.next();
                right.next();
            }
        }
    }
    common.saturating_sub(1)
}
