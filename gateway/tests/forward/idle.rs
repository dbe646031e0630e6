//! What links cost while nothing happens.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use madgate_vchannel::Cluster;
use madgate_vchannel::conductor::LinkKind;

use crate::member::Member;
use crate::support;
use crate::world::World;

/// Nodes on the left, each with a link to the gateway.
const NODES: usize = 1000;

/// Of what the gateway's process may take for them, in bytes.
const MOST_BYTES: u64 = 100 << 20;

/// Where the process that plays the nodes finds the cluster file.
const CLUSTER: &str = "MADGATE_TEST_CLUSTER";

/// Descriptors that one of the processes has open for each of them, at most.
const DESCRIPTORS: u64 = 16;

#[test]
fn a_thousand_idle_links_cost_little() {
    if !support::have(support::descriptors(NODES as u64 * DESCRIPTORS)) {
        return;
    }
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
    let mut nodes = Nodes::start(&world);
    world.wait_until("all links are up", || gateway.counters().links == NODES);
    let took = resident_bytes().saturating_sub(before);
    println!(
        "{NODES} idle links: {} KiB, {} bytes each",
        took >> 10,
        took / NODES as u64
    );
    assert!(took < MOST_BYTES, "{took} bytes");
    let sleeps = |counters: &madgate_gateway::Counters| counters.networks[0].sleeps;
    nodes.ping();
    assert!(sleeps(&gateway.counters()) > 0, "the receiver sleeps");
}

/// All nodes on the left, in a process of their own.
struct Nodes(Child);

impl Nodes {
    fn start(world: &World) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "idle::nodes_of_their_own_process", "--nocapture"])
            .env(CLUSTER, world.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Waits until the process says that the gateway answers over each link.
    fn ping(&mut self) {
        drop(self.0.stdin.take());
        let output = BufReader::new(self.0.stdout.take().unwrap());
        assert!(
            output
                .lines()
                .any(|line| line.unwrap().contains("all answered"))
        );
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test of its own: the other process of the one above.
#[test]
fn nodes_of_their_own_process() {
    let Some(path) = std::env::var_os(CLUSTER) else {
        return;
    };
    let cluster = Arc::new(Cluster::read(path).unwrap());
    let mut members: Vec<_> = (0..NODES)
        .map(|at| {
            Member::of(
                Arc::clone(&cluster),
                &format!("a{at}"),
                LinkKind::Forward,
                "left",
            )
        })
        .collect();
    // The other process closes this input when it has looked.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    members.iter_mut().for_each(Member::ping);
    println!("all answered");
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
