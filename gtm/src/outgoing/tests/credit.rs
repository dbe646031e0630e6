//! What leaves against which credit, and what is acknowledged.

use std::collections::VecDeque;

use super::{FLOW, ONE, SMALL, Source, THEIRS};
use crate::wire::{Flags, Header, Kind, OPENING_BYTES, Opening};

#[test]
fn the_first_message_is_one_frame_and_opens_the_flow() {
    let mut source = Source::new();
    source.push_small();
    source.push_small();
    let frames = source.frames();
    assert_eq!(frames.len(), 1);
    let (header, payload) = &frames[0];
    assert_eq!(header.flags, ONE.with(Flags::OPEN).with(Flags::WANT));
    assert_eq!((header.position, header.charge()), (0, SMALL));
    let expected = Opening {
        source_incarnation: 7,
        destination_incarnation: 0,
        fragment_bytes: 1000,
    };
    assert_eq!(Opening::parse(payload), Ok(expected));
    assert_eq!(payload.len(), OPENING_BYTES + 16);

    source.credit(SMALL, 1 << 20);
    assert!(source.outgoing.is_delivered(0) && !source.outgoing.is_delivered(1));
    let frames = source.frames();
    assert_eq!((frames[0].0.position, frames[0].0.message), (SMALL, 1));
    source.credit(2 * SMALL, 1 << 20);
    assert!(source.outgoing.is_drained());
    assert_eq!(source.outgoing.retained_bytes(), 0);
}

