//! Rates and weights, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::super::{CATCH_UP, LinkLimits, Rate, Share};
use super::*;

/// Bytes of each frame, header included.
const FRAME: usize = 60_000;
const SECOND: Duration = Duration::from_secs(1);

fn rate(megabytes: u64) -> Option<Rate> {
    Rate::from_bytes_per_second(megabytes * 1_000_000)
}

/// Bytes of each small one.
const SMALL_FRAME: usize = 1000;

/// A flow whose source sends as much as it may.
struct Source {
    lane: Lane,
    frame: usize,
    key: FlowKey,
    link: usize,
    position: u64,
    granted: u64,
    left: u64,
}

/// A gateway, sources before it that always have something to send, and links beyond.
struct World {
    transit: Transit<usize>,
    near: LinkId,
    far: Vec<LinkId>,
    /// Links whose neighbour takes nothing.
    blocked: Vec<usize>,
    sources: Vec<Source>,
    /// Links to ask now.
    touched: VecDeque<LinkId>,
    /// Links to ask then.
    timed: BTreeMap<LinkId, Time>,
    now: Time,
}

impl World {
    /// Links to neighbours that may be so fast each, over a network that may be so fast.
    fn new(shares: Vec<Share>, network: Option<Rate>, neighbours: &[Option<Rate>]) -> Self {
        let rated = neighbours.iter().enumerate();
        let rated = rated.filter_map(|(at, rate)| Some((at, (*rate)?)));
        let (places, rates): (Vec<_>, Vec<_>) = rated.unzip();
        let links = (0..neighbours.len()).map(|at| LinkLimits {
            network: Some(0),
            neighbour: places.iter().position(|place| *place == at),
        });
        Self::of(shares, network, &rates, &links.collect::<Vec<_>>())
    }

    fn of(
        shares: Vec<Share>,
        network: Option<Rate>,
        neighbours: &[Rate],
        links: &[LinkLimits],
    ) -> Self {
        let mut transit = Transit::new(Budget::new(64 << 20))
            .with_shares(shares)
            .with_rates(&[network], neighbours);
        let near = transit.add_link();
        let far = links
            .iter()
            .map(|limits| transit.add_limited_link(*limits))
            .collect();
        Self {
            transit,
            near,
            far,
            blocked: Vec::new(),
            sources: Vec::new(),
            touched: VecDeque::new(),
            timed: BTreeMap::new(),
            now: Time(0),
        }
    }

    /// A flow of `channel` over link `link`, of large frames.
    fn open(self, channel: u16, link: usize) -> Self {
        self.open_with(channel, link, Lane::Bulk, FRAME)
    }

    /// A flow of small ones.
    fn open_small(self, channel: u16, link: usize) -> Self {
        self.open_with(channel, link, Lane::Urgent, SMALL_FRAME)
    }

    fn open_with(mut self, channel: u16, link: usize, lane: Lane, frame: usize) -> Self {
        let number = u32::try_from(self.sources.len()).unwrap();
        let key = FlowKey {
            channel,
            source: number,
            destination: 1000,
        };
        let header = Header {
            flow: key,
            ..bare_header(number, LABEL, 0)
        };
        let to = Ok(self.far[link]);
        let opening = opening_of(7);
        self.transit.handle_opening(
            self.near,
            &header,
            &opening,
            to,
            self.sources.len(),
            self.now,
        );
        self.transit.poll_transmit(
            self.far[link],
            Lane::Urgent,
            usize::MAX,
            self.now,
            |_, departure| assert!(departure.frames == 1),
        );
        let credit = Header::credit(key, LABEL, 0, u64::MAX / 2, THEIRS);
        self.transit
            .handle_control(self.far[link], &credit, self.now);
        self.sources.push(Source {
            lane,
            frame,
            key,
            link,
            position: 0,
            granted: 0,
            left: 0,
        });
        self
    }

    /// Sources hear what they were promised.
    fn receive_nothing(&mut self) {
        let mut control = Vec::new();
        self.transit
            .poll_control(self.near, &mut control, usize::MAX);
        for frame in control.chunks(HEADER_BYTES) {
            let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
            let source = &mut self.sources[header.flow.source as usize];
            source.granted = header.offset;
        }
    }

