//! The pieces of memory that small frames are gathered in.

use super::{SMALL, Source};

/// Frames that fill some pieces.
const MANY: usize = 5000;

#[test]
fn pieces_are_used_again_while_something_is_under_way() {
    const GRANTED: u64 = 1 << 30;
    let mut source = Source::opened(GRANTED);
    let spares = |source: &Source| -> Vec<_> {
        let spares = source.outgoing.spare_tails.iter();
        spares.map(|piece| piece.as_ptr()).collect()
    };
    for _ in 0..MANY {
        source.push_small();
    }
    let frames = source.frames();
    let sent = source.outgoing.positions().1;
    // All but the last two are delivered, but somebody still sends them.
    source.credit(sent - 2 * SMALL, GRANTED);
    assert!(spares(&source).is_empty(), "others refer to them");
    drop(frames);

    for _ in 0..MANY {
        source.push_small();
    }
    assert_eq!(source.frames().len(), MANY);
    let sent = source.outgoing.positions().1;
    source.credit(sent - SMALL, GRANTED);
    let kept = spares(&source);
    assert!(kept.len() > 2, "{} pieces", kept.len());

    // What comes next, checked as it leaves, is gathered in those, when the one is full that was
    // begun before.
    for _ in 0..MANY / 2 {
        source.push_small();
    }
    assert!(spares(&source).len() < kept.len());
    assert!(kept.contains(&source.outgoing.tail.as_ptr()));
    assert_eq!(source.frames().len(), MANY / 2);

    let sent = source.outgoing.positions().1;
    source.credit(sent, GRANTED);
    assert!(spares(&source).is_empty(), "nothing is under way");

    // Nor is there when what was delivered last is a block.
    for _ in 0..MANY {
        source.push_small();
    }
    source.push_block(1 << 20);
    drop(source.frames());
    let sent = source.outgoing.positions().1;
    source.credit(sent - 1, GRANTED);
    assert!(!spares(&source).is_empty());
    source.credit(sent, GRANTED);
    assert!(spares(&source).is_empty(), "nothing is under way");
}

#[test]
fn a_flow_that_waits_for_answers_stays_in_one_piece() {
    let mut source = Source::opened(10_000);
    let mut memory = Vec::new();
    for _ in 0..MANY {
        source.push_small();
        memory.push(source.outgoing.tail.as_ptr());
        drop(source.frames());
        let sent = source.outgoing.positions().1;
        source.credit(sent, sent + 10_000);
    }
    memory.dedup();
    assert_eq!(memory.len(), 1, "{memory:?}");
}
