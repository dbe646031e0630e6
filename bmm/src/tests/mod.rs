mod doubles;
mod model;
mod units;

use bytes::Bytes;
use madgate_tm::{LaneSender, LentSlot, Piece};

use self::doubles::{DynamicLane, StaticLane};
use self::units::{headed, piped, read_units, received, unit, unit_length};
use crate::{
    Body, Borrowed, Buffer, Copies, Counters, Flushed, HEAD_BYTES, Outbox, OutboxError, Policy,
};

fn outbox(lane: &dyn LaneSender, policy: Policy) -> Outbox<u32> {
    Outbox::new(lane.shape(), policy, unit_length)
}

fn shared(number: u32, length: usize) -> Buffer {
    Buffer::shared(unit(number, length).into())
}

/// Flushes once: what it did, and the tags that came back.
fn flush(
    outbox: &mut Outbox<u32>,
    lane: &mut dyn LaneSender,
) -> (Result<Flushed, OutboxError>, Vec<u32>) {
    let mut left = Vec::new();
    let flushed = outbox.flush(lane, |tag, _| left.push(tag));
    (flushed, left)
}

#[test]
fn gathering_sends_as_much_in_one_call_as_the_lane_gathers() {
    for (policy, calls) in [(Policy::Gathering, 10), (Policy::Eager, 100)] {
        let mut lane = DynamicLane::new(10, vec![]);
        let mut outbox = outbox(&lane, policy);
        for number in 0..100 {
            outbox.push(shared(number, 48), number);
        }
        let (flushed, left) = flush(&mut outbox, &mut lane);
        assert!(!flushed.unwrap().blocked);
        assert_eq!(left, (0..100).collect::<Vec<_>>());
        assert_eq!(lane.calls, calls, "{policy:?}");
    }
}

#[test]
fn gathering_fills_slots_and_eager_takes_one_for_each_buffer() {
    for (policy, slots) in [(Policy::Gathering, 10), (Policy::Eager, 50)] {
        let mut lane = StaticLane::new(1000, vec![]);
        let mut outbox = outbox(&lane, policy);
        for number in (0..100).step_by(2) {
            let mut two = unit(number, 100);
            two.extend(unit(number + 1, 100));
            outbox.push(Buffer::shared(two.into()), number);
        }
        let (flushed, _) = flush(&mut outbox, &mut lane);
        assert!(!flushed.unwrap().blocked);
        assert_eq!(lane.commits.len(), slots, "{policy:?}");
    }
}

#[test]
fn a_head_goes_with_its_body_even_where_one_piece_is_the_limit() {
    for policy in [Policy::Gathering, Policy::Eager] {
        let mut lane = DynamicLane::new(1, vec![]);
        let mut outbox = outbox(&lane, policy);
        outbox.push(headed(&unit(0, 500), 48), 0);
        outbox.push(received(&unit(1, 500), 48), 1);
        let (flushed, left) = flush(&mut outbox, &mut lane);
        assert_eq!(flushed.unwrap().bytes, 1000);
        assert_eq!(left, [0, 1]);
        let third = unit(2, 500);
        let pieces = [
            Piece::new(&third[..48]),
            Piece::default(),
            Piece::new(&third[48..]),
        ];
        let sent = outbox.send_borrowed(&mut lane, &pieces, 2).unwrap();
        assert_eq!(sent, Borrowed::Left(2));
        assert_eq!(read_units(&lane.taken), [0, 1, 2]);
    }
}

#[test]
fn a_pipe_is_copied_only_for_lanes_that_take_none() {
    let mut takes = DynamicLane::new(8, vec![]);
    let mut reads = DynamicLane::new(8, vec![]);
    reads.takes_pipes = false;
    let mut slots = StaticLane::new(1000, vec![]);
    let lanes: [(&mut dyn LaneSender, u64); 3] =
        // Slots: out of the pipe, and with others into a slot.
        [(&mut takes, 0), (&mut reads, 1), (&mut slots, 4)];
    for (lane, copies) in lanes {
        let mut outbox = outbox(lane, Policy::Gathering);
        outbox.push(shared(0, 80), 0);
        outbox.push(piped(&unit(1, 500)), 1);
        outbox.push(shared(2, 80), 2);
        assert_eq!(outbox.queued_bytes(), 660);
        let (flushed, left) = flush(&mut outbox, lane);
        assert_eq!(flushed.unwrap().bytes, 660);
        assert_eq!(left, [0, 1, 2]);
        assert_eq!(outbox.counters().copies, copies);
    }
    assert_eq!(read_units(&takes.taken), [0, 1, 2]);
    assert_eq!(read_units(&reads.taken), [0, 1, 2]);
    assert_eq!(read_units(&slots.commits.concat()), [0, 1, 2]);
}

