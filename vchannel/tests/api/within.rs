//! Sending that waits for a bounded time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use madgate_vchannel::ReceiveMode::{self, Cheaper, Express};
use madgate_vchannel::{Channel, NodeId, PackError, TrySendError};

use crate::support::{ALL, Nodes, pattern, receive};

const SMALL_RETENTION: &str = "[endpoint]\nretention = \"64KiB\"\n";

/// What nobody waits for in vain: a test that goes wrong says so.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(5);

fn large() -> [(Bytes, ReceiveMode); 1] {
    [(Bytes::from(pattern(1, 100_000)), Cheaper)]
}

/// Sends until the receiver's window is full, and the retention budget behind it. Returns how many
/// messages that were.
fn send_until_full(here: &Channel, to: NodeId) -> usize {
    let (mut sent, mut refused) = (0, 0);
    // What is under way arrives meanwhile, and what does not fit into the window does not.
    while refused < 20 {
        match here.send_within(to, &large(), SHORT) {
            Ok(delivery) => {
                if sent == 0 {
                    delivery.wait().expect("is delivered");
                }
                (sent, refused) = (sent + 1, 0);
            }
            Err(error) => {
                assert!(matches!(error, TrySendError::NotNow), "{error}");
                refused += 1;
            }
        }
        assert!(sent < 1000, "nothing is bounded");
    }
    sent
}

#[test]
fn a_full_flow_is_waited_for_until_there_is_room() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, SMALL_RETENTION);
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        let sent = send_until_full(&here, to);
        assert!(sent > 0);
        let last = thread::scope(|scope| {
            let last = scope.spawn(|| here.send_within(to, &large(), LONG));
            for _ in 0..sent {
                assert_eq!(receive(&there).1[0].0, large()[0].0);
            }
            last.join().expect("returns")
        });
        assert_eq!(receive(&there).1[0].0, large()[0].0);
        last.expect("there was room").wait().expect("is delivered");
    }
}

#[test]
fn a_message_of_another_thread_is_waited_for() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_safer(&[1], Express).expect("packs");
        let block = [(Bytes::from_static(&[2]), Express)];
        thread::scope(|scope| {
            let early = scope.spawn(|| here.send_within(to, &block, SHORT));
            let early = early.join().expect("returns").expect_err("it goes on");
            assert!(matches!(early, TrySendError::NotNow), "{early}");
            let late = scope.spawn(|| here.send_within(to, &block, LONG));
            packing.end_packing().expect("ends");
            late.join().expect("returns").expect("it has ended");
        });
        for byte in [1, 2] {
            assert_eq!(receive(&there).1, [(vec![byte], Express)]);
        }
    }
}

/// Who packs again and again takes what room there is, each time that there is some.
#[test]
fn who_streams_meanwhile_takes_turns() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, SMALL_RETENTION);
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        let is_over = AtomicBool::new(false);
        let small = [(Bytes::from_static(&[2]), Cheaper)];
        thread::scope(|scope| {
            let streams = scope.spawn(|| {
                let block = &large()[0].0;
                let mut sent = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let mut packing = here.begin_packing(to).expect("begins");
                    packing.pack_owned(block.clone(), Cheaper).expect("packs");
                    packing.end_packing().expect("ends");
                    sent += 1;
                }
                sent
            });
            let takes = scope.spawn(|| {
                let (mut large, mut small) = (0, 0);
                while small < 20 {
                    match receive(&there).1[0].0.len() {
                        1 => small += 1,
                        _ => large += 1,
                    }
                }
                large
            });
            for _ in 0..20 {
                here.send_within(to, &small, LONG).expect("has its turn");
            }
            let mut taken = takes.join().expect("takes all of them");
            is_over.store(true, Ordering::Relaxed);
            while !streams.is_finished() {
                let next = there.begin_unpacking_within(SHORT).expect("goes on");
                if let Some(mut unpacking) = next {
                    unpacking.unpack_owned(100_000, Cheaper).expect("unpacks");
                    unpacking.end_unpacking().expect("ends");
                    taken += 1;
                }
            }
            assert!(taken <= streams.join().expect("streams"));
        });
    }
}

/// That would be for ever.
#[test]
fn a_message_of_the_same_thread_is_not_waited_for() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, to) = (nodes.channel(0), nodes.id(1));
        let packing = here.begin_packing(to).expect("begins");
        let error = here.send_within(to, &large(), Duration::MAX);
        let error = error.expect_err("it does not end");
        assert!(matches!(error, TrySendError::NotNow), "{error}");
        packing.end_packing().expect("ends");
    }
}

#[test]
fn a_node_that_is_lost_meanwhile_is_told() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, SMALL_RETENTION);
        let (here, to) = (nodes.channel(0), nodes.id(1));
        send_until_full(&here, to);
        let error = thread::scope(|scope| {
            let last = scope.spawn(|| {
                loop {
                    if let Err(error) = here.send_within(to, &large(), LONG) {
                        return error;
                    }
                }
            });
            drop(nodes.stop(1));
            last.join().expect("returns")
        });
        let TrySendError::Pack(error) = error else {
            panic!("{error}");
        };
        assert!(matches!(error, PackError::Unreachable { .. }), "{error}");
    }
}
