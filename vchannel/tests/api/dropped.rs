//! Messages that are dropped or forgotten half-packed or half-unpacked.

use std::cell::Cell;
use std::mem;
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::{PackError, TrySendError, UnpackError};

use crate::support::{ALL, Nodes, pattern, receive, send};

#[test]
fn what_is_dropped_before_anything_left_is_never_seen() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there) = (nodes.channel(0), nodes.channel(1));
        for _ in 0..3 {
            let cells = [const { Cell::new(1) }; 100];
            let lent = vec![2; 300_000];
            let mut packing = here.begin_packing(nodes.id(1)).expect("begins");
            packing.pack_safer(&[0; 8], Express).expect("packs");
            packing.pack_later(&cells, Express).expect("packs");
            packing.pack_cheaper(&lent, Cheaper).expect("packs");
            drop(packing);
        }
        let thread = send(&nodes, 0, 1, vec![(pattern(1, 50), Express)]);
        assert_eq!(receive(&there).1, [(pattern(1, 50), Express)]);
        thread.join().expect("sends");
    }
}

#[test]
fn a_message_dropped_half_packed_never_ends_at_its_receiver() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there) = (nodes.channel(0), nodes.channel(1));
        let mut packing = here.begin_packing(nodes.id(1)).expect("begins");
        for seed in 0..2 {
            let block = pattern(seed, 20_000);
            packing.pack_safer(&block, Express).expect("packs");
        }
        // The receiver has the first block, and wants the second.
        let (said, heard) = mpsc::channel();
        let receiver = thread::spawn(move || {
            let mut unpacking = there.begin_unpacking().expect("begins");
            let first = unpacking.unpack_owned(20_000, Express).expect("unpacks");
            assert_eq!(first, pattern(0, 20_000));
            said.send(()).expect("is heard");
            let mut into = vec![0; 20_000];
            let error = unpacking
                .unpack_express(&mut into)
                .expect_err("is given up");
            assert!(matches!(error, UnpackError::Aborted { .. }), "{error}");
            let said = "n0 gave the message up before it was complete";
            assert_eq!(error.to_string(), said);
            let again = unpacking.unpack_express(&mut into).expect_err("has failed");
            assert!(matches!(again, UnpackError::Failed { .. }), "{again}");
            let end = unpacking.end_unpacking().expect_err("has failed");
            assert!(matches!(end, UnpackError::Failed { .. }), "{end}");
            receive(&there).1
        });
        heard.recv().expect("the receiver has begun");
        drop(packing);
        let next = vec![(vec![3; 9], Cheaper)];
        send(&nodes, 0, 1, next.clone()).join().expect("sends");
        assert_eq!(receiver.join().expect("receives"), next);
    }
}

#[test]
fn a_message_dropped_half_unpacked_is_drained() {
    for protocol in ALL {
        for length in [10, 10_000, 5 << 20] {
            let nodes = Nodes::open(protocol, 2, "");
            let there = nodes.channel(1);
            for unpacked in 0..3 {
                let blocks = vec![
                    (pattern(1, 10), Express),
                    (pattern(2, length), Express),
                    (pattern(3, length), Cheaper),
                ];
                let thread = send(&nodes, 0, 1, blocks);
                let mut rest = vec![0; length];
                let mut unpacking = there.begin_unpacking().expect("begins");
                if unpacked > 0 {
                    unpacking.unpack_owned(10, Express).expect("unpacks");
                }
                if unpacked > 1 {
                    unpacking.unpack_owned(length, Express).expect("unpacks");
                    unpacking
                        .unpack_cheaper(&mut rest)
                        .expect("says nothing yet");
                }
                drop(unpacking);
                // A large message only ends when all of it was taken from the network.
                thread.join().expect("sends");
            }
            let thread = send(&nodes, 0, 1, vec![(pattern(4, length), Express)]);
            assert_eq!(receive(&there).1, [(pattern(4, length), Express)]);
            thread.join().expect("sends");
        }
    }
}