#[test]
fn what_is_empty_leaves_in_order_without_a_call() {
    let mut dynamic = DynamicLane::new(8, vec![]);
    let mut slots = StaticLane::new(100, vec![]);
    let lanes: [&mut dyn LaneSender; 2] = [&mut dynamic, &mut slots];
    for lane in lanes {
        for policy in [Policy::Gathering, Policy::Eager] {
            let mut outbox = outbox(lane, policy);
            outbox.push(Buffer::shared(Bytes::new()), 0);
            outbox.push(Buffer::with_head(&[], Bytes::new()), 1);
            let (flushed, left) = flush(&mut outbox, lane);
            assert_eq!(flushed.unwrap(), Flushed::default());
            assert_eq!(left, [0, 1]);
            let sent = outbox.send_borrowed(lane, &[Piece::default()], 2).unwrap();
            assert_eq!(sent, Borrowed::Left(2));
            assert_eq!(outbox.counters(), &Counters::default());
        }
    }
    assert_eq!((dynamic.calls, slots.commits.len()), (0, 0));
}

#[test]
fn a_filled_slot_passes_what_waits_for_a_slot() {
    let mut lane = StaticLane::new(100, vec![false]);
    let mut outbox = outbox(&lane, Policy::Gathering);
    outbox.push(shared(0, 80), 0);
    for number in 1..3 {
        let mut slot = lane.lend();
        slot.room(..).put(Piece::new(&unit(number, 50)));
        outbox.push(Buffer::of(Body::Lent { slot, length: 50 }), number);
        outbox.push(shared(number + 10, 80), number + 10);
    }
    let (flushed, left) = flush(&mut outbox, &mut lane);
    let passed = Flushed {
        bytes: 100,
        blocked: true,
    };
    assert_eq!(flushed.unwrap(), passed);
    assert_eq!(left, [1, 2]);
    lane.is_generous = true;
    assert_eq!(flush(&mut outbox, &mut lane).1, [0, 11, 12]);
    assert_eq!(outbox.counters().copies, 3, "lent slots are not copied");
}

#[test]
fn what_shares_its_slot_with_no_other_like_it_is_left_to_the_lane() {
    let least = 16 << 10;
    for (slot_bytes, length, whole) in [
        (20 << 10, least - 1, 0),
        (20 << 10, least, 1),
        (64 << 10, 32 << 10, 0),
        (64 << 10, (32 << 10) + 1, 1),
        (256 << 10, 32 << 10, 0),
        (256 << 10, (32 << 10) + 1, 1),
    ] {
        let mut lane = StaticLane::new(slot_bytes, vec![]);
        let mut outbox = outbox(&lane, Policy::Gathering);
        outbox.push(shared(0, length), 0);
        let (flushed, left) = flush(&mut outbox, &mut lane);
        assert_eq!((flushed.unwrap().bytes, &left[..]), (length, &[0][..]));
        assert_eq!(lane.whole, whole, "{length} of {slot_bytes} bytes");
        // By whomever.
        assert_eq!(outbox.counters().copies, 1);
    }
}

#[test]
fn large_slots_are_filled_with_small_units_up_to_what_is_soon_read() {
    // Two of the largest that share a slot, with their headers, and no third one.
    for (slot_bytes, length, each) in [
        (512 << 10, 32 << 10, 2),
        (512 << 10, 2 << 10, 32),
        (20 << 10, 2 << 10, 10),
    ] {
        let mut lane = StaticLane::new(slot_bytes, vec![]);
        let mut outbox = outbox(&lane, Policy::Gathering);
        (0..64).for_each(|number| outbox.push(shared(number, length), number));
        let (flushed, left) = flush(&mut outbox, &mut lane);
        assert!(!flushed.unwrap().blocked);
        assert_eq!(left, (0..64).collect::<Vec<_>>());
        let commits = 64_usize.div_ceil(each);
        assert_eq!(lane.commits.len(), commits, "{length} in {slot_bytes}");
    }
}

