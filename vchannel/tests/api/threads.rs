//! Threads that never wait, threads that lend at the same time, and who drives for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::{Channel, NodeId, PackError, TrySendError};

use crate::support::{ALL, Nodes, pattern};

/// Sends and unpacks `count` numbered messages without ever waiting for anything.
fn exchange_without_waiting(here: &Channel, to: NodeId, count: u32) {
    let (mut sent, mut received) = (0, 0);
    while sent < count || received < count {
        // In bursts, so that small messages gather.
        for _ in 0..64 {
            if sent == count {
                break;
            }
            let number = Bytes::copy_from_slice(&sent.to_le_bytes());
            match here.try_send(to, &[(number, Express)]) {
                Ok(_) => sent += 1,
                Err(TrySendError::NotNow) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some(mut unpacking) = here.try_begin_unpacking().expect("looks") {
            let mut number = [0; 4];
            unpacking.unpack_express(&mut number).expect("unpacks");
            unpacking.end_unpacking().expect("ends");
            assert_eq!(u32::from_le_bytes(number), received, "out of order");
            received += 1;
        }
        thread::yield_now();
    }
}

#[test]
fn threads_that_never_wait_send_and_receive_both_ways() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (first, second) = (nodes.channel(0), nodes.channel(1));
        let (to_first, to_second) = (nodes.id(0), nodes.id(1));
        thread::scope(|scope| {
            scope.spawn(|| exchange_without_waiting(&first, to_second, 100_000));
            scope.spawn(|| exchange_without_waiting(&second, to_first, 100_000));
        });
    }
}

#[test]
fn a_delivery_that_is_only_asked_about_fails_when_its_node_is_lost() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let (here, to) = (nodes.channel(0), nodes.id(1));
        let hello = || [(Bytes::from_static(b"hello"), Express)];
        here.try_send(to, &hello())
            .expect("sends")
            .wait()
            .expect("is delivered");
        drop(nodes.stop(1));
        let delivery = here.try_send(to, &hello()).expect("is retained");
        let error = loop {
            match delivery.is_delivered() {
                Ok(false) => thread::yield_now(),
                Ok(true) => panic!("delivered to nobody"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, PackError::Unreachable { .. }), "{error}");
    }
}

/// Several threads of each node lend blocks, large and small, to several of the other: each
/// of them drives at times, waits for another that drives at others, and sends for itself.
#[test]
fn threads_that_lend_at_the_same_time_all_get_through() {
    const THREADS: u32 = 4;
    const MESSAGES: u32 = 12;
    /// One that is copied, one that is lent, and one larger than a window.
    const LENGTHS: [usize; 3] = [5_000, 600_000, 3 << 20];
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        thread::scope(|scope| {
            for node in 0..2 {
                let (here, to) = (nodes.channel(node), nodes.id(1 - node));
                for thread in 0..THREADS {
                    let here = here.clone();
                    scope.spawn(move || {
                        for number in 0..MESSAGES {
                            let seed = thread * MESSAGES + number;
                            let block = pattern(seed, LENGTHS[number as usize % 3]);
                            let mut packing = here.begin_packing(to).expect("begins");
                            let head = [seed, u32::try_from(block.len()).expect("fits")];
                            let head = head.map(u32::to_le_bytes).concat();
                            packing.pack_safer(&head, Express).expect("packs");
                            packing.pack_cheaper(&block, Cheaper).expect("packs");
                            packing.end_packing().expect("ends");
                        }
                    });
                }
                for _ in 0..THREADS {
                    let here = nodes.channel(node);
                    scope.spawn(move || {
                        for _ in 0..MESSAGES {
                            let mut block;
                            let mut unpacking = here.begin_unpacking().expect("begins");
                            let (mut seed, mut length) = ([0; 4], [0; 4]);
                            let mut head = [0; 8];
                            unpacking.unpack_express(&mut head).expect("unpacks");
                            seed.copy_from_slice(&head[..4]);
                            length.copy_from_slice(&head[4..]);
                            block = vec![0; u32::from_le_bytes(length) as usize];
                            unpacking.unpack_cheaper(&mut block).expect("unpacks");
                            unpacking.end_unpacking().expect("ends");
                            let expected = pattern(u32::from_le_bytes(seed), block.len());
                            assert!(block == expected, "other bytes than were packed");
                        }
                    });
                }
            }
        });
    }
}

