//! Plans of runs: what is random in them, and what is not.

use std::time::Duration;

use crate::message::Sizes;
use crate::network::Manners;
use crate::random::Random;
use crate::topology::Topology;
use crate::world::Plan;

impl Plan {
    /// Nothing is so small that large messages take long.
    pub(crate) fn coarsen(&mut self) {
        self.fragment_bytes = self.fragment_bytes.max(1000);
        self.manners.piece_most = self.manners.piece_most.max(1500);
    }

    /// The pairs of parties that a route connects.
    pub(crate) fn pairs(&self) -> Vec<(usize, usize)> {
        let mut pairs: Vec<(usize, usize)> = self
            .flows
            .iter()
            .flat_map(|(from, to, _, _)| {
                let route = self.topology.route(*from, *to);
                route
                    .windows(2)
                    .map(|pair| (pair[0], pair[1]))
                    .collect::<Vec<_>>()
            })
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }
}

/// A plan of which everything is random.
pub(crate) fn random_plan(seed: u64) -> Plan {
    let topology = Topology::random(&mut Random::new(seed ^ 0x70b0));
    random_plan_with(topology, seed)
}

/// A random plan for two neighbours.
pub(crate) fn direct_to_neighbour(seed: u64) -> Plan {
    let topology = Topology {
        endpoints: vec![0, 0],
        gateways: Vec::new(),
    };
    random_plan_with(topology, seed)
}

/// From everybody to everybody else.
pub(crate) fn everyone(endpoints: usize, messages: usize) -> Vec<(usize, usize, u16, usize)> {
    (0..endpoints)
        .flat_map(|from| (0..endpoints).map(move |to| (from, to, 0, messages)))
        .filter(|(from, to, _, _)| from != to)
        .collect()
}

/// A random plan for a topology.
pub(crate) fn random_plan_with(topology: Topology, seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x1234_5678);
    // Links that split at every byte, or large messages, but not both: it would take long.
    let tiny = random.chance(150);
    let endpoints = topology.endpoints.len();
    let mut flows = Vec::new();
    for channel in 0..random.pick(&[1, 1, 2]) {
        for _ in 0..random.within(1..7) {
            let from = random.within(0..endpoints);
            let to = (from + random.within(1..endpoints)) % endpoints;
            let messages = random.within(1..if tiny { 5 } else { 20 });
            let flow = (from, to, channel, messages);
            if !flows
                .iter()
                .any(|(a, b, c, _)| (*a, *b, *c) == (from, to, channel))
            {
                flows.push(flow);
            }
        }
    }
    let large_most = if tiny {
        random.pick(&[64, 300])
    } else {
        random.pick(&[200, 5000, 20_000, 80_000])
    };
    Plan {
        topology,
        flows,
        sizes: Sizes {
            blocks_most: random.within(1..9),
            large_most,
            abort_permille: random.pick(&[0, 0, 100, 400]),
        },
        manners: Manners {
            capacity: random.pick(&[1, 5000, 70_000, 1 << 20]),
            piece_most: if tiny {
                1
            } else {
                random.pick(&[100, 1500, 64 << 10]).max(large_most / 100)
            },
            latency_us: random.pick(&[0, 20, 500, 5000]),
            corrupt_per_million: 0,
            drop_control_permille: 0,
        },
        gateway_bytes: random.pick(&[16 << 10, 40 << 10, 128 << 10, 1 << 20, 16 << 20]),
        endpoint_bytes: random.pick(&[16 << 10, 100 << 10, 1 << 20, 16 << 20]),
        window_most: random.pick(&[4096, 20_000, 128 << 10, 1 << 20]),
        fragment_bytes: if tiny {
            random.pick(&[7, 60])
        } else {
            random.pick(&[1000, 4096, 16 << 10, 64 << 10, 512 << 10])
        },
        retention: random.pick(&[1, 10_000, 1 << 20]),
        give_up_after: Duration::from_secs(1 << 20),
        faults: Vec::new(),
    }
}