#[test]
fn a_unit_larger_than_a_slot_is_an_error_and_nothing_of_it_leaves() {
    let mut lane = StaticLane::new(100, vec![]);
    let mut outbox = outbox(&lane, Policy::Gathering);
    outbox.push(shared(0, 60), 0);
    let mut units = unit(1, 30);
    units.extend(unit(2, 101));
    outbox.push(Buffer::shared(units.into()), 1);
    let (flushed, left) = flush(&mut outbox, &mut lane);
    let Err(OutboxError::TooLarge {
        unit_bytes: 101,
        slot_bytes: 100,
    }) = flushed
    else {
        panic!("{flushed:?}");
    };
    assert_eq!(left, [0]);
    assert_eq!(read_units(&lane.commits.concat()), [0, 1]);
    assert_eq!(outbox.queued_bytes(), 101);

    let mut outbox = self::outbox(&lane, Policy::Gathering);
    let unit = unit(3, 101);
    let sent = outbox.send_borrowed(&mut lane, &[Piece::new(&unit)], 3);
    assert!(
        matches!(sent, Err(OutboxError::TooLarge { .. })),
        "{sent:?}"
    );
    assert_eq!(lane.commits.len(), 1);
}

/// Tags come back with the copies of their buffer, also where it was filled into slots little by
/// little.
#[test]
fn copies_are_told_with_the_buffer_that_they_were_made_of() {
    let mut lane = StaticLane::new(100, vec![true, false]);
    let mut outbox = outbox(&lane, Policy::Eager);
    let mut units = unit(0, 80);
    units.extend(unit(1, 90));
    outbox.push(Buffer::shared(units.into()), 0);
    let slot = lane.lend();
    let length = 100;
    outbox.push(Buffer::of(Body::Lent { slot, length }), 1);
    outbox.push(piped(&unit(2, 70)), 2);
    let mut left = Vec::new();
    while !outbox.is_empty() {
        let flushed = outbox.flush(&mut lane, |tag, copies| left.push((tag, copies)));
        flushed.unwrap();
    }
    left.sort_by_key(|(tag, _)| *tag);
    let copies = |times, bytes| Copies { times, bytes };
    // A pipe is emptied into memory first.
    let expected = [(0, copies(2, 170)), (1, copies(0, 0)), (2, copies(2, 140))];
    assert_eq!(left, expected);
    assert_eq!(outbox.counters().copies, 4);

    let mut lane = DynamicLane::new(1, vec![]);
    let mut outbox = self::outbox(&lane, Policy::Gathering);
    outbox.push(shared(0, 60), 0);
    lane.takes_pipes = false;
    outbox.push(piped(&unit(1, 70)), 1);
    let mut left = Vec::new();
    let flushed = outbox.flush(&mut lane, |tag, copies| left.push((tag, copies)));
    flushed.unwrap();
    assert_eq!(left, [(0, copies(0, 0)), (1, copies(1, 70))]);
}

#[test]
fn what_is_large_is_copied_only_for_lanes_that_do_not_gather() {
    for (gathers, copies) in [(true, 2), (false, 6)] {
        let mut lane = StaticLane::new(10_000, vec![]);
        lane.gathers = gathers;
        let mut outbox = outbox(&lane, Policy::Gathering);
        outbox.push(shared(0, 80), 0);
        outbox.push(headed(&unit(1, 5000), 48), 1);
        outbox.push(received(&unit(2, 5000), 48), 2);
        let mut units = unit(3, 4096);
        units.extend(unit(4, 4095));
        outbox.push(Buffer::shared(units.into()), 4);
        let (flushed, left) = flush(&mut outbox, &mut lane);
        assert_eq!(flushed.unwrap().bytes, 80 + 5000 + 5000 + 4096 + 4095);
        assert_eq!(left, [0, 1, 2, 4]);
        let small = unit(5, 80);
        let pieces = [Piece::new(&small[..48]), Piece::new(&small[48..])];
        let sent = outbox.send_borrowed(&mut lane, &pieces, 5).unwrap();
        assert_eq!(sent, Borrowed::Left(5));
        assert_eq!(read_units(&lane.commits.concat()), [0, 1, 2, 3, 4, 5]);
        assert_eq!(outbox.counters().copies, copies);
        let copied = if gathers { 80 + 4095 } else { 18_351 };
        assert_eq!(outbox.counters().copied_bytes, copied);
    }
}

