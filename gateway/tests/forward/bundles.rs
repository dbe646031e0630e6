//! Small messages that share frames.

use std::sync::Mutex;
use std::thread;

use madgate_gtm::wire::DESCRIPTOR_BYTES;
use madgate_vchannel::ReceiveMode;

use crate::traffic::{receive_all, send_all};
use crate::world::{LONG, Node, World, remote_writes};

/// a0 has packed messages of these lengths before their receiver is there, so that they wait for
/// it; they arrive at b0, on a network of this protocol, which `receive` is given, in `least` frames or more. Returns how many.
fn after_a_wait(
    right: &str,
    settings: &str,
    lengths: &[usize],
    least: u64,
    receive: impl FnOnce(&Node),
) -> u64 {
    let world = World::two("tcp", right, settings);
    let gateway = world.gateway("gw");
    let a = world.node_of("a0");
    send_all(&a, "b0", lengths);
    let b = world.node_of("b0");
    receive(&b);
    // A frame is counted after it has left, which may be after it has arrived. All blocks are in
    // them, described.
    let packed: usize = lengths.iter().map(|length| length + DESCRIPTOR_BYTES).sum();
    let packed = u64::try_from(packed).unwrap();
    let mut counters = gateway.counters();
    world.wait_until("all that left is counted", || {
        counters = gateway.counters();
        counters.frames >= least && counters.bytes >= packed
    });
    assert_eq!((counters.misbehaved, counters.corrupt), (0, 0));
    counters.frames
}

#[test]
fn messages_that_wait_for_their_receiver_share_frames() {
    for right in [vec!["tcp", "shm"], remote_writes()].concat() {
        let lengths = [8; 2000];
        let shared = after_a_wait(right, "", &lengths, 1, |b| receive_all(b, &lengths));
        assert!(shared < 100, "{shared}");
        // Of these, twelve fit.
        let longer = [256; 1200];
        let shared = after_a_wait(right, "", &longer, 1, |b| receive_all(b, &longer));
        assert!((100..200).contains(&shared), "{shared}");
        let off = "[endpoint]\nbundles = false";
        after_a_wait(right, off, &lengths, 2000, |b| receive_all(b, &lengths));
    }
}

#[test]
fn messages_that_share_frames_and_such_that_do_not_keep_their_order() {
    for right in [vec!["tcp", "shm"], remote_writes()].concat() {
        let around: Vec<_> = (0..100).collect();
        let mut lengths = [&around[..], &[8, 5000, 8, 8, 200_000, 8, 3900, 8]].concat();
        lengths.extend_from_within(..);
        // Tiny ones and others, one byte before them and two, in bundles and too long for one.
        lengths.extend([72, 73].repeat(100));
        lengths.extend([119, 120, 8, 1248, 1249, 500].repeat(50));
        after_a_wait(right, "", &lengths, 1, |b| receive_all(b, &lengths));
    }
}

#[test]
fn messages_of_one_frame_are_unpacked_by_several_threads() {
    for right in [vec!["shm"], remote_writes()].concat() {
        let count = 3000_u64;
        let world = World::two("tcp", right, "");
        let _gateway = world.gateway("gw");
        let a = world.node_of("a0");
        let to = a.session.cluster().node("b0").unwrap();
        for number in 0..count {
            let mut packing = a.channel.begin_packing(to).unwrap();
            packing
                .pack_safer(&number.to_le_bytes(), ReceiveMode::Cheaper)
                .unwrap();
            packing.end_packing().unwrap();
        }
        let b = world.node_of("b0");
        let arrived = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..count / 3 {
                        let unpacking = b.channel.begin_unpacking_within(LONG);
                        let mut unpacking = unpacking.unwrap().expect("a message");
                        let block = unpacking.unpack_owned(8, ReceiveMode::Cheaper).unwrap();
                        unpacking.end_unpacking().unwrap();
                        let number = u64::from_le_bytes(block[..].try_into().unwrap());
                        arrived.lock().unwrap().push(number);
                    }
                });
            }
        });
        let mut arrived = arrived.into_inner().unwrap();
        arrived.sort_unstable();
        assert_eq!(arrived, (0..count).collect::<Vec<_>>());
    }
}

#[test]
fn a_message_that_is_dropped_takes_none_of_its_frame_with_it() {
    for right in [vec!["tcp", "shm"], remote_writes()].concat() {
        let lengths = [8; 30];
        after_a_wait(right, "", &lengths, 1, |b| {
            for _ in 0..10 {
                let unpacking = b.channel.begin_unpacking_within(LONG);
                drop(unpacking.unwrap().expect("a message"));
            }
            crate::traffic::receive_from(b, 10, &lengths[10..]);
        });
    }
}
