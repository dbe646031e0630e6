//! One flow, its source and its destination, against the simplest model there is: the list
//! of messages that were packed. Any order of packing, sending, receiving, losing links and
//! restarting either end; a failure shrinks to the few steps that matter.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where it finds something wrong"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use madgate_gtm::outgoing::{Settings, Transmit};
use madgate_gtm::wire::checksum::{is_absent, is_intact};
use madgate_gtm::wire::{
    BUNDLED_BYTES, Coverage, Descriptor, Flags, FlowKey, HEADER_BYTES, Header, Kind, OPENING_BYTES,
    Opening, ReceiveMode, Refusal, SendMode,
};
use madgate_gtm::{Budget, Incoming, OpenVerdict, Outgoing, Placement, Reassembly, Time};
use proptest::prelude::*;

const FLOW: FlowKey = FlowKey {
    channel: 0,
    source: 1,
    destination: 2,
};

/// Longer than anything takes.
const GIVE_UP_AFTER: Duration = Duration::from_secs(1 << 20);

#[derive(Debug, Clone)]
enum Step {
    /// A message of blocks, each small or lent; given up at its end, perhaps.
    Pack(Vec<(usize, bool)>, bool),
    Transmit(usize),
    Urgent(usize),
    Bulk(usize),
    Back(usize),
    Consume,
    Wait,
    LoseLink,
    LinkUp,
    RestartSource,
    RestartDestination,
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![0..3000usize, 0..30usize];
    let blocks = proptest::collection::vec((length, any::<bool>()), 0..4);
    let some = || 1..6usize;
    prop_oneof![
        6 => (blocks, proptest::bool::weighted(0.2)).prop_map(|(b, abort)| Step::Pack(b, abort)),
        8 => (1..5000usize).prop_map(Step::Transmit),
        8 => some().prop_map(Step::Urgent),
        8 => some().prop_map(Step::Bulk),
        8 => some().prop_map(Step::Back),
        4 => Just(Step::Consume),
        4 => Just(Step::Wait),
        1 => Just(Step::LoseLink),
        3 => Just(Step::LinkUp),
    ]
}

fn step_or_restart() -> impl Strategy<Value = Step> {
    prop_oneof![
        50 => step(),
        1 => Just(Step::RestartSource),
        1 => Just(Step::RestartDestination),
    ]
}

struct Source {
    incarnation: u64,
    outgoing: Outgoing<Bytes>,
    /// What was packed, by number; nothing where it was given up.
    packed: Vec<Option<Vec<u8>>>,
    failed: BTreeSet<u32>,
}

struct Destination {
    incarnation: u64,
    incoming: Incoming,
    budget: Budget,
    reassembly: Reassembly,
    ahead: BTreeMap<u64, (Header, Bytes)>,
    unconsumed: VecDeque<u64>,
    begun: Vec<u8>,
    /// Incarnation of the source, number, bytes.
    received: Vec<(u64, u32, Vec<u8>)>,
}

struct Pair {
    now: Time,
    link_is_up: bool,
    source: Source,
    destination: Destination,
    urgent: VecDeque<Bytes>,
    bulk: VecDeque<Bytes>,
    back: VecDeque<Header>,
    window: u64,
    /// What went before, when an end was restarted.
    old_sources: Vec<Source>,
    old_received: Vec<(u64, u32, Vec<u8>)>,
}

impl Source {
    fn new(incarnation: u64, now: Time) -> Self {
        let settings = Settings {
            flow: FLOW,
            incarnation,
            fragment_bytes: 700,
            checksum: match incarnation % 3 {
                0 => Coverage::Whole,
                1 => Coverage::Header,
                _ => Coverage::Nothing,
            },
            crosses_gateways: incarnation.is_multiple_of(2),
            bundles: true,
            ramps: true,
            sized_by_speed: true,
            give_up_after: GIVE_UP_AFTER,
            seed: incarnation,
        };
        Self {
            incarnation,
            outgoing: Outgoing::new(settings, now),
            packed: Vec::new(),
            failed: BTreeSet::new(),
        }
    }