    /// Sources send what they were promised a place for.
    fn receive(&mut self) {
        self.receive_nothing();
        for (number, source) in self.sources.iter_mut().enumerate() {
            while source.position + source.frame as u64 + 80 <= source.granted {
                let run = Run {
                    flow: source.key,
                    label: LABEL,
                    start: source.position,
                    end: source.position + source.frame as u64 + 80,
                    bytes: source.frame,
                    largest: source.frame,
                    frames: 1,
                    lane: source.lane,
                };
                source.position = run.end;
                let outcome = self.transit.handle_run(self.near, &run, number, self.now);
                assert_eq!(outcome.unwrap(), Outcome::Send(self.far[source.link]));
                self.touched.push_back(self.far[source.link]);
            }
        }
    }

    /// Whoever is to be asked sends what it may, and nobody else. Returns when to go on.
    fn send(&mut self) -> Option<Time> {
        let now = self.now;
        let due = self.timed.extract_if(.., |_, at| *at <= now);
        self.touched.extend(due.map(|(link, _)| link));
        while let Some(link) = self.touched.pop_front() {
            while self.ask(link) {
                self.receive();
            }
        }
        self.timed.values().min().copied()
    }

    /// Asks one link. Returns whether it has sent anything.
    fn ask(&mut self, link: LinkId) -> bool {
        let Some(number) = self.far.iter().position(|far| *far == link) else {
            return false;
        };
        let mut departures = Vec::new();
        let mut is_denied = false;
        if !self.blocked.contains(&number) {
            for lane in self.transit.lane_order(link, self.now) {
                let sources = &mut self.sources;
                let take = |source: usize, departure: Departure| {
                    assert_eq!(sources[source].link, number);
                    sources[source].left += departure.bytes as u64;
                    departures.push(departure);
                };
                let waits = self
                    .transit
                    .poll_transmit(link, lane, 1 << 20, self.now, take);
                self.touched.extend(waits.turns_of.into_iter().flatten());
                is_denied |= waits.is_denied();
                if let Some(until) = waits.until {
                    assert!(until > self.now, "nobody asks again and again");
                    let known = self.timed.entry(link).or_insert(until);
                    *known = until.min(*known);
                }
            }
        }
        if departures.is_empty() && !is_denied {
            let passed = self.transit.pass_turns(link);
            self.touched.extend(passed.into_iter().flatten());
        }
        for departure in &departures {
            self.transit.handle_departure(departure, self.now);
        }
        !departures.is_empty()
    }

    /// Megabytes that each flow sends in a second, by a thread that is woken `late`.
    fn rates(mut self, late: Duration) -> Vec<u64> {
        let start = self.now;
        self.receive();
        while self.now.since(start) < SECOND {
            let next = self.send().expect("every link is limited");
            self.now = next + late;
        }
        let promised = self.transit.budget().promised();
        assert!(self.transit.queued_bytes() <= promised);
        self.sources
            .iter()
            .map(|source| (source.left + 500_000) / 1_000_000)
            .collect()
    }
}

fn assert_about(found: &[u64], expected: &[u64]) {
    let close = |(found, expected): (&u64, &u64)| found.abs_diff(*expected) <= expected / 20 + 1;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(close),
        "{found:?} instead of {expected:?}"
    );
}

#[test]
fn a_link_keeps_to_its_rate() {
    for late in [Duration::ZERO, Duration::from_millis(1), CATCH_UP / 2] {
        let world = World::new(Vec::new(), None, &[rate(200)])
            .open(1, 0)
            .open(1, 0);
        assert_about(&world.rates(late), &[100, 100]);
    }
}

#[test]
fn a_flow_keeps_to_its_rate_and_leaves_the_rest_to_others() {
    let slow = Share {
        rate: rate(10),
        ..Share::default()
    };
    let shares = vec![slow, Share::default()];
    let world = World::new(shares, None, &[rate(200)])
        .open(0, 0)
        .open(1, 0)
        .open(0, 0);
    assert_about(&world.rates(Duration::from_millis(1)), &[10, 180, 10]);
}

