//! Openings, places and credit at the destination.

use std::time::Duration;

use proptest::prelude::*;

use super::{ACKNOWLEDGE_WITHIN, FIRST_WINDOW_BYTES, Incoming, OpenVerdict, Placement, WideWindow};
use crate::budget::{Budget, GUARANTEED_BYTES};
use crate::reassembly::Violation;
use crate::time::{FORGET_AFTER, Time};
use crate::wire::{Flags, FlowKey, Header, Kind, OPENING_BYTES, Opening, Refusal};

const FLOW: FlowKey = FlowKey {
    channel: 1,
    source: 2,
    destination: 3,
};
const OURS: u64 = 77;
const START: Time = Time(1_000_000_000);
const SMALL: u64 = 128 + 100;

/// Three windows of fragments of so many bytes.
const WIDE: WideWindow = WideWindow {
    from_bytes: 64 << 10,
    windows: 3,
};

fn opening(source: u64, destination: u64) -> Opening {
    Opening {
        source_incarnation: source,
        destination_incarnation: destination,
        fragment_bytes: 4096,
    }
}

fn bare(label: u32, position: u64) -> Header {
    Header {
        flags: Flags::OPEN.with(Flags::WANT),
        length: u32::try_from(OPENING_BYTES).unwrap(),
        position,
        ..Header::new(Kind::Data, FLOW, label)
    }
}

fn frame(label: u32, position: u64) -> Header {
    Header {
        flags: Flags::DESCRIBED,
        length: 100,
        position,
        ..Header::new(Kind::Data, FLOW, label)
    }
}

struct Fixture {
    incoming: Incoming,
    budget: Budget,
}

impl Fixture {
    fn new(window_most: u64, budget: u64) -> Self {
        Self {
            incoming: Incoming::new(FLOW, OURS, window_most, START),
            budget: Budget::new(budget),
        }
    }

    fn open(&mut self, header: &Header, source: u64) -> OpenVerdict {
        let opening = opening(source, 0);
        self.incoming
            .handle_opening(header, &opening, &mut self.budget, START)
    }

    fn opened(window_most: u64, budget: u64) -> Self {
        let mut fixture = Self::new(window_most, budget);
        assert!(matches!(
            fixture.open(&bare(5, 0), 10),
            OpenVerdict::Admitted { .. }
        ));
        fixture.credit(START).unwrap();
        fixture
    }

    fn credit(&mut self, now: Time) -> Option<(u64, u64)> {
        let credit = self.incoming.poll_credit(&mut self.budget, now)?;
        assert_eq!(credit.credit_incarnation(), OURS);
        Some((credit.position, credit.offset))
    }

    fn accept(&mut self, header: &Header) {
        assert_eq!(self.incoming.placement(header), Ok(Placement::InOrder));
        self.incoming.accept(header, START);
    }
}

#[test]
fn an_opening_is_answered_with_credit_once_its_payload_is_in() {
    let mut fixture = Fixture::new(1 << 20, 1 << 20);
    let header = Header {
        flags: Flags::OPEN.with(Flags::DESCRIBED).with(Flags::WANT),
        length: 124,
        ..bare(5, 0)
    };
    assert_eq!(
        fixture.open(&header, 10),
        OpenVerdict::Admitted {
            abandon_message: true,
            source_restarted: false
        }
    );
    assert_eq!(fixture.credit(START), None);
    fixture.accept(&header);
    let (delivered, granted) = fixture.credit(START).unwrap();
    assert_eq!(delivered, SMALL);
    assert_eq!(granted, FIRST_WINDOW_BYTES * 2);
    assert_eq!(fixture.open(&header, 10), OpenVerdict::Repeated);
    assert_eq!(
        fixture.incoming.placement(&header),
        Ok(Placement::Duplicate)
    );
    assert_eq!(fixture.credit(START), Some((delivered, granted)));
}

