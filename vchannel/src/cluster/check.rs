//! What can only be said once everything has been read: who reaches whom, and what looks odd.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use madgate_gtm::transit::Rate;
use madgate_tm::Endpoint;

use super::id::{ChannelId, NetworkId, NodeId};
use super::mistake::Report;
use super::nodes::{GroupAddress, NodeGroup};
use super::{Channel, Cluster, format_duration, format_rate, format_size};

/// How long a fragment may take at a rate before that is odd: whatever else goes there waits for it.
const FRAGMENT_WITHIN: Duration = Duration::from_secs(1);

/// Checks a cluster; `networks` and `channels` are where each of them stands.
pub(super) fn check(
    cluster: &Cluster,
    networks: &[Range<usize>],
    channels: &[Range<usize>],
    report: &mut Report,
) {
    for (channel, span) in cluster.channel_ids().zip(channels) {
        check_reach(cluster, channel, span, report);
    }
    for (network, span) in cluster.network_ids().zip(networks) {
        check_network(cluster, network, span, report);
    }
    for group in cluster.nodes.groups() {
        check_places(cluster, group, report);
        if let Some(rate) = group.rate {
            let name = cluster.node_name(NodeId(group.ranks.start));
            for at in &group.addresses {
                let to = format!("to node \"{name}\" over network");
                check_rate(cluster, at.network, rate, &to, &group.span, report);
            }
        }
    }
    for group in cluster.nodes.groups().iter().filter(|group| group.gateway) {
        if group.addresses.len() == 1 {
            let name = cluster.node_name(NodeId(group.ranks.start));
            let message = format!("gateway \"{name}\" is on one network only");
            report.warning(&group.span, message, "it has nothing to forward to");
        }
    }
}

/// A node that is in two networks of its host has a socket in the directory of each.
fn check_places(cluster: &Cluster, group: &NodeGroup, report: &mut Report) {
    // One node of each group is looked at: the others have their names in the same way.
    let node = NodeId(group.ranks.start);
    let mut places: HashMap<PathBuf, NetworkId> = HashMap::new();
    for at in &group.addresses {
        let (Some(Endpoint::Shm { directory, name }) | Some(Endpoint::Hsl { directory, name })) =
            cluster.address(node, at.network)
        else {
            continue;
        };
        let place = directory.join(name);
        if let Some(other) = places.get(&place) {
            let [one, other] = [*other, at.network].map(|id| &cluster.network(id).name);
            let message = format!(
                "node \"{}\" would listen twice at {}.sock: networks \"{one}\" and \"{other}\" have the same directory",
                cluster.node_name(node),
                place.display()
            );
            let help = "give each network a `directory` of its own";
            report.mistake(&group.span, message, help);
        }
        places.insert(place, at.network);
    }
}

/// All nodes of a channel have to reach each other over gateways that are on its networks.
fn check_reach(cluster: &Cluster, id: ChannelId, span: &Range<usize>, report: &mut Report) {
    let channel = cluster.channel(id);
    let islands = islands(cluster, channel);
    let inhabited = |network: &NetworkId| cluster.nodes.groups_on(*network).next().is_some();
    let mut with_nodes = channel
        .networks
        .iter()
        .zip(&islands)
        .filter(|(network, _)| inhabited(network));
    let Some((first, island)) = with_nodes.next() else {
        return;
    };
    if let Some((other, other_island)) = with_nodes.find(|(_, other)| *other != island) {
        let on = |group: &NodeGroup, island: usize| {
            let mut networks = channel.networks.iter().zip(&islands);
            let is_on = |id: NetworkId| group.addresses.iter().any(|at| at.network == id);
            networks.any(|(network, at)| *at == island && is_on(*network))
        };
        let joins = |group: &&NodeGroup| on(group, *island) && on(group, *other_island);
        let between = cluster.nodes.groups().iter().find(joins);
        let between = between.map(|group| cluster.node_name(NodeId(group.ranks.start)));
        let (first, other) = (&cluster.network(*first).name, &cluster.network(*other).name);
        let message = format!(
            "the nodes of channel \"{}\" cannot all reach each other: there is no way from network \"{first}\" to network \"{other}\"",
            channel.name
        );
        let help = match between {
            Some(node) => format!(
                "{node} has addresses on both: write `gateway = true` in it, if it is to forward between them"
            ),
            None => "give a node addresses on both and write `gateway = true` in it, or leave one network out".to_owned(),
        };
        report.mistake(span, message, &help);
    }
}

