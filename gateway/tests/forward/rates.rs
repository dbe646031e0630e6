//! Limits on how fast a gateway sends, and shares of what there is.
//!
//! A limit is a least time, which is what is asserted; that it is reached too is printed.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use madgate_gateway::Gateway;

use crate::traffic::{receive_all, send_all};
use crate::world::{LONG, Node, World};

/// What each test limits something to, in bytes per second.
const RATE: f64 = 50_000_000.0;
const RATE_TEXT: &str = "rate = \"400Mbit/s\"";

/// What a gateway may make up for, and so send at once.
const CATCH_UP: Duration = Duration::from_millis(10);

const MESSAGES: [usize; 64] = [200_000; 64];

/// What the network is over that a gateway sends into, here from TCP.
const RIGHTS: [&str; 3] = ["tcp", "shm", "hsl"];

/// Sends the messages, and returns bytes per second.
fn rate_of(from: &Node, to: &Node, name: &str) -> f64 {
    // The way is open, and its window.
    send_all(from, name, &[8]);
    receive_all(to, &[8]);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| send_all(from, name, &MESSAGES));
        receive_all(to, &MESSAGES);
    });
    // What left last is not paid for yet.
    let paid = &MESSAGES[1..];
    let bytes: usize = paid.iter().sum();
    #[allow(clippy::cast_precision_loss, reason = "a few megabytes")]
    let bytes = bytes as f64 - RATE * CATCH_UP.as_secs_f64();
    bytes / start.elapsed().as_secs_f64()
}

fn assert_limited(rate: f64, what: &str) {
    println!("{what}: {:.2} of the rate", rate / RATE);
    assert!(rate <= RATE, "{what}: {rate} bytes per second");
    assert!(!ratios_decide() || rate >= 0.8 * RATE, "{what}: {rate}");
}

/// Whether this machine has nothing else to do, so that what is slow is slow by itself.
fn ratios_decide() -> bool {
    std::env::var_os("MADGATE_RATIOS").is_some()
}

/// A source, and two nodes beyond a gateway, with `network_keys` for the network that they are on
/// and `node_keys` for the first of them.
fn two_receivers(right: &str, network_keys: &str, node_keys: &str) -> (World, Gateway, [Node; 3]) {
    two_receivers_with("", right, network_keys, node_keys)
}

fn two_receivers_with(
    settings: &str,
    right: &str,
    network_keys: &str,
    node_keys: &str,
) -> (World, Gateway, [Node; 3]) {
    let world = World::new(settings)
        .networks(&[("left", "tcp"), ("right", right)])
        .and(network_keys)
        .node("a0", &[("left", "tcp")])
        .node("gw", &[("left", "tcp"), ("right", right)])
        .node("b0", &[("right", right)])
        .and(node_keys)
        .node("b1", &[("right", right)])
        .node("c0", &[("left", "tcp")])
        .channel("main", &["left", "right"]);
    let gateway = world.gateway("gw");
    let nodes = ["a0", "b0", "b1"].map(|name| world.node_of(name));
    (world, gateway, nodes)
}

#[test]
fn a_gateway_sends_into_a_network_no_faster_than_its_rate() {
    for (left, right) in [
        ("tcp", "tcp"),
        ("shm", "tcp"),
        ("tcp", "shm"),
        ("tcp", "hsl"),
    ] {
        for settings in ["", "[gateway]\nhandover = \"thread\""] {
            let world = World::new(settings)
                .networks(&[("left", left), ("right", right)])
                .and(RATE_TEXT)
                .node("a0", &[("left", left)])
                .node("gw", &[("left", left), ("right", right)])
                .node("b0", &[("right", right)])
                .channel("main", &["left", "right"]);
            let gateway = world.gateway("gw");
            let (a, b) = (world.node_of("a0"), world.node_of("b0"));
            let rate = rate_of(&a, &b, "b0");
            assert_limited(rate, &format!("{left} to {right} {settings:?}"));
            // The other direction has no limit, and credit goes against the one that has.
            thread::scope(|scope| {
                scope.spawn(|| send_all(&b, "a0", &MESSAGES));
                receive_all(&a, &MESSAGES);
            });
            assert_eq!(gateway.counters().misbehaved, 0);
        }
    }
}

#[test]
fn two_neighbours_share_the_rate_of_their_network() {
    for right in RIGHTS {
        let (_world, _gateway, [a, b0, b1]) = two_receivers(right, RATE_TEXT, "");
        let rates = thread::scope(|scope| {
            let other = scope.spawn(|| rate_of(&a, &b1, "b1"));
            [rate_of(&a, &b0, "b0"), other.join().unwrap()]
        });
        let [b0, b1] = rates.map(|rate| rate / RATE);
        println!("{right}, shared: {b0:.2} and {b1:.2}");
        // While both send, neither has much more than half; the last may have all for itself.
        assert!(b0.min(b1) <= 0.6, "{right}: {rates:?}");
    }
}