#[test]
fn verdicts() {
    let mut fixture = Fixture::opened(1 << 20, 1 << 20);
    let incoming = &mut fixture.incoming;
    let budget = &mut fixture.budget;
    let mut verdict = |header: Header, opening: Opening| {
        incoming.handle_opening(&header, &opening, budget, START)
    };
    let other = OpenVerdict::Refused(Refusal::OtherIncarnation);
    assert_eq!(verdict(bare(6, 0), opening(10, OURS + 1)), other);
    assert_eq!(verdict(bare(6, 0), opening(9, OURS)), OpenVerdict::Stale);
    assert_eq!(verdict(bare(4, 0), opening(10, OURS)), OpenVerdict::Stale);
    assert_eq!(
        verdict(bare(5, 0), opening(10, OURS)),
        OpenVerdict::Repeated
    );
    let admitted = |abandon_message, source_restarted| OpenVerdict::Admitted {
        abandon_message,
        source_restarted,
    };
    assert_eq!(
        verdict(bare(6, 0), opening(10, OURS)),
        admitted(false, false)
    );
    assert_eq!(
        verdict(bare(7, 50), opening(10, OURS)),
        admitted(true, false)
    );
    assert_eq!(verdict(bare(1, 0), opening(11, OURS)), admitted(true, true));
}

#[test]
fn an_opening_from_before_a_close_is_stale() {
    let mut fixture = Fixture::opened(1 << 20, 1 << 20);
    fixture.incoming.close(&mut fixture.budget);
    assert_eq!(fixture.budget.promised(), 0);
    assert_eq!(fixture.open(&bare(4, 0), 10), OpenVerdict::Stale);
    assert!(!fixture.incoming.is_open());
    assert!(matches!(
        fixture.open(&bare(6, 0), 10),
        OpenVerdict::Admitted { .. }
    ));
}

#[test]
fn places() {
    let mut fixture = Fixture::opened(4096, 1 << 20);
    fixture.accept(&frame(5, 0));
    let place = |header: Header| fixture.incoming.placement(&header);
    assert_eq!(place(frame(5, SMALL)), Ok(Placement::InOrder));
    assert_eq!(place(frame(5, 2 * SMALL)), Ok(Placement::Ahead));
    assert_eq!(place(frame(5, 0)), Ok(Placement::Duplicate));
    assert_eq!(place(frame(6, SMALL)), Ok(Placement::Stale));
    assert_eq!(
        place(frame(5, 1)),
        Err(Violation::Overlap {
            position: 1,
            delivered: SMALL
        })
    );
    assert_eq!(place(frame(5, 4096 - SMALL)), Ok(Placement::Ahead));
    assert_eq!(
        place(frame(5, 4097 - SMALL)),
        Err(Violation::BeyondCredit {
            end: 4097,
            granted: 4096
        })
    );
    fixture.incoming.close(&mut fixture.budget);
    assert_eq!(
        fixture.incoming.placement(&frame(5, SMALL)),
        Ok(Placement::Unknown)
    );
}

#[test]
fn credit_comes_when_asked_for_or_after_a_while_or_with_half_a_window() {
    let mut fixture = Fixture::opened(8192, 1 << 20);
    assert_eq!(fixture.credit(START), None);
    assert_eq!(fixture.incoming.next_deadline(), None);

    fixture.accept(&frame(5, 0));
    assert_eq!(fixture.credit(START), None);
    let due = START + ACKNOWLEDGE_WITHIN;
    assert_eq!(fixture.incoming.next_deadline(), Some(due));
    assert_eq!(fixture.credit(due), Some((SMALL, 8192)));
    assert_eq!(fixture.credit(due), None);

    let want = Header {
        flags: Flags::WANT,
        ..frame(5, SMALL)
    };
    fixture.accept(&want);
    assert_eq!(fixture.credit(START), Some((2 * SMALL, 8192)));

    // It has plenty: a little that is consumed waits, half a window does not.
    fixture.incoming.consume(2 * SMALL, &mut fixture.budget);
    assert_eq!(fixture.credit(START), None);
    let mut at = 2 * SMALL;
    while at < 4096 {
        fixture.accept(&frame(5, at));
        fixture.incoming.consume(SMALL, &mut fixture.budget);
        at += SMALL;
    }
    assert_eq!(fixture.credit(START), Some((at, at + 8192)));
}