    fn pack(&mut self, blocks: &[(usize, bool)], abort: bool) {
        let message = self.outgoing.begin_message();
        let mut whole = Vec::new();
        let mut records = Vec::new();
        let is_small = !abort
            && (1..=BUNDLED_BYTES).contains(&blocks.iter().map(|(length, _)| 8 + length).sum())
            && blocks.iter().all(|(_, lent)| !lent);
        for (number, (length, lent)) in blocks.iter().enumerate() {
            let block = u32::try_from(number).unwrap();
            let bytes: Bytes = (0..*length)
                .map(|at| u8::try_from((at + number + self.packed.len()) % 251).unwrap())
                .collect();
            whole.extend_from_slice(&bytes);
            let length = u64::try_from(*length).unwrap();
            let descriptor =
                Descriptor::new(length, SendMode::Later, ReceiveMode::Cheaper).unwrap();
            if *lent {
                self.outgoing
                    .push_block(message, block, descriptor, bytes, false);
            } else {
                let record = [&descriptor.to_bytes()[..], &bytes].concat();
                if is_small {
                    records.extend_from_slice(&record);
                } else {
                    self.outgoing
                        .push_frame(Flags::DESCRIBED, message, block, &record);
                }
            }
        }
        if is_small {
            let flags = Flags::DESCRIBED.with(Flags::END);
            self.outgoing.push_frame(flags, message, 0, &records);
        } else if abort {
            self.outgoing.abort_message(message);
        } else {
            self.outgoing.push_frame(Flags::END, message, 0, &[]);
        }
        self.packed.push((!abort).then_some(whole));
    }
}

impl Destination {
    fn new(incarnation: u64, window: u64, now: Time) -> Self {
        Self {
            incarnation,
            incoming: Incoming::new(FLOW, incarnation, window, now),
            budget: Budget::new(window * 2),
            reassembly: Reassembly::default(),
            ahead: BTreeMap::new(),
            unconsumed: VecDeque::new(),
            begun: Vec::new(),
            received: Vec::new(),
        }
    }

    fn handle_data(&mut self, header: &Header, payload: Bytes, now: Time) -> Option<Header> {
        assert!(is_absent(header) || is_intact(header, &payload));
        let refuse =
            |reason, incarnation| Some(Header::refusal(FLOW, header.label, reason, incarnation));
        let mut payload = payload;
        if header.flags.has(Flags::OPEN) {
            let opening = Opening::parse(&payload).unwrap();
            payload = payload.slice(OPENING_BYTES..);
            let verdict = self
                .incoming
                .handle_opening(header, &opening, &mut self.budget, now);
            match verdict {
                OpenVerdict::Admitted {
                    abandon_message, ..
                } => {
                    self.ahead.clear();
                    if abandon_message {
                        self.reassembly.abandon();
                        self.begun.clear();
                    }
                }
                OpenVerdict::Repeated => {}
                OpenVerdict::Stale => return None,
                OpenVerdict::Refused(reason) => return refuse(reason, self.incarnation),
            }
            if header.is_bare_opening() {
                return None;
            }
        }
        match self.incoming.placement(header).unwrap() {
            Placement::InOrder => self.take(header, &payload, now),
            Placement::Ahead => {
                self.ahead.insert(header.position, (*header, payload));
            }
            Placement::Duplicate => self.incoming.acknowledge_again(),
            Placement::Stale => {}
            Placement::Unknown => return refuse(Refusal::Unknown, 0),
        }
        while let Some(next) = self.ahead.first_entry() {
            if self.incoming.placement(&next.get().0) != Ok(Placement::InOrder) {
                break;
            }
            let (header, payload) = next.remove();
            self.take(&header, &payload, now);
        }
        None
    }

    fn take(&mut self, header: &Header, payload: &[u8], now: Time) {
        let source = self.incoming.source_incarnation();
        let begun = &mut self.begun;
        let is_bundle = header.flags.has(Flags::BUNDLE);
        let mut bundled: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let ends = self
            .reassembly
            .handle_small(header, payload, |record, bytes| {
                let message = if is_bundle {
                    bundled.entry(record.message).or_default()
                } else {
                    &mut *begun
                };
                message.extend_from_slice(bytes);
            })
            .unwrap();
        if header.flags.has(Flags::ABORT) {
            begun.clear();
        }
        if is_bundle {
            assert!(ends && begun.is_empty());
            let messages = bundled.into_iter();
            self.received
                .extend(messages.map(|(number, bytes)| (source, number, bytes)));
        } else if ends {
            let bytes = std::mem::take(begun);
            self.received.push((source, header.message, bytes));
        }
        self.incoming.accept(header, now);
        self.unconsumed.push_back(header.charge());
    }
}

