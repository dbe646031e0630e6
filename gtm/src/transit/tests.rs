//! Flows through one gateway, whose neighbours the test plays by hand.

mod credit;
mod held;
mod pace;

use std::collections::HashMap;

use proptest::prelude::*;

use super::{Departure, Lane, LinkId, LinkLimits, Outcome, Run, Transit, Way, link};
use crate::budget::{Budget, GUARANTEED_BYTES};
use crate::reassembly::Violation;
use crate::time::{FORGET_AFTER, Time};
use crate::wire::{
    DESCRIPTOR_BYTES, Flags, FlowKey, HEADER_BYTES, Header, Kind, OPENING_BYTES, Opening, Refusal,
};

const NOW: Time = Time(1);
const THEIRS: u64 = 99;
const LABEL: u32 = 40;

fn key(source: u32) -> FlowKey {
    FlowKey {
        channel: 1,
        source,
        destination: 1000,
    }
}

/// The fragments that flows are opened for.
const FRAGMENT_BYTES: u32 = 1 << 20;

fn opening_of(incarnation: u64) -> Opening {
    Opening {
        source_incarnation: incarnation,
        destination_incarnation: 0,
        fragment_bytes: FRAGMENT_BYTES,
    }
}

/// An opening that carries a small frame.
fn opening_header(source: u32, label: u32, position: u64) -> Header {
    Header {
        flags: Flags::OPEN.with(Flags::DESCRIBED),
        length: u32::try_from(OPENING_BYTES).unwrap() + 100,
        position,
        ..Header::new(Kind::Data, key(source), label)
    }
}

fn bare_header(source: u32, label: u32, position: u64) -> Header {
    Header {
        flags: Flags::OPEN,
        length: u32::try_from(OPENING_BYTES).unwrap(),
        ..opening_header(source, label, position)
    }
}

/// What `opening_header` costs.
const OPENED: u64 = 228;

/// The groups of the two links.
const NEAR: usize = 0;
const FAR: usize = 1;

struct Gateway {
    transit: Transit<u32>,
    near: LinkId,
    far: LinkId,
}

impl Gateway {
    fn new(bytes: u64) -> Self {
        let mut transit = Transit::new(Budget::new(bytes)).with_rates(&[None; 2], &[]);
        let [near, far] = [NEAR, FAR].map(|group| Self::link_of(&mut transit, group));
        Self { transit, near, far }
    }

    /// A link of a group.
    fn link_of(transit: &mut Transit<u32>, group: usize) -> LinkId {
        let group = Some(group);
        transit.add_limited_link(LinkLimits {
            network: group,
            neighbour: None,
        })
    }

    fn open_with(&mut self, header: &Header) -> Outcome {
        let opening = opening_of(7);
        self.transit
            .handle_opening(self.near, header, &opening, Ok(self.far), 0, NOW)
    }

    /// A flow that the destination has answered with `granted`, and the source knows.
    fn open(&mut self, source: u32, granted: u64) {
        let outcome = self.open_with(&opening_header(source, LABEL, 0));
        assert_eq!(outcome, Outcome::Send(self.far));
        assert_eq!(self.forward(Lane::Urgent).len(), 1);
        self.credit(source, OPENED, granted);
        self.control(self.near);
    }

    fn credit(&mut self, source: u32, delivered: u64, granted: u64) -> Outcome {
        let credit = Header::credit(key(source), LABEL, delivered, granted, THEIRS);
        self.transit.handle_control(self.far, &credit, NOW)
    }

    fn run(&mut self, source: u32, start: u64, end: u64, lane: Lane) -> Result<Outcome, Violation> {
        let run = Run {
            flow: key(source),
            label: LABEL,
            start,
            end,
            bytes: usize::try_from(end - start).unwrap() - 80,
            largest: usize::try_from(end - start).unwrap() - 80,
            frames: 1,
            lane,
        };
        self.transit.handle_run(self.near, &run, source, NOW)
    }

    /// All that waits for the far link's lane leaves.
    fn forward(&mut self, lane: Lane) -> Vec<u32> {
        let taken = self.take(lane, usize::MAX);
        for (_, departure) in &taken {
            self.transit.handle_departure(departure, NOW);
        }
        taken.into_iter().map(|(frame, _)| frame).collect()
    }