#[test]
fn credit_is_ample_until_an_eighth_of_the_window_is_used() {
    let mut fixture = Fixture::opened(1 << 20, 1 << 20);
    let eighth = FIRST_WINDOW_BYTES / 8;
    let mut position = 0;
    while position + SMALL <= eighth {
        assert!(fixture.incoming.has_ample_credit());
        fixture.accept(&frame(5, position));
        position += SMALL;
    }
    assert!(fixture.incoming.has_ample_credit());
    fixture.accept(&frame(5, position));
    assert!(!fixture.incoming.has_ample_credit());
    let charge = fixture.incoming.unconsumed();
    fixture.incoming.consume(charge, &mut fixture.budget);
    assert!(!fixture.incoming.has_ample_credit());
    fixture.credit(START + ACKNOWLEDGE_WITHIN).unwrap();
    assert!(fixture.incoming.has_ample_credit());
}

#[test]
fn a_source_that_has_run_out_gets_what_is_consumed_at_once() {
    let mut fixture = Fixture::opened(4096, 1 << 20);
    let mut at = 0;
    while at + SMALL <= 4096 {
        let flags = Flags::WANT.when(at + 2 * SMALL > 4096);
        fixture.accept(&Header {
            flags,
            ..frame(5, at)
        });
        at += SMALL;
    }
    assert_eq!(fixture.credit(START), Some((at, 4096)));
    fixture.incoming.consume(SMALL, &mut fixture.budget);
    assert_eq!(fixture.credit(START), None);
    fixture.incoming.consume(at - SMALL, &mut fixture.budget);
    assert_eq!(fixture.credit(START), Some((at, at + 4096)));
}

#[test]
fn the_window_grows_while_the_application_keeps_up() {
    let mut fixture = Fixture::opened(1 << 20, 64 << 20);
    let mut sent = FIRST_WINDOW_BYTES;
    for most in [2u64, 4, 8, 8, 8] {
        let probe = Header {
            position: sent,
            ..Header::new(Kind::Probe, FLOW, 5)
        };
        assert!(fixture.incoming.handle_probe(&probe, START));
        let (delivered, granted) = fixture.credit(START).unwrap();
        sent = granted;
        assert_eq!(granted - delivered, FIRST_WINDOW_BYTES * most);
    }
    let other = Header::new(Kind::Probe, FLOW, 6);
    assert!(!fixture.incoming.handle_probe(&other, START));
}

/// As far as it is granted, large fragments come and are consumed, the last of which asks for more.
fn accept_large(fixture: &mut Fixture, length: u64) -> (u64, u64) {
    loop {
        let header = Header {
            flags: Flags::WANT,
            length: u32::try_from(length).unwrap(),
            ..frame(5, fixture.incoming.delivered)
        };
        if header.end_position() > fixture.incoming.granted {
            return fixture.credit(START).unwrap();
        }
        fixture.accept(&header);
        let charge = header.charge();
        fixture.incoming.consume(charge, &mut fixture.budget);
    }
}

#[test]
fn the_window_of_large_fragments_is_wider_until_others_have_filled_it() {
    let most = 1 << 20;
    for (wide, length, windows) in [
        (WIDE, 64 << 10, 3),
        (WIDE, (64 << 10) - 1, 1),
        (WideWindow::NONE, 64 << 10, 1),
    ] {
        let mut fixture = Fixture::opened(most, 64 << 20);
        fixture.incoming = fixture.incoming.with_wide_window(wide);
        widens_up_to(fixture, length, most, most * windows);
    }
}

/// Small frames come and are consumed until the window is `most`.
fn widen(fixture: &mut Fixture, most: u64) {
    while fixture.incoming.window < most {
        accept_all_granted(fixture);
        let unconsumed = fixture.incoming.unconsumed();
        fixture.incoming.consume(unconsumed, &mut fixture.budget);
        fixture.credit(START).unwrap();
    }
}

fn widens_up_to(mut fixture: Fixture, length: u64, most: u64, large_most: u64) {
    widen(&mut fixture, most);
    for _ in 0..3 {
        let (delivered, granted) = accept_large(&mut fixture, length);
        assert_eq!(granted - delivered, large_most);
    }
    let large_up_to = fixture.incoming.delivered + most;
    loop {
        let small = frame(5, fixture.incoming.delivered);
        let is_wide = small.end_position() < large_up_to;
        fixture.accept(&small);
        fixture
            .incoming
            .consume(small.charge(), &mut fixture.budget);
        let target = if is_wide { large_most } else { most };
        assert_eq!(fixture.incoming.most(), target);
        // What has been granted stays granted.
        let granted = fixture.incoming.granted;
        let _ = fixture.credit(START);
        assert!(fixture.incoming.granted >= granted);
        if !is_wide {
            break;
        }
    }
    // An opening begins anew.
    fixture.incoming.suspend(&mut fixture.budget, START);
    let delivered = fixture.incoming.delivered;
    fixture.open(&bare(6, delivered), 10);
    assert_eq!(fixture.incoming.most(), FIRST_WINDOW_BYTES);
    assert_eq!(fixture.incoming.widest(), most);
}

