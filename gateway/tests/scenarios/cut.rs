//! Networks that are cut: what is sent into them vanishes, and nobody is told. A cut that is
//! mended costs nothing but time; one that stays is reported, with the node that was not reached.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use crate::stage::{LONG, Plan, Process, await_messages, beside_others};
use crate::support::have;
use crate::support::netns::{Host, Rate, Switch, available};

/// Bytes of a message, and of what is on its way before the network is cut.
const MESSAGE_BYTES: u64 = 50_000;
const UNDER_WAY: u64 = 4 << 20;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// Which network is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Between the source and the gateway.
    Left,
    /// Between the gateway and the destination.
    Right,
}

/// a0 ── left ── gw ── right ── b0, on hosts of their own, with a stream from a0 to b0.
struct Scene {
    a0: Process,
    gateway: Process,
    b0: Process,
    left: Switch,
    right: Switch,
    /// Of a0 on `left`, and of b0 on `right`.
    addresses: [Ipv4Addr; 2],
    /// Kept for as long as the processes run.
    _hosts: [Host; 3],
}

impl Scene {
    /// Connections that nobody acknowledges are given up after `user_timeout`.
    fn new(session: &str, user_timeout: &str) -> Self {
        let hosts = [(); 3].map(|()| Host::new().unwrap());
        let [a0, gw, b0] = &hosts;
        let (left, right) = (Switch::new().unwrap(), Switch::new().unwrap());
        let addresses = [
            left.attach(a0, RATE).unwrap(),
            right.attach(b0, RATE).unwrap(),
        ];
        let inside = [
            left.attach(gw, RATE).unwrap(),
            right.attach(gw, RATE).unwrap(),
        ];
        let plan = Plan::new(session)
            .networks_with(
                &["left", "right"],
                &format!("user_timeout = \"{user_timeout}\""),
            )
            .node("a0", &[("left", addresses[0])])
            .node("gw", &[("left", inside[0]), ("right", inside[1])])
            .node("b0", &[("right", addresses[1])])
            .channel("main");
        let mut scene = Self {
            gateway: plan.start_on(gw, "gw"),
            a0: plan.start_on(a0, "a0"),
            b0: plan.start_on(b0, "b0"),
            left,
            right,
            addresses,
            _hosts: hosts,
        };
        scene.b0.tell("collect main");
        scene.a0.tell(&format!("stream s main b0 {MESSAGE_BYTES}"));
        scene.await_bytes();
        scene
    }

    /// Waits until more of the stream has been forwarded.
    fn await_bytes(&mut self) {
        let before = self.count("bytes");
        self.wait_until("the stream moves", |scene| {
            scene.count("bytes") >= before + UNDER_WAY
        });
    }

    fn count(&mut self, counter: &str) -> u64 {
        self.gateway
            .ask(&format!("counters {counter}"))
            .parse()
            .unwrap()
    }

    fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + LONG;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "it never comes that {what}");
            thread::sleep(LOOK);
        }
    }

    fn cut(&self, side: Side) {
        match side {
            Side::Left => self.left.cut(self.addresses[0]),
            Side::Right => self.right.cut(self.addresses[1]),
        }
        .unwrap();
    }

    fn mend(&self, side: Side) {
        match side {
            Side::Left => self.left.mend(self.addresses[0]),
            Side::Right => self.right.mend(self.addresses[1]),
        }
        .unwrap();
    }

    /// The network is mended: the stream goes on, and all of it arrives.
    fn mend_and_end(mut self, side: Side) {
        self.mend(side);
        self.await_bytes();
        self.a0.tell("halt s");
        let sent: u64 = self.a0.hear("ended s").parse().unwrap();
        await_messages(&mut self.b0, "main/a0", sent);
        assert_eq!(self.a0.ask("close"), "");
    }
}

const RATE: Rate = Rate::Megabits(1000);

#[test]
fn a_network_that_is_cut_and_mended_loses_nothing() {
    if !have(available()) {
        return;
    }
    let _turn = beside_others();
    for side in [Side::Left, Side::Right] {
        let mut scene = Scene::new("link_timeout = \"30s\"", "30s");
        scene.cut(side);
        scene.a0.await_standstill("sent s");
        scene.mend_and_end(side);
    }
}

#[test]
fn one_that_is_noticed_before_it_is_mended_loses_nothing_either() {
    if !have(available()) {
        return;
    }
    let _turn = beside_others();
    for side in [Side::Left, Side::Right] {
        let mut scene = Scene::new("link_timeout = \"30s\"", "2s");
        let links = scene.count("links");
        scene.cut(side);
        scene.wait_until("the gateway notices", |scene| scene.count("links") < links);
        scene.mend_and_end(side);
    }
}

#[test]
fn one_that_stays_cut_is_reported() {
    if !have(available()) {
        return;
    }
    let _turn = beside_others();
    for (side, why) in [
        (Side::Left, "gw over left"),
        (Side::Right, "gw has no link onwards"),
    ] {
        let mut scene = Scene::new("link_timeout = \"2s\"", "2s");
        scene.cut(side);
        let ended = scene.a0.hear("ended s");
        let expected = "b0 was not reached for 2s";
        assert!(ended.contains(expected) && ended.contains(why), "{ended}");
        let lost = scene.b0.hear("lost main a0");
        assert!(lost.contains("2s"), "{lost}");
        // It works again when the network does.
        scene.mend(side);
        let expected: u64 = 20;
        scene
            .a0
            .tell(&format!("stream again main b0 1000 {expected}"));
        assert_eq!(scene.a0.hear("ended again"), expected.to_string());
    }
}