#[test]
fn flows_share_a_link_by_the_weight_of_their_channel() {
    let heavy = Share {
        weight: 3,
        rate: None,
    };
    let shares = vec![heavy, Share::default()];
    let world = World::new(shares, None, &[rate(200)]).open(0, 0).open(1, 0);
    assert_about(&world.rates(Duration::from_millis(1)), &[150, 50]);
}

#[test]
fn small_messages_and_large_ones_share_a_link_by_weight_too() {
    let heavy = Share {
        weight: 3,
        rate: None,
    };
    let of = |shares| World::new(shares, None, &[rate(200)]);
    let world = of(vec![heavy, Share::default()])
        .open(0, 0)
        .open_small(1, 0);
    assert_about(&world.rates(Duration::from_millis(1)), &[150, 50]);
    let world = of(vec![Share::default(), heavy])
        .open(0, 0)
        .open_small(1, 0);
    assert_about(&world.rates(Duration::from_millis(1)), &[50, 150]);
    let world = of(Vec::new())
        .open(1, 0)
        .open_small(1, 0)
        .open_small(1, 0)
        .open(1, 0);
    assert_about(&world.rates(Duration::from_millis(1)), &[50; 4]);
}

#[test]
fn links_of_a_group_share_its_rate_with_small_messages_and_large_ones() {
    let world = World::new(Vec::new(), rate(200), &[None; 2])
        .open(1, 0)
        .open_small(1, 0)
        .open(1, 1);
    let rates = world.rates(Duration::from_micros(500));
    assert_about(&rates, &[50, 50, 100]);
}

#[test]
fn links_of_a_group_share_its_rate_whatever_each_has() {
    let world = World::new(Vec::new(), rate(300), &[None; 3])
        .open(1, 0)
        .open(1, 1)
        .open(1, 1)
        .open(1, 2);
    let rates = world.rates(Duration::from_micros(500));
    assert_about(&rates, &[100, 50, 50, 100]);
}

#[test]
fn a_link_that_takes_nothing_does_not_hold_up_its_group() {
    let mut world = World::new(Vec::new(), rate(200), &[None; 3])
        .open(1, 0)
        .open(1, 1)
        .open(1, 2);
    // It waits for its turn, and then its neighbour stands still.
    world.receive();
    world.send();
    world.blocked = vec![1];
    let rates = world.rates(Duration::from_micros(100));
    assert_about(&rates, &[100, 1, 100]);
}

#[test]
fn a_link_has_a_rate_of_its_own_in_its_group() {
    for late in [Duration::ZERO, Duration::from_micros(100)] {
        let world = World::new(Vec::new(), rate(200), &[rate(20), None])
            .open(1, 0)
            .open(1, 1);
        assert_about(&world.rates(late), &[20, 180]);
    }
}

#[test]
fn two_links_to_a_neighbour_share_its_rate() {
    let shared = LinkLimits {
        network: Some(0),
        neighbour: Some(0),
    };
    let other = LinkLimits {
        neighbour: None,
        ..shared
    };
    for network in [None, rate(200)] {
        let links = [shared, shared, other];
        let world = World::of(Vec::new(), network, &[rate(20).unwrap()], &links)
            .open(1, 0)
            .open(1, 1);
        let world = match network {
            Some(_) => world.open(1, 2),
            None => world,
        };
        let expected = [10, 10, 180];
        let rates = world.rates(Duration::from_micros(100));
        assert_about(&rates, &expected[..rates.len()]);
    }
}

