//! No deadlock: flows around a ring whose promises could wait for each other, and nodes that
//! all send before any of them receives.
//!
//! ```text
//!        x0            x1            x2            x3            x4
//!   ─ n0 ┴──── g0 ─ n1 ┴──── g1 ─ n2 ┴──── g2 ─ n3 ┴──── g3 ─ n4 ┴──── g4 ─ n0
//! ```

use crate::stage::{Plan, Process, Protocol, await_messages, beside_others, loopback};

/// Networks, and gateways between each and the next.
const RING: usize = 5;

const TCP: [Protocol; RING] = [Protocol::Tcp; RING];

/// Remote write on either side of gateways, and on both sides of one.
const MIXED: [Protocol; RING] = [
    Protocol::RemoteWrite,
    Protocol::Tcp,
    Protocol::RemoteWrite,
    Protocol::Tcp,
    Protocol::RemoteWrite,
];

/// What a flow carries while all others carry as much: in large messages, and in small ones.
const LARGE: &str = "1048576 12";
const SMALL: &str = "3000 400";

/// Keys of all networks, and sections at the end of the cluster file.
struct Settings {
    network: &'static str,
    sections: &'static str,
}

/// The least of every buffer that configuration allows.
const SMALLEST: Settings = Settings {
    network: r#"
mtu = "1KiB"
socket_buffer = "16KiB"
unsent = "4KiB"
urgent_unsent = "4KiB"
"#,
    sections: r#"mtu = "1KiB"
[gateway]
memory = "8MiB"
batch = "64KiB"
depth = 1
direct = "1KiB"
splice_from = "1KiB"

[endpoint]
memory = "8MiB"
retention = "64KiB"
window = "16KiB"
"#,
};

/// Little memory that everybody may promise whole to anybody.
const GREEDY: Settings = Settings {
    network: "",
    sections: r#"mtu = "60KiB"
[gateway]
memory = "8MiB"
batch = "64KiB"
depth = 1

[endpoint]
memory = "8MiB"
window = "1GiB"
"#,
};

const USUAL: Settings = Settings {
    network: "",
    sections: "",
};

/// A session of five networks in a ring, everybody collecting what arrives.
struct Ring {
    /// The nodes on one network, in order.
    nodes: Vec<Process>,
    gateways: Vec<Process>,
}

impl Ring {
    fn new(protocols: &[Protocol; RING], settings: &Settings) -> Self {
        let networks: Vec<_> = (0..RING).map(|place| format!("n{place}")).collect();
        let names: Vec<_> = networks.iter().map(String::as_str).collect();
        let mut plan = Plan::new("");
        for (name, protocol) in names.iter().zip(protocols) {
            plan = match protocol {
                Protocol::Tcp => plan.networks_with(&[name], settings.network),
                Protocol::RemoteWrite => plan.remote_write(name),
            };
        }
        for place in 0..RING {
            let next = names[(place + 1) % RING];
            let both = [(names[place], loopback()), (next, loopback())];
            plan = plan
                .node(&format!("x{place}"), &[(names[place], loopback())])
                .node(&format!("g{place}"), &both);
        }
        let plan = plan.channel("main").settings(settings.sections);
        let start = |kind: &str| {
            let names = (0..RING).map(|place| format!("{kind}{place}"));
            names.map(|name| plan.start(&name)).collect()
        };
        Self {
            gateways: start("g"),
            nodes: start("x"),
        }
    }

    fn everybody(&mut self) -> impl Iterator<Item = &mut Process> {
        self.nodes.iter_mut().chain(&mut self.gateways)
    }
}

/// Everybody sends two networks away, in both directions, large and small messages at once.
fn two_networks_away(protocols: &[Protocol; RING], settings: &Settings) {
    let _turn = beside_others();
    let mut ring = Ring::new(protocols, settings);
    ring.everybody().for_each(|node| node.tell("collect main"));
    for (place, node) in ring.nodes.iter_mut().enumerate() {
        let (ahead, behind) = ((place + 2) % RING, (place + RING - 2) % RING);
        node.tell(&format!("stream ahead main x{ahead} {LARGE}"));
        node.tell(&format!("stream behind main x{behind} {SMALL}"));
    }
    for (place, node) in ring.gateways.iter_mut().enumerate() {
        // From the second of its two networks on.
        let (ahead, far) = ((place + 3) % RING, (place + 2) % RING);
        node.tell(&format!("stream ahead main x{ahead} {SMALL}"));
        node.tell(&format!("stream behind main g{far} {LARGE}"));
    }
    for node in ring.everybody() {
        for stream in ["ahead", "behind"] {
            let ended = node.hear(&format!("ended {stream}"));
            assert_eq!(ended.split(' ').count(), 1, "{ended}");
        }
        assert_eq!(node.ask("close"), "");
    }
    for place in 0..RING {
        let from = |kind: &str, back: usize| format!("main/{kind}{}", (place + RING - back) % RING);
        await_messages(&mut ring.nodes[place], &from("x", 2), 12);
        await_messages(&mut ring.nodes[place], &from("x", 3), 400);
        await_messages(&mut ring.nodes[place], &from("g", 3), 400);
        await_messages(&mut ring.gateways[place], &from("g", 2), 12);
    }
}

#[test]
fn everybody_sends_two_networks_away_with_the_least_memory() {
    two_networks_away(&TCP, &SMALLEST);
}

#[test]
fn everybody_sends_two_networks_away_with_greedy_windows() {
    two_networks_away(&TCP, &GREEDY);
}

#[test]
fn everybody_sends_two_networks_away_with_remote_write_among_them() {
    two_networks_away(&MIXED, &GREEDY);
}

/// What each node sends to each before anybody receives: memory that is given away, as much
/// as a flow keeps (`retention`), and memory that is lent, as much as is copied rather than
/// waited for.
const GIVEN: &str = "1048576 6";
const LENT: &str = "200000 6";

fn all_to_all(protocols: &[Protocol; RING]) {
    let _turn = beside_others();
    let mut ring = Ring::new(protocols, &USUAL);
    for (from, node) in ring.nodes.iter_mut().enumerate() {
        for to in (0..RING).filter(|to| *to != from) {
            node.tell(&format!("stream given{to} main x{to} {GIVEN}"));
            node.tell(&format!("lend lent{to} main x{to} {LENT}"));
        }
    }
    for (from, node) in ring.nodes.iter_mut().enumerate() {
        for to in (0..RING).filter(|to| *to != from) {
            assert_eq!(node.hear(&format!("ended given{to}")), "6");
            assert_eq!(node.hear(&format!("ended lent{to}")), "6");
        }
    }
    for (to, node) in ring.nodes.iter_mut().enumerate() {
        node.tell("collect main");
        for from in (0..RING).filter(|from| *from != to) {
            await_messages(node, &format!("main/x{from}"), 12);
        }
    }
}

#[test]
fn all_to_all_before_anybody_receives() {
    all_to_all(&TCP);
}

#[test]
fn all_to_all_with_remote_write_among_the_networks() {
    all_to_all(&MIXED);
}
