//! Sources, gateways and destinations in virtual time, over links that delay, split at every
//! byte, lose and corrupt what they carry. Every run has a seed, printed when it fails; set
//! `SIMULATION_SEED` to run that one alone, `SIMULATION_TRACE` to see what happens in it, and
//! `SIMULATION_CASES` to run more of them.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where it finds something wrong"
)]

mod destination;
mod faults;
mod gateway;
mod message;
mod network;
mod plans;
mod random;
mod source;
mod topology;
mod world;

use std::time::Duration;

use madgate_gtm::Time;

use crate::network::Event;
use crate::plans::{direct_to_neighbour, everyone, random_plan, random_plan_with};
use crate::random::Random;
use crate::topology::Topology;
use crate::world::{Plan, World, flow_key};

/// Runs `case` with one seed after the other.
fn for_seeds(cases: u64, case: impl Fn(u64)) {
    struct Named(u64);
    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("failed with SIMULATION_SEED={}", self.0);
            }
        }
    }
    let number = |name| std::env::var(name).ok().map(|value| value.parse().unwrap());
    if let Some(seed) = number("SIMULATION_SEED") {
        let _named = Named(seed);
        return case(seed);
    }
    for seed in 0..number("SIMULATION_CASES").unwrap_or(cases) {
        let _named = Named(seed);
        case(seed);
    }
}

/// Runs a plan in which nothing may fail.
fn run_whole(plan: Plan, seed: u64, sweep: bool) -> World {
    let mut world = World::new(plan, seed);
    world.run();
    world.check_settled();
    assert!(world.nothing_failed());
    world.wind_down(sweep);
    world
}

#[test]
fn everything_arrives_in_order_over_any_topology() {
    for_seeds(600, |seed| {
        run_whole(random_plan(seed), seed, false);
    });
}

#[test]
fn lost_links_and_restarted_gateways_lose_nothing() {
    for_seeds(600, |seed| {
        let mut random = Random::new(seed ^ 0xfa01);
        let mut plan = random_plan(seed);
        let pairs = plan.pairs();
        for _ in 0..random.within(1..8) {
            let at = Time(0) + random.duration_us(0..400_000);
            let (from, to) = random.pick(&pairs);
            let away = u64::try_from(random.within(0..300_000)).unwrap();
            let gateways = plan.topology.gateways.len();
            let fault = if gateways > 0 && random.chance(400) {
                Event::Restart(plan.topology.endpoints.len() + random.within(0..gateways))
            } else {
                Event::LinkLost(from, to, away)
            };
            plan.faults.push((at, fault));
        }
        run_whole(plan, seed, false);
    });
}

#[test]
fn lost_control_frames_stall_nobody_for_ever() {
    for_seeds(300, |seed| {
        let mut plan = random_plan(seed);
        plan.manners.drop_control_permille = 200;
        run_whole(plan, seed, true);
    });
}

#[test]
fn corruption_is_found_and_mended() {
    for_seeds(300, |seed| {
        let mut plan = random_plan(seed);
        plan.manners.corrupt_per_million = 20;
        run_whole(plan, seed, true);
    });
}

#[test]
fn restarted_endpoints_get_nothing_twice_and_every_loss_is_named() {
    for_seeds(600, |seed| {
        let mut random = Random::new(seed ^ 0x0dd);
        let mut plan = random_plan(seed);
        for _ in 0..random.within(1..4) {
            let at = Time(0) + random.duration_us(0..300_000);
            let party = random.within(0..plan.topology.endpoints.len());
            plan.faults.push((at, Event::Restart(party)));
        }
        let mut world = World::new(plan, seed);
        world.run();
        world.check_settled();
        world.wind_down(true);
    });
}

#[test]
fn a_destination_that_is_away_for_too_long_fails_its_flows_alone() {
    for_seeds(100, |seed| {
        let mut plan = random_plan(seed);
        plan.give_up_after = Duration::from_secs(2);
        let pairs = plan.pairs();
        let (from, to) = pairs[0];
        plan.faults.push((
            Time(0) + Duration::from_millis(5),
            Event::LinkLost(from, to, 10_000_000),
        ));
        let mut world = World::new(plan, seed);
        world.run();
        world.check_settled();
        world.wind_down(true);
    });
}

