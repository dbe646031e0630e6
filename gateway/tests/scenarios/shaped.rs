//! The slower link decides: what goes through gateways is nearly as fast as what the slower
//! network on the way carries directly.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::stage::{Plan, Process, Rates, alone, alternate};
use crate::support::netns::{Host, Rate, available, link};
use crate::support::{have, report};

/// Of what a stream over the slower link alone carries, of the same messages.
const LEAST: f64 = 0.98;

/// How much of a frame of Ethernet TCP has for payload: 1448 bytes of 1514.
const PAYLOAD_PART: f64 = 1448.0 / 1514.0;

/// Payload of a message.
const MESSAGE_BYTES: u64 = 1 << 20;

/// Traffic before anything is counted, from [`SLOW_MEGABITS`] on: buffers on the way are full then.
const WARM_UP: Duration = Duration::from_millis(300);

/// How long arrivals are counted, from there on: some dozen messages.
const MEASURED: Duration = Duration::from_millis(500);

/// Slower links and rates are given so much more time as they are slower.
const SLOW_MEGABITS: u32 = 300;

/// Hosts in a row, cables between them, and a node on each: those inside are gateways.
///
/// ```text
///   n0 ──net0── n1 ──net1── n2 …
/// ```
struct Row {
    /// Kept for as long as the processes run.
    _hosts: Vec<Host>,
    nodes: Vec<Process>,
    /// How much longer than a faster row it is measured.
    patience: u32,
}

impl Row {
    fn new(megabits: &[u32]) -> Self {
        Self::limited(megabits, None)
    }

    /// The same, with a `rate` for the last network.
    fn limited(megabits: &[u32], rate: Option<u32>) -> Self {
        let hosts: Vec<_> = (0..=megabits.len()).map(|_| Host::new().unwrap()).collect();
        let mut addresses: Vec<Vec<(String, Ipv4Addr)>> = vec![Vec::new(); hosts.len()];
        let mut names = Vec::new();
        for (place, &megabits) in megabits.iter().enumerate() {
            let ends = link(&hosts[place], &hosts[place + 1], Rate::Megabits(megabits)).unwrap();
            let name = format!("net{place}");
            addresses[place].push((name.clone(), ends.0));
            addresses[place + 1].push((name.clone(), ends.1));
            names.push(name);
        }
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut plan = Plan::new("");
        for (place, name) in names.iter().enumerate() {
            let is_last = place + 1 == names.len();
            let rate = rate.filter(|_| is_last);
            let keys = rate.map_or_else(String::new, |rate| format!("rate = \"{rate}Mbit/s\""));
            plan = plan.networks_with(&[name], &keys);
        }
        for (place, addresses) in addresses.iter().enumerate() {
            let addresses: Vec<_> = addresses
                .iter()
                .map(|(network, address)| (network.as_str(), *address))
                .collect();
            plan = plan.node(&format!("n{place}"), &addresses);
        }
        let plan = plan.channel("main");
        let start = |(place, host)| {
            let mut node = plan.start_on(host, &format!("n{place}"));
            node.tell("collect main");
            node
        };
        let nodes = hosts.iter().enumerate().map(start).collect();
        let slowest = megabits.iter().copied().chain(rate).min();
        let slowest = slowest.unwrap_or(SLOW_MEGABITS);
        Self {
            _hosts: hosts,
            nodes,
            patience: SLOW_MEGABITS.div_ceil(slowest),
        }
    }

    /// Megabytes per second that arrive when every pair streams from its first node to its
    /// second, pair by pair, all at the same time.
    fn rates(&mut self, pairs: &[(usize, usize)]) -> Vec<f64> {
        for &(from, to) in pairs {
            let order = format!("stream to{to} main n{to} {MESSAGE_BYTES}");
            self.nodes[from].tell(&order);
        }
        std::thread::sleep(WARM_UP * self.patience);
        let mut receivers: Vec<_> = self
            .nodes
            .iter_mut()
            .enumerate()
            .filter(|(place, _)| pairs.iter().any(|(_, to)| to == place))
            .map(|(_, node)| node)
            .collect();
        let Rates(rates) = Rates::at(&mut receivers, MEASURED * self.patience);
        for &(from, to) in pairs {
            self.nodes[from].tell(&format!("halt to{to}"));
        }
        for &(from, to) in pairs {
            let ended = self.nodes[from].hear(&format!("ended to{to}"));
            assert_eq!(ended.split(' ').count(), 1, "{ended}");
            let closed = self.nodes[from].ask("close");
            assert_eq!(closed, "", "not everything was delivered");
        }
        rates
    }
}

