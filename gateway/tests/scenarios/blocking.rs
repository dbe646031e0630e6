//! Nobody blocks anybody: whoever stands still stops its own senders, and nobody else,
//! however many flows share gateways, networks and links.
//!
//! ```text
//!   host a              host g            host b
//!   a0 … a3 ──left──── gw ──────right──── b0 … b3, and others
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::memory::{BESIDES_BYTES, assert_peak};
use crate::stage::{Plan, Process, Protocol, Rates, alone, alternate};
use crate::support::have;
use crate::support::netns::{Host, Rate, available, link};

/// What the others keep of what they reach alone.
const LEAST: f64 = 0.9;

/// All cables. The machine must be able to carry it while it does other things.
const CABLE: Rate = Rate::Megabits(500);

/// The two networks.
const TCP: [(&str, Protocol); 2] = [("left", Protocol::Tcp), ("right", Protocol::Tcp)];

/// Bytes of a message.
const MESSAGE_BYTES: u64 = 256 << 10;

/// How long arrivals are counted.
const MEASURED: Duration = Duration::from_millis(600);

/// Traffic before they are counted.
const WARM_UP: Duration = Duration::from_millis(200);

/// How often to look at what the gateway queues, and what flows that go on change of that between
/// two looks. Who fills it brings several times as much.
const LOOK: Duration = Duration::from_millis(400);
const STILL_BYTES: u64 = 1 << 20;

/// Ports of nodes that share a host.
const FIRST_PORT: u16 = 7200;

/// What the sender of many flows keeps of each: of all together much more than the gateway can
/// keep, and not so much that it takes long to arrive in the end.
const MANY_KEPT: &str = "[endpoint]\nretention = \"1MiB\"";

/// The cap on the gateway's memory beside many flows.
const MANY_CAP: u64 = 32 << 20;

/// Three hosts in a row, senders on the first, as many receivers on the last, and a gateway
/// between.
struct Scene {
    hosts: [Host; 3],
    plan: Plan,
    /// Of the last host, on the network `right`.
    beyond: Ipv4Addr,
    /// Of the first host, on the network `left`.
    before: Ipv4Addr,
    port: u16,
    others: usize,
    gateway: Option<Process>,
    senders: Vec<Process>,
    receivers: Vec<Process>,
}

impl Scene {
    fn new(networks: &[(&str, Protocol)], others: usize, settings: &str) -> Self {
        let hosts = [(); 3].map(|()| Host::new().unwrap());
        let left = link(&hosts[0], &hosts[1], CABLE).unwrap();
        let right = link(&hosts[1], &hosts[2], CABLE).unwrap();
        let gateway = [("left", left.1), ("right", right.0)];
        let plan = Plan::new("").networks_of(networks).node("gw", &gateway);
        let mut scene = Self {
            hosts,
            plan: plan.settings(settings),
            beyond: right.1,
            before: left.0,
            port: FIRST_PORT,
            others,
            gateway: None,
            senders: Vec::new(),
            receivers: Vec::new(),
        };
        for place in 0..others {
            scene.add(&format!("a{place}"), "left", scene.before);
            scene.add(&format!("b{place}"), "right", scene.beyond);
        }
        scene
    }

    /// Describes a node on one network.
    fn add(&mut self, name: &str, network: &str, address: Ipv4Addr) {
        self.add_gateway(name, &[(network, address)]);
    }

    /// Describes a node on several.
    fn add_gateway(&mut self, name: &str, addresses: &[(&str, Ipv4Addr)]) {
        self.port += 1;
        let plan = std::mem::replace(&mut self.plan, Plan::new(""));
        self.plan = plan.node_at(name, self.port, addresses);
    }

    fn add_channel(&mut self, name: &str) {
        let plan = std::mem::replace(&mut self.plan, Plan::new(""));
        self.plan = plan.channel(name);
    }

    /// A node before the gateway.
    fn start_before(&self, name: &str) -> Process {
        self.plan.start_on(&self.hosts[0], name)
    }

