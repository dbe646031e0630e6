//! Networks, the gateways between them, and the routes across.

use std::collections::{HashMap, VecDeque};

use crate::random::Random;

/// Parties are numbered: endpoints first, then gateways.
#[derive(Debug, Clone)]
pub(crate) struct Topology {
    /// The network of each endpoint.
    pub(crate) endpoints: Vec<usize>,
    /// The networks of each gateway.
    pub(crate) gateways: Vec<Vec<usize>>,
}

impl Topology {
    /// `networks` in a ring, one gateway between each two neighbours.
    pub(crate) fn ring(networks: usize, endpoints_each: usize) -> Self {
        Self {
            endpoints: (0..networks * endpoints_each)
                .map(|endpoint| endpoint % networks)
                .collect(),
            gateways: (0..networks)
                .map(|network| vec![network, (network + 1) % networks])
                .collect(),
        }
    }

    /// `gateways` in a row: one network more than gateways.
    pub(crate) fn row(gateways: usize, endpoints_each: usize) -> Self {
        Self {
            endpoints: (0..(gateways + 1) * endpoints_each)
                .map(|endpoint| endpoint % (gateways + 1))
                .collect(),
            gateways: (0..gateways)
                .map(|gateway| vec![gateway, gateway + 1])
                .collect(),
        }
    }

    /// Any connected graph.
    pub(crate) fn random(random: &mut Random) -> Self {
        let networks = random.within(1..5);
        let mut gateways: Vec<Vec<usize>> = (1..networks)
            .map(|network| vec![random.within(0..network), network])
            .collect();
        for _ in 0..random.within(0..3) {
            if networks > 1 {
                let from = random.within(0..networks);
                let to = (from + random.within(1..networks)) % networks;
                let mut joined = vec![from, to];
                if networks > 2 && random.chance(300) {
                    let third = random.within(0..networks);
                    if !joined.contains(&third) {
                        joined.push(third);
                    }
                }
                gateways.push(joined);
            }
        }
        let mut endpoints: Vec<usize> = (0..networks).collect();
        for _ in 0..random.within(1..4) {
            endpoints.push(random.within(0..networks));
        }
        Self {
            endpoints,
            gateways,
        }
    }

    pub(crate) fn parties(&self) -> usize {
        self.endpoints.len() + self.gateways.len()
    }

    pub(crate) fn is_gateway(&self, party: usize) -> bool {
        party >= self.endpoints.len()
    }

    /// The parties that a flow crosses, both ends included: fewest hops first.
    pub(crate) fn route(&self, from: usize, to: usize) -> Vec<usize> {
        let mut came_from: HashMap<usize, usize> = HashMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(party) = queue.pop_front() {
            for next in 0..self.parties() {
                let passes = self.is_gateway(next) || next == to;
                if passes
                    && next != from
                    && !came_from.contains_key(&next)
                    && self.share_network(party, next)
                {
                    came_from.insert(next, party);
                    queue.push_back(next);
                }
            }
        }
        let mut route = vec![to];
        while *route.last().unwrap() != from {
            route.push(came_from[route.last().unwrap()]);
        }
        route.reverse();
        route
    }

    fn share_network(&self, one: usize, other: usize) -> bool {
        let ours = self.networks_of(one);
        self.networks_of(other)
            .iter()
            .any(|network| ours.contains(network))
    }

    fn networks_of(&self, party: usize) -> &[usize] {
        if self.is_gateway(party) {
            &self.gateways[party - self.endpoints.len()]
        } else {
            std::slice::from_ref(&self.endpoints[party])
        }
    }
}