#[test]
fn a_flow_that_has_filled_a_wide_window_is_opened_again_all_the_same() {
    let most = 1 << 20;
    let mut fixture = Fixture::opened(most, 64 << 20);
    fixture.incoming = fixture.incoming.with_wide_window(WIDE);
    widen(&mut fixture, most);
    accept_large(&mut fixture, 256 << 10);
    // Nobody unpacks any longer.
    loop {
        let small = frame(5, fixture.incoming.delivered);
        if small.end_position() > fixture.incoming.granted {
            break;
        }
        fixture.accept(&small);
    }
    assert!(fixture.incoming.unconsumed() > most);
    fixture.incoming.suspend(&mut fixture.budget, START);
    let delivered = fixture.incoming.delivered;
    let verdict = fixture.open(&bare(6, delivered), 10);
    assert!(
        matches!(verdict, OpenVerdict::Admitted { .. }),
        "{verdict:?}"
    );
}

/// All frames that were granted come, and with the last of them their source asks for more.
fn accept_all_granted(fixture: &mut Fixture) {
    let (mut at, granted) = (fixture.incoming.delivered, fixture.incoming.granted);
    while at + SMALL <= granted {
        let flags = Flags::WANT.when(at + 2 * SMALL > granted);
        fixture.accept(&Header {
            flags,
            ..frame(5, at)
        });
        at += SMALL;
    }
}

#[test]
fn the_window_grows_while_all_that_came_at_once_is_consumed_before_more_comes() {
    let mut fixture = Fixture::opened(1 << 20, 64 << 20);
    for most in [2, 4, 8, 8, 8] {
        accept_all_granted(&mut fixture);
        let _ = fixture.credit(START);
        let unconsumed = fixture.incoming.unconsumed();
        assert!(unconsumed * 4 > FIRST_WINDOW_BYTES * most);
        fixture.incoming.consume(unconsumed, &mut fixture.budget);
        assert!(fixture.incoming.is_credit_due(&fixture.budget));
        let (delivered, granted) = fixture.credit(START).unwrap();
        assert_eq!(granted - delivered, FIRST_WINDOW_BYTES * most);
    }
}

#[test]
fn the_window_of_an_application_that_never_has_consumed_all_does_not_grow() {
    let mut fixture = Fixture::opened(1 << 20, 64 << 20);
    for _ in 0..5 {
        accept_all_granted(&mut fixture);
        let left = fixture.incoming.unconsumed() / 4;
        let consumed = fixture.incoming.unconsumed() - left;
        fixture.incoming.consume(consumed, &mut fixture.budget);
        let (delivered, granted) = fixture.credit(START).unwrap();
        assert_eq!(granted - delivered, FIRST_WINDOW_BYTES - left);
    }
}

#[test]
fn nor_does_that_of_one_that_was_sent_more_before_it_had_consumed_all() {
    let mut fixture = Fixture::opened(1 << 20, 64 << 20);
    for _ in 0..5 {
        accept_all_granted(&mut fixture);
        let half = fixture.incoming.unconsumed() / 2 + SMALL;
        fixture.incoming.consume(half, &mut fixture.budget);
        fixture.credit(START).unwrap();
        // Something of what was granted now, by a source that asks for nothing.
        let next = frame(5, fixture.incoming.delivered);
        fixture.accept(&next);
        let rest = fixture.incoming.unconsumed();
        fixture.incoming.consume(rest, &mut fixture.budget);
        let (delivered, granted) = fixture.credit(START + ACKNOWLEDGE_WITHIN).unwrap();
        assert_eq!(granted - delivered, FIRST_WINDOW_BYTES);
    }
}

