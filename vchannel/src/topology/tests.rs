//! Routes against a search through all pairs of nodes.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::cluster::NetworkId;

fn parse(text: &str) -> Arc<Cluster> {
    Arc::new(Cluster::parse(text, ".").unwrap_or_else(|error| panic!("{error}")))
}

/// A cluster of the networks' costs and of nodes: gateway or not, and their networks.
fn describe(costs: &[u32], nodes: &[(bool, BTreeSet<usize>)]) -> String {
    let mut text = String::from("session = { name = \"t\", key_file = \"k\" }\n");
    for (network, cost) in costs.iter().enumerate() {
        let _ = write!(
            text,
            "[[network]]\nname = \"n{network}\"\nprotocol = \"tcp\"\ncost = {cost}\n"
        );
    }
    for (node, (gateway, networks)) in nodes.iter().enumerate() {
        let address = |network| format!("n{network} = \"10.0.{network}.{}:1\"", node + 1);
        let addresses: Vec<String> = networks.iter().map(address).collect();
        let _ = write!(
            text,
            "[[node]]\nname = \"x{node}\"\ngateway = {gateway}\naddresses = {{ {} }}\n",
            addresses.join(", ")
        );
    }
    let names: Vec<String> = (0..costs.len())
        .map(|network| format!("\"n{network}\""))
        .collect();
    let _ = write!(
        text,
        "[[channel]]\nname = \"main\"\nnetworks = [{}]\n",
        names.join(", ")
    );
    text
}

fn names(cluster: &Cluster, route: &Route) -> String {
    let hops = route.hops.iter().map(|hop| {
        let network = &cluster.network(hop.network).name;
        format!("-{network}-{}", cluster.node_name(hop.node))
    });
    std::iter::once(cluster.node_name(route.source).to_owned())
        .chain(hops)
        .collect()
}

#[test]
fn two_gateways_in_a_row() {
    let on = |networks: &[usize]| networks.iter().copied().collect::<BTreeSet<_>>();
    let nodes = [
        (false, on(&[0])),
        (true, on(&[0, 1])),
        (true, on(&[1, 2])),
        (false, on(&[2])),
    ];
    let cluster = parse(&describe(&[1, 1, 1], &nodes));
    let routes = Routes::new(Arc::clone(&cluster), ChannelId(0));
    let [a, g, h, b] = [0, 1, 2, 3].map(NodeId);
    let route = routes.route(a, b).unwrap();
    assert_eq!(names(&cluster, &route), "x0-n0-x1-n1-x2-n2-x3");
    assert_eq!(route.gateways().collect::<Vec<_>>(), [g, h]);
    assert_eq!(
        routes.next_hop(g, a, b),
        Some(Hop {
            network: NetworkId(1),
            node: h
        })
    );
    assert_eq!(
        routes.previous_hop(g, a, b),
        Some(Hop {
            network: NetworkId(0),
            node: a
        })
    );
    assert_eq!(
        routes.next_hop(g, b, a),
        Some(Hop {
            network: NetworkId(0),
            node: a
        })
    );
    assert_eq!(
        routes.previous_hop(g, b, a),
        Some(Hop {
            network: NetworkId(1),
            node: h
        })
    );
    assert_eq!(routes.next_hop(b, a, b), None);
    assert_eq!(routes.previous_hop(a, a, b), None);
    assert_eq!(routes.next_hop(b, a, h), None);
    assert!(routes.route(a, g).unwrap().is_direct());
    assert!(matches!(routes.route(a, a), Err(NoRoute::ToItself { .. })));
    assert!(matches!(
        routes.route(a, NodeId(4)),
        Err(NoRoute::UnknownNode { rank: 4 })
    ));
    assert_eq!(routes.fragment_bytes(&route), 1 << 20);
}

#[test]
fn cost_decides_between_ways_of_the_same_length() {
    let on = |networks: &[usize]| networks.iter().copied().collect::<BTreeSet<_>>();
    let nodes = [
        (false, on(&[0, 1])),
        (true, on(&[0, 2])),
        (true, on(&[1, 2])),
        (false, on(&[2])),
        (false, on(&[0, 1])),
    ];
    let cluster = parse(&describe(&[3, 2, 1], &nodes));
    let routes = Routes::new(Arc::clone(&cluster), ChannelId(0));
    let route = routes.route(NodeId(3), NodeId(0)).unwrap();
    assert_eq!(names(&cluster, &route), "x3-n2-x2-n1-x0");
    let route = routes.route(NodeId(4), NodeId(0)).unwrap();
    assert_eq!(names(&cluster, &route), "x4-n1-x0");
}

