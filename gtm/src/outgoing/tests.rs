//! One flow at its source, against a destination that the test plays by hand.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{
    ALONE_BYTES, Failure, IDLE_CLOSE, Outgoing, PROBE_FIRST, PROBE_MOST, RESEND_AFTER_PROBES,
    Settings, Transmit,
};
use crate::time::Time;
use crate::wire::checksum::is_intact;
use crate::wire::{
    Descriptor, Flags, FlowKey, HEADER_BYTES, Header, Kind, OPENING_BYTES, Opening, ReceiveMode,
    Refusal, SendMode,
};

const FLOW: FlowKey = FlowKey {
    channel: 1,
    source: 2,
    destination: 3,
};
const THEIRS: u64 = 99;
const GIVE_UP: Duration = Duration::from_secs(30);
const ONE: Flags = Flags::DESCRIBED.with(Flags::END);
/// What `push_small` costs.
const SMALL: u64 = 128 + 16;

struct Source {
    outgoing: Outgoing<Bytes>,
    now: Time,
}

impl Source {
    fn new() -> Self {
        Self::with_fragments(1000)
    }

    fn with_fragments(fragment_bytes: u32) -> Self {
        let settings = Settings {
            flow: FLOW,
            incarnation: 7,
            fragment_bytes,
            checksum_payload: true,
            give_up_after: GIVE_UP,
            seed: 1,
        };
        let mut outgoing = Outgoing::new(settings, Time(0));
        outgoing.handle_link_up(Time(0));
        Self {
            outgoing,
            now: Time(0),
        }
    }

    /// A flow whose first message is delivered.
    fn opened(granted: u64) -> Self {
        Self::new().and_opened(granted)
    }

    fn and_opened(self, granted: u64) -> Self {
        let mut source = self;
        source.push_small();
        let opening = source.frames().remove(0);
        source.credit(opening.0.end_position(), granted);
        assert!(source.outgoing.is_drained());
        source
    }

    fn push_small(&mut self) -> u32 {
        let message = self.outgoing.begin_message();
        let mut payload = descriptor(8).to_bytes().to_vec();
        payload.extend_from_slice(&[u8::try_from(message % 251).unwrap(); 8]);
        self.outgoing.push_frame(ONE, message, 0, &payload);
        message
    }

    fn push_block(&mut self, bytes: usize) -> u32 {
        let message = self.outgoing.begin_message();
        let block: Bytes = (0..bytes)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect();
        let length = u64::try_from(bytes).unwrap();
        self.outgoing
            .push_block(message, 0, descriptor(length), block, true);
        message
    }

    /// Tries to send a small message at once; its frame, if it left.
    fn send_alone(&mut self) -> Option<(Header, Bytes)> {
        let message = self.outgoing.begin_message();
        let mut payload = descriptor(8).to_bytes().to_vec();
        payload.extend_from_slice(&[u8::try_from(message % 251).unwrap(); 8]);
        let mut frame = [0; ALONE_BYTES];
        let now = self.now;
        let sent = self
            .outgoing
            .try_transmit_alone(message, 0, &payload, &mut frame, || now);
        let Some(length) = sent else {
            self.outgoing.push_frame(ONE, message, 0, &payload);
            return None;
        };
        let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
        assert_eq!(length, header.frame_bytes());
        let payload = Bytes::copy_from_slice(&frame[HEADER_BYTES..length]);
        assert!(is_intact(&header, &payload));
        Some((header, payload))
    }

    /// All frames that may leave now, each with its payload.
    fn frames(&mut self) -> Vec<(Header, Bytes)> {
        let mut frames = Vec::new();
        while let Some(transmit) = self.outgoing.poll_transmit(self.now, 1 << 16) {
            let mut bytes = match transmit {
                Transmit::Frames(bytes) => bytes,
                Transmit::Fragment {
                    mut head,
                    data,
                    offset,
                    length,
                } => {
                    let start = usize::try_from(offset).unwrap();
                    let part = &data[start..start + length];
                    head.seal([part]);
                    let mut frame = BytesMut::from(head.as_bytes());
                    frame.extend_from_slice(part);
                    frame.freeze()
                }
            };
            while !bytes.is_empty() {
                let header = Header::parse(bytes.first_chunk().unwrap()).unwrap();
                let payload = bytes.split_to(header.frame_bytes()).slice(HEADER_BYTES..);
                assert!(is_intact(&header, &payload));
                frames.push((header, payload));
            }
        }
        frames
    }

