//! Sizes of fragments, as the number of frames shows them.

use std::thread;

use crate::traffic::{receive_from, send_delivered};
use crate::world::World;

/// Messages of a round, one of which is under way at a time.
const ROUND: u64 = 5;

/// Rounds until one is as it has to be, at most: a new flow has little credit, and cuts what does
/// not fit.
const ROUNDS_MOST: usize = 20;

/// Blocks of 1 MiB pass over a channel of 64 MiB/s, 64 KiB in a millisecond, until all of a round
/// are cut into so many `fragments` each, and one that leads them.
fn cuts_into(fragments: u64, settings: &str) {
    let frames = fragments + 1;
    let world = World::two("tcp", "tcp", settings).and("rate = \"64MiB/s\"");
    let gateway = world.gateway("gw");
    let (a, b) = (world.node_of("a0"), world.node_of("b0"));
    let mut seen = Vec::new();
    let mut number = 0;
    while seen.last() != Some(&(frames * ROUND)) {
        assert!(seen.len() < ROUNDS_MOST, "{settings}: {seen:?}");
        let before = gateway.counters().frames;
        for _ in 0..ROUND {
            thread::scope(|scope| {
                scope.spawn(|| send_delivered(&a, "b0", number, 1 << 20));
                scope.spawn(|| receive_from(&b, number, &[1 << 20]));
            });
            number += 1;
        }
        // A frame is counted after it has left.
        world.wait_until("all bytes are counted", || {
            gateway.counters().bytes >= number << 20
        });
        seen.push(gateway.counters().frames - before);
    }
}

#[test]
fn fragments_rise_and_fall_unless_that_is_switched_off() {
    cuts_into(8, "");
    cuts_into(4, "[endpoint]\nramps = false");
}

#[test]
fn fragments_of_a_slow_flow_are_short_unless_that_is_switched_off() {
    cuts_into(1, "[endpoint]\nramps = false\nsized_by_speed = false");
}
