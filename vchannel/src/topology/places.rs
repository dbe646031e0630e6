//! Places: nodes that are on the same networks of a channel, and so have the same routes.

use std::cmp::Ordering;
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
    /// Those without a common network: their messages cross gateways. `None` where very many
    /// nodes are on very many networks each, and counting them would take too long.
    pub crossing: Option<u64>,
}

/// Counts the pairs of nodes that a channel's `places` make.
#[must_use]
pub fn count_pairs(places: &[Place]) -> Pairs {
    let group = members(places);
    let all = among(nodes(&group));
    Pairs {
        all,
        crossing: meetings(&group).map(|meeting| all - meeting),
    }
}

/// Steps that counting may take; one is the look at a network of a place.
const MAX_STEPS: usize = 50_000_000;
/// Members of a group that may be compared with each other at once.
const MAX_COMPARED: usize = 64;
/// How often a group may be divided. More members than are compared, with so many networks in
/// common, make groups of all the sets of these, which takes more than [`MAX_STEPS`].
const MAX_DEPTH: u32 = 20;
const _: () = assert!((MAX_COMPARED + 1) << MAX_DEPTH > MAX_STEPS);

/// A place among others, with those of its networks that have not been looked at.
#[derive(Debug, Clone, Copy)]
struct Member<'a> {
    /// In the order of their numbers.
    networks: &'a [NetworkId],
    nodes: u64,
}

