//! Blocks that are unpacked where they have arrived.

use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::{ArrivedBlock, Channel, Packed, ReceiveMode, UnpackError};

use crate::support::{ALL, Nodes, Protocol, pattern, send};

/// Small, a fragment, and several of them.
const LENGTHS: [usize; 8] = [0, 1, 40, 1_000, 4_000, 100_000, 262_144, 5 << 20];

fn bytes_of(block: &ArrivedBlock) -> Vec<u8> {
    let mut bytes = vec![0; block.len()];
    block.read(0, &mut bytes);
    bytes
}

fn unpack_one(channel: &Channel, length: usize, receive: ReceiveMode) -> ArrivedBlock {
    let mut unpacking = channel.begin_unpacking().expect("begins");
    let block = unpacking.unpack_arrived(length, receive).expect("unpacks");
    unpacking.end_unpacking().expect("ends");
    block
}

/// Sends a block and unpacks it.
fn pass(nodes: &Nodes, seed: u32, length: usize) -> ArrivedBlock {
    let sender = send(nodes, 0, 1, vec![(pattern(seed, length), Cheaper)]);
    let block = unpack_one(&nodes.channel(1), length, Cheaper);
    sender.join().expect("sends");
    block
}

#[test]
fn blocks_of_any_size_can_be_read_where_they_are() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let there = nodes.channel(1);
        for (length, receive) in LENGTHS
            .into_iter()
            .flat_map(|l| [(l, Cheaper), (l, Express)])
        {
            let other = pattern(7, length / 2 + 9);
            let blocks = vec![
                (pattern(3, length), receive),
                (other.clone(), Cheaper),
                (pattern(5, length), receive),
            ];
            let sender = send(&nodes, 0, 1, blocks);
            let mut into = vec![0; other.len()];
            let mut unpacking = there.begin_unpacking().expect("begins");
            let first = unpacking.unpack_arrived(length, receive).expect("unpacks");
            // In between, as ever.
            unpacking.unpack_cheaper(&mut into).expect("unpacks");
            let last = unpacking.unpack_arrived(length, receive).expect("unpacks");
            unpacking.end_unpacking().expect("ends");
            sender.join().expect("sends");
            assert!(
                bytes_of(&first) == pattern(3, length),
                "{protocol:?} {length}"
            );
            assert!(into == other, "{protocol:?} {length}");
            assert!(
                bytes_of(&last) == pattern(5, length),
                "{protocol:?} {length}"
            );
        }
    }
}

#[test]
fn over_slots_what_is_large_is_not_copied() {
    // What is cut off at the end for want of credit is a small frame.
    const SMALL_BYTES: usize = 4096;
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let mut in_place = 0;
        for (seed, length) in (0..20).flat_map(|seed| [(seed, 100_000), (seed, 1 << 20)]) {
            let block = pass(&nodes, seed, length);
            assert!(bytes_of(&block) == pattern(seed, length));
            let copied = block.copied_bytes();
            assert!(copied == length || protocol != Protocol::Tcp);
            in_place += u32::from(copied <= SMALL_BYTES);
        }
        // Not those that came before something that was sent before them, on the other lane, nor
        // several that share a slot.
        assert!(
            in_place > 10 || protocol == Protocol::Tcp,
            "{protocol:?}: {in_place} of 40"
        );
    }
}

/// However many the application keeps, what comes after them comes, and they stay as they are;
/// when they are dropped, others have their places.
#[test]
fn blocks_that_are_kept_hold_nobody_up() {
    for protocol in [Protocol::Shm, Protocol::Hsl] {
        let nodes = Nodes::open(protocol, 3, "");
        pass(&nodes, 0, 100_000);
        for _ in 0..2 {
            let kept: Vec<_> = (0..100).map(|seed| pass(&nodes, seed, 50_000)).collect();
            let some_are_there = kept[..10].iter().any(|block| block.copied_bytes() < 50_000);
            assert!(some_are_there, "{protocol:?}");
            // There are fewer slots.
            assert_eq!(kept[99].copied_bytes(), 50_000, "{protocol:?}");
            for (seed, block) in (0..).zip(&kept) {
                assert!(
                    bytes_of(block) == pattern(seed, 50_000),
                    "{protocol:?} {seed}"
                );
            }
        }
    }
}

#[test]
fn a_block_outlives_its_sender_and_its_session() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        pass(&nodes, 0, 100_000);
        let block = pass(&nodes, 1, 100_000);
        drop(nodes.stop(0));
        drop(nodes.stop(1));
        assert!(bytes_of(&block) == pattern(1, 100_000), "{protocol:?}");
        drop(nodes);
        drop(block);
    }
}

#[test]
fn another_block_than_was_packed_is_a_mismatch_and_the_right_call_can_follow() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        for length in [8, 1_000, 100_000] {
            let sender = send(&nodes, 0, 1, vec![(pattern(1, length), Express)]);
            let there = nodes.channel(1);
            let mut unpacking = there.begin_unpacking().expect("begins");
            // One of them is longer than a block of a small message can be.
            let others = [(length + 1, Express), (1 << 20, Express), (length, Cheaper)];
            let there_is = Packed::Block {
                length: length as u64,
                receive: Express,
            };
            for (wrong, receive) in others {
                let refused = unpacking.unpack_arrived(wrong, receive);
                assert!(
                    matches!(&refused, Err(UnpackError::Mismatch { packed, .. }) if *packed == there_is),
                    "{refused:?}"
                );
            }
            let block = unpacking.unpack_arrived(length, Express).expect("unpacks");
            let beyond = unpacking.unpack_arrived(1, Express);
            assert!(
                matches!(beyond, Err(UnpackError::Mismatch { .. })),
                "{beyond:?}"
            );
            unpacking.end_unpacking().expect("ends");
            sender.join().expect("sends");
            assert!(bytes_of(&block) == pattern(1, length));
        }
    }
}
