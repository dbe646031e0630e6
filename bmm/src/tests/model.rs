//! Any sequence of buffers, on lanes that take what they like: an outbox against a simple
//! model of it.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use madgate_tm::{LaneSender, Piece};
use proptest::collection::vec;
use proptest::prelude::*;

use super::doubles::{DynamicLane, StaticLane};
use super::units::{UNIT_HEAD_BYTES, headed, piped, read_units, received, unit, unit_length};
use crate::{Body, Borrowed, Buffer, Counters, Outbox, Policy};

#[derive(Debug, Clone)]
enum Step {
    /// A buffer of several units, or of none.
    Shared(Vec<usize>),
    Headed {
        head: usize,
        length: usize,
    },
    Received {
        head: usize,
        length: usize,
    },
    /// A slot of the lane, filled before. Static lanes only.
    Lent(usize),
    /// A pipe. Dynamic lanes only.
    Piped(usize),
    /// A borrowed unit, in pieces that end at these places.
    Borrowed {
        length: usize,
        cuts: Vec<usize>,
    },
    Detach,
    Flush,
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..200_usize, 2 => 200..4096_usize, 1 => 4096..=65_536_usize]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => vec(length(), 0..6).prop_map(Step::Shared),
        2 => (0..80_usize, length()).prop_map(|(head, length)| Step::Headed { head, length }),
        2 => (0..80_usize, length()).prop_map(|(head, length)| Step::Received { head, length }),
        2 => length().prop_map(Step::Lent),
        2 => length().prop_map(Step::Piped),
        3 => (length(), vec(0..65_536_usize, 0..4))
            .prop_map(|(length, cuts)| Step::Borrowed { length, cuts }),
        1 => Just(Step::Detach),
        6 => Just(Step::Flush),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Eager), Just(Policy::Gathering)]
}

fn grants() -> impl Strategy<Value = Vec<usize>> {
    let grant = prop_oneof![Just(0), 1..100_usize, 1..200_000_usize];
    vec(grant, 1..12)
}

/// What an outbox should be, as simple as can be.
#[derive(Debug, Default)]
struct Model {
    next_unit: u32,
    next_tag: u32,
    /// Buffers that wait: tag, last unit, and whether they are lent slots.
    waiting: VecDeque<(u32, Option<u32>, bool)>,
    /// Lent slots may pass.
    lent_units: Vec<u32>,
    pushed_bytes: usize,
    expected: Counters,
}

impl Model {
    fn unit(&mut self, length: usize, most: usize) -> (u32, Vec<u8>) {
        let number = self.next_unit;
        self.next_unit += 1;
        (number, unit(number, length.min(most)))
    }

    fn waits(&mut self, bytes: usize, last_unit: Option<u32>, is_lent: bool) -> u32 {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.pushed_bytes += bytes;
        self.waiting.push_back((tag, last_unit, is_lent));
        if is_lent {
            self.lent_units.extend(last_unit);
        }
        tag
    }

    /// Makes the buffer of a step, except of those that have none.
    fn buffer(&mut self, step: &Step, most: usize) -> Option<(Buffer, u32)> {
        let (buffer, last) = match step {
            Step::Shared(lengths) => {
                let mut units = Vec::new();
                let mut last = None;
                for &length in lengths {
                    let (number, bytes) = self.unit(length, most);
                    units.extend(bytes);
                    last = Some(number);
                }
                (Buffer::shared(Bytes::from(units)), last)
            }
            Step::Headed { head, length } => {
                let (number, unit) = self.unit(*length, most);
                (headed(&unit, *head), Some(number))
            }
            Step::Received { head, length } => {
                let (number, unit) = self.unit(*length, most);
                (received(&unit, *head), Some(number))
            }
            Step::Piped(length) => {
                let (number, unit) = self.unit(*length, most);
                (piped(&unit), Some(number))
            }
            Step::Lent(_) | Step::Borrowed { .. } | Step::Detach | Step::Flush => return None,
        };
        let tag = self.waits(buffer.len(), last, false);
        Some((buffer, tag))
    }

