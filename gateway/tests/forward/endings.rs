//! Gateways and nodes that go, and come back.

use std::thread;
use std::time::Duration;

use bytes::Bytes;
use madgate_gtm::Header;
use madgate_gtm::wire::Kind;
use madgate_vchannel::PackError;
use madgate_vchannel::ReceiveMode;

use crate::member::{FLOW, LaneOf, message, open, world_to};
use crate::traffic::{receive_all, receive_from, send_all, send_delivered, send_from};
use crate::world::{LONG, World, remote_writes};

#[test]
fn a_gateway_that_is_restarted_loses_nothing() {
    for right in [vec!["tcp", "shm"], remote_writes()].concat() {
        let world = World::two("tcp", right, "");
        let gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        let small = vec![8; 20_000];
        let large = vec![150_000; 400];
        let lengths = [small, large].concat();
        thread::scope(|scope| {
            scope.spawn(|| send_all(&a, "b0", &lengths));
            let half = scope.spawn(|| {
                receive_from(&b, 0, &lengths[..10_000]);
                10_000
            });
            let received = half.join().unwrap();
            drop(gateway);
            let again = world.gateway("gw");
            receive_from(&b, received, &lengths[10_000..20_200]);
            drop(again);
            let _once_more = world.gateway("gw");
            receive_from(&b, 20_200, &lengths[20_200..]);
        });
    }
}

/// A gateway may not be able to dial it.
#[test]
fn a_node_that_has_nothing_to_send_dials_a_gateway_that_is_back() {
    for right in [vec!["tcp", "shm"], remote_writes()].concat() {
        let world = World::two("tcp", right, "");
        let gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        send_delivered(&a, "b0", 0, 8);
        receive_all(&b, &[8]);
        send_delivered(&b, "a0", 0, 8);
        receive_all(&a, &[8]);
        drop(gateway);
        let gateway = world.gateway("gw");
        world.wait_until("a0 has dialled", || gateway.counters().links > 0);
        send_from(&b, "a0", 1, &[8]);
        receive_from(&a, 1, &[8]);
        assert_eq!(gateway.counters().links, 2);
    }
}