#[test]
fn a_message_forgotten_half_packed_blocks_its_own_flow_and_nothing_else() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 3, "");
        let (here, there) = (nodes.channel(0), nodes.channel(1));
        {
            let cells = vec![Cell::new(5); 300_000];
            let lent = vec![2; 300_000];
            let mut packing = here.begin_packing(nodes.id(1)).expect("begins");
            packing
                .pack_owned(Bytes::from(vec![1; 10_000]), Express)
                .expect("packs");
            packing.pack_later(&cells, Express).expect("packs");
            packing.pack_cheaper(&lent, Cheaper).expect("packs");
            mem::forget(packing);
        }
        let again = here.begin_packing(nodes.id(1)).expect_err("it never ends");
        assert!(matches!(again, PackError::AlreadyPacking { .. }), "{again}");
        let other = here.try_send(nodes.id(1), &[]).expect_err("it never ends");
        assert!(matches!(other, TrySendError::NotNow), "{other}");

        let thread = send(&nodes, 0, 2, vec![(vec![3; 9], Express)]);
        assert_eq!(receive(&nodes.channel(2)).1, [(vec![3; 9], Express)]);
        thread.join().expect("sends");
        let thread = send(&nodes, 2, 1, vec![(vec![4; 9], Express)]);
        let mut unpacking = there.begin_unpacking_from(nodes.id(2)).expect("begins");
        assert_eq!(
            unpacking.unpack_owned(9, Express).expect("unpacks")[..],
            [4; 9]
        );
        unpacking.end_unpacking().expect("ends");
        thread.join().expect("sends");
    }
}

#[test]
fn a_message_forgotten_half_unpacked_blocks_its_own_flow_and_nothing_else() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 3, "");
        let there = nodes.channel(1);
        let first = send(
            &nodes,
            0,
            1,
            vec![(vec![1; 5000], Cheaper), (vec![2; 5000], Cheaper)],
        );
        {
            let mut into = [0; 5000];
            let mut unpacking = there.begin_unpacking().expect("begins");
            unpacking
                .unpack_cheaper(&mut into)
                .expect("says nothing yet");
            mem::forget(unpacking);
        }
        first.join().expect("sends");
        send(&nodes, 0, 1, vec![(vec![3; 10], Cheaper)])
            .join()
            .expect("sends");
        let second = send(&nodes, 2, 1, vec![(vec![4; 9], Express)]);
        let (source, blocks) = receive(&there);
        assert_eq!((source, blocks), (nodes.id(2), vec![(vec![4; 9], Express)]));
        second.join().expect("sends");
        assert!(there.try_begin_unpacking().expect("looks").is_none());
    }
}

/// A small message that is all there is its reader's from when it is begun.
#[test]
fn small_messages_that_are_kept_forgotten_or_dropped_hold_nobody_up() {
    const COUNT: u32 = 600;
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..COUNT {
                    let mut packing = here.begin_packing(to).expect("begins");
                    packing
                        .pack_safer(&number.to_le_bytes(), Express)
                        .expect("packs");
                    packing
                        .pack_safer(&pattern(number, 600), Cheaper)
                        .expect("packs");
                    packing.end_packing().expect("ends");
                }
            });
            let mut kept = Vec::new();
            for expected in 0..COUNT {
                let mut number = [0; 4];
                let mut unpacking = there.begin_unpacking().expect("begins");
                unpacking.unpack_express(&mut number).expect("unpacks");
                assert_eq!(u32::from_le_bytes(number), expected);
                match expected % 3 {
                    0 => kept.push((expected, unpacking)),
                    1 => mem::forget(unpacking),
                    _ => drop(unpacking),
                }
            }
            for (number, mut unpacking) in kept {
                let block = unpacking.unpack_owned(600, Cheaper).expect("unpacks");
                unpacking.end_unpacking().expect("ends");
                assert_eq!(block, pattern(number, 600));
            }
        });
    }
}
