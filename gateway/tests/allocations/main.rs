//! A gateway allocates nothing for what it forwards, once it runs steadily.
//!
//! This program is a gateway and nothing else, so that all that it allocates is the gateway's: the
//! ends are the same program in processes of their own ([`ends`]).

#![allow(clippy::unwrap_used, reason = "where something is missing a test ends")]

mod ends;
#[allow(dead_code, reason = "the tests of forwarding use all of it")]
#[path = "../forward/world.rs"]
mod world;

use std::alloc::System;

use ends::{Ends, Load};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use world::World;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What may be allocated however many frames there are: queues that grow to what is usual by
/// doubling, some twenty of them, and threads that wait for something for the first time.
const SETTLING: u64 = 100;

/// A frame that has to wait is copied out of what it came in, into memory of its own; what counts
/// the references to that, where only part of it leaves at once, is another allocation.
const ALLOCATIONS_PER_PARKED: u64 = 2;

fn allocations() -> u64 {
    let stats = ALLOCATOR.stats();
    u64::try_from(stats.allocations + stats.reallocations).unwrap()
}

/// So many messages bring a few thousand frames; as many pass before, to warm up.
const LOADS: [(Load, u64); 5] = [
    // Those that wait share frames.
    (Load::Stream { bytes: 8 }, 100_000),
    (Load::Stream { bytes: 1000 }, 10_000),
    (Load::Stream { bytes: 20_000 }, 3000),
    (Load::Stream { bytes: 1 << 20 }, 300),
    (Load::Asked { bytes: 8 }, 3000),
];

/// Rounds until one is as it has to be, at most.
const ROUNDS_MOST: usize = 3;

fn forwards_without_allocating(left: &str, right: &str, settings: &str) {
    for (load, messages) in LOADS {
        let world = World::two(left, right, settings);
        let before = allocations();
        let gateway = world.gateway("gw");
        assert!(allocations() > before, "allocations are counted");
        let mut ends = Ends::start(&world, load);
        ends.pass(messages);
        // Where others keep threads from their processors, something may settle anew: what is of each
        // frame is in every round.
        let mut rounds = Vec::new();
        loop {
            let counters = gateway.counters();
            let before = allocations();
            ends.pass(messages);
            let made = allocations() - before;
            let seen = gateway.counters().since(&counters);
            rounds.push(format!(
                "{left} to {right} {settings}, {load:?}: {made} in {} frames, {} of which waited",
                seen.frames, seen.parked_copies
            ));
            assert!(seen.frames > 5 * SETTLING, "too few to tell: {rounds:?}");
            if made <= SETTLING + ALLOCATIONS_PER_PARKED * seen.parked_copies {
                break;
            }
            assert!(rounds.len() < ROUNDS_MOST, "{rounds:?}");
        }
        println!("{}", rounds.join("; "));
    }
}

/// One test: what others did meanwhile would count.
#[test]
fn no_frame_costs_an_allocation() {
    forwards_without_allocating("tcp", "tcp", "[gateway]\nsplice = false");
    forwards_without_allocating("tcp", "tcp", "[gateway]\nhandover = \"thread\"");
    for (left, right) in [
        ("tcp", "tcp"),
        ("shm", "tcp"),
        ("tcp", "shm"),
        ("shm", "shm"),
        ("hsl", "tcp"),
        ("tcp", "hsl"),
        ("hsl", "hsl"),
    ] {
        forwards_without_allocating(left, right, "");
    }
}

/// One end of a way, in a process that [`Ends`] has started.
#[test]
#[ignore = "the other test starts it"]
fn end() {
    ends::run();
}
