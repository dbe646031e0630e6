//! What links cost while nothing happens.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use madgate_gateway::Gateway;
use madgate_vchannel::Cluster;
use madgate_vchannel::conductor::LinkKind;

use crate::member::Member;
use crate::support;
use crate::world::World;

/// Nodes on the left, each with a link to the gateway.
const NODES: usize = 1000;

/// What the whole of the gateway's process may take, in bytes.
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
    world.cluster();
    let mut gateway = Other::start(&world, "idle::gateway_of_its_own_process");
    gateway.line("ready");
    let mut nodes = Other::start(&world, "idle::nodes_of_their_own_process");
    let took: u64 = gateway.line("took ").parse().unwrap();
    let has: u64 = gateway.line("has ").parse().unwrap();
    support::report(&format!(
        "{NODES} idle links: {} bytes each; the gateway has {} MiB",
        took / NODES as u64,
        has >> 20
    ));
    assert!(has < MOST_BYTES, "{has} bytes");
    nodes.go_on();
    nodes.line("all answered");
    gateway.go_on();
    let sleeps: u64 = gateway.line("slept ").parse().unwrap();
    assert!(sleeps > 0, "the receiver sleeps");
}

/// Another process of this test: what else is tested at the same time does not count there.
struct Other {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(world: &World, role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", role, "--nocapture"])
            .env(CLUSTER, world.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, output }
    }

    /// Lets it go on with its second half.
    fn go_on(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for a line with `what` in it; what follows that.
    fn line(&mut self, what: &str) -> String {
        let rest_of = |line: String| Some(line.split_once(what)?.1.to_owned());
        let mut lines = self.output.by_ref().map(Result::unwrap);
        lines.find_map(rest_of).expect(what)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the other process has seen what there was to see.
fn wait_for_word() {
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

/// Not a test of its own: a process of the one above.
#[test]
fn gateway_of_its_own_process() {
    let Some(path) = std::env::var_os(CLUSTER) else {
        return;
    };
    let cluster = Arc::new(Cluster::read(path).unwrap());
    let gateway = Gateway::start(cluster, "gw").unwrap();
    let before = resident_bytes();
    println!("ready");
    while gateway.counters().links < NODES {
        std::thread::yield_now();
    }
    println!("took {}", resident_bytes().saturating_sub(before));
    println!("has {}", resident_bytes());
    wait_for_word();
    println!("slept {}", gateway.counters().networks[0].sleeps);
}

/// Not a test of its own: a process of the one above.
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
    wait_for_word();
    members.iter_mut().for_each(Member::ping);
    println!("all answered");
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