#[test]
fn a_ring_with_the_smallest_budgets_runs_to_the_end() {
    for_seeds(40, |seed| {
        let mut plan = random_plan_with(
            Topology::ring(5, 1 + usize::try_from(seed % 3).unwrap()),
            seed,
        );
        let endpoints = plan.topology.endpoints.len();
        plan.flows = (0..endpoints)
            .map(|from| {
                let network = plan.topology.endpoints[from];
                let away = (network + 2) % 5;
                let to = plan
                    .topology
                    .endpoints
                    .iter()
                    .position(|at| *at == away)
                    .unwrap();
                (from, to, 0, 6)
            })
            .collect();
        // One flow at a time per gateway, and no elastic memory to speak of.
        plan.gateway_bytes = 16 << 10;
        plan.endpoint_bytes = 16 << 10;
        plan.window_most = 4096;
        run_whole(plan, seed, false);
    });
}

#[test]
fn everybody_sends_to_everybody_before_anybody_receives() {
    for_seeds(20, |seed| {
        let mut plan = random_plan_with(Topology::row(2, 2), seed);
        plan.flows = everyone(plan.topology.endpoints.len(), 4);
        plan.gateway_bytes = 256 << 10;
        plan.endpoint_bytes = 512 << 10;
        for party in 0..plan.topology.endpoints.len() {
            plan.faults.push((Time(0), Event::AppStop(party)));
            let later = Time(0) + Duration::from_secs(2);
            plan.faults.push((later, Event::AppGoOn(party)));
        }
        run_whole(plan, seed, false);
    });
}

/// Four senders behind a gateway, four receivers beyond it, one of which stands still.
fn stop_one(stop: Event, go_on: Event, channels: u16) {
    for_seeds(30, |seed| {
        let mut plan = random_plan_with(Topology::row(1, 4), seed);
        plan.flows.clear();
        // Endpoints alternate between the two networks: 0, 2, 4, 6 send to 1, 3, 5, 7.
        for channel in 0..channels {
            for sender in [0, 2, 4, 6] {
                plan.flows.push((sender, sender + 1, channel, 12));
            }
        }
        plan.gateway_bytes = 256 << 10;
        plan.sizes.large_most = 60_000;
        plan.coarsen();
        let resume = Time(0) + Duration::from_secs(60);
        plan.faults = vec![(Time(0) + Duration::from_millis(1), stop), (resume, go_on)];
        let mut world = World::new(plan, seed);
        while world.network.now < resume && world.step() {
            let others = [2, 4, 6];
            if (0..channels).all(|channel| {
                others
                    .iter()
                    .all(|at| world.is_flow_done(flow_key(*at, at + 1, channel)))
            }) {
                break;
            }
        }
        assert!(
            world.network.now < resume,
            "a flow waits for one that stands still"
        );
        world.run();
        world.check_settled();
        assert!(world.nothing_failed());
        // Whoever stood still learns only now that its flows are closed.
        world.run_until(resume + Duration::from_secs(1));
        world.wind_down(false);
    });
}

#[test]
fn an_application_that_does_not_unpack_stops_its_own_flows_alone() {
    stop_one(Event::AppStop(1), Event::AppGoOn(1), 1);
    stop_one(Event::AppStop(1), Event::AppGoOn(1), 2);
}

#[test]
fn a_stopped_process_stops_its_own_flows_alone() {
    stop_one(Event::Stop(1), Event::GoOn(1), 1);
}

#[test]
fn a_stopped_second_gateway_stops_nobody_who_does_not_need_it() {
    for_seeds(30, |seed| {
        // Networks 0 and 1 share gateway 6, networks 1 and 2 gateway 7.
        let mut plan = random_plan_with(Topology::row(2, 2), seed);
        plan.flows = vec![(0, 2, 0, 8), (3, 5, 0, 8), (0, 1, 0, 12), (3, 4, 0, 12)];
        plan.gateway_bytes = 128 << 10;
        let resume = Time(0) + Duration::from_secs(60);
        plan.faults = vec![
            (Time(0) + Duration::from_millis(2), Event::Stop(7)),
            (resume, Event::GoOn(7)),
        ];
        let mut world = World::new(plan, seed);
        let through_one = [flow_key(0, 1, 0), flow_key(3, 4, 0)];
        while !through_one.iter().all(|flow| world.is_flow_done(*flow)) {
            assert!(world.network.now < resume && world.step());
        }
        world.run();
        world.check_settled();
        assert!(world.nothing_failed());
    });
}

#[test]
fn neighbours_need_no_gateway() {
    for_seeds(100, |seed| {
        run_whole(direct_to_neighbour(seed), seed, false);
    });
}