    /// A node beyond it.
    fn start_beyond(&self, name: &str) -> Process {
        self.plan.start_on(&self.hosts[2], name)
    }

    /// Starts the gateway, and the flows that nobody may block.
    fn begin(&mut self) {
        self.gateway = Some(self.plan.start_on(&self.hosts[1], "gw"));
        for place in 0..self.others {
            let mut receiver = self.start_beyond(&format!("b{place}"));
            receiver.tell("collect main");
            self.receivers.push(receiver);
            let mut sender = self.start_before(&format!("a{place}"));
            sender.tell(&format!("stream other main b{place} {MESSAGE_BYTES}"));
            self.senders.push(sender);
        }
    }

    /// Waits until the gateway queues no more than it did a moment before: what it has promised
    /// to flows that stand still is used up.
    fn await_full(&mut self) {
        let gateway = self.gateway.as_mut().unwrap();
        let mut queued = || gateway.ask("counters queued").parse::<u64>().unwrap();
        let mut before = queued();
        loop {
            std::thread::sleep(LOOK);
            let now = queued();
            if now < before + STILL_BYTES {
                return;
            }
            before = now;
        }
    }

    /// What arrives of these flows, all together.
    fn measure(&mut self) -> f64 {
        std::thread::sleep(WARM_UP);
        let mut receivers: Vec<_> = self.receivers.iter_mut().collect();
        Rates::at(&mut receivers, MEASURED).sum()
    }
}

/// Ends streams that can go on: everything that was packed has arrived, whole and in order.
fn end_streams(sender: &mut Process, streams: &[String]) {
    for stream in streams {
        sender.tell(&format!("halt {stream}"));
    }
    for stream in streams {
        let ended = sender.hear(&format!("ended {stream}"));
        assert_eq!(ended.split(' ').count(), 1, "{ended}");
    }
    assert_eq!(sender.ask("close"), "", "not everything was delivered");
}

/// A fourth flow, whose receiver stands still in one way or another.
fn fourth_stands_still(
    [left, right]: [Protocol; 2],
    what: &str,
    mut stop: impl FnMut(&mut Process),
    mut go_on: impl FnMut(&mut Process),
) {
    if !have(available()) {
        return;
    }
    let _alone = alone();
    let mut scene = Scene::new(&[("left", left), ("right", right)], 3, "");
    scene.add("a3", "left", scene.before);
    scene.add("b3", "right", scene.beyond);
    scene.add_channel("main");
    scene.begin();
    let mut sender = scene.start_before("a3");
    let mut receiver = scene.start_beyond("b3");
    receiver.tell("collect main");
    alternate(what, LEAST, || {
        sender.tell(&format!("stream fourth main b3 {MESSAGE_BYTES}"));
        stop(&mut receiver);
        sender.await_standstill("sent fourth");
        let with = scene.measure();
        go_on(&mut receiver);
        end_streams(&mut sender, &["fourth".to_owned()]);
        (with, scene.measure())
    });
}

#[test]
fn a_receiver_that_does_not_unpack() {
    fourth_stands_still(
        [Protocol::Tcp; 2],
        "beside a receiver that does not unpack",
        |receiver| drop(receiver.ask("pause main")),
        |receiver| drop(receiver.ask("resume main")),
    );
}

#[test]
fn a_receiver_that_is_stopped() {
    fourth_stands_still(
        [Protocol::Tcp; 2],
        "beside a receiver that is stopped",
        |receiver| receiver.stop(),
        |receiver| receiver.go_on(),
    );
}

/// What limits all flows is the cable before the gateway then.
#[test]
fn a_receiver_that_is_stopped_beyond_remote_write() {
    fourth_stands_still(
        [Protocol::Tcp, Protocol::RemoteWrite],
        "beside a receiver that is stopped, over remote write",
        |receiver| receiver.stop(),
        |receiver| receiver.go_on(),
    );
}

