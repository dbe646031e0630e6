//! Frames back into blocks, and what no honest source sends.

use proptest::prelude::*;

use super::{Reassembly, Record, Violation};
use crate::wire::{
    BUNDLED_BYTES, Descriptor, Flags, FlowKey, Header, Kind, OPENING_BYTES, ReceiveMode, SendMode,
    WireError,
};

const FLOW: FlowKey = FlowKey {
    channel: 1,
    source: 2,
    destination: 3,
};
const END: Flags = Flags::END;
const DESCRIBED: Flags = Flags::DESCRIBED;

fn header(flags: Flags, message: u32, block: u32, offset: u64, length: usize) -> Header {
    Header {
        flags,
        length: u32::try_from(length).unwrap(),
        message,
        block,
        offset,
        ..Header::new(Kind::Data, FLOW, 1)
    }
}

fn described(length: u64) -> Descriptor {
    Descriptor::new(length, SendMode::Cheaper, ReceiveMode::Express).unwrap()
}

fn records(parts: &[(u64, &[u8])]) -> Vec<u8> {
    parts
        .iter()
        .flat_map(|(length, bytes)| [&described(*length).to_bytes()[..], bytes].concat())
        .collect()
}

type Parts = Vec<(Record, Vec<u8>)>;

fn small(
    reassembly: &mut Reassembly,
    header: &Header,
    payload: &[u8],
) -> Result<(Parts, bool), Violation> {
    let mut taken = Vec::new();
    let ends = reassembly.handle_small(header, payload, |record, bytes| {
        taken.push((record, bytes.to_vec()));
    })?;
    Ok((taken, ends))
}

#[test]
fn one_frame_holds_a_message_of_several_blocks() {
    let mut reassembly = Reassembly::default();
    let payload = records(&[(2, b"ab"), (0, b""), (3, b"cde")]);
    let header = header(DESCRIBED.with(END), 7, 0, 0, payload.len());
    let (taken, ends) = small(&mut reassembly, &header, &payload).unwrap();
    assert!(ends);
    let blocks: Vec<_> = taken
        .iter()
        .map(|(record, bytes)| {
            assert!(record.ends_block() && record.offset == 0 && record.message == 7);
            (record.block, bytes.as_slice())
        })
        .collect();
    assert_eq!(blocks, [(0, &b"ab"[..]), (1, b""), (2, b"cde")]);
    assert_eq!(reassembly.message(), None);
}

const BUNDLE: Flags = Flags::BUNDLE.with(DESCRIBED).with(END);

/// Messages as a bundle has them.
fn bundle(messages: &[&[u8]]) -> Vec<u8> {
    let with_length = |records: &&[u8]| {
        let length = u16::try_from(records.len()).unwrap();
        let prefix = match u8::try_from(length) {
            Ok(short @ ..0x80) => vec![short],
            _ => vec![
                u8::try_from(length & 0x7f).unwrap() | 0x80,
                u8::try_from(length >> 7).unwrap(),
            ],
        };
        [&prefix, *records].concat()
    };
    messages.iter().flat_map(with_length).collect()
}

#[test]
fn one_frame_holds_several_messages() {
    let mut reassembly = Reassembly::default();
    let two = records(&[(2, b"ab"), (0, b"")]);
    let long = records(&[(120, &[9; 120])]);
    let longest = records(&[(1248, &[5; 1248])]);
    assert_eq!(longest.len(), BUNDLED_BYTES);
    let payload = bundle(&[&two, &long, &longest, &records(&[(0, b"")])]);
    let header = header(BUNDLE, u32::MAX, 0, 4, payload.len());
    let (taken, ends) = small(&mut reassembly, &header, &payload).unwrap();
    assert!(ends);
    let found: Vec<_> = taken
        .iter()
        .map(|(record, bytes)| (record.message, record.block, bytes.as_slice()))
        .collect();
    let expected: [(u32, u32, &[u8]); 5] = [
        (u32::MAX, 0, b"ab"),
        (u32::MAX, 1, b""),
        (0, 0, &[9; 120]),
        (1, 0, &[5; 1248]),
        (2, 0, b""),
    ];
    assert_eq!(found, expected);
    assert_eq!(reassembly, Reassembly::default());
}