    fn messages(&mut self) -> Vec<u32> {
        self.frames()
            .iter()
            .map(|(header, _)| header.message)
            .collect()
    }

    fn credit(&mut self, delivered: u64, granted: u64) {
        let credit = Header::credit(FLOW, self.outgoing.label(), delivered, granted, THEIRS);
        self.outgoing.handle_credit(&credit, self.now);
    }

    fn refuse(&mut self, reason: Refusal, incarnation: u64) {
        let refusal = Header::refusal(FLOW, self.outgoing.label(), reason, incarnation);
        self.outgoing.handle_refusal(&refusal, self.now);
    }

    /// Goes on to the next deadline, and does what is due.
    fn wait(&mut self) -> Duration {
        let deadline = self.outgoing.next_deadline().expect("a deadline");
        let waited = deadline.since(self.now);
        self.now = self.now.max(deadline);
        self.outgoing.handle_timeout(self.now);
        waited
    }

    fn control(&mut self) -> Option<Kind> {
        self.outgoing.poll_control().map(|header| header.kind)
    }

    fn failure(&mut self) -> Option<Failure> {
        self.outgoing
            .take_failure(self.now)
            .map(|(failure, _)| failure)
    }
}

fn descriptor(length: u64) -> Descriptor {
    Descriptor::new(length, SendMode::Cheaper, ReceiveMode::Cheaper).unwrap()
}

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
fn a_lost_link_costs_nothing_but_time() {
    let mut source = Source::opened(1 << 20);
    source.push_small();
    source.push_block(2500);
    source.push_small();
    assert_eq!(source.frames().len(), 5);
    let before = source.outgoing.label();
    source.outgoing.handle_link_lost(source.now);
    assert!(source.frames().is_empty());
    source.outgoing.handle_link_up(source.now);
    let opening = source.frames();
    assert!(opening.len() == 1 && opening[0].0.is_bare_opening());
    assert_eq!(opening[0].0.position, SMALL);
    assert_eq!(opening[0].0.label, before + 1);
    // The first fragment had arrived.
    let delivered = SMALL * 2 + 136 + 1000;
    source.credit(delivered, 1 << 20);
    let frames = source.frames();
    let places: Vec<_> = frames
        .iter()
        .map(|(h, _)| (h.position, h.message, h.offset))
        .collect();
    assert_eq!(
        places,
        [
            (delivered, 2, 1000),
            (delivered + 1128, 2, 2000),
            (delivered + 1128 + 628, 3, 0)
        ]
    );
    source.credit(delivered + 1128 + 628 + SMALL, 1 << 20);
    assert!(source.outgoing.is_drained());
    assert_eq!(source.outgoing.retained_bytes(), 0);
}

#[test]
fn an_opening_is_repeated_until_it_is_answered() {
    let mut source = Source::new();
    source.push_small();
    let first = source.frames();
    let mut waits = Vec::new();
    for _ in 0..6 {
        waits.push(source.wait());
        assert_eq!(source.frames(), first);
    }
    assert!(waits.is_sorted_by(|a, b| *a <= *b * 2) && waits[5] > waits[0]);
    source.credit(SMALL, 1 << 20);
    assert!(source.outgoing.is_drained());
}

#[test]
fn probes_back_off_until_something_moves() {
    let mut source = Source::opened(SMALL * 2);
    source.push_small();
    source.push_small();
    source.frames();
    source.credit(SMALL * 2, SMALL * 2);
    let mut expected = PROBE_FIRST;
    for _ in 0..8 {
        // It is answered, but nothing moves.
        source.credit(SMALL * 2, SMALL * 2);
        assert_eq!(source.wait(), expected);
        assert_eq!(source.control(), Some(Kind::Probe));
        expected = (expected * 2).min(PROBE_MOST);
    }
    source.credit(SMALL * 2, SMALL * 3);
    assert_eq!(source.frames().len(), 1);
    assert_eq!(source.wait(), PROBE_FIRST);
}

