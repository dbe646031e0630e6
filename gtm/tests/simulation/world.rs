//! Endpoints, gateways and links together, one event after the other.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use madgate_gtm::Time;
use madgate_gtm::outgoing::Settings;
use madgate_gtm::wire::{Coverage, FlowKey};

use crate::destination::{Destination, Ledgers};
use crate::gateway::Gateway;
use crate::message::{Ledger, Message, Sizes};
use crate::network::{Event, Manners, Network, Way};
use crate::random::Random;
use crate::source::SourceFlow;
use crate::topology::Topology;

/// So much time without any progress is a deadlock.
const PATIENCE: Duration = Duration::from_secs(300);

/// Everything that a run is made of.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) topology: Topology,
    /// From, to, channel, number of messages.
    pub(crate) flows: Vec<(usize, usize, u16, usize)>,
    pub(crate) sizes: Sizes,
    pub(crate) manners: Manners,
    pub(crate) gateway_bytes: u64,
    pub(crate) endpoint_bytes: u64,
    pub(crate) window_most: u64,
    pub(crate) fragment_bytes: u32,
    pub(crate) retention: u64,
    pub(crate) give_up_after: Duration,
    pub(crate) faults: Vec<(Time, Event)>,
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) incarnation: u64,
    pub(crate) destination: Destination,
    pub(crate) sources: Vec<SourceFlow>,
    pub(crate) app_stopped: bool,
}

#[derive(Debug)]
pub(crate) enum Party {
    Endpoint(Endpoint),
    Gateway(Box<Gateway>),
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) network: Network,
    pub(crate) parties: Vec<Party>,
    pub(crate) stopped: Vec<bool>,
    pub(crate) wake_at: Vec<Option<Time>>,
    pub(crate) next_hops: HashMap<(usize, FlowKey), usize>,
    pub(crate) ledgers: Ledgers,
    /// Whether to print all that happens.
    pub(crate) trace: bool,
}

impl World {
    pub(crate) fn new(plan: Plan, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let topology = &plan.topology;
        let mut next_hops = HashMap::new();
        let mut pairs = Vec::new();
        let mut ledgers = Ledgers::new();
        let mut parties = Vec::new();
        for party in 0..topology.parties() {
            if topology.is_gateway(party) {
                parties.push(Party::Gateway(Box::new(Gateway::new(
                    party,
                    plan.gateway_bytes,
                ))));
                continue;
            }
            let incarnation = 1 + (random.next() >> 8);
            let mut sources = Vec::new();
            for &(from, to, channel, messages) in &plan.flows {
                if from != party {
                    continue;
                }
                let key = flow_key(from, to, channel);
                let route = topology.route(from, to);
                for pair in route.windows(2) {
                    next_hops.insert((pair[0], key), pair[1]);
                    pairs.push((pair[0], pair[1]));
                }
                let script = (0..messages)
                    .map(|_| Message::random(&mut random, plan.sizes))
                    .collect();
                let settings = settings_of(&plan, key, incarnation, random.next());
                let flow = SourceFlow::new(settings, route[1], script, plan.retention, Time(0));
                assert!(
                    ledgers
                        .insert((key, incarnation), Ledger::default())
                        .is_none(),
                    "a flow stands in the plan twice"
                );
                sources.push(flow);
            }
            parties.push(Party::Endpoint(Endpoint {
                incarnation,
                destination: Destination::new(incarnation, plan.window_most, plan.endpoint_bytes),
                sources,
                app_stopped: false,
            }));
        }
        pairs.sort_unstable();
        pairs.dedup();
        let mut network = Network::new(random, plan.manners);
        for (from, to) in pairs {
            let at = Time(0) + network.random.duration_us(0..5000);
            network.schedule(at, Event::LinkUp(from, to));
        }
        network.schedule(Time(0), Event::Sweep);
        for (at, fault) in &plan.faults {
            network.schedule(*at, *fault);
        }
        Self {
            stopped: vec![false; parties.len()],
            wake_at: vec![None; parties.len()],
            plan,
            network,
            parties,
            next_hops,
            ledgers,
            trace: std::env::var("SIMULATION_TRACE").is_ok(),
        }
    }

    /// Runs until every flow is done.
    pub(crate) fn run(&mut self) {
        let mut progress = (self.progress(), self.network.now);
        while !self.is_done() {
            assert!(
                self.step(),
                "nothing will ever happen again: {:#?}",
                self.state()
            );
            let now = self.progress();
            if now != progress.0 {
                progress = (now, self.network.now);
            }
            assert!(
                self.network.now.since(progress.1) < PATIENCE,
                "a deadlock: {:#?}",
                self.state()
            );
        }
    }