/// Whoever waits for a turn is asked when it comes, and not when a clock says so.
#[test]
fn a_rate_that_allows_everything_holds_nothing_up() {
    // All at one time, and nothing is promised anew as nothing is said to have left.
    let mut world = World::new(Vec::new(), rate(1_000_000), &[None; 2])
        .open(1, 0)
        .open(1, 1);
    world.now = Time(1_000_000_000);
    world.receive();
    let mut touched: VecDeque<LinkId> = world.far.iter().copied().collect();
    let mut sent = Vec::new();
    while let Some(link) = touched.pop_front() {
        let mut bytes = 0;
        let take = |_, departure: Departure| bytes += departure.bytes;
        let waits = world
            .transit
            .poll_transmit(link, Lane::Bulk, 1 << 20, world.now, take);
        assert_eq!((waits.until, waits.is_closed), (None, false));
        touched.extend(waits.turns_of.into_iter().flatten());
        if bytes > 0 {
            sent.push(link);
            touched.push_back(link);
        } else if !waits.is_denied() {
            let passed = world.transit.pass_turns(link);
            touched.extend(passed.into_iter().flatten());
        }
    }
    let waits = |link: &LinkId| world.transit.has_queued(*link, Lane::Bulk);
    assert!(!world.far.iter().any(waits));
    // The first has sent before the second was there. Then they alternate, while both have something.
    let last = |link| sent.iter().rposition(|sender| *sender == link).unwrap();
    let both = last(world.far[0]).min(last(world.far[1]));
    assert!(both > 10, "{sent:?}");
    let alternate = |pair: &[LinkId]| pair[0] != pair[1];
    assert!(sent[1..both].windows(2).all(alternate), "{sent:?}");
}

/// A message is there when all before it are: under a rate of its own a flow only loses by sending what
/// is small first.
#[test]
fn small_messages_of_a_flow_with_a_rate_do_not_pass_large_ones() {
    for (share, order) in [
        (Share::default(), [1, 2, 3, 0]),
        (
            Share {
                rate: rate(1),
                ..Share::default()
            },
            [0, 1, 2, 3],
        ),
    ] {
        let mut world = World::new(vec![share], None, &[None]).open(0, 0);
        world.receive_nothing();
        let key = world.sources[0].key;
        let mut position = 0;
        for (number, lane) in [Lane::Bulk, Lane::Urgent, Lane::Urgent, Lane::Urgent]
            .into_iter()
            .enumerate()
        {
            let run = Run {
                flow: key,
                label: LABEL,
                start: position,
                end: position + 1080,
                bytes: 1000,
                largest: 1000,
                frames: 1,
                lane,
            };
            position = run.end;
            let outcome = world
                .transit
                .handle_run(world.near, &run, number, world.now);
            assert!(outcome.is_ok());
        }
        let mut left = Vec::new();
        for _ in 0..100 {
            for lane in world.transit.lane_order(world.far[0], world.now) {
                let take = |number, _| left.push(number);
                world
                    .transit
                    .poll_transmit(world.far[0], lane, 1 << 20, world.now, take);
            }
            world.now = world.now + Duration::from_millis(1);
        }
        assert_eq!(left, order);
    }
}

#[test]
fn flows_and_links_that_end_are_not_waited_for() {
    let slow = Share {
        rate: rate(1),
        ..Share::default()
    };
    let mut world = World::new(vec![slow], rate(200), &[None; 2])
        .open(0, 0)
        .open(1, 0)
        .open(1, 1);
    world.receive();
    world.send();
    assert!(world.transit.has_queued(world.far[0], Lane::Bulk));
    let close = Header::new(Kind::Close, world.sources[0].key, LABEL);
    let now = world.now;
    world.transit.handle_control(world.near, &close, now);
    world.transit.remove_link(world.far[1]);
    world.sources.retain(|source| source.key.source == 1);
    let mut left = 0;
    for step in 0..100 {
        let now = Time(1_000_000 * step);
        world
            .transit
            .poll_transmit(world.far[0], Lane::Bulk, 1 << 20, now, |_, departure| {
                left += departure.bytes;
            });
    }
    let far = world.far[0];
    assert!(left > 0 && !world.transit.has_queued(far, Lane::Bulk));
    assert!(!world.transit.has_held_back(far));
}

