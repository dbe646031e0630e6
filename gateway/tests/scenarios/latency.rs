//! Small beside big: what a message of eight bytes waits for is at most what the fragments
//! in front of it take.

use std::time::Duration;

use crate::stage::{Plan, Process, alone, bound, median};
use crate::support::netns::{Host, Rate, available, link};
use crate::support::{have, report};

/// Of all cables.
const MEGABITS: u32 = 1000;

/// Bytes of a fragment on the wire, and headers: what fragments have by default where a flow
/// delivers less in a millisecond.
const FRAGMENT_BYTES: f64 = 262_144.0 + 200.0;

/// Fragments that a small message may wait for on each link.
const FRAGMENTS: f64 = 2.0;

/// Bytes of the messages beside which it goes.
const BIG: u64 = 1 << 30;

/// When so much of one has passed, the links are full.
const FILLED_BYTES: u64 = 16 << 20;

/// Between two looks at how much has passed.
const LOOK: Duration = Duration::from_millis(5);

/// Messages of eight bytes in a row.
const PINGS: u32 = 400;

/// Rounds: idle, and beside big messages.
const ROUNDS: usize = 3;
const ROUNDS_MOST: usize = 9;

/// The median half round trip in microseconds.
fn half_rtt(node: &mut Process) -> f64 {
    let nanos: f64 = node.ask(&format!("ping small b0 {PINGS}")).parse().unwrap();
    nanos / 1e3
}

/// Two hosts with a gateway between; `big` sends big messages to `beyond`.
fn small_beside_big(what: &str, sender: &str, beyond: &str) {
    if !have(available()) {
        return;
    }
    let _alone = alone();
    let hosts = [(); 3].map(|()| Host::new().unwrap());
    let left = link(&hosts[0], &hosts[1], Rate::Megabits(MEGABITS)).unwrap();
    let right = link(&hosts[1], &hosts[2], Rate::Megabits(MEGABITS)).unwrap();
    let plan = Plan::new("")
        .networks(&["left", "right"])
        .node("a0", &[("left", left.0)])
        .node_at("a1", 7101, &[("left", left.0)])
        .node("gw", &[("left", left.1), ("right", right.0)])
        .node("b0", &[("right", right.1)])
        .node_at("b1", 7101, &[("right", right.1)])
        .channel("small")
        .channel("main");
    let mut gateway = plan.start_on(&hosts[1], "gw");
    let mut nodes: Vec<_> = [(0, "a0"), (0, "a1"), (2, "b0"), (2, "b1")]
        .map(|(host, name)| plan.start_on(&hosts[host], name))
        .into();
    nodes[2].tell("echo small");
    let place = |name| {
        ["a0", "a1", "b0", "b1"]
            .iter()
            .position(|node| *node == name)
    };
    let (big, to) = (place(sender).unwrap(), place(beyond).unwrap());
    nodes[to].tell("collect main");
    half_rtt(&mut nodes[0]);

    let fragment_us = FRAGMENT_BYTES * 8.0 / f64::from(MEGABITS);
    let allowed = FRAGMENTS * 2.0 * fragment_us;
    let most = bound(allowed);
    let mut waits = Vec::new();
    while waits.len() < ROUNDS_MOST {
        let idle = half_rtt(&mut nodes[0]);
        nodes[big].tell(&format!("stream big main {beyond} {BIG}"));
        let order = "counters bytes";
        let before: u64 = gateway.ask(order).parse().unwrap();
        while gateway.ask(order).parse::<u64>().unwrap() < before + FILLED_BYTES {
            std::thread::sleep(LOOK);
        }
        let beside = half_rtt(&mut nodes[0]);
        nodes[big].tell("cut big");
        nodes[big].hear("ended big");
        assert_eq!(nodes[big].ask("close"), "");
        report(&format!("{what}: {idle:.0} µs idle, {beside:.0} µs beside"));
        waits.push(beside - idle);
        if waits.len() >= ROUNDS && median(&waits) <= most {
            break;
        }
    }
    report(&format!(
        "{what}: {:.0} µs longer, {allowed:.0} allowed",
        median(&waits)
    ));
    assert!(
        median(&waits) <= most,
        "{what}: {most:.0} at most: {waits:.0?}"
    );
}

#[test]
fn from_the_same_host() {
    small_beside_big("beside another node of the host", "a1", "b1");
}

#[test]
fn between_the_same_nodes() {
    small_beside_big("beside another channel", "a0", "b0");
}

#[test]
fn to_the_same_node() {
    small_beside_big("beside another node, to the same", "a1", "b0");
}