/// Turns pass from one neighbour to the other and back, whoever sends, and nothing waits for a clock.
#[test]
fn a_rate_that_is_never_reached_holds_nothing_back() {
    const NEVER: &str = "rate = \"8000Gbit/s\"";
    for right in RIGHTS {
        for settings in ["", "[gateway]\nhandover = \"thread\""] {
            let (world, gateway, [a, b0, b1]) = two_receivers_with(settings, right, NEVER, NEVER);
            let other = world.node_of("c0");
            thread::scope(|scope| {
                for (from, to, name) in [(&a, &b0, "b0"), (&other, &b1, "b1")] {
                    scope.spawn(move || send_all(from, name, &MESSAGES));
                    scope.spawn(move || receive_all(to, &MESSAGES));
                }
            });
            let counters = gateway.counters();
            let into = counters.networks.iter().find(|one| one.name == "right");
            let held_back = into.map(|network| network.held_back);
            assert_eq!(held_back, Some(0), "{right} {settings:?}: {counters:#?}");
        }
    }
}

#[test]
fn a_neighbour_has_a_rate_and_others_do_not() {
    for right in RIGHTS {
        let (_world, _gateway, [a, b0, b1]) = two_receivers(right, "", RATE_TEXT);
        thread::scope(|scope| {
            let slow = scope.spawn(|| rate_of(&a, &b0, "b0"));
            let fast = rate_of(&a, &b1, "b1");
            let slow = slow.join().unwrap();
            assert_limited(slow, &format!("{right}, to b0"));
            println!("{right}, to b1: {:.2} of the rate of b0", fast / RATE);
        });
    }
}

#[test]
fn flows_of_a_channel_have_its_rate_each() {
    for right in RIGHTS {
        let world = World::two("tcp", right, "").and(RATE_TEXT);
        let _gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        assert_limited(rate_of(&a, &b, "b0"), &format!("{right}, a flow"));
    }
}

/// A source, a gateway, and a node on a network with a rate; `main` between them.
fn limited(right: &str) -> World {
    World::new("")
        .networks(&[("left", "tcp"), ("right", right)])
        .and(RATE_TEXT)
        .node("a0", &[("left", "tcp")])
        .node("gw", &[("left", "tcp"), ("right", right)])
        .node("b0", &[("right", right)])
        .channel("main", &["left", "right"])
}

#[test]
fn channels_share_a_link_by_weight() {
    RIGHTS.into_iter().for_each(share_by_weight);
}

fn share_by_weight(right: &str) {
    let world = limited(right)
        .and("weight = 4")
        .channel("light", &["left", "right"]);
    let _gateway = world.gateway("gw");
    let (a, b) = (world.node_of("a0"), world.node_of("b0"));
    let light = |node: &Node| Node {
        session: node.session.clone(),
        channel: node.session.channel("light").unwrap(),
    };
    let (a_light, b_light) = (light(&a), light(&b));
    let (begin, received) = (Barrier::new(2), AtomicUsize::new(0));
    thread::scope(|scope| {
        for (from, to) in [(&a, &b), (&a_light, &b_light)] {
            send_all(from, "b0", &[8]);
            receive_all(to, &[8]);
        }
        for from in [&a, &a_light] {
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                send_all(from, "b0", &MESSAGES);
            });
        }
        let light = scope.spawn(|| {
            for _ in MESSAGES {
                let mut unpacking = b_light.channel.begin_unpacking().unwrap();
                let mode = madgate_vchannel::ReceiveMode::Cheaper;
                unpacking.unpack_owned(MESSAGES[0], mode).unwrap();
                unpacking.end_unpacking().unwrap();
                received.fetch_add(1, Ordering::Relaxed);
            }
        });
        receive_all(&b, &MESSAGES);
        let beside = received.load(Ordering::Relaxed);
        light.join().unwrap();
        println!(
            "{right}, beside {} of weight 4: {beside} of weight 1",
            MESSAGES.len()
        );
        assert!(beside < MESSAGES.len() * 7 / 8, "{right}: {beside}");
        // A quarter is right.
        let about = MESSAGES.len() / 8..MESSAGES.len() / 2;
        assert!(
            !ratios_decide() || about.contains(&beside),
            "{right}: {beside}"
        );
    });
}

#[test]
fn many_small_messages_leave_large_ones_their_share() {
    RIGHTS.into_iter().for_each(share_with_small_ones);
}

