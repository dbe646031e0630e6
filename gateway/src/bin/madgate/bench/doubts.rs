//! Why figures may not be trusted.

use std::net::{IpAddr, UdpSocket};
use std::thread::available_parallelism;

use madgate_gateway::Gateway;
use madgate_tm::Endpoint;
use madgate_vchannel::cluster::WaitPolicy;
use madgate_vchannel::{Cluster, NodeId};

use crate::load::Load;
use crate::service::seen::Seen;

/// What was asked about the machine: the threads that never sleep there, and who else works.
pub(crate) fn doubts(spinners: usize, load: Option<Load>) -> Vec<String> {
    let processors = available_parallelism().map_or(1, std::num::NonZero::get);
    let mut doubts = Vec::new();
    if spinners > processors {
        doubts.push(format!(
            "{spinners} threads on this machine never sleep, and it has {processors} processors: \
             they wait for each other; set `wait = \"adaptive\"`, and the same as `mode` of networks \
             of remote write"
        ));
    }
    if let Some(load) = load.filter(|load| load.is_high) {
        doubts.push(format!(
            "other programs kept {:.1} of {} processors busy meanwhile",
            load.others, load.processors
        ));
    }
    doubts
}

/// The gateways that do not run what their files say.
pub(super) fn of_trials(seen: &[Seen]) -> impl Iterator<Item = String> {
    let on_trial = seen.iter().filter(|seen| seen.on_trial);
    on_trial.map(|seen| {
        format!(
            "{} ran values that a tuner tries, and not those of its file; it goes back to them when \
             `madgate tune` ends, or has not been heard of for a while",
            seen.gateway
        )
    })
}

/// Threads of these nodes that never sleep, of those that run on this machine as far as their addresses
/// tell. `own` is one that does.
pub(crate) fn spinners(
    cluster: &Cluster,
    own: NodeId,
    nodes: impl Iterator<Item = NodeId>,
) -> usize {
    let here = nodes_here(cluster, own);
    // However many threads call, one of them drives, and the others sleep. Gateways have a session
    // besides, to answer benches with.
    let spins = cluster.endpoint_settings().wait == WaitPolicy::Spin;
    nodes
        .filter(|node| here.contains(node))
        .map(|node| {
            let mut networks = cluster.networks_of(node);
            let is_deaf = networks.any(|network| cluster.network(network).never_wakes());
            let session = usize::from(spins || is_deaf);
            let is_gateway = cluster.is_gateway(node);
            let engine = is_gateway.then(|| Gateway::sleepless_threads(cluster, node));
            session + engine.unwrap_or(0)
        })
        .sum()
}