#[test]
fn a_slot_that_the_lane_did_not_lend_is_an_error() {
    let mut dynamic = DynamicLane::new(8, vec![]);
    let mut slots = StaticLane::new(100, vec![]);
    let lanes: [&mut dyn LaneSender; 2] = [&mut dynamic, &mut slots];
    for lane in lanes {
        let mut outbox = outbox(lane, Policy::Gathering);
        outbox.push(shared(0, 60), 0);
        let slot = LentSlot::detached(100);
        outbox.push(Buffer::of(Body::Lent { slot, length: 10 }), 1);
        let (flushed, left) = flush(&mut outbox, lane);
        assert!(
            matches!(flushed, Err(OutboxError::ForeignSlot)),
            "{flushed:?}"
        );
        assert_eq!(left, [0], "what was before it has left whole");
        assert_eq!(outbox.counters().bytes, 60);
    }
    assert_eq!(read_units(&dynamic.taken), [0]);
    assert_eq!(read_units(&slots.commits.concat()), [0]);
}

#[test]
fn a_slot_said_to_hold_more_than_it_does_is_an_error() {
    let mut lane = StaticLane::new(100, vec![]);
    let mut outbox = outbox(&lane, Policy::Gathering);
    let slot = lane.lend();
    outbox.push(Buffer::of(Body::Lent { slot, length: 101 }), 0);
    let (flushed, left) = flush(&mut outbox, &mut lane);
    assert!(
        matches!(flushed, Err(OutboxError::TooLarge { .. })),
        "{flushed:?}"
    );
    assert!(left.is_empty() && lane.commits.is_empty());
}

/// The function lies: nothing that an earlier use left in a slot may leave with a unit.
#[test]
fn a_unit_never_reaches_beyond_its_buffer() {
    for lie in [|_: &[u8]| 0, |_: &[u8]| usize::MAX] as [fn(&[u8]) -> usize; 2] {
        let mut lane = StaticLane::new(100, vec![]);
        let mut outbox = Outbox::new(lane.shape(), Policy::Gathering, lie);
        outbox.push(shared(0, 60), 0);
        flush(&mut outbox, &mut lane).0.unwrap();
        assert_eq!(lane.commits, [unit(0, 60)]);
        assert_eq!(outbox.queued_bytes(), 0);
    }
}

#[test]
fn detaching_copies_what_others_wait_for() {
    let unit = unit(0, 500);
    let mut buffer = received(&unit, 48);
    assert_eq!(buffer.detach(), 452);
    assert!(matches!(buffer.body, Body::Shared(_)));
    assert_eq!(buffer.len(), 500);
    let mut lane = StaticLane::new(500, vec![]);
    let slot = lane.lend();
    let mut lent = Buffer::of(Body::Lent { slot, length: 9 });
    assert_eq!(lent.detach(), 0);
    assert!(lent.is_lent());
    let mut outbox = outbox(&lane, Policy::Gathering);
    outbox.push(buffer, 0);
    flush(&mut outbox, &mut lane).0.unwrap();
    assert_eq!(lane.commits, [unit]);
}

#[test]
#[should_panic(expected = "range end index 65")]
fn a_head_that_is_too_long_panics() {
    drop(Buffer::with_head(&[0; HEAD_BYTES + 1], Bytes::new()));
}

#[test]
#[should_panic(expected = "their own heads")]
fn a_lent_slot_with_a_head_panics() {
    let slot = LentSlot::detached(9);
    drop(Buffer::unit(&[0], Body::Lent { slot, length: 9 }));
}