#[test]
fn a_gateway_that_does_not_come_back_is_reported() {
    // Lanes over libfabric may take as long to be made as a link may be looked for here.
    for right in ["tcp", "hsl"] {
        let world = World::two("tcp", right, "link_timeout = \"500ms\"");
        let gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        send_all(&a, "b0", &[8]);
        receive_all(&b, &[8]);
        drop(gateway);
        let to = a.session.cluster().node("b0").unwrap();
        let mut packing = a.channel.begin_packing(to).unwrap();
        packing
            .pack_owned(Bytes::from_static(b"lost"), ReceiveMode::Cheaper)
            .unwrap();
        match packing.end_packing_delivered() {
            Err(PackError::Unreachable { node, .. }) => assert_eq!(node, "b0"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn nodes_that_are_killed_leave_nothing_behind() {
    // As above.
    for right in ["shm", "hsl"] {
        let world = World::two("tcp", right, "link_timeout = \"500ms\"");
        let gateway = world.gateway("gw");
        for _ in 0..3 {
            let (a, b) = (world.node_of("a0"), world.node_of("b0"));
            let to = a.session.cluster().node("b0").unwrap();
            send_from(&a, "b0", 0, &[8, 100_000]);
            receive_from(&b, 0, &[8, 100_000]);
            // A message on its way when both go.
            let mut packing = a.channel.begin_packing(to).unwrap();
            packing
                .pack_owned(vec![7; 3 << 20].into(), ReceiveMode::Cheaper)
                .unwrap();
            drop(packing);
            drop(a);
            drop(b);
            world.wait_until("its links are gone", || gateway.counters().links == 0);
            let counters = gateway.counters();
            assert_eq!(
                (
                    counters.flows,
                    counters.queued_bytes,
                    counters.promised_bytes
                ),
                (0, 0, 0)
            );
            assert_eq!(counters.misbehaved, 0);
        }
    }
}

#[test]
fn a_drained_gateway_has_sent_what_it_had() {
    for right in [vec!["tcp"], remote_writes()].concat() {
        let world = World::two("tcp", right, "");
        let gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        let lengths = vec![50_000; 300];
        thread::scope(|scope| {
            scope.spawn(|| send_all(&a, "b0", &lengths));
            receive_from(&b, 0, &lengths[..50]);
            // What is in the gateway was promised a place in b0, which takes it in by itself.
            let report = gateway.drain(LONG);
            assert_eq!(report.dropped_bytes, 0);
            assert!(report.took < LONG);
            drop(gateway);
            let _again = world.gateway("gw");
            receive_from(&b, 50, &lengths[50..]);
        });
    }
}

/// What goes back is on the lanes of what goes there: nothing more is taken in, and what was, leaves.
#[test]
fn a_drained_gateway_has_sent_what_it_had_both_ways() {
    for right in [vec!["tcp", "shm"], remote_writes()].concat() {
        let world = World::two("tcp", right, "");
        let gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        let lengths = [vec![50_000; 300], vec![100; 3000]].concat();
        send_all(&a, "b0", &[8]);
        receive_all(&b, &[8]);
        thread::scope(|scope| {
            scope.spawn(|| send_from(&a, "b0", 1, &lengths));
            scope.spawn(|| send_all(&b, "a0", &lengths));
            receive_from(&b, 1, &lengths[..50]);
            receive_from(&a, 0, &lengths[..50]);
            assert_eq!(gateway.counters().links, 2);
            let report = gateway.drain(LONG);
            assert_eq!(report.dropped_bytes, 0);
            assert!(report.took < LONG);
            drop(gateway);
            let _again = world.gateway("gw");
            receive_from(&b, 51, &lengths[50..]);
            receive_from(&a, 50, &lengths[50..]);
        });
    }
}

/// Sources wait then, as if nobody was there.
#[test]
fn a_gateway_that_drains_passes_no_data_on_and_answers_no_probes() {
    let world = world_to("tcp", "");
    let gateway = world.gateway("gw");
    let (mut source, mut destination, _) = open(&world);
    assert_eq!(gateway.drain(Duration::ZERO).dropped_bytes, 0);
    source.send(LaneOf::Urgent, &message(b"too late"));
    let probe = Header::new(Kind::Probe, FLOW, 1).to_control_frame();
    source.send(LaneOf::Urgent, &probe);
    // Both have been dealt with when this is answered, and so has what went on.
    source.ping();
    destination.ping();
    assert_eq!(gateway.counters().queued_bytes, 0);
}

#[test]
fn a_drain_ends_when_its_time_is_over() {
    for right in [vec!["tcp"], remote_writes()].concat() {
        let world = World::two("tcp", right, "");
        let gateway = world.gateway("gw");
        let (a, b) = (world.node_of("a0"), world.node_of("b0"));
        send_all(&a, "b0", &[8]);
        receive_all(&b, &[8]);
        let report = gateway.drain(Duration::ZERO);
        assert_eq!(report.dropped_bytes, 0);
    }
}

/// Where who sends may find first that it has left.
#[test]
fn what_had_arrived_is_known_to_have_arrived_where_its_receiver_leaves_under_load() {
    for right in ["tcp", "shm"] {
        let world = World::new("link_timeout = \"2s\"")
            .networks(&[("left", "tcp"), ("right", right)])
            .node("a0", &[("left", "tcp")])
            .node("c0", &[("left", "tcp")])
            .node("gw", &[("left", "tcp"), ("right", right)])
            .node("b0", &[("right", right)])
            .channel("main", &["left", "right"]);
        let _gateway = world.gateway("gw");
        for _ in 0..2 {
            let [a, b, c] = ["a0", "b0", "c0"].map(|name| world.node_of(name));
            let to = b.session.node();
            let (first, other) = (a.session.node(), &c);
            thread::scope(|scope| {
                scope.spawn(move || {
                    // Until it is told that nobody is there.
                    loop {
                        let block = Bytes::from(vec![0; 1 << 16]);
                        let Ok(mut packing) = other.channel.begin_packing(to) else {
                            break;
                        };
                        let packed = packing.pack_owned(block, ReceiveMode::Cheaper);
                        if packed.is_err() || packing.end_packing().is_err() {
                            break;
                        }
                    }
                });
                scope.spawn(|| send_delivered(&a, "b0", 0, 8));
                scope.spawn(|| {
                    loop {
                        let unpacking = b.channel.begin_unpacking_within(LONG).unwrap();
                        let unpacking = unpacking.unwrap();
                        if unpacking.source() == first {
                            break;
                        }
                    }
                    drop(b);
                });
            });
        }
    }
}