    fn take(&mut self, lane: Lane, limit: usize) -> Vec<(u32, Departure)> {
        let mut taken = Vec::new();
        self.transit
            .poll_transmit(self.far, lane, limit, NOW, |frame, departure| {
                taken.push((frame, departure));
            });
        taken
    }

    fn control(&mut self, link: LinkId) -> Vec<Header> {
        let mut bytes = Vec::new();
        self.transit.poll_control(link, &mut bytes, usize::MAX);
        assert!(!self.transit.has_control(link));
        bytes
            .chunks_exact(HEADER_BYTES)
            .map(|frame| Header::parse(frame.first_chunk().unwrap()).unwrap())
            .inspect(|header| assert!(header.is_intact_control()))
            .collect()
    }

    fn kinds(&mut self, link: LinkId) -> Vec<Kind> {
        let control = self.control(link);
        control.iter().map(|header| header.kind).collect()
    }

    fn granted(&mut self) -> u64 {
        let credits = self.control(self.near);
        assert_eq!((credits.len(), credits[0].kind), (1, Kind::Credit));
        credits[0].offset
    }
}

#[test]
fn a_flow_is_admitted_and_its_credit_passed_back() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open_with(&opening_header(1, LABEL, 0));
    assert!(gateway.transit.has_queued(gateway.far, Lane::Urgent));
    assert_eq!(gateway.forward(Lane::Urgent), [0]);
    assert_eq!(
        gateway.credit(1, OPENED, 50_000),
        Outcome::Send(gateway.near)
    );
    let credit = gateway.control(gateway.near)[0];
    assert_eq!((credit.position, credit.offset), (OPENED, 50_000));
    assert_eq!(credit.credit_incarnation(), THEIRS);
    let to = gateway.far;
    assert_eq!(
        gateway.run(1, OPENED, 1000, Lane::Urgent),
        Ok(Outcome::Send(to))
    );
    let passage = gateway
        .transit
        .passage(gateway.near, key(1), LABEL, NOW)
        .unwrap();
    assert_eq!((passage.to, passage.promised), (to, 49_000));
    assert_eq!(gateway.forward(Lane::Urgent), [1]);
    assert_eq!(gateway.transit.counters().frames, 2);
    assert_eq!(gateway.transit.queued_bytes(), 0);
}

#[test]
fn more_than_was_granted_is_a_violation() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 5000);
    assert!(matches!(
        gateway.run(1, OPENED, 5001, Lane::Bulk),
        Err(Violation::BeyondCredit {
            end: 5001,
            granted: 5000
        })
    ));
    gateway.run(1, OPENED, 5000, Lane::Bulk).unwrap();
    // The same place again is no place that was promised.
    assert!(gateway.run(1, OPENED, 5000, Lane::Bulk).is_err());
}

/// It was granted by the admission before this one, which its source does not know to be void.
#[test]
fn what_comes_before_the_destination_has_answered_is_of_before() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 5000);
    let told = gateway.transit.remove_link(gateway.far);
    assert_eq!(told, [gateway.near]);
    gateway.far = Gateway::link_of(&mut gateway.transit, FAR);
    // A copy of the opening that was on its way.
    let outcome = gateway.open_with(&opening_header(1, LABEL, 0));
    assert_eq!(outcome, Outcome::Send(gateway.far));
    let stale = gateway.transit.counters().stale;
    assert_eq!(
        gateway.run(1, OPENED, 5000, Lane::Bulk),
        Ok(Outcome::Dropped)
    );
    assert_eq!(gateway.transit.counters().stale, stale + 1);
}

#[test]
fn a_frame_that_is_longer_than_its_flow_was_opened_for_is_a_violation() {
    let mut gateway = Gateway::new(1 << 24);
    gateway.open(1, 1 << 22);
    let most = FRAGMENT_BYTES as usize + DESCRIPTOR_BYTES + HEADER_BYTES;
    let end = OPENED + 80 + most as u64;
    assert!(matches!(
        gateway.run(1, OPENED, end + 1, Lane::Bulk),
        Err(Violation::LongerThanOpened { bytes, most: said }) if bytes == most + 1 && said == most
    ));
    gateway.run(1, OPENED, end, Lane::Bulk).unwrap();
}