/// For each network of a channel, the island that it belongs to: networks that gateways join.
fn islands(cluster: &Cluster, channel: &Channel) -> Vec<usize> {
    let mut parents: Vec<usize> = (0..channel.networks.len()).collect();
    fn root(parents: &mut [usize], mut at: usize) -> usize {
        while parents[at] != at {
            parents[at] = parents[parents[at]];
            at = parents[at];
        }
        at
    }
    for (index, network) in channel.networks.iter().enumerate() {
        let groups = cluster.nodes.groups_on(*network);
        for group in groups.filter(|group| group.gateway) {
            // Networks are sorted.
            let place = |at: &GroupAddress| channel.networks.binary_search(&at.network).ok();
            let mut places = group.addresses.iter().filter_map(place);
            // All of its networks are joined where the first of them is looked at.
            if places.next() != Some(index) {
                continue;
            }
            for other in places {
                let (one, other) = (root(&mut parents, index), root(&mut parents, other));
                parents[other] = one;
            }
        }
    }
    (0..parents.len())
        .map(|index| root(&mut parents, index))
        .collect()
}

fn check_network(cluster: &Cluster, network: NetworkId, span: &Range<usize>, report: &mut Report) {
    let described = cluster.network(network);
    let name = &described.name;
    if let Err(what) = madgate_tm::check_memory(described.protocol, &described.tuning) {
        let message = format!("no link of network \"{name}\" can be made: {what}");
        let help = "write smaller `slots`, `urgent_slots` or `slot_bytes`";
        report.mistake(span, message, help);
    }
    if let Some(rate) = described.rate {
        check_rate(cluster, network, rate, "over network", span, report);
    }
    let nodes = cluster.nodes_on(network).take(2).count();
    if nodes < 2 {
        let some = if nodes == 1 {
            "one node only"
        } else {
            "no nodes"
        };
        let message = format!("network \"{name}\" has {some}");
        report.warning(span, message, "it connects nothing");
    }
    if !cluster
        .channels
        .iter()
        .any(|channel| channel.networks.binary_search(&network).is_ok())
    {
        let message = format!("network \"{name}\" is in no channel");
        report.warning(span, message, "nothing will be sent over it");
    }
    // One node of each group is looked at; a public range begins with a public address.
    let public = cluster.nodes.groups_on(network).find_map(|group| {
        let address = cluster.address(NodeId(group.ranks.start), network)?;
        is_public(&address).then_some((group.ranks.start, address))
    });
    if let Some((rank, address)) = public {
        let node = cluster.node_name(NodeId(rank));
        let message = format!("network \"{name}\" has public addresses (\"{node}\" is {address})");
        let help = "frames travel in clear after the handshake: use a network that only members can reach, or a tunnel";
        report.warning(span, message, help);
    }
}

/// Whatever goes where there is a rate waits for fragments that are being paid for, one of each flow.
fn check_rate(
    cluster: &Cluster,
    network: NetworkId,
    rate: Rate,
    to: &str,
    span: &Range<usize>,
    report: &mut Report,
) {
    let described = cluster.network(network);
    let over = |channel: &&Channel| channel.networks.binary_search(&network).is_ok();
    let channels = cluster.channels.iter().filter(over);
    let most = channels.map(|channel| channel.mtu).max().unwrap_or(0);
    let bytes = u64::from(most.min(described.largest_fragment_bytes()));
    let millis = bytes.saturating_mul(1000) / rate.bytes_per_second();
    let takes = Duration::from_millis(millis);
    if takes > FRAGMENT_WITHIN {
        let message = format!(
            "a fragment of {} {to} \"{}\" takes {} at a rate of {}: whatever else goes there waits for it",
            format_size(bytes),
            described.name,
            format_duration(Duration::from_secs(takes.as_secs())),
            format_rate(rate),
        );
        let help = "write a smaller `mtu` for the network";
        report.warning(span, message, help);
    }
}

/// Whether an address can be reached from everywhere. Host names are not resolved.
fn is_public(endpoint: &Endpoint) -> bool {
    let Some(host) = endpoint.host() else {
        return false;
    };
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            !(ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || ip.is_documentation()
                || shared)
        }
        Ok(IpAddr::V6(ip)) => is_public_v6(ip),
        Err(_) => false,
    }
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let documentation = ip.segments()[0] == 0x2001 && ip.segments()[1] == 0xdb8;
    !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local() || documentation)
}
