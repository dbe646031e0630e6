//! Lost links, frames and hops, and destinations that are not what they were.

use std::time::Duration;

use bytes::Bytes;

use super::super::{
    Failure, IDLE_CLOSE, OPENING_RETRY_MOST, PROBE_FIRST, PROBE_MOST, RESEND_AFTER_PROBES,
    SILENT_TIMES,
};
use super::{FLOW, GIVE_UP, ONE, SMALL, Source, THEIRS, descriptor};
use crate::time::Time;
use crate::wire::{Flags, Header, Kind, Opening, Refusal};

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

/// Its destination may simply have left, when it had everything.
#[test]
fn a_flow_that_has_delivered_everything_is_not_stuck_when_its_way_is_lost() {
    for reason in [Refusal::LinkLost, Refusal::LinkDown, Refusal::Unknown] {
        let mut source = Source::opened(1 << 20);
        source.refuse(reason, 0);
        assert_eq!(source.outgoing.stuck_since(), None, "{reason:?}");
        assert_eq!(source.outgoing.next_deadline(), None, "{reason:?}");
        // What comes now is what has to be carried.
        source.push_small();
        source.outgoing.handle_timeout(source.now);
        assert_eq!(source.outgoing.stuck_since(), Some(source.now));
    }
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
    // It took long, and may again.
    assert_eq!(source.wait(), PROBE_MOST);
}

#[test]
fn who_waits_for_its_turn_each_time_is_patient() {
    let mut source = Source::opened(SMALL * 2);
    let mut granted = SMALL * 2;
    let mut after = |turn: Duration| {
        source.push_small();
        assert_eq!(source.frames().len(), 1);
        let first_probe = source.outgoing.next_deadline().unwrap().since(source.now);
        source.now = source.now + turn;
        let delivered = granted;
        granted += SMALL;
        source.credit(delivered, granted);
        first_probe
    };
    let turn = 3 * PROBE_FIRST;
    assert_eq!(after(turn), PROBE_FIRST);
    assert_eq!(after(turn), 2 * turn);
    assert_eq!(after(Duration::ZERO), 2 * turn);
    // As soon as it goes faster, it is forgotten little by little.
    let mut before = after(Duration::ZERO);
    assert!(before < 2 * turn);
    while before > PROBE_FIRST {
        let now = after(Duration::ZERO);
        assert!(now < before);
        before = now;
    }
}

