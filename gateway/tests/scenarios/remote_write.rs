//! Remote write between hosts, by a card of libfabric's: a gateway stands on such a network and on
//! one of TCP, and processes on it die.

use std::net::Ipv4Addr;

use madgate_tm::conformance::has_card;
use madgate_tm::hsl::Card;

use crate::stage::{Counts, Plan, Process, await_messages, beside_others};
use crate::support::have;
use crate::support::netns::{Host, Rate, available, link};

const PROVIDER: &str = "tcp;ofi_rxm";

/// Messages that are waited for.
const SOME: u64 = 20;

/// Three hosts in a row, a node on each.
///
/// ```text
///   n0 ── tcp ── n1 ══ remote write ══ n2
/// ```
struct Hosts {
    hosts: [Host; 3],
    plan: Plan,
}

impl Hosts {
    fn new() -> Option<Self> {
        let card = Card::Libfabric {
            provider: Some(PROVIDER.to_owned()),
            domain: None,
        };
        if !have(available()) || !has_card(&card) {
            return None;
        }
        let hosts = [(); 3].map(|()| Host::new().unwrap());
        let [a, b, c] = &hosts;
        let left = link(a, b, Rate::Unshaped).unwrap();
        let right = link(b, c, Rate::Unshaped).unwrap();
        let ends: [&[(&str, Ipv4Addr)]; 3] = [
            &[("left", left.0)],
            &[("left", left.1), ("right", right.0)],
            &[("right", right.1)],
        ];
        let mut plan = Plan::new("link_timeout = \"60s\"")
            .networks(&["left"])
            .fabric("right", PROVIDER);
        for (place, addresses) in ends.iter().enumerate() {
            plan = plan.node(&format!("n{place}"), addresses);
        }
        let plan = plan.channel("main");
        Some(Self { hosts, plan })
    }

    fn start(&self, place: usize) -> Process {
        let mut node = self.plan.start_on(&self.hosts[place], &format!("n{place}"));
        node.tell("collect main");
        node
    }
}

fn stream(from: &mut Process, to: &str, bytes: u64) {
    from.tell(&format!("stream to{to} main {to} {bytes}"));
}

/// Waits until more messages have arrived.
fn await_more(node: &mut Process, from: &str) {
    let before = Counts::of(node).messages(from);
    await_messages(node, from, before + SOME);
}

/// Ends a stream; everything has been delivered.
fn end(from: &mut Process, to: &str) {
    from.tell(&format!("halt to{to}"));
    let ended = from.hear(&format!("ended to{to}"));
    assert_eq!(ended.split(' ').count(), 1, "{ended}");
}

#[test]
fn messages_cross_from_tcp_to_a_card_and_back() {
    let Some(hosts) = Hosts::new() else {
        return;
    };
    let _turn = beside_others();
    let mut nodes = [0, 1, 2].map(|place| hosts.start(place));
    for bytes in [8, 5000, 1 << 20] {
        let [near, _, far] = &mut nodes;
        stream(near, "n2", bytes);
        stream(far, "n0", bytes);
        await_more(far, "main/n0");
        await_more(near, "main/n2");
        end(&mut nodes[0], "n2");
        end(&mut nodes[2], "n0");
    }
    for node in [0, 2] {
        assert_eq!(nodes[node].ask("close"), "", "not everything was delivered");
    }
}

#[test]
fn a_gateway_that_is_killed_between_them_loses_nothing() {
    let Some(hosts) = Hosts::new() else {
        return;
    };
    let _turn = beside_others();
    let mut nodes = [0, 1, 2].map(|place| hosts.start(place));
    for bytes in [100, 1 << 20] {
        let [near, gateway, far] = &mut nodes;
        stream(near, "n2", bytes);
        stream(far, "n0", bytes);
        await_more(far, "main/n0");
        await_more(near, "main/n2");
        gateway.kill();
        *gateway = hosts.start(1);
        await_more(far, "main/n0");
        await_more(near, "main/n2");
        end(&mut nodes[0], "n2");
        end(&mut nodes[2], "n0");
    }
    for node in [0, 2] {
        assert_eq!(nodes[node].ask("close"), "", "not everything was delivered");
    }
}