#[test]
fn what_vanished_on_the_way_is_sent_again() {
    let mut source = Source::opened(1 << 20);
    source.push_small();
    let sent = source.frames();
    for _ in 0..RESEND_AFTER_PROBES {
        assert!(source.frames().is_empty());
        source.wait();
        assert_eq!(source.control(), Some(Kind::Probe));
        source.credit(SMALL, 1 << 20);
    }
    assert!(source.frames()[0].0.is_bare_opening());
    source.credit(SMALL, 1 << 20);
    let again = source.frames();
    assert_eq!(again[0].1, sent[0].1);
}

#[test]
fn an_idle_flow_closes_however_often_it_is_polled() {
    let mut source = Source::opened(1 << 20);
    for _ in 0..10 {
        source.now = source.now + IDLE_CLOSE / 10;
        assert!(source.frames().is_empty() && source.control().is_none());
    }
    source.outgoing.handle_timeout(source.now);
    assert_eq!(source.control(), Some(Kind::Close));
    assert_eq!(source.outgoing.next_deadline(), None);
}

#[test]
fn a_close_that_was_not_sent_does_not_hit_the_next_opening() {
    let mut source = Source::opened(1 << 20);
    source.wait();
    source.push_small();
    assert!(source.frames()[0].0.flags.has(Flags::OPEN));
    assert_eq!(source.control(), None);
}

#[test]
fn a_message_given_up_takes_its_memory_back() {
    let mut source = Source::opened(1 << 20);
    source.push_small();
    let message = source.outgoing.begin_message();
    let block = Bytes::from(vec![1; 2500]);
    source
        .outgoing
        .push_block(message, 0, descriptor(2500), block.clone(), false);
    assert_eq!(source.frames().len(), 4);
    source
        .outgoing
        .push_block(message, 1, descriptor(2500), block.clone(), false);
    source
        .outgoing
        .push_frame(Flags::DESCRIBED, message, 2, &[0; 8]);
    source.outgoing.abort_message(message);
    source.push_small();
    assert!(block.is_unique());

    let frames = source.frames();
    let flags: Vec<_> = frames.iter().map(|(header, _)| header.flags).collect();
    assert_eq!(flags, [Flags::ABORT, ONE]);

    // Nothing of it is needed to send again, either.
    source.outgoing.handle_link_lost(source.now);
    source.outgoing.handle_link_up(source.now);
    source.frames();
    source.credit(SMALL * 2 + 1136, 1 << 20);
    let frames = source.frames();
    let kinds: Vec<_> = frames.iter().map(|(h, _)| (h.message, h.flags)).collect();
    assert_eq!(kinds, [(2, Flags::ABORT), (3, ONE)]);
    source.credit(frames[1].0.end_position(), 1 << 20);
    assert!(source.outgoing.is_drained());
    assert_eq!(source.outgoing.retained_bytes(), 0);
}

#[test]
fn hops_that_cannot_now_are_asked_again() {
    for reason in [Refusal::NoRoom, Refusal::LinkDown] {
        let mut source = Source::new();
        source.push_small();
        let first = source.frames();
        for _ in 0..5 {
            source.refuse(reason, 0);
            assert!(source.frames().is_empty());
            assert!(source.wait() <= super::OPENING_RETRY_MOST);
            // It went nowhere, so that the next opening carries the message again.
            let again = source.frames();
            assert_eq!(again[0].1, first[0].1);
            assert!(again[0].0.label > first[0].0.label);
        }
    }
}

#[test]
fn hops_that_forgot_are_opened_again_at_once() {
    for reason in [Refusal::Unknown, Refusal::Corrupt] {
        let mut source = Source::opened(1 << 20);
        source.push_small();
        source.frames();
        source.refuse(reason, 0);
        assert!(source.frames()[0].0.is_bare_opening());
        // What comes for the opening before is stale.
        let stale = Header::refusal(FLOW, source.outgoing.label() - 1, Refusal::NoRoute, 0);
        source.outgoing.handle_refusal(&stale, source.now);
        assert!(!source.outgoing.has_failed());
        source.credit(SMALL, 1 << 20);
        assert_eq!(source.messages(), [1]);
    }
}