/// Threads that lend to a node that is lost pack one after the other all the same, and each is told.
#[test]
fn threads_that_lend_to_a_node_that_is_lost_still_take_turns() {
    const THREADS: usize = 4;
    const MESSAGES: usize = 3;
    for protocol in ALL {
        let mut nodes = Nodes::patient(protocol, 2, "100ms", "");
        let (here, to) = (nodes.channel(0), nodes.id(1));
        drop(nodes.stop(1));
        let packing_now = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let block = pattern(1, 300_000);
                    let mut packed = 0;
                    while packed < MESSAGES {
                        // Somebody is told what was lost before.
                        let Ok(mut packing) = here.begin_packing(to) else {
                            continue;
                        };
                        packed += 1;
                        assert_eq!(packing_now.fetch_add(1, Ordering::SeqCst), 0);
                        packing.pack_cheaper(&block, Cheaper).expect("packs");
                        // Others would begin now, if they could.
                        (0..100).for_each(|_| thread::yield_now());
                        packing_now.fetch_sub(1, Ordering::SeqCst);
                        packing.end_packing().expect_err("nobody is there");
                    }
                });
            }
        });
    }
}

#[test]
fn what_gathered_leaves_though_its_sender_never_calls_again() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        // Lengths around those at which a thread sends by itself what has gathered.
        for count in [1_u32, 2, 3, 400, 512, 513, 5_000] {
            for number in 0..count {
                let mut packing = here.begin_packing(to).expect("begins");
                packing
                    .pack_safer(&number.to_le_bytes(), Cheaper)
                    .expect("packs");
                packing.end_packing().expect("ends");
            }
            for expected in 0..count {
                let mut number = [0; 4];
                let mut unpacking = there.begin_unpacking().expect("begins");
                unpacking.unpack_cheaper(&mut number).expect("unpacks");
                unpacking.end_unpacking().expect("ends");
                assert_eq!(u32::from_le_bytes(number), expected, "out of order");
            }
        }
    }
}

#[test]
fn small_messages_are_unpacked_however_they_were_packed() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        // Block lengths of messages that fit in one small frame, and of some that do not quite.
        let shapes: [&[usize]; 15] = [
            &[],
            &[0],
            &[72],
            &[73],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[1, 2, 3, 4],
            &[8, 32],
            &[8, 300, 0, 300],
            &[119],
            &[1248],
            &[1249],
            &[3896],
            &[3897],
            &[8, 5_000, 3],
        ];
        for round in 0..3 {
            for shape in shapes {
                let mut packing = here.begin_packing(to).expect("begins");
                for (seed, &length) in (0..).zip(shape) {
                    packing
                        .pack_safer(&pattern(seed, length), Express)
                        .expect("packs");
                }
                packing.end_packing().expect("ends");
            }
            for shape in shapes {
                let mut unpacking = there.begin_unpacking().expect("begins");
                if round == 2 {
                    // Dropped: what is left of it is passed over.
                    continue;
                }
                for (seed, &length) in (0..).zip(shape) {
                    let expected = pattern(seed, length);
                    if round == 0 {
                        let mut block = vec![0; length];
                        unpacking.unpack_express(&mut block).expect("unpacks");
                        assert_eq!(block, expected);
                    } else {
                        let block = unpacking.unpack_owned(length, Express).expect("unpacks");
                        assert_eq!(block, expected);
                    }
                }
                unpacking.end_unpacking().expect("ends");
            }
        }
    }
}