#[test]
fn credit_that_nobody_waits_for_makes_nobody_patient() {
    let mut source = Source::opened(SMALL * 3);
    source.push_small();
    source.frames();
    source.credit(SMALL * 2, SMALL * 3);
    assert!(source.outgoing.is_drained());
    // The message is unpacked late, for which there is credit then.
    source.now = source.now + IDLE_CLOSE / 2;
    source.credit(SMALL * 2, SMALL * 4);
    source.push_small();
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
fn what_a_gateway_still_has_is_not_sent_again() {
    let mut source = Source::opened(1 << 20);
    source.push_small();
    let sent = source.frames();
    for _ in 0..4 * RESEND_AFTER_PROBES {
        source.wait();
        assert_eq!(source.control(), Some(Kind::Probe));
        source.held();
        source.credit(SMALL, 1 << 20);
        assert!(source.frames().is_empty());
    }
    // It has gone on, and vanished.
    let mut unheld = 0;
    let again = loop {
        source.wait();
        assert_eq!(source.control(), Some(Kind::Probe));
        source.credit(SMALL, 1 << 20);
        unheld += 1;
        if let Some((header, _)) = source.frames().first() {
            break *header;
        }
    };
    assert!(again.is_bare_opening());
    assert_eq!(unheld, RESEND_AFTER_PROBES);
    source.credit(SMALL, 1 << 20);
    assert_eq!(source.frames()[0].1, sent[0].1);
}

#[test]
fn a_flow_whose_probes_nobody_answers_fails() {
    // With something under way, and inside of a message of which everything has arrived.
    for is_inside in [false, true] {
        let mut source = Source::opened(1 << 20);
        if is_inside {
            source.begin_one();
            assert!(source.outgoing.is_drained());
        } else {
            source.push_small();
            source.frames();
        }
        // An answer in between is a sign of life, of the destination or of a gateway.
        for answer in [Source::held, |source: &mut Source| {
            let delivered = source.outgoing.positions().0;
            source.credit(delivered, 1 << 20);
        }] {
            source.wait();
            assert_eq!(source.control(), Some(Kind::Probe));
            assert!(source.outgoing.stuck_since().is_some());
            answer(&mut source);
            assert_eq!(source.outgoing.stuck_since(), None);
        }
        source.wait();
        let silent_since = source.now;
        while source.outgoing.next_deadline().is_some() {
            assert!(source.frames().is_empty());
            source.wait();
        }
        assert_eq!(
            source.now,
            silent_since + GIVE_UP * SILENT_TIMES,
            "{is_inside}"
        );
        let (failure, messages) = source
            .outgoing
            .take_failure(source.now)
            .expect("has failed");
        assert_eq!(failure, Failure::Silent);
        assert!(!messages.is_empty(), "{is_inside}");
    }
}

#[test]
fn who_stood_still_itself_gives_nobody_up_for_it() {
    let mut source = Source::opened(1 << 20);
    source.push_small();
    source.frames();
    source.wait();
    assert_eq!(source.control(), Some(Kind::Probe));
    // The answer has come, and is not taken in when this process goes on and looks at the clock.
    source.now = source.now + GIVE_UP * 3;
    source.outgoing.handle_timeout(source.now);
    assert_eq!(source.failure(), None);
    assert_eq!(source.control(), Some(Kind::Probe));
    source.credit(SMALL, 1 << 20);
    assert_eq!(source.outgoing.stuck_since(), None);
    // Where none has, it is given up after as long again.
    source.wait();
    let silent_since = source.now;
    source.now = source.now + GIVE_UP * 3;
    source.outgoing.handle_timeout(source.now);
    let gone_on = source.now;
    while source.outgoing.next_deadline().is_some() {
        source.wait();
    }
    assert!(source.now == gone_on + GIVE_UP * SILENT_TIMES && gone_on > silent_since);
    assert!(source.failure().is_some());
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
fn a_flow_stays_open_inside_a_message() {
    let mut source = Source::opened(1 << 20);
    let message = source.begin_one();
    assert!(source.outgoing.is_drained());
    let delivered = source.outgoing.positions().0;
    // It only says that it is there.
    for _ in 0..20 {
        let waited = source.wait();
        assert!(waited <= PROBE_MOST);
        assert_eq!(source.control(), Some(Kind::Probe));
        source.credit(delivered, 1 << 20);
        assert!(source.frames().is_empty());
    }
    source.outgoing.push_frame(Flags::END, message, 0, &[]);
    let end = source.frames().remove(0).0;
    // The answer to the last probe tells nothing of what has just been sent.
    let label = source.outgoing.label();
    source.credit(delivered, 1 << 20);
    assert!(source.frames().is_empty() && source.outgoing.label() == label);
    assert_eq!(source.wait(), PROBE_FIRST);
    source.credit(end.end_position(), 1 << 20);
    // Between two messages it need not.
    source.wait();
    assert_eq!(source.control(), Some(Kind::Close));
}

#[test]
fn a_flow_that_is_lost_inside_a_message_opens_again_with_nothing_to_send() {
    let mut source = Source::opened(1 << 20);
    let message = source.begin_one();
    let delivered = source.outgoing.positions().0;
    source.outgoing.handle_link_lost(source.now);
    source.outgoing.handle_link_up(source.now);
    let opening = source.frames();
    assert!(opening.len() == 1 && opening[0].0.is_bare_opening());
    assert_eq!(opening[0].0.position, delivered);
    source.credit(delivered, 1 << 20);
    assert_eq!(source.failure(), None);

    // A hop that has forgotten it, and then nobody who carries it.
    source.refuse(Refusal::Unknown, 0);
    assert!(source.frames()[0].0.is_bare_opening());
    while source.failure().is_none() {
        source.refuse(Refusal::LinkDown, 0);
        source.wait();
        source.frames();
        assert!(source.now.since(Time(0)) <= GIVE_UP * 2);
    }
    assert!(source.outgoing.is_delivered(message), "it was given up");
    assert_eq!(source.outgoing.next_deadline(), None);
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
            assert!(source.wait() <= OPENING_RETRY_MOST);
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
        (
            Refusal::GivenUp,
            Failure::Unreachable {
                last: Some(Refusal::GivenUp),
            },
        ),
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
fn waiting_for_its_turn_at_a_gateway_is_not_being_stuck() {
    let mut source = Source::new();
    source.push_small();
    let opening = source.frames();
    while source.now < Time(0) + GIVE_UP * 3 {
        source.held();
        source.wait();
        assert_eq!(source.frames(), opening);
    }
    assert!(!source.outgoing.has_failed() && source.outgoing.holdups() > 3);
    // Nobody says so any more.
    let silent_since = source.now;
    while !source.outgoing.has_failed() {
        source.wait();
        source.frames();
    }
    assert!(source.now >= silent_since + GIVE_UP);
}

#[test]
fn an_answer_to_an_earlier_opening_says_nothing_of_this_one() {
    let mut source = Source::new();
    source.push_small();
    source.frames();
    let flow = source.outgoing.flow();
    let old = Header::new(Kind::Held, flow, source.outgoing.label().wrapping_sub(1));
    while !source.outgoing.has_failed() {
        source.outgoing.handle_held(&old);
        source.wait();
        source.frames();
    }
    assert_eq!(source.outgoing.holdups(), 0);
}

#[test]
fn hops_that_make_their_links_one_after_the_other_are_soon_through() {
    let mut source = Source::new();
    source.push_small();
    for _ in 0..3 {
        source.frames();
        source.refuse(Refusal::LinkDown, 0);
        source.wait();
    }
    let waited = source.now.since(Time(0));
    assert!(
        waited <= super::super::OPENING_RETRY_FIRST * 4,
        "{waited:?}"
    );
    // Where none comes, it is asked for less and less often.
    for _ in 0..10 {
        source.frames();
        source.refuse(Refusal::LinkDown, 0);
        source.wait();
    }
    source.frames();
    source.refuse(Refusal::LinkDown, 0);
    assert!(source.wait() >= super::super::OPENING_RETRY_MOST / 2);
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
    let message = source.begin_one();
    source.outgoing.handle_link_lost(source.now);
    source.outgoing.handle_link_up(source.now);
    source.outgoing.push_frame(Flags::END, message, 0, &[]);
    source.frames();
    source.refuse(Refusal::OtherIncarnation, THEIRS + 1);
    assert_eq!(source.failure(), restarted);
}