#[test]
fn what_cannot_be_mended_fails() {
    for (reason, failure) in [
        (Refusal::NoRoute, Failure::NoRoute),
        (Refusal::NoChannel, Failure::NoChannel),
    ] {
        let mut source = Source::new();
        source.push_small();
        source.frames();
        source.refuse(reason, 0);
        assert!(source.outgoing.has_failed());
        assert_eq!(source.failure(), Some(failure));
        assert_eq!(source.failure(), None);
    }
}

#[test]
fn a_flow_that_nobody_carries_fails_and_names_what_is_lost() {
    let mut source = Source::opened(1 << 20);
    source.push_small();
    source.frames();
    source.outgoing.handle_link_lost(source.now);
    source.push_small();
    assert_eq!(source.wait(), GIVE_UP);
    assert_eq!(
        source.outgoing.take_failure(source.now),
        Some((Failure::Unreachable { last: None }, 1..3))
    );
    assert_eq!(source.outgoing.retained_bytes(), 0);

    // What is packed later goes on behind a gap.
    source.outgoing.handle_link_up(source.now);
    assert_eq!(source.push_small(), 3);
    let frames = source.frames();
    assert_eq!(
        (frames[0].0.message, frames[0].0.position),
        (3, SMALL * 2 + 1)
    );
}

#[test]
fn waiting_for_memory_is_not_being_stuck() {
    let mut source = Source::new();
    source.push_small();
    while source.now < Time(0) + GIVE_UP * 3 {
        source.frames();
        source.refuse(Refusal::NoRoom, 0);
        source.wait();
    }
    assert!(!source.outgoing.has_failed());
}

#[test]
fn a_restarted_destination_gets_what_nobody_has_seen() {
    let mut source = Source::opened(1 << 20);
    source.wait();
    source.push_small();
    let (_, payload) = &source.frames()[0];
    assert_eq!(
        Opening::parse(payload).unwrap().destination_incarnation,
        THEIRS
    );
    source.refuse(Refusal::OtherIncarnation, THEIRS + 1);
    let (header, payload) = &source.frames()[0];
    assert_eq!(
        Opening::parse(payload).unwrap().destination_incarnation,
        THEIRS + 1
    );
    assert_eq!((header.message, header.position), (1, SMALL));
    source.credit(SMALL * 2, 1 << 20);
    assert!(source.outgoing.is_drained());
}