#[test]
fn bundles_that_no_honest_source_sends() {
    let one = records(&[(2, b"ab")]);
    let refused = |payload: &[u8], messages: u64| {
        let header = header(BUNDLE, 7, 0, messages, payload.len());
        small(&mut Reassembly::default(), &header, payload).unwrap_err()
    };
    let good = bundle(&[&one, &one]);
    let malformed = Violation::Wire(WireError::Bundle);
    // Another number of messages.
    assert_eq!(refused(&good, 3), malformed);
    assert_eq!(refused(&good, 1), malformed);
    // One that is longer than the frame, one whose length has three bytes, an empty one.
    assert_eq!(refused(&good[..good.len() - 1], 2), malformed);
    let three = [&good[..], &[0x8a, 0x80, 0], &one].concat();
    assert_eq!(refused(&three, 3), malformed);
    assert_eq!(refused(&bundle(&[&one, &[]]), 2), malformed);
    // Blocks that end elsewhere than their message.
    let inside = Violation::EndsInsideBlock { message: 8 };
    let unfinished = records(&[(3, b"ab")]);
    assert_eq!(refused(&bundle(&[&one, &unfinished]), 2), inside);
    let trailing = [&one[..], b"x"].concat();
    let descriptor = Violation::Wire(WireError::Descriptor);
    assert_eq!(refused(&bundle(&[&one, &trailing]), 2), descriptor);

    // Inside another message, and where one block is expected.
    let mut reassembly = Reassembly::default();
    let first = header(DESCRIBED, 6, 0, 0, one.len());
    small(&mut reassembly, &first, &one).unwrap();
    let header = header(BUNDLE, 7, 0, 2, good.len());
    let other = Violation::OtherMessage {
        expected: 6,
        got: 7,
    };
    assert_eq!(small(&mut reassembly, &header, &good), Err(other));
    let fragment = Reassembly::default().handle_fragment(&header, good.first_chunk().copied());
    assert_eq!(fragment, Err(malformed));
}

#[test]
fn a_block_goes_on_over_frames_of_any_kind() {
    let mut reassembly = Reassembly::default();
    let first = header(DESCRIBED, 7, 0, 0, 8 + 100);
    let (record, ends) = reassembly
        .handle_fragment(&first, Some(described(103).to_bytes()))
        .unwrap();
    assert_eq!(
        (record.offset, record.length, record.ends_block(), ends),
        (0, 100, false, false)
    );
    assert_eq!(reassembly.message(), Some(7));

    let (taken, ends) = small(&mut reassembly, &header(Flags::NONE, 7, 0, 100, 2), b"xy").unwrap();
    assert_eq!(
        (taken[0].0.offset, taken[0].0.ends_block(), ends),
        (100, false, false)
    );

    let (record, ends) = reassembly
        .handle_fragment(&header(END, 7, 0, 102, 1), None)
        .unwrap();
    assert!(record.ends_block() && ends);
}

#[test]
fn an_end_alone_ends_a_message_or_is_an_empty_one() {
    let mut reassembly = Reassembly::default();
    let payload = records(&[(1, b"a")]);
    let frame = header(DESCRIBED, 7, 0, 0, payload.len());
    assert!(!small(&mut reassembly, &frame, &payload).unwrap().1);
    for message in [7, 8] {
        let (taken, ends) = small(&mut reassembly, &header(END, message, 0, 0, 0), &[]).unwrap();
        assert!(taken.is_empty() && ends);
    }
}

#[test]
fn a_message_that_is_given_up_is_forgotten() {
    let mut reassembly = Reassembly::default();
    let payload = records(&[(9, b"abc")]);
    let frame = header(DESCRIBED, 7, 0, 0, payload.len());
    small(&mut reassembly, &frame, &payload).unwrap();
    let abort = header(Flags::ABORT, 7, 0, 0, 0);
    // The second is of a message that had not begun.
    for _ in 0..2 {
        let (taken, ends) = small(&mut reassembly, &abort, &[]).unwrap();
        assert!(taken.is_empty() && !ends);
        assert_eq!(reassembly, Reassembly::default());
    }
}

#[test]
fn an_opening_in_front_counts_for_nothing() {
    let mut reassembly = Reassembly::default();
    let bare = header(Flags::OPEN, 0, 0, 0, OPENING_BYTES);
    assert_eq!(small(&mut reassembly, &bare, &[]), Ok((Vec::new(), false)));
    assert_eq!(reassembly.message(), None);
    let empty = header(Flags::OPEN.with(END), 0, 0, 0, OPENING_BYTES);
    assert_eq!(small(&mut reassembly, &empty, &[]), Ok((Vec::new(), true)));
}

