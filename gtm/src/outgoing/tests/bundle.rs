//! Small messages that share frames.

use bytes::Bytes;

use super::{ONE, Source, descriptor};
use crate::outgoing::Settings;
use crate::reassembly::Reassembly;
use crate::wire::{
    BUNDLED_BYTES, CHARGE_PER_FRAME, CHARGE_PER_MESSAGE, Flags, HEADER_BYTES, Header,
    SMALL_PAYLOAD_BYTES,
};

/// What a message of 8 bytes adds to a bundle, and what it then costs.
const ADDED: u64 = 17;
const COST: u64 = ADDED + CHARGE_PER_MESSAGE;

/// A flow whose first message is delivered, and whose messages share frames.
fn sharing(granted: u64) -> Source {
    Source::with(|settings| Settings {
        bundles: true,
        ..settings
    })
    .and_opened(granted)
}

/// A whole message with a block of so many bytes.
fn push(source: &mut Source, bytes: usize) -> u32 {
    let message = source.outgoing.begin_message();
    let length = u64::try_from(bytes).unwrap();
    let mut payload = descriptor(length).to_bytes().to_vec();
    payload.resize(payload.len() + bytes, u8::try_from(message % 251).unwrap());
    source.outgoing.push_frame(ONE, message, 0, &payload);
    message
}

/// Numbers and bytes of the messages in frames.
fn read(frames: &[(Header, Bytes)]) -> Vec<(u32, usize)> {
    let mut messages = Vec::new();
    let mut reassembly = Reassembly::default();
    for (header, payload) in frames {
        let take = |record: crate::Record, bytes: &[u8]| {
            assert!(record.block == 0 && record.ends_block());
            let fill = u8::try_from(record.message % 251).unwrap();
            assert!(bytes.iter().all(|byte| *byte == fill));
            messages.push((record.message, bytes.len()));
        };
        assert!(reassembly.handle_small(header, payload, take).unwrap());
    }
    messages
}

#[test]
fn messages_that_wait_share_a_frame() {
    let mut source = sharing(10_000);
    let (start, ..) = source.outgoing.positions();
    for bytes in [8, 0, BUNDLED_BYTES - 8] {
        push(&mut source, bytes);
    }
    let kept = source.outgoing.retained_bytes();
    let frames = source.frames();
    assert_eq!(frames.len(), 1);
    let (header, payload) = &frames[0];
    assert_eq!((header.flags, header.offset), (ONE.with(Flags::BUNDLE), 3));
    // The length of the longest takes two bytes.
    assert_eq!(payload.len(), 4 + 16 + 8 + BUNDLED_BYTES);
    let frame_bytes = u64::try_from(HEADER_BYTES + payload.len()).unwrap();
    assert_eq!(kept, frame_bytes);
    assert_eq!(read(&frames), [(1, 8), (2, 0), (3, BUNDLED_BYTES - 8)]);

    let charge = CHARGE_PER_FRAME + 2 * CHARGE_PER_MESSAGE;
    let end = start + u64::try_from(payload.len()).unwrap() + charge;
    assert_eq!(header.end_position(), end);
    assert_eq!(source.outgoing.positions().1, end);
    assert!(!source.outgoing.is_delivered(1));
    source.credit(end, 10_000);
    assert!((1..4).all(|message| source.outgoing.is_delivered(message)));
    assert!(!source.outgoing.is_delivered(4));
    assert_eq!(source.outgoing.retained_bytes(), 0);
}

#[test]
fn messages_of_any_length_share_frames() {
    let most = BUNDLED_BYTES - 8;
    // With the bytes that say how long both are.
    for (pair, prefixes) in [
        ([119, 119], 2),
        ([119, 120], 3),
        ([120, 119], 3),
        ([120, 120], 4),
        ([most, most], 4),
    ] {
        let mut source = sharing(10_000);
        for bytes in pair {
            push(&mut source, bytes);
        }
        let frames = source.frames();
        assert_eq!(frames.len(), 1, "{pair:?}");
        let (header, payload) = &frames[0];
        let records: usize = pair.iter().map(|bytes| 8 + bytes).sum();
        assert_eq!((header.offset, payload.len()), (2, prefixes + records));
        assert_eq!(read(&frames), [(1, pair[0]), (2, pair[1])]);
        let at_most = u64::try_from(SMALL_PAYLOAD_BYTES).unwrap() + CHARGE_PER_FRAME;
        assert!(header.charge() <= at_most);
    }
}

#[test]
fn what_was_sent_is_joined_by_nothing() {
    let mut source = sharing(10_000);
    push(&mut source, 8);
    let mut frames = source.frames();
    push(&mut source, 8);
    push(&mut source, 8);
    frames.extend(source.frames());
    push(&mut source, 8);
    frames.extend(source.frames());
    let messages: Vec<_> = frames.iter().map(|(header, _)| header.message).collect();
    assert_eq!(messages, [1, 2, 4]);
    assert_eq!(read(&frames).len(), 4);
}