#[test]
fn what_was_left_of_an_earlier_opening_widens_nothing() {
    let mut fixture = Fixture::opened(1 << 20, 64 << 20);
    accept_all_granted(&mut fixture);
    fixture.incoming.suspend(&mut fixture.budget, START);
    let left = fixture.incoming.unconsumed();
    let delivered = fixture.incoming.delivered;
    fixture.open(&bare(6, delivered), 10);
    fixture.incoming.consume(left, &mut fixture.budget);
    let (delivered, granted) = fixture.credit(START).unwrap();
    assert_eq!(granted - delivered, FIRST_WINDOW_BYTES);
}

#[test]
fn an_application_that_does_not_consume_is_granted_no_more() {
    let mut fixture = Fixture::opened(4096, 1 << 20);
    let mut at = 0;
    while at + SMALL <= 4096 {
        fixture.accept(&frame(5, at));
        at += SMALL;
    }
    assert!(
        fixture
            .incoming
            .handle_probe(&Header::new(Kind::Probe, FLOW, 5), START)
    );
    assert_eq!(fixture.credit(START), Some((at, 4096)));
    assert_eq!(fixture.incoming.unconsumed(), at);
    // Its source opens again, with more than there is room for.
    let more = Header {
        flags: Flags::OPEN.with(Flags::DESCRIBED),
        length: 24 + 3904,
        ..bare(6, at)
    };
    assert_eq!(
        fixture.open(&more, 10),
        OpenVerdict::Refused(Refusal::NoRoom)
    );
    fixture.incoming.consume(at, &mut fixture.budget);
    assert!(matches!(
        fixture.open(&more, 10),
        OpenVerdict::Admitted { .. }
    ));
}

#[test]
fn a_source_that_is_refused_for_want_of_memory_is_heard_of() {
    let mut fixture = Fixture::opened(4096, 1 << 20);
    let mut at = 0;
    while at + SMALL <= 4096 {
        fixture.accept(&frame(5, at));
        at += SMALL;
    }
    fixture.incoming.suspend(&mut fixture.budget, START);
    assert_eq!(fixture.incoming.unheard_since(), Some(START));
    let more = Header {
        flags: Flags::OPEN.with(Flags::DESCRIBED),
        length: 24 + 3904,
        ..bare(6, at)
    };
    let later = START + FORGET_AFTER;
    let asked = opening(10, 0);
    let incoming = &mut fixture.incoming;
    let verdict = incoming.handle_opening(&more, &asked, &mut fixture.budget, later);
    assert_eq!(verdict, OpenVerdict::Refused(Refusal::NoRoom));
    assert_eq!(incoming.suspended_since(), Some(START));
    assert_eq!(incoming.unheard_since(), Some(later));
}

#[test]
fn what_was_accepted_is_kept_in_the_budget_until_it_is_consumed() {
    let mut fixture = Fixture::opened(1 << 20, 1 << 20);
    for at in 0..50 {
        fixture.accept(&frame(5, at * SMALL));
    }
    fixture.incoming.suspend(&mut fixture.budget, START);
    assert_eq!(fixture.incoming.suspended_since(), Some(START));
    assert_eq!(fixture.budget.promised(), 50 * SMALL);
    for _ in 0..50 {
        fixture.incoming.consume(SMALL, &mut fixture.budget);
    }
    assert_eq!(fixture.budget.promised(), 0);
    assert!(matches!(
        fixture.open(&bare(6, 0), 10),
        OpenVerdict::Admitted { .. }
    ));
    assert_eq!(fixture.incoming.suspended_since(), None);
    // What it has already is told to the source.
    assert_eq!(fixture.credit(START).unwrap().0, 50 * SMALL);
}