impl Pair {
    fn new(window: u64) -> Self {
        Self {
            now: Time(0),
            link_is_up: false,
            source: Source::new(1, Time(0)),
            destination: Destination::new(1000, window, Time(0)),
            urgent: VecDeque::new(),
            bulk: VecDeque::new(),
            back: VecDeque::new(),
            window,
            old_sources: Vec::new(),
            old_received: Vec::new(),
        }
    }

    fn perform(&mut self, step: &Step) {
        match step {
            Step::Pack(blocks, abort) => self.source.pack(blocks, *abort),
            Step::Transmit(limit) => self.transmit(*limit),
            Step::Urgent(frames) => self.deliver(*frames, true),
            Step::Bulk(frames) => self.deliver(*frames, false),
            Step::Back(frames) => {
                for _ in 0..*frames {
                    let Some(header) = self.back.pop_front() else {
                        break;
                    };
                    match header.kind {
                        Kind::Credit => self.source.outgoing.handle_credit(&header, self.now),
                        _ => self.source.outgoing.handle_refusal(&header, self.now),
                    }
                }
            }
            Step::Consume => {
                for charge in self.destination.unconsumed.drain(..) {
                    self.destination
                        .incoming
                        .consume(charge, &mut self.destination.budget);
                }
            }
            Step::Wait => self.wait(),
            Step::LoseLink => self.lose_link(),
            Step::LinkUp => {
                if !self.link_is_up {
                    self.link_is_up = true;
                    self.source.outgoing.handle_link_up(self.now);
                }
            }
            Step::RestartSource => {
                self.lose_link();
                let next = Source::new(self.source.incarnation + 1, self.now);
                self.old_sources
                    .push(std::mem::replace(&mut self.source, next));
            }
            Step::RestartDestination => {
                self.lose_link();
                let incarnation = self.destination.incarnation + 1;
                let next = Destination::new(incarnation, self.window, self.now);
                let old = std::mem::replace(&mut self.destination, next);
                check_order(&old.received);
                self.old_received.extend(old.received);
            }
        }
        let destination = &mut self.destination;
        if let Some(credit) = destination
            .incoming
            .poll_credit(&mut destination.budget, self.now)
            && self.link_is_up
        {
            self.back.push_back(credit);
        }
        if let Some((_, numbers)) = self.source.outgoing.take_failure(self.now) {
            self.source.failed.extend(numbers);
        }
    }

    fn transmit(&mut self, limit: usize) {
        match self.source.outgoing.poll_transmit(self.now, limit) {
            Some(Transmit::Frames(mut bytes)) => {
                while !bytes.is_empty() {
                    let header = Header::parse(bytes.first_chunk().unwrap()).unwrap();
                    self.urgent.push_back(bytes.split_to(header.frame_bytes()));
                }
            }
            Some(Transmit::Fragment {
                mut head,
                data,
                offset,
                length,
            }) => {
                let start = usize::try_from(offset).unwrap();
                head.seal([&data[start..start + length]]);
                let mut frame = BytesMut::from(head.as_bytes());
                frame.extend_from_slice(&data[start..start + length]);
                self.bulk.push_back(frame.freeze());
            }
            None => {}
        }
        if let Some(control) = self.source.outgoing.poll_control() {
            let frame = Bytes::copy_from_slice(&control.to_control_frame());
            self.urgent.push_back(frame);
        }
    }