fn share_with_small_ones(right: &str) {
    const SMALL: usize = 1000;
    let world = limited(right).channel("small", &["left", "right"]);
    let _gateway = world.gateway("gw");
    let (a, b) = (world.node_of("a0"), world.node_of("b0"));
    let small = |node: &Node| node.session.channel("small").unwrap();
    let (a_small, b_small) = (small(&a), small(&b));
    let to = a.session.cluster().node("b0").unwrap();
    let (is_over, received) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mode = madgate_vchannel::ReceiveMode::Cheaper;
    thread::scope(|scope| {
        scope.spawn(|| {
            // The last one, which is empty, ends it.
            let start = Instant::now();
            while !is_over.load(Ordering::Relaxed) && start.elapsed() < 2 * LONG {
                let mut packing = a_small.begin_packing(to).unwrap();
                packing.pack_safer(&[7; SMALL], mode).unwrap();
                packing.end_packing().unwrap();
            }
            a_small.begin_packing(to).unwrap().end_packing().unwrap();
        });
        scope.spawn(|| {
            loop {
                let mut unpacking = b_small.begin_unpacking().unwrap();
                if unpacking.next_block().unwrap().is_none() {
                    unpacking.end_unpacking().unwrap();
                    return;
                }
                unpacking.unpack_owned(SMALL, mode).unwrap();
                unpacking.end_unpacking().unwrap();
                received.fetch_add(SMALL, Ordering::Relaxed);
            }
        });
        world.wait_until("small messages flow", || {
            received.load(Ordering::Relaxed) > 1 << 20
        });
        let before = received.load(Ordering::Relaxed);
        scope.spawn(|| send_all(&a, "b0", &MESSAGES));
        receive_all(&b, &MESSAGES);
        let beside = received.load(Ordering::Relaxed) - before;
        is_over.store(true, Ordering::Relaxed);
        let large: usize = MESSAGES.iter().sum();
        println!("{right}, beside {large} bytes of large messages: {beside} of small ones");
        assert!(beside < 3 * large, "{right}: {beside}");
    });
}

#[test]
fn a_flow_that_waits_for_long_does_not_keep_another_waiting() {
    let world = World::two("tcp", "tcp", "")
        .and(RATE_TEXT)
        .channel("trickle", &["left", "right"])
        .and("rate = \"8kbit/s\"");
    let gateway = world.gateway("gw");
    let (a, b) = (world.node_of("a0"), world.node_of("b0"));
    let trickle = |node: &Node| Node {
        session: node.session.clone(),
        channel: node.session.channel("trickle").unwrap(),
    };
    let (a_trickle, b_trickle) = (trickle(&a), trickle(&b));
    // Two messages of a minute's bytes: the second waits at the gateway until then.
    send_all(&a_trickle, "b0", &[60_000, 60_000]);
    receive_all(&b_trickle, &[60_000]);
    world.wait_until("it waits", || gateway.counters().queued_bytes > 0);
    assert_limited(rate_of(&a, &b, "b0"), "beside one that waits");
    assert!(gateway.counters().queued_bytes > 0, "it still waits");
}

/// A flow is opened while another one's frame is paid for, which takes three times as long as links may be
/// lost: it waits at the gateway that has the rate, and at none of the way is it taken for one that goes
/// nowhere.
#[test]
fn a_flow_that_is_opened_waits_for_a_rate_for_as_long_as_it_takes() {
    const LINK_TIMEOUT: Duration = Duration::from_secs(1);
    for gateways in [1, 2] {
        let names = ["g0", "g1"];
        let networks = ["left", "middle", "right"];
        let networks = &networks[2 - gateways..];
        let over: Vec<_> = networks.iter().map(|network| (*network, "tcp")).collect();
        let world = World::new(&format!("link_timeout = \"{LINK_TIMEOUT:?}\""));
        let world = world.networks(&over).and("rate = \"64kbit/s\"");
        let world = world.node("a0", &over[..1]);
        let between = names.iter().zip(over.windows(2));
        let world = between.fold(world, |world, (name, networks)| world.node(name, networks));
        let world = world.node("b0", &over[gateways..]);
        let world = world.channel("main", networks).channel("late", networks);
        let _gateways: Vec<_> = names[..gateways]
            .iter()
            .map(|name| world.gateway(name))
            .collect();
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        let [a_late, b_late] = [&a, &b].map(|node| Node {
            session: node.session.clone(),
            channel: node.session.channel("late").unwrap(),
        });
        // Three seconds' bytes have left, and are to be paid for.
        send_all(&a, "b0", &[24_000]);
        receive_all(&b, &[24_000]);
        let start = Instant::now();
        send_all(&a_late, "b0", &[100]);
        receive_all(&b_late, &[100]);
        println!("{gateways} gateways: it waited for {:?}", start.elapsed());
        assert!(start.elapsed() > 2 * LINK_TIMEOUT, "it had to wait");
        assert!(a.session.progress().holdups > 0);
    }
}