/// The nodes that are on this machine, as `own` is: who has an address of it, and who shares memory with one
/// of them.
fn nodes_here(cluster: &Cluster, own: NodeId) -> Vec<NodeId> {
    let has_own_address = |node: NodeId| {
        cluster.networks_of(node).any(|network| {
            let address = cluster.address(node, network);
            matches!(address, Some(Endpoint::Tcp { host, .. } | Endpoint::HslHost { host, .. })
                if is_of_this_machine(&host))
        })
    };
    let memory_of = |node: NodeId| {
        let networks = cluster.networks_of(node);
        networks.filter(move |network| {
            let address = cluster.address(node, *network);
            matches!(address, Some(Endpoint::Shm { .. } | Endpoint::Hsl { .. }))
        })
    };
    let is_known = |node: &NodeId| *node == own || has_own_address(*node);
    let (mut here, mut others): (Vec<_>, Vec<_>) = cluster.nodes().partition(is_known);
    loop {
        let shared: Vec<_> = here.iter().flat_map(|node| memory_of(*node)).collect();
        let shares = |node: &NodeId| memory_of(*node).any(|network| shared.contains(&network));
        let (more, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(shares);
        if more.is_empty() {
            return here;
        }
        here.extend(more);
        others = rest;
    }
}

/// Host names are not resolved.
fn is_of_this_machine(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        // Nothing can be bound to another machine's address.
        Ok(address) => address.is_loopback() || UdpSocket::bind((address, 0)).is_ok(),
        Err(_) => host == "localhost",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const CLUSTER: &str = r#"
        [session]
        name = "s"
        key_file = "k"
        [[network]]
        name = "near"
        protocol = "tcp"
        [[network]]
        name = "far"
        protocol = "tcp"
        [[node]]
        name = "here"
        addresses = { near = "127.0.0.1:7000" }
        [[node]]
        name = "gw"
        gateway = true
        addresses = { near = "[::1]:7000", far = "203.0.113.1:7000" }
        [[node]]
        name = "there"
        addresses = { far = "203.0.113.2:7000" }
        [[channel]]
        name = "main"
        networks = ["near", "far"]
        [endpoint]
        wait = "spin"
        [gateway]
        wait = "spin"
    "#;

    #[test]
    fn threads_that_never_sleep_on_this_machine_are_counted() {
        let count = |text: &str| {
            let cluster = Cluster::parse(text, Path::new("/")).unwrap();
            let own = cluster.find_node("here").unwrap();
            spinners(&cluster, own, cluster.nodes())
        };
        // The sessions of two nodes, and one receiver of the engine.
        assert_eq!(count(CLUSTER), 2 + 1);
        for (more, threads) in [
            ("lookout = false", 2),
            ("pin = [0, 1]", 2),
            ("handover = \"thread\"", 1 + 2),
            ("handover = \"thread\"\nlookout = false", 2 + 2),
        ] {
            // The section of the gateway is the last.
            let text = format!("{CLUSTER}\n{more}");
            assert_eq!(count(&text), 2 + threads, "{more}");
        }
        assert_eq!(count(&CLUSTER.replace("spin", "sleep")), 0);
        let adaptive = CLUSTER.replace("spin", "adaptive");
        assert_eq!(count(&adaptive), 0);
        // Nobody is woken by a network of remote write that is polled: the two nodes that are on it
        // look again and again, and so does one receiver of the engine.
        let far = "name = \"far\"\n        protocol = \"tcp\"";
        let polled = "name = \"far\"\nprotocol = \"hsl\"\ntrust = \"memory\"\ndirectory = \"d\"\n\
                      mode = \"polling\"";
        let polled = adaptive.replace(far, polled);
        let polled = polled.replace("203.0.113.1:7000", "gw");
        assert_eq!(count(&polled.replace("203.0.113.2:7000", "there")), 2 + 1);
        // Memory of another machine is none of this one's: the gateway is there, with who shares it.
        let memory = "name = \"far\"\nprotocol = \"shm\"\ndirectory = \"d\"";
        let memory = CLUSTER.replace(far, memory);
        let memory = memory.replace("203.0.113.1:7000", "gw");
        let memory = memory.replace("203.0.113.2:7000", "there");
        assert_eq!(count(&memory), 3 + 1);
        assert_eq!(count(&memory.replace("[::1]", "203.0.113.9")), 1);
    }

    #[test]
    fn figures_are_doubted_where_the_machine_is_busy() {
        assert_eq!(doubts(1, None), Vec::<String>::new());
        let quiet = Load::new(2, 0.01, 100);
        let busy = Load::new(2, 0.5, 100);
        assert!(doubts(1, Some(quiet)).is_empty());
        assert!(doubts(1, Some(busy))[0].contains("1.0 of 2 processors"));
        assert!(doubts(usize::MAX, None)[0].contains("never sleep"));
        let seen = [("gw0", false), ("gw1", true)].map(|(gateway, on_trial)| Seen {
            gateway: gateway.to_owned(),
            on_trial,
            ..Seen::default()
        });
        let of_trials: Vec<_> = of_trials(&seen).collect();
        assert!(matches!(&of_trials[..], [one] if one.starts_with("gw1 ran values")));
    }
}
