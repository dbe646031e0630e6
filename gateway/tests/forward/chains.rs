//! Several gateways in a row, several networks at one gateway, gateways that run application
//! code.

use std::thread;

use crate::traffic::{receive_all, send_all};
use crate::world::{World, remote_writes};

const LENGTHS: [usize; 8] = [8, 0, 70_000, 3, 1 << 20, 4000, 200_000, 1];

#[test]
fn two_gateways_of_three_protocols_in_a_row() {
    for middle in [vec!["shm"], remote_writes()].concat() {
        two_gateways_with(middle);
    }
}

fn two_gateways_with(middle: &str) {
    let world = World::new("")
        .networks(&[("left", "tcp"), ("middle", middle), ("right", "tcp")])
        .node("a0", &[("left", "tcp")])
        .node("gw0", &[("left", "tcp"), ("middle", middle)])
        .node("gw1", &[("middle", middle), ("right", "tcp")])
        .node("b0", &[("right", "tcp")])
        .channel("main", &["left", "middle", "right"]);
    let gateways = [world.gateway("gw0"), world.gateway("gw1")];
    let (a, b) = (world.node_of("a0"), world.node_of("b0"));
    thread::scope(|scope| {
        scope.spawn(|| send_all(&a, "b0", &LENGTHS));
        scope.spawn(|| receive_all(&b, &LENGTHS));
        scope.spawn(|| send_all(&b, "a0", &LENGTHS));
        scope.spawn(|| receive_all(&a, &LENGTHS));
    });
    for gateway in gateways {
        let counters = gateway.counters();
        assert!(counters.frames > 0);
        assert_eq!(
            (counters.stale, counters.corrupt, counters.misbehaved),
            (0, 0, 0)
        );
    }
}

#[test]
fn answers_take_the_connections_that_the_questions_came_by() {
    for right in [vec!["tcp", "shm"], remote_writes()].concat() {
        let world = World::new("")
            .networks(&[("left", "tcp"), ("middle", "tcp"), ("right", right)])
            .node("a0", &[("left", "tcp")])
            .node("gw0", &[("left", "tcp"), ("middle", "tcp")])
            .node("gw1", &[("middle", "tcp"), ("right", right)])
            .node("b0", &[("right", right)])
            .channel("main", &["left", "middle", "right"]);
        let gateways = [world.gateway("gw0"), world.gateway("gw1")];
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        send_all(&a, "b0", &LENGTHS);
        receive_all(&b, &LENGTHS);
        send_all(&b, "a0", &LENGTHS);
        receive_all(&a, &LENGTHS);
        for gateway in &gateways {
            assert_eq!(gateway.counters().links, 2, "one to each side");
        }
    }
}

#[test]
fn a_gateway_has_messages_of_its_own() {
    for right in [vec!["shm"], remote_writes()].concat() {
        gateway_with_messages_of_its_own(right);
    }
}

fn gateway_with_messages_of_its_own(right: &str) {
    let world = World::two("tcp", right, "");
    let gateway = world.gateway("gw");
    let (a, b) = (world.node_of("a0"), world.node_of("b0"));
    let own = world.at_gateway(&gateway);
    thread::scope(|scope| {
        scope.spawn(|| send_all(&a, "gw", &LENGTHS));
        scope.spawn(|| receive_all(&own, &LENGTHS));
    });
    thread::scope(|scope| {
        scope.spawn(|| send_all(&own, "b0", &LENGTHS));
        scope.spawn(|| receive_all(&b, &LENGTHS));
    });
    assert_eq!(gateway.counters().frames, 0, "nothing of it was forwarded");
}

#[test]
fn every_network_of_a_gateway_reaches_every_other() {
    let networks = [
        ("n0", "tcp"),
        ("n1", "shm"),
        ("n2", "tcp"),
        ("n3", "shm"),
        ("n4", "hsl"),
    ];
    let count = networks.len();
    let mut world = World::new("").networks(&networks).node("gw", &networks);
    for (at, network) in networks.iter().enumerate() {
        world = world.node(&format!("e{at}"), &[*network]);
    }
    let world = world.channel("main", &["n0", "n1", "n2", "n3", "n4"]);
    let _gateway = world.gateway("gw");
    let nodes: Vec<_> = (0..count)
        .map(|at| world.node_of(&format!("e{at}")))
        .collect();
    // Everybody sends to the next one, at once.
    thread::scope(|scope| {
        for (at, node) in nodes.iter().enumerate() {
            scope.spawn(move || send_all(node, &format!("e{}", (at + 1) % count), &LENGTHS));
            scope.spawn(move || receive_all(node, &LENGTHS));
        }
    });
}

#[test]
fn the_sender_can_have_every_batch() {
    for right in [vec!["shm"], remote_writes()].concat() {
        let settings = "[gateway]\nhandover = \"thread\"\nwait = \"sleep\"";
        let world = World::two("tcp", right, settings);
        let _gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        thread::scope(|scope| {
            scope.spawn(|| send_all(&a, "b0", &LENGTHS));
            scope.spawn(|| receive_all(&b, &LENGTHS));
            scope.spawn(|| send_all(&b, "a0", &LENGTHS));
            scope.spawn(|| receive_all(&a, &LENGTHS));
        });
    }
}

#[test]
fn the_smallest_gateway_forwards() {
    // A batch holds a frame of any fragment, whatever it is asked to be.
    for (right, mtu) in [vec!["tcp"], remote_writes()]
        .concat()
        .into_iter()
        .flat_map(|right| ["1MiB", "60KiB", "1KiB"].map(|mtu| (right, mtu)))
    {
        let settings = "[gateway]\ndepth = 1\nbatch = \"64KiB\"\nmemory = \"8MiB\"";
        let world = World::two("tcp", right, settings).and(&format!("mtu = {mtu:?}"));
        let _gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        let lengths = vec![300_000; 50];
        thread::scope(|scope| {
            scope.spawn(|| send_all(&a, "b0", &lengths));
            scope.spawn(|| receive_all(&b, &lengths));
            scope.spawn(|| send_all(&b, "a0", &lengths));
            scope.spawn(|| receive_all(&a, &lengths));
        });
    }
}
