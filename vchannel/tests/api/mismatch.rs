//! Where the ends disagree, the receiver gets an error that names both, never wrong bytes.

use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::{Packed, UnpackError};

use crate::support::{ALL, Nodes, pattern, send};

const fn block(length: u64, receive: madgate_vchannel::ReceiveMode) -> Packed {
    Packed::Block { length, receive }
}

/// Number of the block, what was packed, and what was to be unpacked.
fn mismatch(result: Result<(), UnpackError>) -> (u32, Packed, Packed) {
    match result {
        Err(UnpackError::Mismatch {
            source_node,
            block,
            packed,
            unpacked,
        }) => {
            assert_eq!(source_node, "n0");
            (block, packed, unpacked)
        }
        other => panic!("a mismatch was expected: {other:?}"),
    }
}

#[test]
fn another_size_or_mode_is_named_and_the_right_call_can_follow() {
    for protocol in ALL {
        for length in [5, 5000, 300_000] {
            let nodes = Nodes::open(protocol, 2, "");
            let there = nodes.channel(1);
            let sent = pattern(1, length);
            let thread = send(
                &nodes,
                0,
                1,
                vec![(sent.clone(), Express), (vec![9; 3], Express)],
            );

            let packed = block(length as u64, Express);
            let mut unpacking = there.begin_unpacking().expect("begins");
            for wrong in [0, length - 1, length + 1, 2 * length] {
                let mut into = vec![0xEE; wrong];
                let error = unpacking.unpack_express(&mut into);
                let unpacked = block(wrong as u64, Express);
                assert_eq!(mismatch(error), (0, packed, unpacked));
                assert!(
                    into.iter().all(|byte| *byte == 0xEE),
                    "nothing was unpacked"
                );
            }
            let error = unpacking.unpack_owned(length, Cheaper).map(drop);
            assert_eq!(mismatch(error), (0, packed, block(length as u64, Cheaper)));
            assert_eq!(
                unpacking.unpack_owned(length, Express).expect("is right"),
                sent
            );
            let mut last = [0; 3];
            unpacking.unpack_express(&mut last).expect("is right");
            assert_eq!(last, [9; 3]);
            unpacking.end_unpacking().expect("is right");
            thread.join().expect("sends");
        }
    }
}

#[test]
fn a_wrong_block_with_others_lent_behind_it_ends_the_message() {
    let nodes = Nodes::open(ALL[0], 2, "");
    let there = nodes.channel(1);
    let blocks = vec![
        (pattern(1, 4), Cheaper),
        (pattern(2, 8), Cheaper),
        (pattern(3, 8), Cheaper),
    ];
    let thread = send(&nodes, 0, 1, blocks);
    let (mut wrong, mut behind) = ([0; 8], [0; 8]);
    let mut unpacking = there.begin_unpacking().expect("begins");
    unpacking.unpack_cheaper(&mut wrong).expect("is kept");
    unpacking.unpack_cheaper(&mut behind).expect("is kept");
    let there_is = block(4, Cheaper);
    let error = unpacking.unpack_owned(8, Cheaper).map(drop);
    assert_eq!(mismatch(error), (0, there_is, block(8, Cheaper)));
    // Whatever came now would be taken for the block behind.
    let error = unpacking.unpack_owned(8, Cheaper).map(drop);
    assert!(
        matches!(error, Err(UnpackError::Failed { .. })),
        "{error:?}"
    );
    drop(unpacking);
    thread.join().expect("sends");
}