/// What another channel's rate holds back is not in the way of what may leave now.
#[test]
fn what_a_flow_holds_back_is_not_queued_for_its_link() {
    let slow = Share {
        rate: rate(1),
        ..Share::default()
    };
    let mut world = World::new(vec![slow], None, &[None]).open(0, 0);
    world.receive();
    assert!(!world.transit.has_held_back(world.far[0]));
    world.send();
    world.receive();
    world.send();
    let far = world.far[0];
    let queued = [Lane::Urgent, Lane::Bulk].map(|lane| world.transit.has_queued(far, lane));
    assert_eq!(queued, [false; 2]);
    assert!(world.transit.has_held_back(far));
}

/// A source closes a flow that has been idle for a moment, and opens it again.
#[test]
fn what_a_flow_has_to_pay_for_is_kept_when_it_is_closed() {
    let at = |millis: u64| Time(1_000_000 * millis);
    let slow = Share {
        rate: rate(1),
        ..Share::default()
    };
    let mut gateway = Gateway::new(16 << 20);
    gateway.transit = gateway.transit.with_shares(vec![Share::default(), slow]);
    gateway.open(1, 1 << 20);
    let run = Run {
        flow: key(1),
        label: LABEL,
        start: OPENED,
        end: OPENED + 100_080,
        bytes: 100_000,
        largest: 100_000,
        frames: 1,
        lane: Lane::Bulk,
    };
    let (near, far) = (gateway.near, gateway.far);
    let transit = &mut gateway.transit;
    transit.handle_run(near, &run, 1, at(1000)).unwrap();
    let mut left = 0;
    transit.poll_transmit(far, Lane::Bulk, usize::MAX, at(1000), |_, _| left += 1);
    assert_eq!(left, 1);
    let mut come_again = |label, now| {
        let close = Header::new(Kind::Close, key(1), label);
        transit.handle_control(near, &close, now);
        let opening = opening_header(1, label + 1, run.end);
        transit.handle_opening(near, &opening, &opening_of(7), Ok(far), 2, now);
        let mut left = 0;
        let waits = transit.poll_transmit(far, Lane::Urgent, usize::MAX, now, |_, _| left += 1);
        (left, waits.until)
    };
    // 100 kB, of which 10 ms are let pass.
    assert_eq!(come_again(LABEL, at(1001)), (0, Some(at(1090))));
    assert_eq!(come_again(LABEL + 1, at(1002)), (0, Some(at(1090))));
    assert_eq!(come_again(LABEL + 2, at(1090)).0, 1);
    let close = Header::new(Kind::Close, key(1), LABEL + 3);
    transit.handle_control(near, &close, at(1090));
    assert_eq!(transit.debts.len(), 1);
    transit.handle_timeout(at(2000));
    assert!(transit.debts.is_empty(), "nobody asks for it any more");
}

/// However long that is: nothing leaves meanwhile, and that is no fault of the neighbour's.
#[test]
fn what_waits_for_a_rate_is_said_to_be_held() {
    let slow = Rate::from_bytes_per_second(10);
    let mut transit: Transit<()> = Transit::new(Budget::new(1 << 20)).with_rates(&[slow], &[]);
    let near = transit.add_link();
    let far = transit.add_limited_link(LinkLimits {
        network: Some(0),
        neighbour: None,
    });
    let [first, second] = [1, 2].map(|source| opening_header(source, LABEL, 0));
    let mut open = |header: &Header, now| {
        let outcome = transit.handle_opening(near, header, &opening_of(7), Ok(far), (), now);
        let mut taken = Vec::new();
        transit.poll_transmit(far, Lane::Urgent, usize::MAX, now, |(), it| taken.push(it));
        for departure in &taken {
            transit.handle_departure(departure, now);
        }
        (outcome, taken.len())
    };
    assert_eq!(open(&first, NOW), (Outcome::Send(far), 1));
    assert_eq!(open(&second, NOW), (Outcome::Send(far), 0));
    // Some 170 bytes are being paid for.
    assert_eq!(open(&second, NOW + 10 * SECOND), (Outcome::Send(near), 0));
    let mut control = Vec::new();
    transit.poll_control(near, &mut control, usize::MAX);
    let held = Header::parse(control.first_chunk().unwrap()).unwrap();
    assert_eq!((held.kind, held.flow), (Kind::Held, second.flow));
}