#[test]
fn flows_beyond_the_guaranteed_part_are_refused() {
    let mut gateway = Gateway::new(32 << 10);
    gateway.open(1, 10_000);
    gateway.open(2, 10_000);
    assert_eq!(
        gateway.open_with(&opening_header(3, LABEL, 0)),
        Outcome::Send(gateway.near)
    );
    let refusal = gateway.control(gateway.near)[0];
    assert_eq!(
        (refusal.reason(), refusal.flow),
        (Some(Refusal::NoRoom), key(3))
    );
    assert_eq!(gateway.transit.counters().refused, 1);
    let close = Header::new(Kind::Close, key(1), LABEL);
    assert_eq!(
        gateway.transit.handle_control(gateway.near, &close, NOW),
        Outcome::Send(gateway.far)
    );
    assert_eq!(gateway.control(gateway.far)[0].kind, Kind::Close);
    assert_eq!(
        gateway.open_with(&opening_header(3, LABEL, 0)),
        Outcome::Send(gateway.far)
    );
}

#[test]
fn a_route_that_leads_nowhere_is_refused() {
    let mut gateway = Gateway::new(1 << 20);
    let gone = gateway.transit.add_link();
    gateway.transit.remove_link(gone);
    for (to, reason) in [
        (Err(Refusal::NoRoute), Refusal::NoRoute),
        (Ok(gone), Refusal::LinkDown),
    ] {
        let header = opening_header(1, LABEL, 0);
        gateway
            .transit
            .handle_opening(gateway.near, &header, &opening_of(7), to, 0, NOW);
        assert_eq!(gateway.control(gateway.near)[0].reason(), Some(reason));
    }
    assert_eq!(gateway.transit.budget().promised(), 0);
}

#[test]
fn an_opening_that_is_repeated_is_answered_or_goes_again_or_is_still_here() {
    let mut gateway = Gateway::new(1 << 20);
    let header = opening_header(1, LABEL, 0);
    gateway.open_with(&header);
    // Still here, and so is what was taken and has not left.
    assert_eq!(gateway.open_with(&header), Outcome::Send(gateway.near));
    assert_eq!(gateway.kinds(gateway.near), [Kind::Held]);
    let taken = gateway.take(Lane::Urgent, usize::MAX);
    assert_eq!(gateway.open_with(&header), Outcome::Send(gateway.near));
    assert_eq!(gateway.kinds(gateway.near), [Kind::Held]);
    assert_eq!(taken.len(), 1);
    gateway.transit.handle_departure(&taken[0].1, NOW);
    // Gone on, without an answer.
    assert_eq!(gateway.open_with(&header), Outcome::Send(gateway.far));
    assert_eq!(gateway.forward(Lane::Urgent).len(), 1);
    assert_eq!(gateway.transit.budget().promised(), GUARANTEED_BYTES);
    // Answered.
    gateway.credit(1, OPENED, 5000);
    gateway.control(gateway.near);
    assert_eq!(gateway.open_with(&header), Outcome::Send(gateway.near));
    assert_eq!(gateway.granted(), 5000);
    assert!(!gateway.transit.has_queued(gateway.far, Lane::Urgent));
    // By somebody else.
    let other = gateway.transit.add_link();
    let to = Ok(gateway.far);
    let outcome = gateway
        .transit
        .handle_opening(other, &header, &opening_of(7), to, 0, NOW);
    assert_eq!(outcome, Outcome::Dropped);
}

#[test]
fn a_newer_opening_replaces_an_older_one_and_never_the_other_way() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 50_000);
    gateway.run(1, OPENED, 1000, Lane::Bulk).unwrap();
    assert_eq!(
        gateway.open_with(&opening_header(1, LABEL - 1, 0)),
        Outcome::Dropped
    );
    assert!(gateway.transit.queued_bytes() > 0);

    assert_eq!(
        gateway.open_with(&bare_header(1, LABEL + 1, 500)),
        Outcome::Send(gateway.far)
    );
    assert_eq!(gateway.forward(Lane::Bulk), [0u32; 0]);
    assert_eq!(gateway.transit.budget().promised(), GUARANTEED_BYTES);
    // Frames of the old one are stale, and nobody is refused for them.
    assert_eq!(gateway.run(1, 1000, 2000, Lane::Bulk), Ok(Outcome::Dropped));
    assert!(gateway.control(gateway.near).is_empty());

    // A source that was restarted starts with any label.
    let restarted = opening_header(1, 1, 0);
    let to = Ok(gateway.far);
    let near = gateway.near;
    let outcome = gateway
        .transit
        .handle_opening(near, &restarted, &opening_of(8), to, 0, NOW);
    assert_eq!(outcome, Outcome::Send(gateway.far));
    let late = bare_header(1, LABEL + 2, 0);
    assert_eq!(gateway.open_with(&late), Outcome::Dropped);
}

