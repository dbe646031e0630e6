//! Bounded memory: whatever goes through a node, it takes what its configuration says.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::stage::{Counts, MIXED, Plan, Process, Protocol, alone, await_messages};
use crate::support::{Missing, have, report};

/// What the gateway may promise to keep, its batches included.
const CAP: &str = "[gateway]\nmemory = \"32MiB\"";
const CAP_BYTES: u64 = 32 << 20;

/// What a process takes besides: code, stacks, allocator.
pub(crate) const BESIDES_BYTES: u64 = 24 << 20;

/// More than 32 bits count.
const GIANT_BYTES: u64 = 5 << 30;

/// A node has had so much memory at most, which is reported.
pub(crate) fn assert_peak(node: &Process, bytes: u64) {
    let peak = node.memory().peak;
    report(&format!("{} had {} MiB at most", node.name(), peak >> 20));
    assert!(peak <= bytes, "{} had {peak} of {bytes} bytes", node.name());
}

fn message_of_five_gigabytes(protocols: [Protocol; 2]) {
    let _alone = alone();
    let plan = Plan::pair_of(protocols, "").settings(CAP);
    let mut gateway = plan.start("gw");
    let (mut a0, mut b0) = (plan.start("a0"), plan.start("b0"));
    b0.tell("collect main");
    a0.tell(&format!("stream giant main b0 {GIANT_BYTES} 1"));
    assert_eq!(a0.hear_while_forwarding("ended giant", &mut gateway), "1");
    await_messages(&mut b0, "main/a0", 1);
    assert_eq!(Counts::of(&mut b0).bytes("main/a0"), GIANT_BYTES);
    assert_peak(&gateway, CAP_BYTES + BESIDES_BYTES);
    // Neither end ever has more of it than it keeps of a flow.
    assert_peak(&a0, CAP_BYTES + BESIDES_BYTES);
    assert_peak(&b0, CAP_BYTES + BESIDES_BYTES);
}

#[test]
fn a_message_of_five_gigabytes() {
    message_of_five_gigabytes([Protocol::Tcp; 2]);
}

#[test]
fn the_same_with_remote_write_on_either_side() {
    MIXED.into_iter().for_each(message_of_five_gigabytes);
}

/// Whether the receiver of the block has room for it.
fn room() -> Result<(), Missing> {
    let needed_kib = (GIANT_BYTES + (1 << 30)) >> 10;
    let about = fs::read_to_string("/proc/meminfo").unwrap();
    let available = about
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|line| line.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0);
    if needed_kib <= available {
        return Ok(());
    }
    Err(Missing("memory for a block of 5 GiB".to_owned()))
}

#[test]
fn a_block_of_five_gigabytes() {
    let _alone = alone();
    if !have(room()) {
        return;
    }
    let plan = Plan::pair("").settings(CAP);
    let mut gateway = plan.start("gw");
    let (mut a0, mut b0) = (plan.start("a0"), plan.start("b0"));
    b0.tell("swallow main");
    a0.tell(&format!("block main b0 {GIANT_BYTES}"));
    assert_eq!(
        b0.hear_while_forwarding("swallow", &mut gateway),
        format!("1 {GIANT_BYTES}")
    );
    assert_eq!(a0.hear("block"), "");
    assert_peak(&gateway, CAP_BYTES + BESIDES_BYTES);
    assert_peak(&b0, GIANT_BYTES + CAP_BYTES + BESIDES_BYTES);
}

/// Between two looks at a node's memory, and how many must find it the same.
const LOOK: Duration = Duration::from_millis(50);
const STEADY_LOOKS: u32 = 5;

/// Waits until a node keeps as much as it will.
fn await_steady_memory(node: &Process) {
    let mut last = 0;
    let mut steady = 0;
    while steady < STEADY_LOOKS {
        thread::sleep(LOOK);
        let now = node.memory().now;
        steady = if now == last { steady + 1 } else { 0 };
        last = now;
    }
}

/// Empty blocks of one message.
const CRUMBS: u64 = 3_000_000;

#[test]
fn millions_of_empty_blocks() {
    let _alone = alone();
    let settings = format!("{CAP}\n[endpoint]\nmemory = \"32MiB\"");
    let plan = Plan::pair("").settings(&settings);
    let mut gateway = plan.start("gw");
    let (mut a0, mut b0) = (plan.start("a0"), plan.start("b0"));
    // The flow's window grows as far as it can while its receiver keeps up.
    b0.tell("collect main");
    a0.tell("stream many main b0 1000000 500");
    assert_eq!(a0.hear("ended many"), "500");
    await_messages(&mut b0, "main/a0", 500);
    b0.ask("pause main");
    a0.tell("stream last main b0 0 1");
    await_messages(&mut b0, "main/a0", 501);
    a0.tell(&format!("crumbs main b0 {CRUMBS}"));
    await_steady_memory(&b0);
    b0.tell("swallow main");
    assert_eq!(
        b0.hear_while_forwarding("swallow", &mut gateway),
        format!("{CRUMBS} 0")
    );
    assert_eq!(a0.hear("crumbs"), "");
    assert_peak(&gateway, CAP_BYTES + BESIDES_BYTES);
    assert_peak(&a0, CAP_BYTES + BESIDES_BYTES);
    assert_peak(&b0, CAP_BYTES + BESIDES_BYTES);
}