    fn deliver(&mut self, frames: usize, urgent: bool) {
        for _ in 0..frames {
            let lane = if urgent {
                &mut self.urgent
            } else {
                &mut self.bulk
            };
            let Some(frame) = lane.pop_front() else {
                return;
            };
            let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
            let destination = &mut self.destination;
            let answer = match header.kind {
                Kind::Data => {
                    destination.handle_data(&header, frame.slice(HEADER_BYTES..), self.now)
                }
                Kind::Probe if !destination.incoming.handle_probe(&header, self.now) => {
                    Some(Header::refusal(FLOW, header.label, Refusal::Unknown, 0))
                }
                Kind::Close if destination.incoming.is_current(&header) => {
                    destination.incoming.close(&mut destination.budget);
                    destination.ahead.clear();
                    None
                }
                _ => None,
            };
            self.back.extend(answer);
        }
    }

    /// Until something is due at either end.
    fn wait(&mut self) {
        let deadlines = [
            self.source.outgoing.next_deadline(),
            self.destination.incoming.next_deadline(),
        ];
        if let Some(next) = deadlines.into_iter().flatten().min()
            && next.since(self.now) < GIVE_UP_AFTER / 2
        {
            self.now = self.now.max(next);
        }
        self.source.outgoing.handle_timeout(self.now);
    }

    fn lose_link(&mut self) {
        if !self.link_is_up {
            return;
        }
        self.link_is_up = false;
        self.urgent.clear();
        self.bulk.clear();
        self.back.clear();
        self.source.outgoing.handle_link_lost(self.now);
        let destination = &mut self.destination;
        destination
            .incoming
            .suspend(&mut destination.budget, self.now);
        destination.ahead.clear();
    }

    /// Everything that may still move moves.
    fn run_to_the_end(&mut self) {
        for _ in 0..100_000 {
            let before = (self.urgent.len(), self.source.outgoing.positions());
            self.perform(&Step::LinkUp);
            self.perform(&Step::Transmit(1 << 16));
            self.perform(&Step::Bulk(1));
            self.perform(&Step::Urgent(3));
            self.perform(&Step::Consume);
            self.perform(&Step::Back(3));
            let is_quiet = self.urgent.is_empty() && self.bulk.is_empty() && self.back.is_empty();
            if is_quiet && self.source.outgoing.is_drained() {
                return;
            }
            if is_quiet && before == (0, self.source.outgoing.positions()) {
                self.wait();
            }
        }
        panic!("it does not end: {:?}", self.source.outgoing.positions());
    }

    /// What arrived is what was packed.
    fn check(mut self) {
        check_order(&self.destination.received);
        self.old_received.append(&mut self.destination.received);
        let last = self.source.incarnation;
        self.old_sources.push(self.source);
        for source in self.old_sources {
            let arrived: BTreeMap<u32, &Vec<u8>> = self
                .old_received
                .iter()
                .filter(|(incarnation, _, _)| *incarnation == source.incarnation)
                .map(|(_, number, bytes)| (*number, bytes))
                .collect();
            for (number, packed) in source.packed.iter().enumerate() {
                let number = u32::try_from(number).unwrap();
                let arrived = arrived.get(&number);
                match (packed, arrived) {
                    (None, None) => {}
                    (None, Some(_)) => panic!("message {number} was given up and arrived"),
                    (Some(packed), Some(arrived)) => assert_eq!(packed, *arrived),
                    (Some(_), None) => assert!(
                        source.incarnation != last || source.failed.contains(&number),
                        "message {number} is lost and nobody was told"
                    ),
                }
            }
        }
    }
}

/// Nothing twice, nothing before what was packed before it.
fn check_order(received: &[(u64, u32, Vec<u8>)]) {
    assert!(received.is_sorted_by(|(a, b, _), (c, d, _)| (a, b) < (c, d)));
}

fn run(window: u64, steps: &[Step]) -> Pair {
    let mut pair = Pair::new(window);
    pair.perform(&Step::LinkUp);
    for step in steps {
        pair.perform(step);
    }
    pair.run_to_the_end();
    pair
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn everything_arrives(
        window in 16_384..60_000u64,
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let pair = run(window, &steps);
        prop_assert!(pair.source.failed.is_empty());
        pair.check();
    }

    #[test]
    fn either_end_may_go_away(
        window in 16_384..60_000u64,
        steps in proptest::collection::vec(step_or_restart(), 0..120),
    ) {
        run(window, &steps).check();
    }
}
