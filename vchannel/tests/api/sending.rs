//! Blocks of every mode and size, and when their memory may be used again.

use std::cell::Cell;

use bytes::Bytes;
use madgate_vchannel::ReceiveMode::{self, Cheaper, Express};
use madgate_vchannel::{Channel, NodeId, TrySendError};

use crate::support::{ALL, Nodes, Protocol, pattern, receive};

/// Small, around a frame, more than is copied, more than the first window.
const LENGTHS: [usize; 9] = [0, 1, 8, 3_900, 4_096, 65_536, 262_144, 262_145, 5 << 20];

/// Packs one message of one block.
type Pack = fn(&Channel, NodeId, &[u8], ReceiveMode);

/// The ways to pack a block.
const MODES: [Pack; 4] = [safer, later, cheaper, owned];

fn safer(channel: &Channel, to: NodeId, block: &[u8], receive: ReceiveMode) {
    let mut memory = block.to_vec();
    let mut packing = channel.begin_packing(to).expect("begins");
    packing.pack_safer(&memory, receive).expect("packs");
    memory.fill(0xBA);
    packing.end_packing().expect("ends");
}

fn later(channel: &Channel, to: NodeId, block: &[u8], receive: ReceiveMode) {
    let memory = vec![Cell::new(0xBA); block.len()];
    let mut packing = channel.begin_packing(to).expect("begins");
    packing.pack_later(&memory, receive).expect("packs");
    for (cell, byte) in memory.iter().zip(block) {
        cell.set(*byte);
    }
    packing.end_packing().expect("ends");
    memory.iter().for_each(|cell| cell.set(0xBA));
}

fn cheaper(channel: &Channel, to: NodeId, block: &[u8], receive: ReceiveMode) {
    let mut memory = block.to_vec();
    let mut packing = channel.begin_packing(to).expect("begins");
    packing.pack_cheaper(&memory, receive).expect("packs");
    packing.end_packing().expect("ends");
    memory.fill(0xBA);
}

fn owned(channel: &Channel, to: NodeId, block: &[u8], receive: ReceiveMode) {
    let mut packing = channel.begin_packing(to).expect("begins");
    let memory = Bytes::copy_from_slice(block);
    packing.pack_owned(memory, receive).expect("packs");
    packing.end_packing().expect("ends");
}

#[test]
fn a_block_of_any_size_arrives_in_every_mode() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        for length in LENGTHS {
            for (seed, pack) in (0..).zip(MODES) {
                let block = pattern(seed, length);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        pack(&here, to, &block, Express);
                        pack(&here, to, &block, Cheaper);
                        pack(&here, to, &block, Express);
                    });
                    let mut into = vec![0; length];
                    let mut unpacking = there.begin_unpacking().expect("begins");
                    unpacking.unpack_express(&mut into).expect("unpacks");
                    assert!(into == block, "{length} bytes, mode {seed}, express");
                    unpacking.end_unpacking().expect("ends");

                    let mut into = vec![0; length];
                    let mut unpacking = there.begin_unpacking().expect("begins");
                    unpacking.unpack_cheaper(&mut into).expect("unpacks");
                    unpacking.end_unpacking().expect("ends");
                    assert!(into == block, "{length} bytes, mode {seed}, cheaper");

                    let mut unpacking = there.begin_unpacking().expect("begins");
                    let owned = unpacking.unpack_owned(length, Express).expect("unpacks");
                    unpacking.end_unpacking().expect("ends");
                    assert!(owned == block, "{length} bytes, mode {seed}, owned");
                });
            }
        }
    }
}

#[test]
fn a_value_packed_later_is_taken_at_the_end_with_whatever_is_around_it() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there) = (nodes.channel(0), nodes.channel(1));
        let cells = [Cell::new(1), Cell::new(2)];
        let mut packing = here.begin_packing(nodes.id(1)).expect("begins");
        packing.pack_safer(&[9], Express).expect("packs");
        packing.pack_later(&cells, Express).expect("packs");
        packing.pack_safer(&[8], Express).expect("packs");
        let owned = Bytes::from(pattern(1, 10_000));
        packing.pack_owned(owned, Cheaper).expect("packs");
        cells[0].set(3);
        packing.pack_later(&cells[..1], Cheaper).expect("packs");
        cells[0].set(4);
        packing.end_packing().expect("ends");
        cells[0].set(5);
        let expected = [
            (vec![9], Express),
            (vec![4, 2], Express),
            (vec![8], Express),
            (pattern(1, 10_000), Cheaper),
            (vec![4], Cheaper),
        ];
        assert_eq!(receive(&there).1, expected);
    }
}

#[test]
fn messages_and_blocks_may_be_empty() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there) = (nodes.channel(0), nodes.channel(1));
        let (to, empty): (_, [Cell<u8>; 0]) = (nodes.id(1), []);
        for _ in 0..100 {
            here.begin_packing(to)
                .expect("begins")
                .end_packing()
                .expect("ends");
        }
        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_safer(&[], Express).expect("packs");
        packing.pack_later(&empty, Cheaper).expect("packs");
        packing.pack_cheaper(&[], Express).expect("packs");
        packing.pack_owned(Bytes::new(), Cheaper).expect("packs");
        packing.end_packing().expect("ends");
        here.try_send(to, &[]).expect("sends");

        for _ in 0..100 {
            assert_eq!(receive(&there).1, []);
        }
        let expected = [Express, Cheaper, Express, Cheaper].map(|receive| (vec![], receive));
        assert_eq!(receive(&there).1, expected);
        assert_eq!(receive(&there).1, []);
    }
}

