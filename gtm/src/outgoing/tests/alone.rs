//! Small messages that leave at once.

use bytes::Bytes;

use super::super::ALONE_BYTES;
use super::super::Settings;
use super::{SMALL, Source};
use crate::time::Time;
use crate::wire::checksum::{is_absent, is_intact};
use crate::wire::{Coverage, Flags, HEADER_BYTES};

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
    let sent =
        source
            .outgoing
            .try_transmit_alone(message, 0, &payload, &mut frame, || Time(0), |_| ());
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

#[test]
fn frames_have_a_checksum_of_what_it_is_to_cover_and_openings_always() {
    for coverage in [Coverage::Whole, Coverage::Header, Coverage::Nothing] {
        let mut source = Source::with(|settings| Settings {
            checksum: coverage,
            ..settings
        });
        source.push_small();
        let (opening, payload) = source.frames().remove(0);
        assert!(!is_absent(&opening), "{coverage:?}");
        source.credit(opening.end_position(), 1 << 20);
        let damaged = |payload: &Bytes| {
            let mut damaged = payload.to_vec();
            damaged[0] ^= 1;
            damaged
        };
        assert!(!is_intact(&opening, &damaged(&payload)), "{coverage:?}");
        let covers_payload = coverage == Coverage::Whole;

        let mut sent = vec![source.send_alone().expect("nothing waits")];
        source.push_small();
        source.push_block(2500);
        sent.extend(source.frames());
        assert!(sent.len() > 3, "{} frames", sent.len());
        for again in [false, true] {
            if again {
                source.outgoing.handle_link_lost(source.now);
                source.outgoing.handle_link_up(source.now);
                let (opening, _) = source.frames().remove(0);
                assert!(opening.is_bare_opening() && !is_absent(&opening));
                source.credit(opening.position, 1 << 20);
                sent = source.frames();
            }
            for (header, payload) in &sent {
                assert_eq!(is_absent(header), coverage == Coverage::Nothing);
                if coverage != Coverage::Nothing {
                    assert_eq!(is_intact(header, &damaged(payload)), !covers_payload);
                }
            }
        }
    }
}
