//! Bundles in an inbox, among other parts.

use madgate_gtm::wire::{Descriptor, SendMode, bundled_prefix_bytes};
use proptest::prelude::*;

use super::*;

const CHARGE: u64 = 500;

fn descriptor(length: usize) -> Descriptor {
    let length = u64::try_from(length).unwrap();
    Descriptor::new(length, SendMode::Cheaper, ReceiveMode::Cheaper).unwrap()
}

/// The payload of a bundle of messages with one block each, which are so long and full of that.
fn bundle(messages: &[(usize, u8)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for &(length, fill) in messages {
        match u8::try_from(8 + length) {
            Ok(bytes @ ..0x80) => payload.push(bytes),
            // As long as this many, and two bytes say so.
            _ => {
                let [low, high] = u16::try_from(8 + length).unwrap().to_le_bytes();
                payload.extend([low | 0x80, high << 1 | low >> 7]);
            }
        }
        payload.extend_from_slice(&descriptor(length).to_bytes());
        payload.extend(std::iter::repeat_n(fill, length));
    }
    payload
}

/// Part of block 0 of a message.
fn push_part(inbox: &mut Inbox, message: u32, of: usize, bytes: &[u8], ends: bool) {
    let record = Record {
        message,
        block: 0,
        descriptor: descriptor(of),
        offset: 0,
        length: bytes.len(),
    };
    inbox.push_copy(record, bytes, false, 0);
    inbox.end_frame(1, ends, CHARGE);
}

#[test]
fn what_a_burst_took_is_given_back_when_nothing_comes() {
    let mut inbox = Inbox::default();
    let of = |inbox: &Inbox| (inbox.memory.capacity(), inbox.parts.capacity());
    for message in 0..2000 {
        push_part(&mut inbox, message, 64, &[7; 64], true);
    }
    // What waits is kept, however long nothing comes.
    inbox.shrink();
    let (bytes, parts) = of(&inbox);
    assert!(bytes >= 2000 * 64 && parts >= 2000, "{bytes}, {parts}");
    for _ in 0..2000 {
        assert_eq!(take(&mut inbox, 64), Some(vec![7; 64]));
    }
    inbox.shrink();
    let (bytes, parts) = of(&inbox);
    assert!(
        bytes <= IDLE_BYTES && parts <= 2 * IDLE_PARTS,
        "{bytes}, {parts}"
    );
    push_part(&mut inbox, 2000, 64, &[8; 64], true);
    assert_eq!(take(&mut inbox, 64), Some(vec![8; 64]));
}

/// Takes the next message out as a whole; it has one block of this length.
fn take(inbox: &mut Inbox, length: usize) -> Option<Vec<u8>> {
    let mut early = Early::none();
    inbox.begin_message();
    inbox.take_early(&mut early);
    let mut block = vec![0; length];
    let taken = early
        .is_some()
        .then(|| early.take(ReceiveMode::Cheaper, &mut block));
    taken.map(|taken| {
        assert_eq!((taken, early.peek()), (Taken::Block(length), Packed::End));
        assert!(inbox.message_ended());
        block
    })
}

#[test]
fn messages_of_a_bundle_come_out_one_by_one() {
    let mut inbox = Inbox::default();
    inbox.push_bundle(&bundle(&[(8, 1), (0, 0), (1248, 8), (72, 3)]), CHARGE);
    push_part(&mut inbox, 3, 2, &[4; 2], true);
    inbox.push_bundle(&bundle(&[(1, 5), (2, 6)]), CHARGE);
    assert_eq!(take(&mut inbox, 8), Some(vec![1; 8]));
    assert_eq!(take(&mut inbox, 0), Some(vec![]));
    assert_eq!(take(&mut inbox, 1248), Some(vec![8; 1248]));
    assert_eq!(inbox.take_consumed(), 0, "its frame is still there");
    assert_eq!(take(&mut inbox, 72), Some(vec![3; 72]));
    assert_eq!(inbox.take_consumed(), CHARGE);
    assert_eq!(take(&mut inbox, 2), Some(vec![4; 2]));
    assert_eq!(take(&mut inbox, 1), Some(vec![5]));
    assert_eq!(take(&mut inbox, 2), Some(vec![6; 2]));
    assert_eq!(inbox.take_consumed(), 2 * CHARGE);
    assert!(inbox.is_empty() && inbox.memory.is_empty());
}

#[test]
fn a_message_that_breaks_off_behind_a_bundle_leaves_it_whole() {
    let mut inbox = Inbox::default();
    inbox.push_bundle(&bundle(&[(8, 1), (9, 2)]), CHARGE);
    push_part(&mut inbox, 2, 100, &[9; 50], false);
    assert_eq!(take(&mut inbox, 8), Some(vec![1; 8]));
    inbox.break_message(2, false, Broken::SourceLost);
    assert_eq!(inbox.take_consumed(), CHARGE, "of what broke off");
    assert_eq!(take(&mut inbox, 9), Some(vec![2; 9]));
    assert!(inbox.is_empty() && inbox.memory.is_empty());
}

/// An earlier incarnation of its source numbered messages the same way.
#[test]
fn a_message_that_breaks_off_takes_no_complete_one_with_it() {
    let mut inbox = Inbox::default();
    push_part(&mut inbox, 0, 100, &[7; 100], true);
    inbox.push_bundle(&bundle(&[(8, 1), (9, 2)]), CHARGE);
    push_part(&mut inbox, 0, 100, &[9; 50], false);
    inbox.break_message(0, false, Broken::SourceRestarted);
    assert_eq!(inbox.parts.len(), 2);
    let mut block = [0; 100];
    let taken = inbox.take(100, ReceiveMode::Cheaper, 0, &mut block);
    assert_eq!((taken, block), (Taken::Block(100), [7; 100]));
    assert!(inbox.take_end());
    inbox.begin_message();
    for (length, byte) in [(8, 1), (9, 2)] {
        assert_eq!(take(&mut inbox, length), Some(vec![byte; length]));
    }
}

#[test]
fn a_message_that_is_discarded_ends_before_a_bundle() {
    let mut inbox = Inbox::default();
    push_part(&mut inbox, 0, 100, &[9; 100], true);
    inbox.push_bundle(&bundle(&[(8, 1), (9, 2)]), CHARGE);
    inbox.begin_message();
    assert!(inbox.discard_message());
    assert_eq!(take(&mut inbox, 8), Some(vec![1; 8]));
    // One of a bundle has been taken out by the time that it is discarded.
    assert!(inbox.discard_message());
    assert_eq!(take(&mut inbox, 9), Some(vec![2; 9]));
}

#[test]
fn whole_messages_come_out_in_their_order_whatever_they_are_among() {
    let mut inbox = Inbox::default();
    let whole = |length: usize, fill: u8| bundle(&[(length, fill)])[1..].to_vec();
    let long = |length: usize, fill: u8| bundle(&[(length, fill)])[2..].to_vec();
    inbox.push_whole(&whole(8, 1), CHARGE);
    assert!(!inbox.is_empty());
    inbox.push_whole(&whole(3, 2), CHARGE);
    push_part(&mut inbox, 2, 2, &[3; 2], true);
    inbox.push_whole(&long(1248, 6), CHARGE);
    inbox.push_whole(&whole(0, 0), CHARGE);
    // A message that has begun behind them, and vanishes, takes none of them with it.
    push_part(&mut inbox, 4, 9, &[4; 5], false);
    inbox.break_message(4, false, Broken::Aborted);
    for (length, fill) in [(8, 1), (3, 2), (2, 3), (1248, 6), (0, 0)] {
        assert_eq!(take(&mut inbox, length), Some(vec![fill; length]));
    }
    assert!(inbox.is_empty());
    assert_eq!(inbox.take_consumed(), 6 * CHARGE);
    // With nothing else there the next one is first again.
    inbox.push_whole(&whole(72, 5), CHARGE);
    assert_eq!(take(&mut inbox, 72), Some(vec![5; 72]));
    inbox.push_whole(&long(500, 7), CHARGE);
    assert_eq!(take(&mut inbox, 500), Some(vec![7; 500]));
    assert_eq!(take(&mut inbox, 1), None);
}

/// Who has taken a message out may keep it while others come.
#[test]
fn a_message_that_was_taken_out_stays_as_it_is() {
    let mut inbox = Inbox::default();
    let mut kept = Vec::new();
    for fill in 0..200 {
        if fill % 3 == 0 {
            inbox.push_whole(&bundle(&[(1000, fill)])[2..], CHARGE);
        } else {
            inbox.push_bundle(&bundle(&[(1000, fill), (1000, fill)]), CHARGE);
        }
        inbox.begin_message();
        let mut early = Early::none();
        inbox.take_early(&mut early);
        kept.push((fill, early));
        if fill % 3 != 0 {
            assert_eq!(take(&mut inbox, 1000), Some(vec![fill; 1000]));
        }
        assert!(inbox.is_empty());
        kept.retain(|(of, _)| of + 40 > fill || of % 7 == 0);
    }
    for (fill, early) in &mut kept {
        let mut block = [0; 1000];
        let taken = early.take(ReceiveMode::Cheaper, &mut block);
        assert_eq!((taken, block), (Taken::Block(1000), [*fill; 1000]));
    }
}

/// What comes, and what is done about it.
#[derive(Debug, Clone)]
enum Step {
    /// A message in one frame, with a block of this length.
    Whole(usize),
    /// Messages that share a frame.
    Bundle(Vec<usize>),
    /// A message whose frames do not say that it is whole.
    Parts(usize),
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    let length = || prop_oneof![0..130_usize, 0..1249_usize];
    prop_oneof![
        length().prop_map(Step::Whole),
        proptest::collection::vec(length(), 2..4).prop_map(Step::Bundle),
        length().prop_map(Step::Parts),
        Just(Step::Take),
        Just(Step::Take),
    ]
}

proptest! {
    #[test]
    fn messages_come_out_as_they_went_in(steps in proptest::collection::vec(step(), 0..60)) {
        let mut inbox = Inbox::default();
        let mut expected = VecDeque::new();
        let (mut pushed, mut number) = (0, 0_u8);
        let mut consumed = 0;
        let mut next = |length: usize| {
            number = number.wrapping_add(1);
            (length, number)
        };
        for step in steps {
            match step {
                Step::Whole(length) => {
                    let message = next(length);
                    expected.push_back(message);
                    let alone = bundle(&[message]);
                    inbox.push_whole(&alone[bundled_prefix_bytes(8 + length)..], CHARGE);
                }
                Step::Bundle(lengths) => {
                    let messages: Vec<_> = lengths.into_iter().map(&mut next).collect();
                    expected.extend(&messages);
                    inbox.push_bundle(&bundle(&messages), CHARGE);
                }
                Step::Parts(length) => {
                    let (length, fill) = next(length);
                    expected.push_back((length, fill));
                    push_part(&mut inbox, fill.into(), length, &vec![fill; length], true);
                }
                Step::Take => {
                    let Some((length, fill)) = expected.pop_front() else {
                        prop_assert!(inbox.is_empty());
                        continue;
                    };
                    prop_assert_eq!(take_either_way(&mut inbox, length), vec![fill; length]);
                    consumed += inbox.take_consumed();
                    continue;
                }
            }
            pushed += CHARGE;
        }
        for (length, fill) in expected {
            prop_assert_eq!(take_either_way(&mut inbox, length), vec![fill; length]);
            consumed += inbox.take_consumed();
        }
        prop_assert!(inbox.is_empty() && inbox.memory.is_empty());
        prop_assert_eq!(consumed, pushed);
    }
}

/// Takes the next message, as a whole or block by block.
fn take_either_way(inbox: &mut Inbox, length: usize) -> Vec<u8> {
    take(inbox, length).unwrap_or_else(|| {
        let mut block = vec![0; length];
        let taken = inbox.take(length as u64, ReceiveMode::Cheaper, 0, &mut block);
        assert_eq!(taken, Taken::Block(length));
        assert!(inbox.message_ended());
        block
    })
}