/// What is measured of a row.
#[derive(PartialEq, Eq)]
enum Ways {
    /// Streams there, back, and both at once.
    All,
    /// Streams there only.
    There,
    /// Streams there and back at once, only.
    AtOnce,
}

/// Streams through all of a row, and over its slowest link.
fn slower_link_decides(megabits: &[u32], ways: &Ways) {
    if !have(available()) {
        return;
    }
    let _alone = alone();
    let mut row = Row::new(megabits);
    let last = megabits.len();
    let slowest = (0..last).min_by_key(|place| megabits[*place]).unwrap();
    let way = |ends: [usize; 2]| (ends[0], ends[1]);
    let (there, back) = (
        ("there", [0, last], [slowest, slowest + 1]),
        ("and back", [last, 0], [slowest + 1, slowest]),
    );
    let one_way: &[_] = match ways {
        Ways::All => &[there, back],
        Ways::There => &[there],
        Ways::AtOnce => &[],
    };
    for &(name, whole, direct) in one_way {
        let rate = alternate(&format!("{megabits:?} Mbit/s {name}"), LEAST, || {
            (row.rates(&[way(whole)])[0], row.rates(&[way(direct)])[0])
        });
        let part = rate / (f64::from(megabits[slowest]) / 8.0 * PAYLOAD_PART);
        report(&format!(
            "  {part:.3} of the payload that such a link can carry"
        ));
    }
    if *ways == Ways::There {
        return;
    }
    let slower = |rates: Vec<f64>| rates.into_iter().reduce(f64::min).unwrap();
    alternate(&format!("{megabits:?} Mbit/s both ways"), LEAST, || {
        let whole = row.rates(&[(0, last), (last, 0)]);
        let direct = row.rates(&[(slowest, slowest + 1), (slowest + 1, slowest)]);
        (slower(whole), slower(direct))
    });
}

#[test]
fn one_gateway_between_equals() {
    slower_link_decides(&[1000, 1000], &Ways::All);
}

#[test]
fn one_gateway_to_a_slower_network() {
    slower_link_decides(&[1000, 300], &Ways::All);
}

#[test]
fn two_gateways_between_equals() {
    slower_link_decides(&[1000, 1000, 1000], &Ways::All);
}

#[test]
fn two_gateways_to_a_slower_network() {
    slower_link_decides(&[1000, 1000, 300], &Ways::All);
}

#[test]
fn one_gateway_to_a_slow_network() {
    slower_link_decides(&[1000, 100], &Ways::All);
}

#[test]
fn one_gateway_between_slow_networks() {
    slower_link_decides(&[100, 100], &Ways::AtOnce);
}

#[test]
fn one_gateway_between_fast_networks() {
    slower_link_decides(&[5000, 5000], &Ways::There);
}

/// What a gateway may send into the slower network, in Mbit/s.
const LIMIT: u32 = 100;
/// The same in megabytes of payload per second.
const LIMIT_MEGABYTES: f64 = 12.5;
/// A gateway makes up for what it could not send in ten milliseconds, and what is counted begins and
/// ends with whole messages.
const MORE: f64 = 1.1;

/// The testbed of the paper's figure 7: what comes out of the slower network goes on at its full rate,
/// however much there is for it, and what goes into it keeps to what it may have.
#[test]
fn a_limit_holds_one_direction_and_leaves_the_other_alone() {
    if !have(available()) {
        return;
    }
    let _alone = alone();
    let mut row = Row::limited(&[1000, 300], Some(LIMIT));
    let (there, back) = ((0, 2), (2, 0));
    let mut limited = Vec::new();
    alternate("into the limited network, of its rate", LEAST, || {
        let rates = row.rates(&[there, back]);
        // By receiver: the first node has what came back.
        limited.push(rates[1]);
        (rates[1], LIMIT_MEGABYTES)
    });
    assert!(
        limited.iter().all(|rate| *rate <= LIMIT_MEGABYTES * MORE),
        "{limited:.1?} MB/s"
    );
    alternate("out of it, beside what is limited", LEAST, || {
        let beside = row.rates(&[there, back])[0];
        (beside, row.rates(&[back])[0])
    });
}