#[test]
fn a_block_first_opens_bare() {
    let mut source = Source::new();
    source.push_block(10);
    let frames = source.frames();
    assert!(frames.len() == 1 && frames[0].0.is_bare_opening());
    source.credit(0, 1 << 20);
    let (header, payload) = &source.frames()[0];
    assert_eq!(header.flags, ONE);
    assert_eq!(&payload[8..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn nothing_leaves_beyond_credit() {
    let mut source = Source::opened(SMALL * 3);
    for _ in 0..5 {
        source.push_small();
    }
    let frames = source.frames();
    assert_eq!(frames.len(), 2);
    // The last that fits asks for more.
    assert!(!frames[0].0.flags.has(Flags::WANT) && frames[1].0.flags.has(Flags::WANT));
    assert_eq!(source.control(), None);
    source.credit(SMALL * 3, SMALL * 6);
    assert_eq!(source.messages(), [3, 4, 5]);
}

#[test]
fn a_frame_that_finds_no_credit_asks_once() {
    let mut source = Source::opened(SMALL * 2);
    source.push_small();
    assert!(!source.frames()[0].0.flags.has(Flags::WANT));
    source.push_small();
    assert!(source.frames().is_empty());
    assert_eq!(source.control(), Some(Kind::Probe));
    // An answer that changes nothing is no reason to ask again.
    source.credit(SMALL, SMALL * 2);
    assert!(source.frames().is_empty());
    assert_eq!(source.control(), None);
    source.credit(SMALL * 2, SMALL * 2);
    assert!(source.frames().is_empty());
    assert_eq!(source.control(), Some(Kind::Probe));
}

#[test]
fn who_is_told_that_there_is_no_more_asks_less_often() {
    // As a gateway of little memory does, which grants a window when it has passed one on.
    let window = 8 * SMALL;
    let mut source = Source::opened(SMALL + window);
    let mut asked = Vec::new();
    for turn in 1..=20 {
        for _ in 0..10 {
            source.push_small();
        }
        let granted = SMALL + turn * window;
        let frames = source.frames();
        let in_frames = frames.iter().filter(|(it, _)| it.flags.has(Flags::WANT));
        let probes = source.control().into_iter().count();
        asked.push(in_frames.count() + probes);
        // What the destination says, and what the gateway does some time later.
        source.credit(granted, granted);
        assert!(source.frames().is_empty());
        source.control();
        source.credit(granted, granted + window);
    }
    // Once in four windows, in the end.
    assert!(asked[8..].iter().sum::<usize>() <= 3, "{asked:?}");
    assert!(source.outgoing.asks_in_vain > 0);
    // When there is more again it asks as others do.
    let window = 64 * SMALL;
    source.frames();
    let mut granted = SMALL + 21 * 8 * SMALL;
    let mut asked = 0;
    for _ in 0..10 {
        for _ in 0..70 {
            source.push_small();
        }
        let delivered = granted;
        granted += window;
        source.credit(delivered, granted);
        let frames = source.frames();
        let in_frames = frames.iter().filter(|(it, _)| it.flags.has(Flags::WANT));
        asked += in_frames.count() + source.control().into_iter().count();
    }
    assert!(asked >= 7, "{asked}");
}

#[test]
fn another_way_is_asked_anew() {
    let mut source = Source::opened(SMALL * 2);
    source.push_small();
    source.push_small();
    source.frames();
    source.control();
    source.credit(SMALL * 2, SMALL * 2);
    assert!(source.outgoing.asks_in_vain > 0);
    source.outgoing.handle_link_lost(source.now);
    source.outgoing.handle_link_up(source.now);
    source.frames();
    source.credit(SMALL * 3, SMALL * 3);
    assert_eq!(source.outgoing.asks_in_vain, 0);
}

#[test]
fn fragments_are_cut_to_credit_when_nothing_else_is_under_way() {
    let mut source = Source::opened(SMALL + 136 + 600);
    source.push_block(2500);
    let frames = source.frames();
    assert_eq!(frames.len(), 1);
    let (header, payload) = &frames[0];
    assert_eq!((header.offset, payload.len()), (0, 608));
    assert!(header.flags.has(Flags::DESCRIBED.with(Flags::WANT)));
    // More credit is on its way: small pieces are not worth it.
    source.credit(SMALL, SMALL + 136 + 600 + 128 + 500);
    assert!(source.frames().is_empty());
    source.credit(SMALL + 136 + 600, 1 << 20);
    let frames = source.frames();
    let places: Vec<_> = frames.iter().map(|(h, p)| (h.offset, p.len())).collect();
    assert_eq!(places, [(600, 1000), (1600, 900)]);
    assert!(frames[1].0.flags.has(Flags::END) && !frames[0].0.flags.has(Flags::END));
}

#[test]
fn whoever_waits_for_delivery_is_acknowledged_at_once() {
    let mut source = Source::opened(1 << 20);
    source.push_small();
    source.push_small();
    source.outgoing.request_acknowledgement();
    let frames = source.frames();
    assert!(!frames[0].0.flags.has(Flags::WANT) && frames[1].0.flags.has(Flags::WANT));
    // Sent already: a probe asks.
    source.push_small();
    source.frames();
    source.outgoing.request_acknowledgement();
    assert_eq!(source.control(), Some(Kind::Probe));
}

#[test]
fn part_of_a_run_counts_as_soon_as_it_is_delivered() {
    let mut source = Source::opened(1 << 20);
    for _ in 0..10 {
        source.push_small();
    }
    assert_eq!(source.frames().len(), 10);
    let kept = source.outgoing.retained_bytes();
    source.credit(SMALL * 5, 1 << 20);
    assert!(source.outgoing.is_delivered(4) && !source.outgoing.is_delivered(5));
    assert_eq!(source.outgoing.retained_bytes(), kept / 10 * 6);
    source.outgoing.give_up();
    assert_eq!(source.outgoing.take_failure(source.now).unwrap().1, 5..11);
}

#[test]
fn credit_that_cannot_be_is_ignored() {
    let mut source = Source::opened(1 << 20);
    source.push_small();
    source.frames();
    let before = source.outgoing.positions();
    source.credit(SMALL * 3, 1 << 30);
    source.credit(0, 1 << 30);
    let stale = Header::credit(
        FLOW,
        source.outgoing.label() + 1,
        SMALL * 2,
        1 << 30,
        THEIRS,
    );
    source.outgoing.handle_credit(&stale, source.now);
    assert_eq!(source.outgoing.positions(), before);
    // In the middle of a frame: it is sent again from its start, should it come to that.
    source.credit(SMALL + 1, 1 << 20);
    assert!(!source.outgoing.is_delivered(1));
}

#[test]
fn a_stream_that_fills_its_window_asks_once_in_half_of_it() {
    const WINDOW: u64 = 100 * SMALL;
    const FRAMES: u64 = 1000;
    let mut source = Source::opened(WINDOW);
    for _ in 0..FRAMES {
        source.push_small();
    }
    let headers = |source: &mut Source| source.frames().into_iter().map(|(header, _)| header);
    let mut under_way: VecDeque<Header> = headers(&mut source).collect();
    let (mut asked, mut probes) = (0, 0);
    // The destination takes frames in one by one, and grants a window from each.
    while let Some(arrived) = under_way.pop_front() {
        asked += u64::from(arrived.flags.has(Flags::WANT));
        let end = arrived.end_position();
        source.credit(end, end + WINDOW);
        under_way.extend(headers(&mut source));
        probes += u64::from(source.control().is_some());
    }
    assert!(source.outgoing.is_drained());
    let most = FRAMES * SMALL / (WINDOW / 2) + 1;
    assert!((1..=most).contains(&(asked + probes)), "{asked}, {probes}");
}