    /// Runs while `goes_on` says so, up to a time.
    pub(crate) fn run_until(&mut self, until: Time) {
        while self.network.now < until && self.step() {}
    }

    /// What was promised is taken back when nobody sends any more.
    pub(crate) fn wind_down(&mut self, sweep: bool) {
        let idle = self.network.now + Duration::from_secs(3);
        self.run_until(idle);
        if sweep {
            self.run_until(idle + Duration::from_secs(130));
        }
        for party in &mut self.parties {
            match party {
                Party::Gateway(gateway) => {
                    let budget = gateway.transit.budget();
                    assert_eq!((budget.flows(), budget.promised()), (0, 0));
                    assert_eq!(gateway.transit.queued_bytes(), 0);
                }
                Party::Endpoint(endpoint) => {
                    endpoint.destination.consume();
                    assert_eq!(endpoint.destination.budget.promised(), 0);
                }
            }
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.sources().all(SourceFlow::is_done)
    }

    pub(crate) fn is_flow_done(&self, key: FlowKey) -> bool {
        self.sources()
            .filter(|flow| flow.key() == key)
            .all(SourceFlow::is_done)
    }

    /// Everything arrived, or was given up, or its source was told.
    pub(crate) fn check_settled(&self) {
        for flow in self.sources() {
            let settings = self.incarnation_of(flow.key());
            assert!(self.ledgers[&(flow.key(), settings)].is_settled());
        }
    }

    pub(crate) fn nothing_failed(&self) -> bool {
        self.ledgers.values().all(|ledger| ledger.failed.is_empty())
    }

    fn incarnation_of(&self, key: FlowKey) -> u64 {
        match &self.parties[usize::try_from(key.source).unwrap()] {
            Party::Endpoint(endpoint) => endpoint.incarnation,
            Party::Gateway(_) => panic!("a gateway is no source"),
        }
    }

    fn sources(&self) -> impl Iterator<Item = &SourceFlow> {
        self.parties.iter().flat_map(|party| match party {
            Party::Endpoint(endpoint) => endpoint.sources.as_slice(),
            Party::Gateway(_) => &[],
        })
    }

    fn progress(&self) -> (u64, usize) {
        let delivered = self.sources().map(|flow| flow.outgoing.positions().0).sum();
        let received = self
            .ledgers
            .values()
            .map(|ledger| ledger.received.len() + ledger.failed.len())
            .sum();
        (delivered, received)
    }

    fn state(&self) -> Vec<String> {
        let flows = self.sources().filter(|flow| !flow.is_done()).map(|flow| {
            let route = self.plan.topology.route(
                usize::try_from(flow.key().source).unwrap(),
                usize::try_from(flow.key().destination).unwrap(),
            );
            format!(
                "{:?} over {route:?}: {:?}, {:?}, left {}",
                flow.key(),
                flow.outgoing.positions(),
                flow.outgoing.last_refusal(),
                flow.script.len()
            )
        });
        let gateways = self.parties.iter().enumerate().filter_map(|(at, party)| {
            let Party::Gateway(gateway) = party else {
                return None;
            };
            Some(format!(
                "gateway {at}: {:?}, {} queued, {:?}",
                gateway.transit.budget(),
                gateway.transit.queued_bytes(),
                gateway.transit.counters()
            ))
        });
        flows.chain(gateways).collect()
    }

    pub(crate) fn work(&mut self, party: usize) {
        if self.stopped[party] {
            return;
        }
        self.receive(party);
        let now = self.network.now;
        let soon = now + Duration::from_micros(200);
        let mut deadline: Option<Time> = None;
        let mut due = |at: Option<Time>| {
            deadline = match (deadline, at) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        };
        match &mut self.parties[party] {
            Party::Gateway(gateway) => {
                gateway.flush(&mut self.network);
                gateway.check();
                due(gateway.has_more_to_do().then_some(soon));
            }
            Party::Endpoint(endpoint) => {
                if !endpoint.app_stopped {
                    if self.network.random.chance(600) {
                        endpoint.destination.consume();
                    } else {
                        due(Some(now + self.network.random.duration_us(0..5000)));
                    }
                }
                for (link, credit) in endpoint.destination.poll_credit(&mut self.network) {
                    let frame = Bytes::copy_from_slice(&credit.to_control_frame());
                    self.network.send(link, Way::Back, frame);
                }
                due(endpoint.destination.next_deadline());
                for flow in &mut endpoint.sources {
                    let ledger = self
                        .ledgers
                        .get_mut(&(flow.key(), endpoint.incarnation))
                        .unwrap();
                    let _ = flow.note_failure(ledger, now);
                    if flow.pack(ledger, &mut self.network.random) {
                        due(Some(soon));
                    }
                    flow.flush(party, &mut self.network);
                    due(flow.outgoing.next_deadline());
                    due(flow.outgoing.has_failed().then_some(soon));
                }
                endpoint.destination.check();
            }
        }
        if let Some(at) = deadline {
            // What is overdue waits for something else, such as room on a link.
            let at = if at > now {
                at
            } else {
                now + Duration::from_millis(5)
            };
            if self.wake_at[party].is_none_or(|before| before > at) {
                self.wake_at[party] = Some(at);
                self.network.schedule(at, Event::Wake(party));
            }
        }
    }

    /// Takes in every frame that has arrived for a party.
    fn receive(&mut self, party: usize) {
        for link in 0..self.network.links.len() {
            for way in [Way::Urgent, Way::Bulk, Way::Back] {
                let ends = &self.network.links[link];
                let is_ours = match way {
                    Way::Back => ends.from == party && ends.dialer_holds,
                    _ => ends.to == party && ends.acceptor_holds,
                };
                if !is_ours {
                    continue;
                }
                let mut frames = Vec::new();
                let mut broken = false;
                while let Some(frame) = self.network.receive(link, way) {
                    match frame {
                        Ok(frame) => frames.push(frame),
                        Err(error) => {
                            assert!(self.is_mangled(), "{error}");
                            broken = true;
                            break;
                        }
                    }
                }
                if self.trace {
                    for (header, _) in &frames {
                        let at = self.network.now.0 / 1000;
                        eprintln!("{at} us, link {link}, {way:?}, at {party}: {header:?}");
                    }
                }
                if !frames.is_empty() && !broken {
                    broken = !self.handle_frames(party, link, way, frames);
                }
                if broken {
                    self.link_broken(link);
                    break;
                }
            }
        }
    }

    /// Returns whether the peer kept to the rules.
    fn handle_frames(
        &mut self,
        party: usize,
        link: usize,
        way: Way,
        frames: Vec<(madgate_gtm::Header, Bytes)>,
    ) -> bool {
        let mangled = self.is_mangled();
        let network = &mut self.network;
        let ends = &network.links[link];
        let result = match &mut self.parties[party] {
            Party::Gateway(gateway) => {
                let id = if way == Way::Back {
                    ends.dialer_id
                } else {
                    ends.acceptor_id
                };
                gateway.handle_frames(id.unwrap(), way, frames, &self.next_hops, network)
            }
            Party::Endpoint(endpoint) if way == Way::Back => {
                for (header, _) in frames {
                    if !header.is_intact_control() {
                        continue;
                    }
                    for flow in &mut endpoint.sources {
                        if flow.key() == header.flow {
                            flow.handle_control(&header, network.now);
                        }
                    }
                }
                Ok(())
            }
            Party::Endpoint(endpoint) => frames.into_iter().try_for_each(|(header, frame)| {
                let answer = endpoint.destination.handle_frame(
                    link,
                    &header,
                    &frame,
                    &mut self.ledgers,
                    network,
                )?;
                if let Some(answer) = answer {
                    let frame = Bytes::copy_from_slice(&answer.to_control_frame());
                    network.send(link, Way::Back, frame);
                }
                Ok(())
            }),
        };
        if let Err(violation) = &result {
            assert!(mangled, "a peer that is honest: {violation}");
        }
        result.is_ok()
    }

    fn is_mangled(&self) -> bool {
        self.plan.manners.corrupt_per_million > 0
    }
}

pub(crate) fn flow_key(from: usize, to: usize, channel: u16) -> FlowKey {
    FlowKey {
        channel,
        source: u32::try_from(from).unwrap(),
        destination: u32::try_from(to).unwrap(),
    }
}

pub(crate) fn settings_of(plan: &Plan, flow: FlowKey, incarnation: u64, seed: u64) -> Settings {
    Settings {
        flow,
        incarnation,
        fragment_bytes: plan.fragment_bytes,
        checksum: if plan.manners.corrupt_per_million > 0 || !seed.is_multiple_of(7) {
            Coverage::Whole
        } else {
            Coverage::Header
        },
        crosses_gateways: true,
        bundles: seed.is_multiple_of(2),
        ramps: seed.is_multiple_of(3),
        sized_by_speed: seed.is_multiple_of(5),
        give_up_after: plan.give_up_after,
        seed,
    }
}