#[test]
fn departures_of_a_flow_that_was_forgotten_free_nothing() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 50_000);
    gateway.run(1, OPENED, 9000, Lane::Bulk).unwrap();
    let taken = gateway.take(Lane::Bulk, usize::MAX);
    let close = Header::new(Kind::Close, key(1), LABEL);
    gateway.transit.handle_control(gateway.near, &close, NOW);
    gateway.open(1, 50_000);
    let before = gateway.transit.budget().promised();
    assert_eq!(gateway.transit.handle_departure(&taken[0].1, NOW), None);
    assert_eq!(gateway.transit.budget().promised(), before);
}

#[test]
fn a_lost_link_is_told_to_whoever_is_left() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 50_000);
    gateway.open(2, 50_000);
    gateway.run(1, OPENED, 9000, Lane::Bulk).unwrap();
    let far = gateway.far;
    assert_eq!(gateway.transit.remove_link(far), [gateway.near]);
    let told = gateway.control(gateway.near);
    assert_eq!(told.len(), 2);
    assert!(
        told.iter()
            .all(|refusal| refusal.reason() == Some(Refusal::LinkLost))
    );
    assert_eq!(gateway.transit.queued_bytes(), 0);
    assert_eq!(gateway.transit.budget().promised(), 0);
    assert_eq!(gateway.transit.remove_link(far), []);

    // The link that comes next is another one.
    gateway.far = Gateway::link_of(&mut gateway.transit, FAR);
    assert_ne!(gateway.far, far);
    assert!(!gateway.transit.has_queued(far, Lane::Bulk));
    gateway.open(1, 50_000);
    assert_eq!(gateway.transit.remove_link(gateway.near), [gateway.far]);
    let told = gateway.control(gateway.far);
    assert_eq!((told.len(), told[0].kind), (1, Kind::Lost));
}

#[test]
fn strangers_are_refused_once() {
    let mut gateway = Gateway::new(1 << 20);
    for _ in 0..3 {
        gateway.run(1, 0, 1000, Lane::Urgent).unwrap();
    }
    let refusals = gateway.control(gateway.near);
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].reason(), Some(Refusal::Unknown));
    let probe = Header::new(Kind::Probe, key(1), LABEL);
    gateway.transit.handle_control(gateway.near, &probe, NOW);
    assert_eq!(
        gateway.control(gateway.near)[0].reason(),
        Some(Refusal::Unknown)
    );
    // Credit and refusals of what is not known are of no use to anybody.
    assert_eq!(gateway.credit(1, 0, 1000), Outcome::Dropped);
}

#[test]
fn control_goes_the_right_way_only() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 50_000);
    let probe = Header::new(Kind::Probe, key(1), LABEL);
    assert_eq!(
        gateway.transit.handle_control(gateway.near, &probe, NOW),
        Outcome::Send(gateway.far)
    );
    assert_eq!(
        gateway.control(gateway.far),
        [Header {
            checksum: gateway.sealed(&probe),
            ..probe
        }]
    );
    let credit = Header::credit(key(1), LABEL, 0, 60_000, THEIRS);
    assert_eq!(
        gateway.transit.handle_control(gateway.near, &credit, NOW),
        Outcome::Dropped
    );
    let refusal = Header::refusal(key(1), LABEL, Refusal::NoChannel, 0);
    assert_eq!(
        gateway.transit.handle_control(gateway.far, &refusal, NOW),
        Outcome::Send(gateway.near)
    );
    assert_eq!(
        gateway.control(gateway.near)[0].reason(),
        Some(Refusal::NoChannel)
    );
    assert_eq!(gateway.transit.budget().promised(), 0);
}

impl Gateway {
    fn sealed(&self, header: &Header) -> u32 {
        Header::parse(&header.to_control_frame()).unwrap().checksum
    }
}

#[test]
fn control_that_waits_is_bounded() {
    let mut gateway = Gateway::new(64 << 10);
    let limit = 2 * 4 + link::SPARE_CONTROL_FRAMES;
    for source in 0..u32::try_from(limit).unwrap() + 10 {
        let probe = Header::new(Kind::Probe, key(source), LABEL);
        gateway.transit.handle_control(gateway.near, &probe, NOW);
    }
    assert_eq!(gateway.control(gateway.near).len(), limit);
    assert_eq!(gateway.transit.counters().control_dropped, 10);
}