#[test]
fn a_message_that_was_given_up_is_not_gone_on_with() {
    let mut fixture = Fixture::opened(1 << 20, 1 << 20);
    fixture.accept(&frame(5, 0));
    fixture.incoming.consume(SMALL, &mut fixture.budget);
    fixture.incoming.suspend(&mut fixture.budget, START);
    fixture.incoming.give_up_message();
    // From where it broke off, and from where the source knows that it is delivered.
    for (label, position) in [(6, SMALL), (7, 0)] {
        let verdict = fixture.open(&bare(label, position), 10);
        assert_eq!(verdict, OpenVerdict::Refused(Refusal::GivenUp));
    }
    // The source has given it up too.
    let admitted = OpenVerdict::Admitted {
        abandon_message: true,
        source_restarted: false,
    };
    assert_eq!(fixture.open(&bare(8, SMALL + 1), 10), admitted);
    fixture.credit(START).unwrap();
    fixture.accept(&frame(8, SMALL + 1));
    fixture.incoming.suspend(&mut fixture.budget, START);
    assert!(matches!(
        fixture.open(&bare(9, 0), 10),
        OpenVerdict::Admitted { .. }
    ));
}

#[test]
fn a_source_that_rests_is_granted_no_more() {
    let mut fixture = Fixture::opened(1 << 20, 8 << 20);
    fixture.accept(&frame(5, 0));
    fixture.incoming.consume(SMALL, &mut fixture.budget);
    let (delivered, granted) = fixture.credit(START + ACKNOWLEDGE_WITHIN).unwrap();
    let probe = |position| Header {
        position,
        ..Header::new(Kind::Probe, FLOW, 5)
    };
    for _ in 0..10 {
        assert!(fixture.incoming.handle_probe(&probe(delivered), START));
        assert_eq!(fixture.credit(START), Some((delivered, granted)));
    }
    // One that has sent what it may is.
    assert!(fixture.incoming.handle_probe(&probe(granted), START));
    assert!(fixture.credit(START).unwrap().1 > granted);
}

/// It goes by a lane of its own, and large fragments by another.
#[test]
fn a_probe_that_overtakes_is_answered_again_when_what_it_overtook_is_here() {
    let probe = |position| Header {
        position,
        ..Header::new(Kind::Probe, FLOW, 5)
    };
    let accept_small = |fixture: &mut Fixture, at| {
        let bytes = frame(5, at).to_bytes();
        let header = Header::check(&bytes).unwrap();
        fixture.incoming.try_accept_next(header, START)
    };
    let mut fixture = Fixture::opened(1 << 20, 8 << 20);
    let granted = fixture.incoming.granted;
    assert!(fixture.incoming.handle_probe(&probe(3 * SMALL), START));
    // What it wants is no credit.
    assert_eq!(fixture.credit(START), Some((0, granted)));
    fixture.accept(&frame(5, 0));
    assert!(accept_small(&mut fixture, SMALL));
    assert_eq!(fixture.credit(START), None);
    assert!(
        !accept_small(&mut fixture, 2 * SMALL),
        "it is to be answered"
    );
    fixture.accept(&frame(5, 2 * SMALL));
    assert!(fixture.incoming.is_credit_due(&fixture.budget));
    assert_eq!(fixture.credit(START), Some((3 * SMALL, granted)));
    // Once.
    fixture.accept(&frame(5, 3 * SMALL));
    assert!(accept_small(&mut fixture, 4 * SMALL));
    assert_eq!(fixture.credit(START), None);
    // Nor is one that has come in its turn.
    assert!(fixture.incoming.handle_probe(&probe(5 * SMALL), START));
    assert_eq!(fixture.credit(START), Some((5 * SMALL, granted)));
    assert!(accept_small(&mut fixture, 5 * SMALL));
    assert_eq!(fixture.credit(START), None);
}

#[test]
fn what_a_probe_asks_for_is_forgotten_with_the_opening() {
    let mut fixture = Fixture::opened(1 << 20, 8 << 20);
    let probe = Header {
        position: SMALL,
        ..Header::new(Kind::Probe, FLOW, 5)
    };
    assert!(fixture.incoming.handle_probe(&probe, START));
    fixture.open(&bare(6, 0), 10);
    let _ = fixture.credit(START);
    fixture.accept(&frame(6, 0));
    assert_eq!(fixture.credit(START), None);
}

#[test]
fn admission_needs_a_share() {
    let mut fixture = Fixture::new(1 << 20, 16 << 10);
    assert!(fixture.budget.try_admit());
    assert_eq!(
        fixture.open(&bare(5, 0), 10),
        OpenVerdict::Refused(Refusal::NoRoom)
    );
    fixture.budget.release(0);
    assert!(matches!(
        fixture.open(&bare(5, 0), 10),
        OpenVerdict::Admitted { .. }
    ));
    fixture.credit(START).unwrap();
    assert!(fixture.budget.promised() <= 16 << 10);
    assert!(fixture.budget.promised() >= GUARANTEED_BYTES);
}

