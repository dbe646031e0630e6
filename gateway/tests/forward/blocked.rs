//! Receivers that do not receive: their own senders stop, and nobody else.

use std::thread;

use madgate_gateway::Gateway;

use crate::traffic::{receive_all, receive_from, send_all, send_from};
use crate::world::{World, remote_writes};

/// Bytes that one flow may have on their way: more than that is never sent to who does not
/// unpack.
const WINDOW: usize = 1 << 20;

fn many(senders: usize, right: &str) -> World {
    let settings =
        "[endpoint]\nwindow = \"1MiB\"\nretention = \"8MiB\"\n[gateway]\nmemory = \"32MiB\"";
    let mut world = World::new(settings)
        .networks(&[("left", "tcp"), ("right", right)])
        .node("gw", &[("left", "tcp"), ("right", right)]);
    for at in 0..senders {
        world = world
            .node(&format!("a{at}"), &[("left", "tcp")])
            .node(&format!("b{at}"), &[("right", right)]);
    }
    world
        .channel("main", &["left", "right"])
        .channel("other", &["left", "right"])
}

fn assert_bounded(gateway: &Gateway, right: &str) {
    let counters = gateway.counters();
    assert!(
        counters.promised_bytes <= 32 << 20,
        "{right}: {counters:#?}"
    );
    assert_eq!(
        (counters.stale, counters.misbehaved),
        (0, 0),
        "{right}: {counters:#?}"
    );
}

fn three_go_on(right: &str) {
    let world = many(4, right);
    let gateway = world.gateway("gw");
    let a: Vec<_> = (0..4).map(|at| world.node_of(&format!("a{at}"))).collect();
    let b: Vec<_> = (0..4).map(|at| world.node_of(&format!("b{at}"))).collect();
    // More than all of the way holds, but not more than the source keeps.
    let stuck = vec![WINDOW / 2; 12];
    send_all(&a[3], "b3", &stuck);
    let lengths = vec![200_000; 100];
    thread::scope(|scope| {
        for at in 0..3 {
            let (a, b, lengths) = (&a[at], &b[at], &lengths);
            scope.spawn(move || send_all(a, &format!("b{at}"), lengths));
            scope.spawn(move || receive_all(b, lengths));
        }
    });
    assert_bounded(&gateway, right);
    receive_all(&b[3], &stuck);
    // It waited for its destination, and is counted where it did.
    let counters = gateway.counters();
    for way in &counters.pipelines {
        let is_there = way.from == "left";
        assert_eq!(way.parked_ahead.is_zero(), !is_there, "{right}: {way:#?}");
        if is_there {
            assert_eq!(way.parked_ahead, counters.parked_ahead);
        }
    }
}

#[test]
fn one_that_does_not_unpack_blocks_nobody_over_tcp() {
    three_go_on("tcp");
}

#[test]
fn one_that_does_not_unpack_blocks_nobody_over_hsl() {
    remote_writes().into_iter().for_each(three_go_on);
}

#[test]
fn one_that_does_not_unpack_blocks_nobody_over_shm() {
    three_go_on("shm");
}

/// A gateway fills eight slots ahead of a session, which keeps what is not unpacked where it has come, if
/// it has not to be read for its checksum.
#[test]
fn who_keeps_slots_leaves_some_to_others() {
    let full_slots =
        "[endpoint]\nramps = false\nsized_by_speed = false\n[gateway]\nahead = \"64KiB\"";
    for right in ["shm", "hsl"] {
        let world = World::new(full_slots)
            .networks(&[("left", "tcp"), ("right", right)])
            .node("gw", &[("left", "tcp"), ("right", right)])
            .node("a0", &[("left", "tcp")])
            .node("a1", &[("left", "tcp")])
            .node("b0", &[("right", right)])
            .channel("other", &["left", "right"])
            .channel("main", &["left", "right"])
            .and("checksum = \"header\"");
        let _gateway = world.gateway("gw");
        let (a0, mut a1, mut b) = (
            world.node_of("a0"),
            world.node_of("a1"),
            world.node_of("b0"),
        );
        let lengths = vec![WINDOW; 60];
        thread::scope(|scope| {
            scope.spawn(|| send_all(&a0, "b0", &lengths));
            // Now it has been promised all of its window.
            receive_all(&b, &lengths[..30]);
            let main = b.channel.clone();
            a1.channel = a1.session.channel("other").unwrap();
            b.channel = b.session.channel("other").unwrap();
            scope.spawn(|| send_all(&a1, "b0", &lengths));
            receive_all(&b, &lengths);
            b.channel = main;
            receive_from(&b, 30, &lengths[30..]);
        });
    }
}

#[test]
fn one_channel_does_not_block_the_other() {
    for right in [vec!["tcp"], remote_writes()].concat() {
        let world = many(1, right);
        let gateway = world.gateway("gw");
        let (mut a, mut b) = (world.node_of("a0"), world.node_of("b0"));
        let stuck = vec![WINDOW / 2; 12];
        send_all(&a, "b0", &stuck);
        let main = (a.channel.clone(), b.channel.clone());
        a.channel = a.session.channel("other").unwrap();
        b.channel = b.session.channel("other").unwrap();
        let lengths = vec![100_000; 100];
        thread::scope(|scope| {
            scope.spawn(|| send_all(&a, "b0", &lengths));
            scope.spawn(|| receive_all(&b, &lengths));
        });
        (a.channel, b.channel) = main;
        send_from(&a, "b0", 12, &[8]);
        receive_all(&b, &stuck);
        receive_from(&b, 12, &[8]);
        assert_bounded(&gateway, right);
    }
}