/// How many pairs of nodes have a common network; `None` when that takes too long to count.
fn meetings(group: &[Member<'_>]) -> Option<u64> {
    let mut steps = MAX_STEPS;
    divide(group, 0, &mut steps).or_else(|| (comparing(group) <= MAX_STEPS).then(|| compare(group)))
}

/// Counts the pairs of nodes that have a common network, network by network.
///
/// A pair counts with one network only, the last that it has in common: of all pairs on a
/// network, those are left out that also have one in common behind it.
fn divide(group: &[Member<'_>], depth: u32, steps: &mut usize) -> Option<u64> {
    if group.len() <= MAX_COMPARED && comparing(group) <= subsets(group) {
        *steps = steps.checked_sub(comparing(group))?;
        return Some(compare(group));
    }
    if depth == MAX_DEPTH {
        return None;
    }
    let entries = group.iter().map(|member| member.networks.len()).sum();
    *steps = steps.checked_sub(entries)?;
    let mut members_on: BTreeMap<NetworkId, Vec<Member<'_>>> = BTreeMap::new();
    for member in group {
        for (index, network) in member.networks.iter().enumerate() {
            members_on.entry(*network).or_default().push(Member {
                networks: &member.networks[index + 1..],
                nodes: member.nodes,
            });
        }
    }
    let mut meeting = 0;
    for members in members_on.values() {
        meeting += among(nodes(members)) - divide(members, depth + 1, steps)?;
    }
    Some(meeting)
}

/// The same, place by place.
fn compare(group: &[Member<'_>]) -> u64 {
    let mut meeting = 0;
    for (index, member) in group.iter().enumerate() {
        if !member.networks.is_empty() {
            meeting += among(member.nodes);
        }
        for other in &group[index + 1..] {
            if meet(member.networks, other.networks) {
                meeting += member.nodes * other.nodes;
            }
        }
    }
    meeting
}

/// Whether two places have a common network.
fn meet(mut left: &[NetworkId], mut right: &[NetworkId]) -> bool {
    while let (Some((a, left_rest)), Some((b, right_rest))) =
        (left.split_first(), right.split_first())
    {
        match a.cmp(b) {
            Ordering::Less => left = left_rest,
            Ordering::Greater => right = right_rest,
            Ordering::Equal => return true,
        }
    }
    false
}

/// Steps that [`compare`] takes at most.
fn comparing(group: &[Member<'_>]) -> usize {
    let entries = |member: &Member<'_>| member.networks.len() + 1;
    let entries: usize = group.iter().map(entries).sum();
    entries.saturating_mul(group.len().saturating_sub(1))
}

/// Steps that [`divide`] takes at most: one for each set of a member's networks.
fn subsets(group: &[Member<'_>]) -> usize {
    group.iter().fold(0, |all, member| {
        let networks = u32::try_from(member.networks.len()).unwrap_or(u32::MAX);
        all.saturating_add(1_usize.checked_shl(networks).unwrap_or(usize::MAX))
    })
}

fn members(places: &[Place]) -> Vec<Member<'_>> {
    let members = places.iter().map(|place| Member {
        networks: &place.networks,
        nodes: u64::try_from(place.nodes.len()).unwrap_or(u64::MAX),
    });
    members.collect()
}

fn nodes(group: &[Member<'_>]) -> u64 {
    group.iter().map(|member| member.nodes).sum()
}

/// The pairs among so many.
fn among(count: u64) -> u64 {
    count * count.saturating_sub(1) / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Places on these networks, with so many nodes each.
    fn make(places: &[(Vec<u16>, u64)]) -> Vec<Place> {
        let mut rank = 0..;
        let mut make = |(networks, nodes): &(Vec<u16>, u64)| Place {
            networks: networks.iter().copied().map(NetworkId).collect(),
            nodes: (0..*nodes)
                .filter_map(|_| rank.next())
                .map(NodeId)
                .collect(),
        };
        places.iter().map(&mut make).collect()
    }

    /// How many steps the division of these places takes, where it does not take too many.
    fn steps(places: &[Place]) -> Option<usize> {
        let mut left = MAX_STEPS;
        divide(&members(places), 0, &mut left)?;
        Some(MAX_STEPS - left)
    }

    /// Every node with every other.
    fn one_by_one(places: &[Place]) -> Pairs {
        let mut pairs = Pairs::default();
        let mut crossing = 0;
        let nodes: Vec<&Place> = places
            .iter()
            .flat_map(|place| place.nodes.iter().map(move |_| place))
            .collect();
        for (index, node) in nodes.iter().enumerate() {
            for other in &nodes[index + 1..] {
                let is_on = |network| other.networks.contains(network);
                pairs.all += 1;
                crossing += u64::from(!node.networks.iter().any(is_on));
            }
        }
        pairs.crossing = Some(crossing);
        pairs
    }

    proptest! {
        #[test]
        fn pairs_are_those_of_every_node_with_every_other(
            places in proptest::collection::btree_map(
                proptest::collection::btree_set(0_u16..12, 1..6), 1_u64..4, 0..150),
        ) {
            let places: Vec<(Vec<u16>, u64)> = places
                .into_iter()
                .map(|(networks, nodes)| (networks.into_iter().collect(), nodes))
                .collect();
            let places = make(&places);
            prop_assert_eq!(count_pairs(&places), one_by_one(&places));
        }
    }

    /// Sets that look random, of `each` among `networks`.
    fn scattered(count: u64, networks: u64, each: usize) -> Vec<Place> {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            u16::try_from((state >> 33) % networks).unwrap()
        };
        let mut places = BTreeMap::new();
        for _ in 0..count {
            let mut on = std::collections::BTreeSet::new();
            while on.len() < each {
                on.insert(next());
            }
            *places.entry(on.into_iter().collect()).or_default() += 1;
        }
        make(&places.into_iter().collect::<Vec<_>>())
    }

    #[test]
    fn steps_are_few_where_places_are_many() {
        for (networks, each) in [(1000, 2), (1000, 3), (300, 5)] {
            let places = scattered(100_000, networks, each);
            let (taken, entries) = (steps(&places).unwrap(), each * places.len());
            assert!(taken < 50 * entries, "{taken} steps for {entries} entries");
        }
    }

    #[test]
    fn a_network_that_all_are_on_is_no_burden() {
        let mut places = scattered(50_000, 1000, 2);
        for place in &mut places {
            let shifted = place
                .networks
                .iter()
                .map(|network| NetworkId(network.0 + 1));
            place.networks = std::iter::once(NetworkId(0)).chain(shifted).collect();
        }
        assert_eq!(count_pairs(&places).crossing, Some(0));
    }

    #[test]
    fn what_takes_too_long_is_not_counted() {
        let places = scattered(20_000, 200, 40);
        let pairs = count_pairs(&places);
        assert_eq!((pairs.all, pairs.crossing), (20_000 * 19_999 / 2, None));
    }

    #[test]
    fn few_places_are_counted_on_however_many_networks() {
        let places = scattered(300, 120, 40);
        assert_eq!(count_pairs(&places), one_by_one(&places));
    }
}
