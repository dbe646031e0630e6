//! The size of half bandwidth: how large messages have to be for one at a time to carry half of
//! what large ones do.
//!
//! Through a gateway it is at most 1.3 times what both direct links need together, and the fragment
//! that the gateway takes in before it sends the first byte of it.

use crate::stage::{Plan, Process, alone, alternate};
use crate::support::netns::{Host, Rate, available, link};
use crate::support::{have, report};

/// Of the size that direct links and the first fragment allow.
const MOST: f64 = 1.3;

/// Payload of the first fragment of a long block that passes gateways.
const FIRST_FRAGMENT_BYTES: f64 = 65_536.0;

/// Sizes that are tried are powers of two, from here on.
const LEAST_BYTES: u32 = 64;

/// What large messages are.
const LARGE_BYTES: u32 = 1 << 20;

/// Messages of each size, one at a time.
const COUNT: u32 = 60;

/// Of the largest ones.
const LARGE_COUNT: u32 = 10;

/// The size of half bandwidth between a node and another one that echoes on `channel`, in bytes;
/// `None` where the machine stood still for a while, and no size below the largest carries half.
fn half_bandwidth(from: &mut Process, channel: &str, to: &str) -> Option<f64> {
    let mut time_of = |bytes: u32| -> f64 {
        let count = if bytes < LARGE_BYTES {
            COUNT
        } else {
            LARGE_COUNT
        };
        from.ask(&format!("toss {channel} {to} {count} {bytes}"))
            .parse()
            .unwrap()
    };
    // The answer takes half of what the smallest message takes there and back.
    let answer = time_of(0) / 2.0;
    let mut rate_of = |bytes: u32| f64::from(bytes) / (time_of(bytes) - answer);
    let half = rate_of(LARGE_BYTES) / 2.0;
    let mut below = (0.0, 0.0);
    let mut bytes = LEAST_BYTES;
    while bytes < LARGE_BYTES {
        let (size, rate) = (f64::from(bytes), rate_of(bytes));
        if rate >= half {
            // Between two sizes the rate is taken to rise evenly.
            let part = (half - below.1) / (rate - below.1);
            return Some(below.0 + part * (size - below.0));
        }
        below = (size, rate);
        bytes *= 2;
    }
    None
}

/// Three hosts in a row, the middle one a gateway.
fn is_that_of_both_links(megabits: [u32; 2]) {
    if !have(available()) {
        return;
    }
    let _alone = alone();
    let hosts = [(); 3].map(|()| Host::new().unwrap());
    let left = link(&hosts[0], &hosts[1], Rate::Megabits(megabits[0])).unwrap();
    let right = link(&hosts[1], &hosts[2], Rate::Megabits(megabits[1])).unwrap();
    let plan = Plan::new("")
        .networks(&["left", "right"])
        .node("a0", &[("left", left.0)])
        .node("gw", &[("left", left.1), ("right", right.0)])
        .node("b0", &[("right", right.1)])
        .channel("near")
        .channel("main");
    let mut source = plan.start_on(&hosts[0], "a0");
    let mut gateway = plan.start_on(&hosts[1], "gw");
    let mut sink = plan.start_on(&hosts[2], "b0");
    sink.tell("echo main");
    gateway.tell("echo near");
    let what = format!("half bandwidth over {megabits:?} Mbit/s, bytes allowed and needed");
    alternate(&what, 1.0, || {
        let sizes = [
            half_bandwidth(&mut source, "near", "gw"),
            half_bandwidth(&mut gateway, "main", "b0"),
            half_bandwidth(&mut source, "main", "b0"),
        ];
        let [Some(left), Some(right), Some(whole)] = sizes else {
            // As bad as a round can be.
            return (0.0, 1.0);
        };
        report(&format!(
            "{left:.0} and {right:.0} bytes directly, {whole:.0} through the gateway"
        ));
        let allowed = MOST * (left + right + FIRST_FRAGMENT_BYTES);
        (allowed, whole)
    });
}

#[test]
fn over_a_slow_network() {
    is_that_of_both_links([1000, 100]);
}

#[test]
fn over_equal_networks() {
    is_that_of_both_links([1000, 1000]);
}

#[test]
fn over_fast_networks() {
    is_that_of_both_links([5000, 5000]);
}