    /// Compares after a call; `units` are those that the lane has whole, in order.
    fn check(&mut self, outbox: &Outbox<u32>, left: &[u32], units: &[u32], taken_bytes: usize) {
        let in_order: Vec<_> = (0..)
            .filter(|unit| !self.lent_units.contains(unit))
            .take(
                units
                    .iter()
                    .filter(|unit| !self.lent_units.contains(unit))
                    .count(),
            )
            .collect();
        let (lent, others): (Vec<u32>, Vec<u32>) = units
            .iter()
            .partition(|unit| self.lent_units.contains(unit));
        assert_eq!(others, in_order, "units in order");
        assert!(
            self.lent_units.starts_with(&lent),
            "lent slots in order among themselves"
        );

        for tag in left {
            let place = self.waiting.iter().position(|(waits, ..)| waits == tag);
            let place = place.unwrap_or_else(|| panic!("tag {tag} came back twice"));
            let (_, last_unit, is_lent) = self.waiting.remove(place).unwrap();
            let passed = self
                .waiting
                .range(..place)
                .find(|(.., waits_lent)| *waits_lent == is_lent);
            assert_eq!(passed, None, "tag {tag} passed another");
            assert!(
                last_unit.is_none_or(|unit| units.contains(&unit)),
                "tag {tag} came early"
            );
        }
        if let Some((tag, last_unit, _)) = self.waiting.front() {
            let has_left = last_unit.is_some_and(|unit| units.contains(&unit));
            assert!(!has_left, "tag {tag} did not come back");
        }
        assert_eq!(outbox.is_empty(), self.waiting.is_empty());
        assert_eq!(outbox.queued_bytes(), self.pushed_bytes - taken_bytes);
        self.expected.bytes = taken_bytes as u64;
        assert_eq!(outbox.counters(), &self.expected);
    }
}

/// Cuts a unit into pieces.
fn pieces<'u>(unit: &'u [u8], cuts: &[usize]) -> Vec<Piece<'u>> {
    let mut cuts: Vec<_> = cuts.iter().map(|&cut| cut.min(unit.len())).collect();
    cuts.push(unit.len());
    cuts.sort_unstable();
    let mut start = 0;
    let cut = |end| Piece::new(&unit[std::mem::replace(&mut start, end)..end]);
    cuts.into_iter().map(cut).collect()
}

/// Takes the step that queues or flushes; returns the tags that came back.
fn queue_or_flush(
    outbox: &mut Outbox<u32>,
    lane: &mut dyn LaneSender,
    model: &mut Model,
    step: &Step,
    most: usize,
) -> Vec<u32> {
    let mut left = Vec::new();
    if let Some((buffer, tag)) = model.buffer(step, most) {
        outbox.push(buffer, tag);
    }
    match step {
        Step::Detach => {
            outbox.for_each_queued(|buffer, _| {
                let before = buffer.len();
                buffer.detach();
                assert_eq!(buffer.len(), before);
            });
        }
        Step::Flush => {
            let before = outbox.queued_bytes();
            let flushed = outbox.flush(lane, |tag, _| left.push(tag)).unwrap();
            assert_eq!(flushed.bytes, before - outbox.queued_bytes());
            assert_eq!(flushed.blocked, !outbox.is_empty());
        }
        _ => {}
    }
    left
}

/// What is whole of a stream: the units, without the last when it is cut.
fn whole_units(stream: &[u8]) -> Vec<u32> {
    let mut end = 0;
    while stream.len() - end >= UNIT_HEAD_BYTES && stream.len() - end >= unit_length(&stream[end..])
    {
        end += unit_length(&stream[end..]);
    }
    read_units(&stream[..end])
}

fn run_dynamic(policy: Policy, gather_limit: usize, grants: Vec<usize>, steps: &[Step]) {
    let mut lane = DynamicLane::new(gather_limit, grants);
    let mut outbox = Outbox::new(lane.shape(), policy, unit_length);
    let mut model = Model::default();
    for (place, step) in steps.iter().chain([&Step::Flush]).enumerate() {
        lane.is_generous |= place == steps.len();
        let mut left = Vec::new();
        if let Step::Borrowed { length, cuts } = step {
            let (number, unit) = model.unit(*length, usize::MAX);
            let was_empty = outbox.is_empty();
            let before = lane.taken.len();
            let tag = model.waits(unit.len(), Some(number), false);
            let sent = outbox
                .send_borrowed(&mut lane, &pieces(&unit, cuts), tag)
                .unwrap();
            match sent {
                Borrowed::Left(tag) => left.push(tag),
                Borrowed::Queued => {
                    let rest = unit.len() - (lane.taken.len() - before);
                    assert!(rest < unit.len());
                    model.expected.copies += 1;
                    model.expected.copied_bytes += rest as u64;
                }
                Borrowed::NotNow(tag) => {
                    assert_eq!(lane.taken.len(), before);
                    assert!(!was_empty || !lane.is_generous);
                    model.pushed_bytes -= unit.len();
                    model.next_unit = number;
                    assert_eq!(model.waiting.pop_back().map(|(tag, ..)| tag), Some(tag));
                }
            }
        } else {
            left = queue_or_flush(&mut outbox, &mut lane, &mut model, step, usize::MAX);
        }
        model.expected.sends = lane.calls;
        model.check(&outbox, &left, &whole_units(&lane.taken), lane.taken.len());
    }
    assert!(outbox.is_empty());
}