#[test]
fn silent_flows_are_forgotten_unless_something_of_theirs_waits() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 50_000);
    gateway.open(2, 50_000);
    gateway.run(2, OPENED, 9000, Lane::Bulk).unwrap();
    let later = Time(NOW.0 + 1) + FORGET_AFTER;
    gateway.transit.handle_timeout(later);
    assert_eq!(gateway.transit.budget().flows(), 1);
    gateway.forward(Lane::Bulk);
    gateway.transit.handle_timeout(later);
    assert_eq!(gateway.transit.budget().flows(), 0);
}

#[test]
fn flows_take_turns_by_bytes() {
    let mut gateway = Gateway::new(64 << 20);
    for source in [1, 2, 3] {
        gateway.open(source, 6 << 20);
    }
    // One sends large frames, one middling ones, one small ones; all as much as they may.
    let sizes = HashMap::from([(1, 200_000), (2, 65_536), (3, 1000)]);
    for (source, size) in &sizes {
        let mut at = OPENED;
        while at + size <= 4 << 20 {
            gateway.run(*source, at, at + size, Lane::Bulk).unwrap();
            at += size;
        }
    }
    let mut sent: HashMap<u32, usize> = HashMap::new();
    let mut total = 0;
    while total < 6 << 20 {
        for (source, departure) in gateway.take(Lane::Bulk, 100_000) {
            *sent.entry(source).or_default() += departure.bytes;
            total += departure.bytes;
        }
    }
    for (source, bytes) in sent {
        // Within a turn and the largest frame of what is fair.
        assert!(
            bytes.abs_diff(total / 3) < 400_000,
            "flow {source}: {bytes} of {total}"
        );
    }
}

#[test]
fn a_limit_ends_a_turn_that_goes_on_later() {
    let mut gateway = Gateway::new(16 << 20);
    for source in [1, 2] {
        gateway.open(source, 1 << 20);
        for at in 0..20 {
            gateway
                .run(
                    source,
                    OPENED + at * 1000,
                    OPENED + (at + 1) * 1000,
                    Lane::Bulk,
                )
                .unwrap();
        }
    }
    let mut order = Vec::new();
    while gateway.transit.has_queued(gateway.far, Lane::Bulk) {
        order.extend(
            gateway
                .take(Lane::Bulk, 1)
                .into_iter()
                .map(|(source, _)| source),
        );
    }
    order.dedup();
    assert_eq!(order, [1, 2]);
}

#[test]
fn lanes_do_not_wait_for_each_other() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 100_000);
    gateway.run(1, OPENED, 60_000, Lane::Bulk).unwrap();
    gateway.run(1, 60_000, 60_200, Lane::Urgent).unwrap();
    assert_eq!(gateway.forward(Lane::Urgent).len(), 1);
    assert!(gateway.transit.has_queued(gateway.far, Lane::Bulk));
}

/// What an honest neighbourhood does to a gateway.
#[derive(Debug, Clone)]
enum Step {
    Open(u32),
    Grant(u32, u64),
    Send(u32, u64),
    Take(usize),
    Depart,
    Close(u32),
    LoseFar,
    LoseNear,
}

fn step() -> impl Strategy<Value = Step> {
    let flow = || 0..6u32;
    prop_oneof![
        3 => flow().prop_map(Step::Open),
        4 => (flow(), 0..200_000u64).prop_map(|(flow, bytes)| Step::Grant(flow, bytes)),
        8 => (flow(), 0..60_000u64).prop_map(|(flow, bytes)| Step::Send(flow, bytes)),
        4 => (1..100_000usize).prop_map(Step::Take),
        4 => Just(Step::Depart),
        1 => flow().prop_map(Step::Close),
        1 => Just(Step::LoseFar),
        1 => Just(Step::LoseNear),
    ]
}