#[test]
fn a_thousand_networks_in_a_ring() {
    let cluster = parse(&crate::cluster::tests::large(true));
    let routes = Routes::new(Arc::clone(&cluster), ChannelId(0));
    let node = |name: &str| cluster.node(name).unwrap();
    let route = routes.route(node("n10x00"), node("n510x98")).unwrap();
    assert_eq!(route.hops.len(), 501);
    let route = routes.route(node("n999x00"), node("n1x98")).unwrap();
    assert_eq!(
        names(&cluster, &route),
        "n999x00-n999-gw999-n0-gw0-n1-n1x98"
    );
    for network in 0..1000 {
        let far = node(&format!("n{network}x50"));
        let route = routes.route(node("n0x00"), far).unwrap();
        assert_eq!(route.destination(), far);
    }
}

type Described = (Vec<u32>, Vec<(bool, BTreeSet<usize>)>);

/// Clusters whose networks hang together: each network after the first is joined to an
/// earlier one by a gateway; more nodes come on top.
fn clusters() -> impl Strategy<Value = Described> {
    (1..7_usize).prop_flat_map(|networks| {
        let costs = proptest::collection::vec(1..4_u32, networks);
        let joints: Vec<_> = (1..networks).map(|network| 0..network).collect();
        let more = proptest::collection::vec(
            (
                any::<bool>(),
                proptest::collection::btree_set(0..networks, 1..=networks.min(3)),
            ),
            2..9,
        );
        (costs, joints, more).prop_map(|(costs, joints, mut nodes)| {
            let joint = |(at, other): (usize, usize)| (true, BTreeSet::from([at + 1, other]));
            nodes.extend(joints.into_iter().enumerate().map(joint));
            (costs, nodes)
        })
    })
}

/// Least (hops, cost) between all pairs of nodes, over gateways only.
fn search(costs: &[u32], nodes: &[(bool, BTreeSet<usize>)]) -> Vec<Vec<(u32, u32)>> {
    let direct = |a: usize, b: usize| {
        let shared = nodes[a]
            .1
            .intersection(&nodes[b].1)
            .map(|network| costs[*network]);
        shared.min().map_or((1000, 0), |cost| (1, cost))
    };
    let count = nodes.len();
    let mut least: Vec<Vec<_>> = (0..count)
        .map(|a| (0..count).map(|b| direct(a, b)).collect())
        .collect();
    for via in (0..count).filter(|via| nodes[*via].0) {
        for a in 0..count {
            for b in 0..count {
                let (one, other) = (least[a][via], least[via][b]);
                least[a][b] = least[a][b].min((one.0 + other.0, one.1 + other.1));
            }
        }
    }
    least
}

proptest! {
    #[test]
    fn routes_are_valid_least_and_symmetric((costs, nodes) in clusters()) {
        let cluster = parse(&describe(&costs, &nodes));
        let routes = Routes::new(Arc::clone(&cluster), ChannelId(0));
        let least = search(&costs, &nodes);
        for from in cluster.nodes() {
            for to in cluster.nodes().filter(|to| *to != from) {
                let route = routes.route(from, to).unwrap();
                prop_assert_eq!(&route.reversed(), &routes.route(to, from).unwrap());
                prop_assert_eq!(&route.reversed().reversed(), &route);
                prop_assert_eq!(route.destination(), to);
                let mut at = from;
                let mut length = (0, 0);
                for hop in &route.hops {
                    prop_assert!(cluster.is_on(at, hop.network));
                    prop_assert!(cluster.is_on(hop.node, hop.network));
                    prop_assert_eq!(routes.next_hop(at, from, to), Some(*hop));
                    let back = Hop { network: hop.network, node: at };
                    prop_assert_eq!(routes.previous_hop(hop.node, from, to), Some(back));
                    length = (length.0 + 1, length.1 + cluster.network(hop.network).cost);
                    at = hop.node;
                }
                prop_assert!(route.gateways().all(|node| cluster.is_gateway(node)));
                prop_assert_eq!(length, least[from.index()][to.index()]);
            }
        }
    }
    #[test]
    fn pairs_are_counted_and_places_share_routes((costs, nodes) in clusters()) {
        let cluster = parse(&describe(&costs, &nodes));
        let routes = Routes::new(Arc::clone(&cluster), ChannelId(0));
        let places = places(&cluster, ChannelId(0));
        let (mut all, mut crossing) = (0, 0);
        for from in cluster.nodes() {
            for to in cluster.nodes().filter(|to| *to > from) {
                all += 1;
                crossing += u64::from(!routes.route(from, to).unwrap().is_direct());
            }
        }
        let expected = Pairs { all, crossing: Some(crossing) };
        prop_assert_eq!(count_pairs(&places), expected);
        for one in &places {
            for other in places.iter().filter(|other| other.networks != one.networks) {
                let first = routes.route(one.nodes[0], other.nodes[0]).unwrap();
                for (from, to) in one.nodes.iter().zip(&other.nodes) {
                    let route = routes.route(*from, *to).unwrap();
                    let networks = |route: &Route| -> Vec<_> { route.hops.iter().map(|hop| hop.network).collect() };
                    prop_assert_eq!(networks(&route), networks(&first));
                    prop_assert!(route.gateways().eq(first.gateways()));
                }
            }
        }
    }
}
