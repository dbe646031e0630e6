//! What links cost while nothing happens.

use madgate_vchannel::conductor::LinkKind;

use crate::hostile::Member;
use crate::world::World;

/// Nodes on the left, each with a link to the gateway.
const NODES: usize = 250;

#[test]
fn idle_links_cost_next_to_nothing() {
    let mut world = World::new("")
        .networks(&[("left", "tcp"), ("right", "tcp")])
        .node("gw", &[("left", "tcp"), ("right", "tcp")])
        .node("b0", &[("right", "tcp")]);
    for at in 0..NODES {
        world = world.node(&format!("a{at}"), &[("left", "tcp")]);
    }
    let world = world.channel("main", &["left", "right"]);
    let gateway = world.gateway("gw");
    let before = resident_bytes();
    let members: Vec<_> = (0..NODES)
        .map(|at| Member::dial(&world, &format!("a{at}"), LinkKind::Forward, "left"))
        .collect();
    world.wait_until("all links are up", || gateway.counters().links == NODES);
    let each = (resident_bytes() - before) / u64::try_from(NODES).unwrap();
    // Both ends of a link and a whole node are in this process.
    println!("{each} bytes for each link and its node");
    assert!(each < 100_000, "{each} bytes for each link and its node");
    assert_eq!(members.len(), NODES);
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