fn run_static(policy: Policy, slot_bytes: usize, lends: Vec<bool>, gathers: bool, steps: &[Step]) {
    let mut lane = StaticLane::new(slot_bytes, lends);
    lane.gathers = gathers;
    let mut borrowed = HashSet::new();
    let mut outbox = Outbox::new(lane.shape(), policy, unit_length);
    let mut model = Model::default();
    for (place, step) in steps.iter().chain([&Step::Flush]).enumerate() {
        lane.is_generous |= place == steps.len();
        let mut left = Vec::new();
        match step {
            Step::Lent(length) => {
                let (number, unit) = model.unit(*length, slot_bytes);
                let mut slot = lane.lend();
                slot.room(..).put(Piece::new(&unit));
                let length = unit.len();
                let tag = model.waits(length, Some(number), true);
                outbox.push(Buffer::of(Body::Lent { slot, length }), tag);
            }
            Step::Borrowed { length, cuts } => {
                let (number, unit) = model.unit(*length, slot_bytes);
                let before = lane.commits.len();
                let tag = model.waits(unit.len(), Some(number), false);
                match outbox
                    .send_borrowed(&mut lane, &pieces(&unit, cuts), tag)
                    .unwrap()
                {
                    Borrowed::Left(tag) => {
                        left.push(tag);
                        borrowed.insert(number);
                    }
                    Borrowed::Queued => panic!("half a unit in a slot"),
                    Borrowed::NotNow(tag) => {
                        assert_eq!(lane.commits.len(), before);
                        model.pushed_bytes -= unit.len();
                        model.next_unit = number;
                        assert_eq!(model.waiting.pop_back().map(|(tag, ..)| tag), Some(tag));
                    }
                }
            }
            _ => left = queue_or_flush(&mut outbox, &mut lane, &mut model, step, slot_bytes),
        }
        let units: Vec<_> = lane
            .commits
            .iter()
            .flat_map(|slot| read_units(slot))
            .collect();
        // What is lent, and what the lane gathers: each has a slot to itself.
        let is_copied = |slot: &&Vec<u8>| {
            let first = read_units(slot)[0];
            let is_gathered = gathers && (slot.len() >= 4096 || borrowed.contains(&first));
            // Small units may fill a slot together.
            let is_alone = unit_length(slot) == slot.len();
            !(model.lent_units.contains(&first) || is_gathered && is_alone)
        };
        let copied: Vec<_> = lane.commits.iter().filter(is_copied).collect();
        assert!(lane.commits.len() <= units.len());
        model.expected.sends = lane.commits.len() as u64;
        model.expected.copies = copied
            .iter()
            .map(|slot| read_units(slot).len() as u64)
            .sum();
        model.expected.copied_bytes = copied.iter().map(|slot| slot.len() as u64).sum();
        model.check(&outbox, &left, &units, lane.taken_bytes());
    }
    assert!(outbox.is_empty());
}

proptest! {
    #[test]
    fn a_dynamic_lane_gets_every_byte_in_order_and_nothing_is_copied(
        policy in policy(),
        gather_limit in 1..100_usize,
        grants in grants(),
        steps in vec(step().prop_filter("no slots", |step| !matches!(step, Step::Lent(_))), 1..40),
    ) {
        run_dynamic(policy, gather_limit, grants, &steps);
    }

    #[test]
    fn a_static_lane_gets_every_unit_whole_and_copied_once_at_most(
        policy in policy(),
        slot_bytes in prop_oneof![Just(4096_usize), 200..80_000_usize],
        lends in vec(any::<bool>(), 1..12),
        gathers: bool,
        steps in vec(step().prop_filter("no pipes", |step| !matches!(step, Step::Piped(_))), 1..40),
    ) {
        run_static(policy, slot_bytes, lends, gathers, &steps);
    }
}