#[test]
fn a_second_gateway_that_is_stopped() {
    if !have(available()) {
        return;
    }
    let _alone = alone();
    let mut scene = Scene::new(&[TCP[0], TCP[1], ("far", Protocol::Tcp)], 3, "");
    scene.add("a3", "left", scene.before);
    // A network of the last host alone.
    let far = Ipv4Addr::LOCALHOST;
    scene.add_gateway("gw2", &[("right", scene.beyond), ("far", far)]);
    scene.add("c0", "far", far);
    scene.add_channel("main");
    scene.begin();
    let mut sender = scene.start_before("a3");
    let second = scene.start_beyond("gw2");
    let mut receiver = scene.start_beyond("c0");
    receiver.tell("collect main");
    alternate("beside a second gateway that is stopped", LEAST, || {
        sender.tell(&format!("stream far main c0 {MESSAGE_BYTES}"));
        second.stop();
        sender.await_standstill("sent far");
        let with = scene.measure();
        second.go_on();
        end_streams(&mut sender, &["far".to_owned()]);
        (with, scene.measure())
    });
}

#[test]
fn many_flows_to_stopped_nodes() {
    if !have(available()) {
        return;
    }
    let _alone = alone();
    let names: Vec<_> = (0..4).map(|place| format!("s{place}")).collect();
    let channels: Vec<_> = (0..64).map(|number| format!("c{number}")).collect();
    let settings = format!("[gateway]\nmemory = \"{MANY_CAP}B\"");
    let mut scene = Scene::new(&TCP, 3, &settings);
    scene.add("a3", "left", scene.before);
    for name in &names {
        scene.add(name, "right", scene.beyond);
    }
    scene.add_channel("main");
    for channel in &channels {
        scene.add_channel(channel);
    }
    scene.begin();
    let mut sender = scene.plan.start_tuned(&scene.hosts[0], "a3", MANY_KEPT);
    let start = |name: &String| {
        let mut node = scene.start_beyond(name);
        for channel in &channels {
            node.tell(&format!("collect {channel}"));
        }
        node
    };
    let stopped: Vec<_> = names.iter().map(start).collect();
    alternate("beside 256 flows to stopped nodes", LEAST, || {
        for (node, channel) in pairs(&stopped, &channels) {
            let name = node.name();
            sender.tell(&format!(
                "stream {name}/{channel} {channel} {name} {MESSAGE_BYTES}"
            ));
        }
        std::thread::sleep(WARM_UP);
        stopped.iter().for_each(Process::stop);
        sender.await_standstill("sent");
        // What they may still send takes its share of the cable.
        scene.await_full();
        let with = scene.measure();
        stopped.iter().for_each(Process::go_on);
        let streams = pairs(&stopped, &channels);
        let streams = streams.map(|(node, channel)| format!("{}/{channel}", node.name()));
        end_streams(&mut sender, &streams.collect::<Vec<_>>());
        (with, scene.measure())
    });
    assert_peak(scene.gateway.as_ref().unwrap(), MANY_CAP + BESIDES_BYTES);
}

/// Every node with every channel.
fn pairs<'a>(
    nodes: &'a [Process],
    channels: &'a [String],
) -> impl Iterator<Item = (&'a Process, &'a String)> {
    let with_all = |node| channels.iter().map(move |channel| (node, channel));
    nodes.iter().flat_map(with_all)
}

#[test]
fn another_channel_between_the_same_nodes() {
    if !have(available()) {
        return;
    }
    let _alone = alone();
    let mut scene = Scene::new(&TCP, 1, "");
    scene.add_channel("main");
    scene.add_channel("other");
    scene.begin();
    scene.receivers[0].tell("collect other");
    alternate("beside a channel that nobody unpacks", LEAST, || {
        scene.receivers[0].ask("pause other");
        let order = format!("stream second other b0 {MESSAGE_BYTES}");
        scene.senders[0].tell(&order);
        scene.senders[0].await_standstill("sent second");
        let with = scene.measure();
        scene.receivers[0].ask("resume other");
        let sender = &mut scene.senders[0];
        sender.tell("halt second");
        let ended = sender.hear("ended second");
        assert_eq!(ended.split(' ').count(), 1, "{ended}");
        (with, scene.measure())
    });
}