/// A flow as its two ends know it.
#[derive(Debug, Default, Clone)]
struct Ends {
    label: u32,
    sent: u64,
    granted: u64,
    granted_by_destination: u64,
    open: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever honest neighbours do: promises stay within memory, queues within promises,
    /// credit within what the destination granted, and nothing that was granted is refused.
    #[test]
    fn promises_are_kept(
        bytes in 16_384..400_000u64,
        steps in proptest::collection::vec(step(), 0..150),
    ) {
        let mut gateway = Gateway::new(bytes);
        let mut ends = vec![Ends::default(); 6];
        let mut departures: Vec<Departure> = Vec::new();
        let mut label = 0;
        for step in steps {
            match step {
                Step::Open(flow) => {
                    label += 1;
                    let end = &mut ends[usize::try_from(flow).unwrap()];
                    *end = Ends { label, ..Ends::default() };
                    let outcome = gateway.open_with(&bare_header(flow, label, 0));
                    end.open = outcome == Outcome::Send(gateway.far);
                }
                Step::Grant(flow, more) => {
                    let end = &mut ends[usize::try_from(flow).unwrap()];
                    if end.open {
                        end.granted_by_destination += more;
                        let credit = Header::credit(
                            key(flow), end.label, 0, end.granted_by_destination, THEIRS,
                        );
                        gateway.transit.handle_control(gateway.far, &credit, NOW);
                    }
                }
                Step::Send(flow, bytes) => {
                    let end = &mut ends[usize::try_from(flow).unwrap()];
                    let charge = bytes + 128;
                    if end.open && end.sent + charge <= end.granted {
                        let run = Run {
                            flow: key(flow),
                            label: end.label,
                            start: end.sent,
                            end: end.sent + charge,
                            bytes: usize::try_from(bytes).unwrap() + HEADER_BYTES,
                            largest: usize::try_from(bytes).unwrap() + HEADER_BYTES,
                            frames: 1,
                            lane: if bytes > 4000 { Lane::Bulk } else { Lane::Urgent },
                        };
                        end.sent += charge;
                        let outcome = gateway.transit.handle_run(gateway.near, &run, flow, NOW);
                        prop_assert_eq!(outcome, Ok(Outcome::Send(gateway.far)));
                    }
                }
                Step::Take(limit) => {
                    for lane in [Lane::Urgent, Lane::Bulk] {
                        departures.extend(gateway.take(lane, limit).into_iter().map(|(_, d)| d));
                    }
                }
                Step::Depart => {
                    for departure in departures.drain(..) {
                        gateway.transit.handle_departure(&departure, NOW);
                    }
                }
                Step::Close(flow) => {
                    let end = &mut ends[usize::try_from(flow).unwrap()];
                    if end.open {
                        let close = Header::new(Kind::Close, key(flow), end.label);
                        gateway.transit.handle_control(gateway.near, &close, NOW);
                        end.open = false;
                    }
                }
                Step::LoseFar => {
                    gateway.transit.remove_link(gateway.far);
                    gateway.far = Gateway::link_of(&mut gateway.transit, FAR);
                    ends.iter_mut().for_each(|end| end.open = false);
                }
                Step::LoseNear => {
                    gateway.transit.remove_link(gateway.near);
                    gateway.near = Gateway::link_of(&mut gateway.transit, NEAR);
                    ends.iter_mut().for_each(|end| end.open = false);
                }
            }
            for credit in gateway.control(gateway.near) {
                let end = &mut ends[usize::try_from(credit.flow.source).unwrap()];
                if credit.kind == Kind::Credit && credit.label == end.label && end.open {
                    prop_assert!(credit.offset <= end.granted_by_destination.max(end.granted));
                    end.granted = end.granted.max(credit.offset);
                }
            }
            let promised = gateway.transit.budget().promised();
            prop_assert!(promised <= bytes);
            prop_assert!(gateway.transit.queued_bytes() <= promised);
            let way = gateway.transit.way(NEAR, FAR);
            prop_assert_eq!(way.queued_bytes, gateway.transit.queued_bytes());
            prop_assert_eq!(way.parked_flows, gateway.transit.counters().parked_flows);
            let open = ends.iter().filter(|end| end.open).count();
            prop_assert_eq!(usize::try_from(gateway.transit.budget().flows()).unwrap(), open);
        }
        gateway.transit.remove_link(gateway.near);
        prop_assert_eq!(gateway.transit.budget().promised(), 0);
        prop_assert_eq!(gateway.transit.queued_bytes(), 0);
        let way = gateway.transit.way(NEAR, FAR);
        prop_assert_eq!((way.queued_bytes, way.parked_flows), (0, 0));
    }
}