#[test]
fn a_silent_flow_is_forgotten() {
    let mut fixture = Fixture::opened(1 << 20, 1 << 20);
    fixture
        .incoming
        .handle_timeout(&mut fixture.budget, START + FORGET_AFTER);
    assert!(fixture.incoming.is_open());
    let later = START + FORGET_AFTER + Duration::from_nanos(1);
    fixture.incoming.handle_timeout(&mut fixture.budget, later);
    assert!(!fixture.incoming.is_open());
    assert_eq!(fixture.budget.promised(), 0);
}

#[test]
fn the_next_frame_is_accepted_in_one_step_and_no_other_is() {
    let place = |fixture: &Fixture, header: Header| fixture.incoming.placement(&header);
    let accept = |fixture: &mut Fixture, header: Header| {
        let bytes = header.to_bytes();
        let header = Header::check(&bytes).unwrap();
        fixture.incoming.try_accept_next(header, START)
    };
    let mut fixture = Fixture::opened(4096, 1 << 20);
    for header in [
        frame(6, 0),
        frame(5, SMALL),
        frame(5, 4096 - SMALL),
        frame(5, 4097 - SMALL),
    ] {
        assert_ne!(place(&fixture, header), Ok(Placement::InOrder));
        assert!(!accept(&mut fixture, header));
    }
    let mut count = 0;
    while place(&fixture, frame(5, count * SMALL)) == Ok(Placement::InOrder) {
        assert!(accept(&mut fixture, frame(5, count * SMALL)));
        assert!(
            !accept(&mut fixture, frame(5, count * SMALL)),
            "a duplicate"
        );
        count += 1;
    }
    assert_eq!(count, 4096 / SMALL, "as many as were granted");
    assert_eq!(fixture.incoming.delivered(), count * SMALL);
    let acknowledged_at = fixture.incoming.next_deadline();
    assert_eq!(acknowledged_at, Some(START + ACKNOWLEDGE_WITHIN));
    fixture.incoming.consume(count * SMALL, &mut fixture.budget);
    assert_eq!(
        fixture.credit(START + ACKNOWLEDGE_WITHIN),
        Some((count * SMALL, count * SMALL + 4096))
    );
    fixture.incoming.close(&mut fixture.budget);
    assert!(!accept(&mut fixture, frame(5, count * SMALL)), "not open");
}

/// What a flow has been granted and not used.
#[derive(Debug, Clone, Copy)]
enum Granted {
    Any(u64),
    /// With what is not consumed about half of what it may have, from two below on.
    AboutHalf(u64),
}

proptest! {
    /// What is told without a division is what the division tells.
    #[test]
    fn credit_is_due_where_enough_more_can_be_granted(
        window in 0..(2 * GUARANTEED_BYTES),
        granted in prop_oneof![
            (0..2 * GUARANTEED_BYTES).prop_map(Granted::Any),
            (0..5_u64).prop_map(Granted::AboutHalf),
        ],
        unconsumed in 0..GUARANTEED_BYTES,
        total in prop_oneof![0..(64_u64 << 10), Just(1 << 20)],
        used in 0..(64_u64 << 10),
        starved: bool,
    ) {
        let mut fixture = Fixture::opened(1 << 20, total + 4 * GUARANTEED_BYTES);
        fixture.budget.change(0, used);
        let incoming = &mut fixture.incoming;
        incoming.delivered = 1 << 20;
        (incoming.window, incoming.unconsumed) = (window, unconsumed);
        incoming.granted = incoming.delivered
            + match granted {
                Granted::Any(granted) => granted,
                Granted::AboutHalf(more) => {
                    (incoming.most() / 2 + more).saturating_sub(unconsumed + 2)
                }
            };
        (incoming.starved, incoming.credit_wanted) = (starved, false);
        let (target, allowed) = incoming.promise(&fixture.budget);
        prop_assert_eq!(
            incoming.is_credit_due(&fixture.budget),
            incoming.is_worth_it(target - incoming.granted, allowed)
        );
    }
}