#[test]
fn violations() {
    let begun = |length: u64, there: usize| {
        let mut reassembly = Reassembly::default();
        let first = header(DESCRIBED, 7, 0, 0, 8 + there);
        let descriptor = Some(described(length).to_bytes());
        reassembly.handle_fragment(&first, descriptor).unwrap();
        reassembly
    };
    let two = |reassembly: &mut Reassembly, header: Header, payload: &[u8]| {
        let header = Header {
            length: u32::try_from(payload.len()).unwrap(),
            ..header
        };
        small(reassembly, &header, payload).unwrap_err()
    };
    let frame = |flags, message, block, offset| header(flags, message, block, offset, 0);

    assert!(matches!(
        two(&mut begun(5, 1), frame(Flags::NONE, 8, 0, 1), b"x"),
        Violation::OtherMessage {
            expected: 7,
            got: 8
        }
    ));
    for (block, offset) in [(0, 0), (0, 2), (1, 1)] {
        assert!(matches!(
            two(&mut begun(5, 1), frame(Flags::NONE, 7, block, offset), b"x"),
            Violation::OutOfPlace {
                expected_block: 0,
                expected_offset: 1,
                ..
            }
        ));
    }
    // A described block where one has not ended, and one with a gap before it.
    let record = records(&[(1, b"a")]);
    assert!(matches!(
        two(&mut begun(5, 1), frame(DESCRIBED, 7, 1, 0), &record),
        Violation::OutOfPlace { .. }
    ));
    assert!(matches!(
        two(&mut begun(1, 1), frame(DESCRIBED, 7, 2, 0), &record),
        Violation::OutOfPlace { .. }
    ));
    // Bytes of no block.
    assert!(matches!(
        two(
            &mut Reassembly::default(),
            frame(Flags::NONE, 7, 0, 0),
            b"x"
        ),
        Violation::OutOfPlace { .. }
    ));
    assert!(matches!(
        two(&mut begun(2, 1), frame(Flags::NONE, 7, 0, 1), b"xy"),
        Violation::TooLong { block: 0 }
    ));
    assert!(matches!(
        begun(1, 1).handle_fragment(
            &header(DESCRIBED, 7, 1, 0, 8 + 3),
            Some(described(2).to_bytes())
        ),
        Err(Violation::TooLong { block: 1 })
    ));
    assert!(matches!(
        two(&mut begun(5, 1), frame(END, 7, 0, 1), b""),
        Violation::EndsInsideBlock { message: 7 }
    ));
    assert!(matches!(
        two(&mut begun(5, 1), frame(Flags::NONE, 7, 0, 1), b""),
        Violation::Empty
    ));
    // A descriptor that is cut short, and one that cannot be.
    let mut cut = records(&[(1, b"a")]);
    cut.extend_from_slice(&[0; 7]);
    let wire = Violation::Wire(WireError::Descriptor);
    let mut fresh = Reassembly::default();
    assert_eq!(two(&mut fresh, frame(DESCRIBED, 7, 0, 0), &cut), wire);
    let mut fresh = Reassembly::default();
    assert_eq!(two(&mut fresh, frame(DESCRIBED, 7, 0, 0), &[255; 8]), wire);
}

proptest! {
    /// However blocks are cut, what comes out is what went in.
    #[test]
    fn any_cut_comes_back_together(
        blocks in proptest::collection::vec(0..50usize, 1..6),
        cuts in proptest::collection::vec(1..20usize, 1..8),
    ) {
        let mut reassembly = Reassembly::default();
        let mut cuts = cuts.into_iter().cycle();
        let last = blocks.len() - 1;
        for (number, length) in blocks.iter().enumerate() {
            let bytes: Vec<u8> = (0..*length).map(|at| u8::try_from(at).unwrap()).collect();
            let block = u32::try_from(number).unwrap();
            let mut there = 0;
            loop {
                let part = cuts.next().unwrap().min(length - there);
                let ends = number == last && there + part == *length;
                let offset = u64::try_from(there).unwrap();
                let mut payload = bytes[there..there + part].to_vec();
                let flags = DESCRIBED.when(there == 0).with(END.when(ends));
                if there == 0 {
                    let descriptor = described(u64::try_from(*length).unwrap());
                    payload = [&descriptor.to_bytes()[..], &payload].concat();
                }
                let header = header(flags, 5, block, offset, payload.len());
                let (taken, ended) = small(&mut reassembly, &header, &payload).unwrap();
                prop_assert_eq!(ended, ends);
                let (record, taken) = &taken[0];
                prop_assert_eq!((record.block, record.offset), (block, offset));
                prop_assert_eq!(&taken[..], &bytes[there..there + part]);
                there += part;
                prop_assert_eq!(record.ends_block(), there == *length);
                if there == *length {
                    break;
                }
            }
        }
        prop_assert_eq!(reassembly.message(), None);
    }

    /// What is taken in one step is what is taken record by record.
    #[test]
    fn whole_messages_are_taken_as_their_records_are(
        lengths in proptest::collection::vec(0..12u64, 1..4),
        cut in 0..24usize,
        damage in proptest::option::of((0..40usize, 1..=u8::MAX)),
        begun in any::<bool>(),
    ) {
        let mut payload = Vec::new();
        for length in lengths {
            payload.extend_from_slice(&described(length).to_bytes());
            payload.resize(payload.len() + usize::try_from(length).unwrap(), 7);
        }
        payload.truncate(payload.len().saturating_sub(cut / 2).max(8));
        if let Some((at, bits)) = damage && let Some(byte) = payload.get_mut(at) {
            *byte ^= bits;
        }
        let mut reassembly = Reassembly::default();
        if begun {
            let first = described(5).to_bytes();
            small(&mut reassembly, &header(DESCRIBED, 8, 0, 0, first.len()), &first).unwrap();
        }
        let before = reassembly;
        let takes = reassembly.takes_whole(&payload);
        let header = header(DESCRIBED.with(END), 9, 0, 0, payload.len());
        let taken = small(&mut reassembly, &header, &payload);
        prop_assert_eq!(takes, taken.is_ok(), "{:?}", taken);
        if takes {
            prop_assert_eq!(reassembly, before, "nothing is left behind");
        }
    }
}