#[test]
fn what_is_not_small_and_whole_has_frames_of_its_own() {
    let mut source = sharing(10_000);
    push(&mut source, 8);
    push(&mut source, BUNDLED_BYTES - 7);
    push(&mut source, 8);
    // An empty message, and one of two frames.
    let empty = source.outgoing.begin_message();
    source.outgoing.push_frame(Flags::END, empty, 0, &[]);
    push(&mut source, 8);
    let split = source.outgoing.begin_message();
    let record = [&descriptor(8).to_bytes()[..], &[0; 8]].concat();
    source
        .outgoing
        .push_frame(Flags::DESCRIBED, split, 0, &record);
    source.outgoing.push_frame(ONE, split, 1, &record);
    push(&mut source, 8);
    // One that is given up, so that numbers are missing between its neighbours.
    let given_up = source.outgoing.begin_message();
    source.outgoing.abort_message(given_up);
    push(&mut source, 8);
    // And one that nothing was ever pushed of.
    source.outgoing.begin_message();
    push(&mut source, 8);
    let frames = source.frames();
    assert_eq!(frames.len(), 11);
    assert!(
        frames
            .iter()
            .all(|(header, _)| !header.flags.has(Flags::BUNDLE))
    );
}

#[test]
fn a_large_block_comes_between() {
    let mut source = sharing(10_000);
    push(&mut source, 8);
    source.push_block(500);
    push(&mut source, 8);
    push(&mut source, 8);
    let messages: Vec<_> = source
        .frames()
        .iter()
        .map(|(header, _)| (header.message, header.flags.has(Flags::BUNDLE)))
        .collect();
    assert_eq!(messages, [(1, false), (2, false), (3, true)]);
}

#[test]
fn a_bundle_is_a_small_frame() {
    let mut source = sharing(1 << 20);
    let count = 1000;
    for _ in 0..count {
        push(&mut source, 8);
    }
    let frames = source.frames();
    let all = read(&frames);
    let numbers: Vec<_> = all.iter().map(|(message, _)| *message).collect();
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
    assert!(frames.len() < 30, "{}", frames.len());
    for (header, payload) in &frames {
        let most = u64::try_from(SMALL_PAYLOAD_BYTES).unwrap() + CHARGE_PER_FRAME;
        assert!(header.charge() <= most);
        assert_eq!(header.offset, u64::try_from(payload.len()).unwrap() / ADDED);
    }
}

#[test]
fn little_credit_sends_what_it_can() {
    let mut source = sharing(200);
    let (start, _, granted) = source.outgoing.positions();
    assert_eq!(granted, 200);
    for _ in 0..300 {
        push(&mut source, 8);
    }
    assert!(source.frames().is_empty());
    let one = u64::try_from(SMALL_PAYLOAD_BYTES).unwrap() + CHARGE_PER_FRAME;
    source.credit(start, start + one);
    let frames = source.frames();
    assert_eq!(frames.len(), 1);
    assert_eq!(
        frames[0].0.charge(),
        frames[0].0.offset * COST + CHARGE_PER_FRAME - 64
    );
}

#[test]
fn a_bundle_is_sent_again_as_it_was() {
    let mut source = sharing(10_000);
    for bytes in [8, 300, 8, 8, 1000] {
        push(&mut source, bytes);
    }
    let first = source.frames();
    let (delivered, ..) = source.outgoing.positions();
    // What was packed meanwhile has a frame of its own: the other may have arrived.
    source.outgoing.handle_link_lost(source.now);
    push(&mut source, 8);
    source.outgoing.handle_link_up(source.now);
    let opening = source.frames();
    assert_eq!(opening.len(), 1, "bare, as it is not known what arrived");
    source.credit(delivered, 10_000);
    let again = source.frames();
    assert_eq!(again.len(), 2);
    assert_eq!(again[0].1, first[0].1);
    assert_eq!((again[0].0.message, again[0].0.offset), (1, 5));
    assert_eq!(read(&again).len(), 6);
}

#[test]
fn a_flow_opens_with_a_bundle() {
    let mut source = Source::with(|settings| Settings {
        bundles: true,
        ..settings
    });
    push(&mut source, 200);
    push(&mut source, 8);
    let opening = source.frames();
    let (header, _) = &opening[0];
    assert!(header.flags.has(Flags::OPEN.with(Flags::BUNDLE)));
    assert_eq!((opening.len(), header.offset), (1, 2));
    source.credit(header.end_position(), 10_000);
    assert!(source.outgoing.is_delivered(1));
    assert!(source.outgoing.is_drained());
}

#[test]
fn messages_that_share_frames_count_against_retention_as_if_they_did_not() {
    let mut source = sharing(200);
    for count in 1..100 {
        push(&mut source, 0);
        let headers = u64::try_from(HEADER_BYTES).unwrap() * count;
        let kept = source.outgoing.retained_bytes();
        assert_eq!(source.outgoing.backlog_bytes(), kept.max(headers));
        assert!(count < 3 || kept < headers);
    }
    let mut source = Source::opened(10_000);
    source.push_block(500);
    assert_eq!(source.outgoing.backlog_bytes(), 500);
}

#[test]
fn a_failure_names_all_messages_of_a_bundle() {
    let mut source = sharing(10_000);
    for _ in 0..4 {
        push(&mut source, 8);
    }
    assert_eq!(source.frames().len(), 1);
    source.outgoing.give_up();
    let (_, messages) = source.outgoing.take_failure(source.now).unwrap();
    assert_eq!(messages, 1..5);
}