#[test]
fn what_is_wrong_with_a_cheaper_block_is_said_where_it_has_to_be_there() {
    let nodes = Nodes::open(ALL[0], 2, "");
    let there = nodes.channel(1);
    let blocks = vec![
        (pattern(1, 10), Cheaper),
        (pattern(2, 20), Cheaper),
        (pattern(3, 30), Express),
    ];
    let thread = send(&nodes, 0, 1, blocks);
    let (mut first, mut wrong, mut express) = ([0; 10], [0; 21], [0; 30]);
    let mut again = [0; 20];
    let mut unpacking = there.begin_unpacking().expect("begins");
    unpacking
        .unpack_cheaper(&mut first)
        .expect("says nothing yet");
    unpacking
        .unpack_cheaper(&mut wrong)
        .expect("says nothing yet");
    let error = unpacking.unpack_express(&mut express);
    assert_eq!(mismatch(error), (1, block(20, Cheaper), block(21, Cheaper)));
    unpacking
        .unpack_cheaper(&mut again)
        .expect("says nothing yet");
    unpacking.unpack_express(&mut express).expect("is right");
    unpacking.end_unpacking().expect("is right");
    assert_eq!(first[..], pattern(1, 10));
    assert_eq!(again[..], pattern(2, 20));
    assert_eq!(express[..], pattern(3, 30));
    assert_eq!(wrong, [0; 21]);
    thread.join().expect("sends");
}

#[test]
fn too_many_blocks_are_an_error_and_the_end_can_follow() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let there = nodes.channel(1);
        let thread = send(&nodes, 0, 1, vec![(vec![1; 4], Express)]);
        let mut unpacking = there.begin_unpacking().expect("begins");
        unpacking.unpack_owned(4, Express).expect("is right");
        for _ in 0..2 {
            let error = unpacking.unpack_express(&mut [0; 4]);
            assert_eq!(mismatch(error), (1, Packed::End, block(4, Express)));
        }
        assert_eq!(unpacking.next_block().expect("says so"), None);
        unpacking.end_unpacking().expect("is right");
        thread.join().expect("sends");
    }
}

#[test]
fn too_few_blocks_are_an_error_and_the_next_message_is_not_touched() {
    for protocol in ALL {
        for length in [4, 5000, 500_000] {
            let nodes = Nodes::open(protocol, 2, "");
            let there = nodes.channel(1);
            let blocks = vec![(vec![1; 4], Express), (vec![2; length], Cheaper)];
            let first = send(&nodes, 0, 1, blocks);
            let mut unpacking = there.begin_unpacking().expect("begins");
            unpacking.unpack_owned(4, Express).expect("is right");
            let error = unpacking.end_unpacking();
            let text = error.as_ref().expect_err("a block is left").to_string();
            let said = format!(
                "block 1 of a message of n0: a block of {length} bytes (cheaper) was packed, \
                 the end of the message was to be unpacked"
            );
            assert_eq!(text, said);
            assert_eq!(
                mismatch(error),
                (1, block(length as u64, Cheaper), Packed::End)
            );
            first.join().expect("sends");

            let second = send(&nodes, 0, 1, vec![(pattern(7, 100), Express)]);
            let mut unpacking = there.begin_unpacking().expect("begins");
            assert_eq!(
                unpacking.unpack_owned(100, Express).expect("is right"),
                pattern(7, 100)
            );
            unpacking.end_unpacking().expect("is right");
            second.join().expect("sends");
        }
    }
}

#[test]
fn a_message_tells_what_it_is() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let there = nodes.channel(1);
        let lengths = [0, 1, 3999, 70_000];
        let blocks = lengths.map(|length| (pattern(3, length), Cheaper)).to_vec();
        let thread = send(&nodes, 0, 1, blocks);
        let mut unpacking = there.begin_unpacking().expect("begins");
        for length in lengths {
            let next = Some((length as u64, Cheaper));
            assert_eq!(unpacking.next_block().expect("is known"), next);
            assert_eq!(unpacking.next_block().expect("is still known"), next);
            assert_eq!(
                unpacking.unpack_owned(length, Cheaper).expect("is right"),
                pattern(3, length)
            );
        }
        assert_eq!(unpacking.next_block().expect("is known"), None);
        unpacking.end_unpacking().expect("is right");
        thread.join().expect("sends");
    }
}
