//! Rates and weights, in virtual time.

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
    now: Time,
}

impl World {
    fn new(shares: Vec<Share>, group: Option<Rate>, links: &[LinkLimits]) -> Self {
        let mut transit = Transit::new(Budget::new(64 << 20))
            .with_shares(shares)
            .with_groups(&[group]);
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

    /// Sources send what they were promised a place for.
    fn receive(&mut self) {
        let mut control = Vec::new();
        self.transit
            .poll_control(self.near, &mut control, usize::MAX);
        for frame in control.chunks(HEADER_BYTES) {
            let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
            let source = &mut self.sources[header.flow.source as usize];
            source.granted = header.offset;
        }
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
                self.transit
                    .handle_run(self.near, &run, number, self.now)
                    .unwrap();
            }
        }
    }

    /// Every link sends what it may. Returns when to go on.
    fn send(&mut self) -> Option<Time> {
        let mut next = None;
        loop {
            let mut departures = Vec::new();
            for (number, link) in self.far.iter().enumerate() {
                if self.blocked.contains(&number) {
                    continue;
                }
                for lane in self.transit.lane_order(*link, self.now) {
                    let sources = &mut self.sources;
                    let again = self.transit.poll_transmit(
                        *link,
                        lane,
                        1 << 20,
                        self.now,
                        |source, departure| {
                            assert_eq!(sources[source].link, number);
                            sources[source].left += departure.bytes as u64;
                            departures.push(departure);
                        },
                    );
                    next = again.into_iter().chain(next).min();
                }
            }
            if departures.is_empty() {
                return next;
            }
            next = None;
            for departure in departures {
                self.transit.handle_departure(&departure, self.now);
            }
            self.receive();
        }
    }

    /// Megabytes that each flow sends in a second, by a thread that is woken `late`.
    fn rates(mut self, late: Duration) -> Vec<u64> {
        let start = self.now;
        self.receive();
        while self.now.since(start) < SECOND {
            let next = self.send().expect("every link is limited");
            assert!(next > self.now, "nobody asks again and again");
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
        let limits = LinkLimits {
            rate: rate(200),
            group: None,
        };
        let world = World::new(Vec::new(), None, &[limits])
            .open(1, 0)
            .open(1, 0);
        assert_about(&world.rates(late), &[100, 100]);
    }
}

#[test]
fn a_flow_keeps_to_its_rate_and_leaves_the_rest_to_others() {
    let limits = LinkLimits {
        rate: rate(200),
        group: None,
    };
    let slow = Share {
        rate: rate(10),
        ..Share::default()
    };
    let shares = vec![slow, Share::default()];
    let world = World::new(shares, None, &[limits])
        .open(0, 0)
        .open(1, 0)
        .open(0, 0);
    assert_about(&world.rates(Duration::from_millis(1)), &[10, 180, 10]);
}

#[test]
fn flows_share_a_link_by_the_weight_of_their_channel() {
    let limits = LinkLimits {
        rate: rate(200),
        group: None,
    };
    let heavy = Share {
        weight: 3,
        rate: None,
    };
    let shares = vec![heavy, Share::default()];
    let world = World::new(shares, None, &[limits]).open(0, 0).open(1, 0);
    assert_about(&world.rates(Duration::from_millis(1)), &[150, 50]);
}

#[test]
fn small_messages_and_large_ones_share_a_link_by_weight_too() {
    let limits = LinkLimits {
        rate: rate(200),
        group: None,
    };
    let heavy = Share {
        weight: 3,
        rate: None,
    };
    let of = |shares| World::new(shares, None, &[limits]);
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
    let limits = LinkLimits {
        rate: None,
        group: Some(0),
    };
    let world = World::new(Vec::new(), rate(200), &[limits; 2])
        .open(1, 0)
        .open_small(1, 0)
        .open(1, 1);
    let rates = world.rates(Duration::from_micros(500));
    assert_about(&rates, &[50, 50, 100]);
}

#[test]
fn links_of_a_group_share_its_rate_whatever_each_has() {
    let limits = LinkLimits {
        rate: None,
        group: Some(0),
    };
    let world = World::new(Vec::new(), rate(300), &[limits; 3])
        .open(1, 0)
        .open(1, 1)
        .open(1, 1)
        .open(1, 2);
    let rates = world.rates(Duration::from_micros(500));
    assert_about(&rates, &[100, 50, 50, 100]);
}

#[test]
fn a_link_that_takes_nothing_does_not_hold_up_its_group() {
    let limits = LinkLimits {
        rate: None,
        group: Some(0),
    };
    let mut world = World::new(Vec::new(), rate(200), &[limits; 3])
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
    let free = LinkLimits {
        rate: None,
        group: Some(0),
    };
    let slow = LinkLimits {
        rate: rate(20),
        ..free
    };
    let world = World::new(Vec::new(), rate(200), &[slow, free])
        .open(1, 0)
        .open(1, 1);
    assert_about(&world.rates(Duration::from_micros(100)), &[20, 180]);
}

#[test]
fn flows_and_links_that_end_are_not_waited_for() {
    let limits = LinkLimits {
        rate: None,
        group: Some(0),
    };
    let slow = Share {
        rate: rate(1),
        ..Share::default()
    };
    let mut world = World::new(vec![slow], rate(200), &[limits; 2])
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
    assert!(left > 0 && !world.transit.has_queued(world.far[0], Lane::Bulk));
}

/// However long that is: nothing leaves meanwhile, and that is no fault of the neighbour's.
#[test]
fn what_waits_for_a_rate_is_said_to_be_held() {
    let slow = Rate::from_bytes_per_second(10);
    let mut transit: Transit<()> = Transit::new(Budget::new(1 << 20)).with_groups(&[slow]);
    let near = transit.add_link();
    let far = transit.add_limited_link(LinkLimits {
        rate: None,
        group: Some(0),
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