#[test]
fn many_small_messages_arrive_in_order() {
    const MESSAGES: u32 = 20_000;
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..MESSAGES {
                    let block = number.to_le_bytes();
                    let mut packing = here.begin_packing(to).expect("begins");
                    packing.pack_cheaper(&block, Express).expect("packs");
                    packing.end_packing().expect("ends");
                }
            });
            for number in 0..MESSAGES {
                let mut into = [0; 4];
                let mut unpacking = there.begin_unpacking().expect("begins");
                unpacking.unpack_express(&mut into).expect("unpacks");
                unpacking.end_unpacking().expect("ends");
                assert_eq!(u32::from_le_bytes(into), number);
            }
        });
    }
}

#[test]
fn a_message_of_many_blocks_arrives() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        let blocks: Vec<_> = (0..5000)
            .map(|seed| pattern(seed, (seed % 97) as usize))
            .collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut packing = here.begin_packing(to).expect("begins");
                for block in &blocks {
                    packing.pack_cheaper(block, Cheaper).expect("packs");
                }
                packing.end_packing().expect("ends");
            });
            let mut into: Vec<_> = blocks.iter().map(|block| vec![0; block.len()]).collect();
            let mut unpacking = there.begin_unpacking().expect("begins");
            for into in &mut into {
                unpacking.unpack_cheaper(into).expect("unpacks");
            }
            unpacking.end_unpacking().expect("ends");
            assert_eq!(into, blocks);
        });
    }
}

#[test]
fn what_is_packed_waits_for_its_receiver_as_far_as_the_budgets_go() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there) = (nodes.channel(0), nodes.channel(1));
        // Both ends send before either receives, in one thread: borrowed blocks of as much
        // as is copied, and owned ones of as much as is retained.
        let (small, large) = (pattern(1, 256 << 10), pattern(2, 4 << 20));
        for (channel, to) in [(&here, nodes.id(1)), (&there, nodes.id(0))] {
            for _ in 0..4 {
                let mut packing = channel.begin_packing(to).expect("begins");
                packing.pack_cheaper(&small, Cheaper).expect("packs");
                packing.end_packing().expect("ends");
            }
            let mut packing = channel.begin_packing(to).expect("begins");
            let owned = Bytes::from(large.clone());
            packing.pack_owned(owned, Cheaper).expect("packs");
            packing.end_packing().expect("ends");
        }
        for channel in [&here, &there] {
            for _ in 0..4 {
                assert!(receive(channel).1 == [(small.clone(), Cheaper)]);
            }
            assert!(receive(channel).1 == [(large.clone(), Cheaper)]);
        }
    }
}

#[test]
fn sending_without_waiting_says_when_it_would_wait() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "[endpoint]\nretention = \"64KiB\"\n");
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        let blocks = [
            (Bytes::from(pattern(1, 10)), Express),
            (Bytes::from(pattern(2, 50_000)), Cheaper),
        ];
        let expected: Vec<_> = blocks
            .iter()
            .map(|(block, receive)| (block.to_vec(), *receive))
            .collect();
        let packing = here.begin_packing(to).expect("begins");
        let error = here
            .try_send(to, &blocks)
            .expect_err("another message is packed");
        assert!(matches!(error, TrySendError::NotNow), "{error}");
        drop(packing);

        // Until nothing more is taken: the receiver's window, then the retention budget.
        let mut deliveries = Vec::new();
        let error = loop {
            match here.try_send(to, &blocks) {
                Ok(delivery) => deliveries.push(delivery),
                Err(error) => break error,
            }
            assert!(deliveries.len() < 1000, "nothing is bounded");
        };
        assert!(matches!(error, TrySendError::NotNow), "{error}");
        for delivery in deliveries {
            assert_eq!(receive(&there).1, expected);
            delivery.wait().expect("is delivered");
            assert!(delivery.is_delivered().expect("is delivered"));
        }
        here.try_send(to, &blocks)
            .expect("there is room again")
            .wait()
            .expect("is delivered");
        assert_eq!(receive(&there).1, expected);
    }
}

#[test]
fn delivered_means_that_the_node_has_it_and_not_that_it_is_unpacked() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        for length in [0, 8, 5_000, 50_000] {
            let block = pattern(1, length);
            let mut packing = here.begin_packing(to).expect("begins");
            packing.pack_cheaper(&block, Express).expect("packs");
            packing.end_packing_delivered().expect("is delivered");

            let mut packing = here.begin_packing(to).expect("begins");
            packing.pack_cheaper(&block, Express).expect("packs");
            let delivery = packing.end_packing_tracked().expect("ends");
            delivery.wait().expect("is delivered");
            assert!(delivery.is_delivered().expect("is delivered"));
            for _ in 0..2 {
                assert_eq!(receive(&there).1, [(block.clone(), Express)]);
            }
        }
    }
}

#[test]
fn a_delivery_is_not_said_before_it_happens() {
    let nodes = Nodes::open(Protocol::Tcp, 2, "");
    let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
    let block = Bytes::from(pattern(1, 6 << 20));
    let delivery = here
        .try_send(to, &[(block.clone(), Cheaper)])
        .expect("is retained");
    // It is more than the window of a flow that nobody unpacks.
    assert!(!delivery.is_delivered().expect("is on its way"));
    let mut unpacking = there.begin_unpacking().expect("begins");
    assert!(!delivery.is_delivered().expect("is on its way"));
    let into = unpacking
        .unpack_owned(block.len(), Cheaper)
        .expect("unpacks");
    unpacking.end_unpacking().expect("ends");
    assert!(into == block);
    delivery.wait().expect("is delivered");
}