#[test]
fn a_restarted_destination_fails_what_the_other_one_may_have_seen() {
    let restarted = Some(Failure::Restarted);
    // Under way when it happened.
    let mut source = Source::opened(1 << 20);
    source.push_small();
    source.frames();
    source.outgoing.handle_link_lost(source.now);
    source.outgoing.handle_link_up(source.now);
    source.frames();
    source.refuse(Refusal::OtherIncarnation, THEIRS + 1);
    assert_eq!(source.failure(), restarted);

    // In an opening that was repeated.
    let mut source = Source::opened(1 << 20);
    source.wait();
    source.push_small();
    source.frames();
    source.wait();
    source.frames();
    source.refuse(Refusal::OtherIncarnation, THEIRS + 1);
    assert_eq!(source.failure(), restarted);

    // The rest of a message of which the beginning was delivered.
    let mut source = Source::opened(1 << 20);
    let message = source.outgoing.begin_message();
    source
        .outgoing
        .push_frame(Flags::DESCRIBED, message, 0, &[0; 8]);
    let begun = source.frames().remove(0).0;
    source.credit(begun.end_position(), 1 << 20);
    source.wait();
    source.outgoing.push_frame(Flags::END, message, 0, &[]);
    source.frames();
    source.refuse(Refusal::OtherIncarnation, THEIRS + 1);
    assert_eq!(source.failure(), restarted);
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
fn large_fragments_come_between_smaller_ones() {
    let kib = |fragments: &[u32]| fragments.iter().map(|kib| kib << 10).collect::<Vec<_>>();
    for (block, expected) in [
        (64, kib(&[64])),
        (100, kib(&[64, 36])),
        (1024, kib(&[64, 64, 128, 256, 256, 128, 64, 64])),
        (
            2048,
            kib(&[64, 64, 128, 256, 256, 256, 256, 256, 256, 128, 64, 64]),
        ),
    ] {
        let mut source = Source::with_fragments(256 << 10).and_opened(1 << 30);
        source.push_block(block << 10);
        let lengths: Vec<u32> = source
            .frames()
            .iter()
            .map(|(header, _)| {
                let described = header.flags.has(Flags::DESCRIBED);
                header.length - if described { 8 } else { 0 }
            })
            .collect();
        assert_eq!(lengths, expected, "{block} KiB");
    }
}

// ---- small messages that leave at once ----------------------------------------------------

#[test]
fn a_message_alone_is_the_frame_that_it_would_be_in_its_turn() {
    let mut at_once = Source::opened(10_000);
    let mut in_turn = Source::opened(10_000);
    for _ in 0..3 {
        let sent = at_once.send_alone().expect("nothing waits");
        in_turn.push_small();
        assert_eq!(vec![sent], in_turn.frames());
        assert_eq!(at_once.outgoing.positions(), in_turn.outgoing.positions());
        assert_eq!(
            at_once.outgoing.retained_bytes(),
            in_turn.outgoing.retained_bytes()
        );
    }
    assert!(at_once.frames().is_empty(), "nothing is left to be polled");
    // Delivered one by one, by a destination that acknowledges between them.
    let mut delivered = at_once.outgoing.positions().0;
    for message in 1..4 {
        assert!(!at_once.outgoing.is_delivered(message));
        delivered += SMALL;
        at_once.credit(delivered, 10_000);
        assert!(at_once.outgoing.is_delivered(message));
    }
    assert!(at_once.outgoing.is_drained());
    assert_eq!(at_once.outgoing.retained_bytes(), 0);
}

#[test]
fn messages_that_wait_for_each_other_are_kept_in_the_same_memory() {
    let mut source = Source::opened(10_000);
    let mut memory = Vec::new();
    for _ in 0..3 {
        // Delivered in two parts, so that something is cut off the front.
        source.send_alone().expect("nothing waits");
        source.send_alone().expect("nothing waits");
        let (delivered, sent, _) = source.outgoing.positions();
        source.credit(delivered + SMALL, 10_000);
        source.credit(sent, 10_000);
        memory.extend(source.outgoing.spare_run.as_ref().map(|run| run.as_ptr()));
    }
    assert_eq!(memory, [memory[0]; 3]);
}

#[test]
fn what_cannot_leave_at_once_takes_its_turn() {
    // Not open yet.
    let mut source = Source::new();
    assert!(source.send_alone().is_none());
    assert_eq!(source.messages(), [0]);
    // Behind others.
    let mut source = Source::opened(10_000);
    source.push_small();
    assert!(source.send_alone().is_none());
    source.push_block(2000);
    assert!(source.send_alone().is_none());
    assert_eq!(source.messages(), [1, 2, 3, 3, 4]);
    // Without credit.
    let mut source = Source::new();
    source.push_small();
    let granted = source.frames()[0].0.end_position() + SMALL;
    source.credit(granted - SMALL, granted);
    assert!(source.send_alone().is_some());
    assert!(source.send_alone().is_none());
    assert!(source.frames().is_empty());
    source.credit(granted, granted + SMALL);
    assert_eq!(source.messages(), [2]);
    // Too long.
    let mut source = Source::opened(10_000);
    let message = source.outgoing.begin_message();
    let payload = [0; ALONE_BYTES - HEADER_BYTES + 1];
    let mut frame = [0; ALONE_BYTES];
    let sent = source
        .outgoing
        .try_transmit_alone(message, 0, &payload, &mut frame, || Time(0));
    assert_eq!(sent, None);
    // Without a link.
    let mut source = Source::opened(10_000);
    source.outgoing.handle_link_lost(Time(0));
    assert!(source.send_alone().is_none());
}

#[test]
fn messages_that_left_at_once_are_sent_again_in_order() {
    let mut source = Source::opened(100_000);
    for _ in 0..40 {
        assert!(source.send_alone().is_some());
    }
    source.push_block(3000);
    assert_eq!(source.messages(), [41, 41, 41]);
    for _ in 0..2 {
        assert!(source.send_alone().is_some());
    }
    // Five of the first run have arrived when the link goes.
    let delivered = source.outgoing.positions().0 + 5 * SMALL;
    source.credit(delivered, 100_000);
    source.outgoing.handle_link_lost(source.now);
    source.outgoing.handle_link_up(source.now);
    let opening = source.frames();
    assert_eq!(opening.len(), 1, "bare");
    source.credit(delivered, delivered + 100_000);
    let again: Vec<u32> = (6..=40).chain([41, 41, 41, 42, 43]).collect();
    assert_eq!(source.messages(), again);
    let end = source.outgoing.positions().1;
    source.credit(end, end + 10_000);
    assert!(source.outgoing.is_drained());
    assert!(source.outgoing.is_delivered(43));
}

#[test]
fn a_message_alone_carries_the_wish_for_its_acknowledgement() {
    let mut source = Source::opened(10_000);
    source.push_small();
    source.outgoing.request_acknowledgement();
    let frames = source.frames();
    assert!(frames[0].0.flags.has(Flags::WANT));
    let (header, _) = source.send_alone().expect("nothing waits");
    assert!(!header.flags.has(Flags::WANT), "asked once");
}

// ---- sizes of fragments -------------------------------------------------------------------

impl Source {
    /// KiB of the payload of each frame that leaves now, descriptors left out.
    fn kib(&mut self) -> Vec<usize> {
        let bytes = |(_, payload): &(Header, Bytes)| payload.len() >> 10;
        self.frames().iter().map(bytes).collect()
    }
}

#[test]
fn fragments_begin_small_where_nothing_is_under_way_and_end_small_where_nothing_follows() {
    let mut source = Source::with_fragments(256 << 10).and_opened(100 << 20);
    source.push_block(1 << 20);
    assert_eq!(source.kib(), [64, 64, 128, 256, 256, 128, 64, 64]);
    // Behind that, which is not delivered.
    source.push_block(1 << 20);
    assert_eq!(source.kib(), [256, 256, 256, 128, 64, 64]);
    source.push_block(1 << 20);
    source.push_block(1 << 20);
    assert_eq!(
        source.kib(),
        [256, 256, 256, 256, 256, 256, 256, 128, 64, 64]
    );
    // All is delivered.
    let end = source.outgoing.positions().1;
    source.credit(end, 100 << 20);
    source.push_block(128 << 10);
    assert_eq!(source.kib(), [64, 64]);
}

#[test]
fn the_last_credit_is_not_spent_on_a_fragment_that_leaves_a_crumb() {
    let mut source = Source::with_fragments(256 << 10).and_opened(1000);
    let start = source.outgoing.positions().1;
    let granted = start + (900 << 10);
    source.credit(start, granted);
    for _ in 0..5 {
        source.push_block(256 << 10);
    }
    // What is under way brings credit for the next as a whole.
    let frames = source.frames();
    let lengths: Vec<_> = frames.iter().map(|(_, payload)| payload.len()).collect();
    assert_eq!(lengths.iter().sum::<usize>() >> 10, 768, "{lengths:?}");
    assert!(frames.last().unwrap().0.flags.has(Flags::WANT));
    source.credit(start, start + (2 << 20));
    assert!(source.kib().iter().all(|kib| *kib >= 64));
    // With nothing under way there is nothing to wait for.
    let mut source = Source::with_fragments(256 << 10).and_opened(1000);
    let start = source.outgoing.positions().1;
    source.credit(start, start + (30 << 10));
    source.push_block(256 << 10);
    assert_eq!(source.kib(), [29]);
}
