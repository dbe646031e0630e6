//! Processes that die: the others say who went and what was not delivered, leak nothing, and
//! go on when it is back. The death of a gateway that comes back loses nothing.

use std::thread;
use std::time::{Duration, Instant};

use madgate_gtm::outgoing::IDLE_CLOSE;

use crate::stage::{
    Counts, LONG, MIXED, Plan, Process, Protocol, await_messages, beside_others, loopback,
};

const TCP: [Protocol; 2] = [Protocol::Tcp; 2];

/// How long a way may be lost.
const SESSION: &str = "link_timeout = \"2s\"";

/// What of that has passed at least when somebody is given up. Not all of it: who notices a death
/// may have looked at the clock before it, and have been kept from its processor since.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of messages that share frames, of such that share calls, of messages that are always in the
/// middle, and of some between.
const SMALL: u64 = 100;
const GATHERED: u64 = 6000;
const LARGE: u64 = 2 << 30;
const MIDDLING: u64 = 3_000_000;

/// What is on its way before somebody dies, in bytes.
const UNDER_WAY: u64 = 4 << 20;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// Two pairs of nodes with a gateway between: one pair suffers, the other must not notice.
struct Scene {
    plan: Plan,
    gateway: Process,
    a0: Process,
    b0: Process,
    bystanders: [Process; 2],
}

impl Scene {
    fn new([left, right]: [Protocol; 2]) -> Self {
        let plan = Plan::new(SESSION)
            .networks_of(&[("left", left), ("right", right)])
            .node("a0", &[("left", loopback())])
            .node("a1", &[("left", loopback())])
            .node("gw", &[("left", loopback()), ("right", loopback())])
            .node("b0", &[("right", loopback())])
            .node("b1", &[("right", loopback())])
            .channel("main");
        let gateway = plan.start("gw");
        let (a0, a1) = (plan.start("a0"), plan.start("a1"));
        let (b0, b1) = (collector(&plan, "b0"), collector(&plan, "b1"));
        let mut bystanders = [a1, b1];
        bystanders[0].tell("stream bystander main b1 1000");
        Self {
            plan,
            gateway,
            a0,
            b0,
            bystanders,
        }
    }

    /// What the gateway holds, and one node. Counted once everybody has sent something, and has a
    /// link: before that it is too little.
    fn holdings(&mut self, node: impl Fn(&Self) -> &Process) -> [(usize, usize); 2] {
        wait_until("the gateway has a link to each node", || {
            self.gateway.ask("counters links") == "4"
        });
        [self.gateway.holdings(), node(self).holdings()]
    }

    /// A stream from a0 to b0 is on its way, and b0 is unpacking it: what dies before a message has
    /// begun there is none that b0 could miss.
    fn begin(&mut self, bytes: u64) {
        let begun = Counts::of(&mut self.b0).begun("main/a0");
        let before: u64 = self.gateway.ask("counters bytes").parse().unwrap();
        self.a0.tell(&format!("stream s main b0 {bytes}"));
        wait_until("the stream is on its way", || {
            let bytes: u64 = self.gateway.ask("counters bytes").parse().unwrap();
            bytes >= before + UNDER_WAY && Counts::of(&mut self.b0).begun("main/a0") > begun
        });
    }

    /// Messages get from a0 to b0 (again).
    fn check(&mut self) {
        let before = Counts::of(&mut self.b0).messages("main/a0");
        self.a0.tell("stream check main b0 70000 20");
        assert_eq!(self.a0.hear("ended check"), "20");
        await_messages(&mut self.b0, "main/a0", before + 20);
    }

    /// The bystanders have not noticed anything.
    fn end(mut self) {
        let [sender, receiver] = &mut self.bystanders;
        sender.tell("halt bystander");
        let sent = sender.hear("ended bystander").parse().unwrap();
        assert_eq!(sender.ask("close"), "");
        await_messages(receiver, "main/a1", sent);
    }
}

fn collector(plan: &Plan, name: &str) -> Process {
    let mut node = plan.start(name);
    node.tell("collect main");
    node
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never comes that {what}");
        thread::sleep(LOOK);
    }
}

/// A stream that failed says whom it did not reach, and which messages were not delivered:
/// the first and the last of them, and how many were packed.
fn failure(node: &mut Process, who: &str) -> (u64, u64, u64) {
    let ended = node.hear("ended s");
    let (sent, error) = ended.split_once(' ').expect("an error");
    assert!(error.contains(who), "{error}");
    println!("{error}");
    let (_, numbers) = error.split_once("; message").expect("numbers");
    let numbers = numbers.trim_start_matches('s').trim_start();
    let numbers: Vec<u64> = numbers
        .split(' ')
        .map_while(|word| match word {
            "to" => Some(None),
            number => number.parse().ok().map(Some),
        })
        .flatten()
        .collect();
    let first = *numbers.first().expect("a number");
    let last = *numbers.last().expect("a number");
    (first, last, sent.parse().unwrap())
}

/// Who has died at `died` was not given up before its time.
fn was_waited_for(died: Instant) {
    let waited = died.elapsed();
    assert!(waited >= PATIENCE, "given up after {waited:?}");
}

/// Descriptors and threads are as many as before (what is closing may take a moment).
fn leaks_nothing(node: &Process, before: (usize, usize)) {
    let name = node.name();
    let deadline = Instant::now() + LONG;
    loop {
        let now = node.holdings();
        if now.0 <= before.0 && now.1 <= before.1 {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{name} held {before:?}, and holds {now:?}: {}",
            node.descriptors().join(", "),
        );
        thread::sleep(LOOK);
    }
}

/// Kills the receiver in the middle of messages of so many bytes.
fn receiver_dies(protocols: [Protocol; 2], bytes: u64) {
    let _turn = beside_others();
    let mut scene = Scene::new(protocols);
    scene.check();
    let mut first_number = 20;
    let held = scene.holdings(|scene| &scene.a0);
    for _ in 0..2 {
        scene.begin(bytes);
        let died = Instant::now();
        scene.b0.kill();
        let (first, last, sent) = failure(&mut scene.a0, "b0");
        was_waited_for(died);
        // What was delivered before is not reported, and nothing after it forgotten.
        assert!(first >= first_number, "{first}, of {first_number} on");
        assert!(last + 1 >= first_number + sent, "{last} of {sent}");
        scene.b0 = collector(&scene.plan, "b0");
        scene.check();
        first_number = last + 1 + 20;
        // All numbers of b0 begin anew, those of the flow do not.
    }
    leaks_nothing(&scene.gateway, held[0]);
    leaks_nothing(&scene.a0, held[1]);
    scene.end();
}

#[test]
fn a_receiver_dies_among_small_messages() {
    for protocols in [&[TCP], &MIXED[..]].concat() {
        receiver_dies(protocols, SMALL);
    }
}

#[test]
fn a_receiver_dies_among_messages_that_gather() {
    receiver_dies(TCP, GATHERED);
}

#[test]
fn a_receiver_dies_in_a_large_message() {
    receiver_dies(TCP, LARGE);
}

#[test]
fn a_receiver_dies_in_a_large_message_with_remote_write_on_either_side() {
    for protocols in MIXED {
        receiver_dies(protocols, LARGE);
    }
}

/// Stops a process in the middle of messages of so many bytes, of which no link tells: nobody answers any
/// more, and the sender is told so. When the process goes on, so does everything.
fn is_stopped(mut scene: Scene, bytes: u64, who: impl Fn(&Scene) -> &Process) -> Scene {
    scene.check();
    scene.begin(bytes);
    let stopped = Instant::now();
    who(&scene).stop();
    let (first, last, sent) = failure(
        &mut scene.a0,
        "b0 was not reached for 4s (nothing comes back",
    );
    was_waited_for(stopped);
    assert!(
        first >= 20 && last + 1 >= 20 + sent,
        "{first} to {last} of {sent}"
    );
    who(&scene).go_on();
    scene.check();
    scene
}

#[test]
fn a_receiver_that_is_stopped_is_given_up() {
    for protocols in [&[TCP], &MIXED[..]].concat() {
        for bytes in [SMALL, LARGE] {
            let _turn = beside_others();
            is_stopped(Scene::new(protocols), bytes, |scene| &scene.b0).end();
        }
    }
}

#[test]
fn a_gateway_that_is_stopped_is_given_up() {
    for bytes in [SMALL, LARGE] {
        let _turn = beside_others();
        // The bystanders notice that, of course.
        drop(is_stopped(Scene::new(TCP), bytes, |scene| &scene.gateway));
    }
}

/// Kills the sender in the middle of messages of so many bytes.
fn sender_dies(protocols: [Protocol; 2], bytes: u64) {
    let _turn = beside_others();
    let mut scene = Scene::new(protocols);
    scene.check();
    let held = scene.holdings(|scene| &scene.b0);
    for restarts_at_once in [false, true] {
        scene.begin(bytes);
        let died = Instant::now();
        scene.a0.kill();
        if restarts_at_once {
            scene.a0 = scene.plan.start("a0");
        }
        if bytes == LARGE {
            // It was in the middle of a message, whose end never comes.
            if restarts_at_once {
                scene.a0.tell("stream first main b0 8 1");
            }
            let lost = scene.b0.hear("lost main a0");
            println!("{lost}");
            assert!(lost.contains("a0"), "{lost}");
            if !restarts_at_once {
                was_waited_for(died);
            }
        }
        if !restarts_at_once {
            scene.a0 = scene.plan.start("a0");
        }
        scene.check();
    }
    leaks_nothing(&scene.gateway, held[0]);
    leaks_nothing(&scene.b0, held[1]);
    scene.end();
}

#[test]
fn a_sender_dies_among_small_messages() {
    for protocols in [&[TCP], &MIXED[..]].concat() {
        sender_dies(protocols, SMALL);
    }
}

#[test]
fn a_sender_dies_among_messages_that_gather() {
    sender_dies(TCP, GATHERED);
}

#[test]
fn a_sender_dies_in_a_large_message() {
    sender_dies(TCP, LARGE);
}

#[test]
fn a_sender_dies_in_a_large_message_with_remote_write_on_either_side() {
    for protocols in MIXED {
        sender_dies(protocols, LARGE);
    }
}

/// a0 begins a message. Of what has not begun to arrive nothing is lost there, so this waits for it.
fn begin_half(scene: &mut Scene) {
    let before = Counts::of(&mut scene.b0).begun("main/a0");
    scene.a0.ask("half main b0 3000000");
    wait_until("it begins", || {
        Counts::of(&mut scene.b0).begun("main/a0") > before
    });
}

/// a0 dies in a message that b0 is unpacking: b0 is told, and hears from the next a0.
fn sender_dies_and_comes_back(scene: &mut Scene) {
    let died = Instant::now();
    scene.a0.kill();
    scene.b0.hear("lost main a0");
    was_waited_for(died);
    scene.a0 = scene.plan.start("a0");
    scene.check();
}

#[test]
fn a_sender_that_rests_in_a_message_and_dies_is_reported() {
    for protocols in [&[TCP], &MIXED[..]].concat() {
        let _turn = beside_others();
        let mut scene = Scene::new(protocols);
        scene.check();
        begin_half(&mut scene);
        // For longer than a flow with nothing to send stays open.
        let rest = Instant::now();
        while rest.elapsed() < IDLE_CLOSE * 3 {
            thread::sleep(LOOK);
        }
        sender_dies_and_comes_back(&mut scene);
        scene.end();
    }
}

#[test]
fn a_half_packed_message_never_ends() {
    for protocols in [&[TCP], &MIXED[..]].concat() {
        let _turn = beside_others();
        let mut scene = Scene::new(protocols);
        scene.check();
        // Given up by a sender that lives, and by one that dies.
        scene.a0.ask("half main b0 3000000");
        scene.a0.ask("drop");
        let lost = scene.b0.hear("lost main a0");
        assert!(lost.contains("gave the message up"), "{lost}");
        scene.check();
        begin_half(&mut scene);
        sender_dies_and_comes_back(&mut scene);
        assert_eq!(Counts::of(&mut scene.b0).messages("main/a0"), 60);
        scene.end();
    }
}

/// Streams in both directions, small and large, across a gateway that dies.
struct Streams {
    scene: Scene,
}

/// Who sends what to whom.
const STREAMS: [(&str, &str, u64); 6] = [
    ("a0", "b0", SMALL),
    ("b0", "a0", SMALL),
    ("a0", "b0", GATHERED),
    ("b0", "a0", GATHERED),
    ("a0", "b0", MIDDLING),
    ("b0", "a0", MIDDLING),
];

impl Streams {
    fn begin(protocols: [Protocol; 2]) -> Self {
        let mut scene = Scene::new(protocols);
        scene.a0.tell("collect main");
        for (from, to, bytes) in STREAMS {
            let node = if from == "a0" {
                &mut scene.a0
            } else {
                &mut scene.b0
            };
            node.tell(&format!("stream {bytes} main {to} {bytes}"));
        }
        Self { scene }
    }

    fn counts(&mut self) -> [u64; 2] {
        let Scene { a0, b0, .. } = &mut self.scene;
        [
            Counts::of(a0).messages("main/b0"),
            Counts::of(b0).messages("main/a0"),
        ]
    }

    /// Waits until everything moves.
    fn await_progress(&mut self) {
        let before = self.counts();
        wait_until("messages arrive at both ends", || {
            let now = self.counts();
            now[0] > before[0] + 10 && now[1] > before[1] + 10
        });
    }
}

/// Ends the streams of a node. All that it sent arrives, and arrives once; contents and order
/// were checked as it came.
fn arrives_once(node: &mut Process, peer: &mut Process) {
    let mut total = 0;
    for bytes in [SMALL, GATHERED, MIDDLING] {
        node.tell(&format!("halt {bytes}"));
        let ended = node.hear(&format!("ended {bytes}"));
        total += ended.parse::<u64>().expect("no error");
    }
    let from = format!("main/{}", node.name());
    await_messages(peer, &from, total);
    assert_eq!(Counts::of(peer).messages(&from), total);
}

fn gateway_is_restarted(protocols: [Protocol; 2]) {
    let _turn = beside_others();
    let mut streams = Streams::begin(protocols);
    for _ in 0..4 {
        streams.await_progress();
        streams.scene.gateway.kill();
        streams.scene.gateway = streams.scene.plan.start("gw");
    }
    streams.await_progress();
    let Scene { a0, b0, .. } = &mut streams.scene;
    arrives_once(a0, b0);
    arrives_once(b0, a0);
    streams.scene.end();
}

#[test]
fn a_gateway_that_is_restarted_loses_nothing() {
    gateway_is_restarted(TCP);
}

#[test]
fn nor_does_one_with_remote_write_on_either_side() {
    MIXED.into_iter().for_each(gateway_is_restarted);
}

#[test]
fn a_gateway_that_stays_away_is_reported() {
    for protocols in [&[TCP], &MIXED[..]].concat() {
        let _turn = beside_others();
        let mut scene = Scene::new(protocols);
        scene.begin(SMALL);
        let died = Instant::now();
        scene.gateway.kill();
        let (first, last, sent) = failure(&mut scene.a0, "b0");
        was_waited_for(died);
        let arrived = Counts::of(&mut scene.b0).messages("main/a0");
        // What arrived may not have been acknowledged, never the other way round.
        assert!(first <= arrived, "{first} of {arrived}");
        assert!(last + 1 >= sent, "{last} of {sent}");
        let ended = scene.bystanders[0].hear("ended bystander");
        assert!(ended.contains("b1"), "{ended}");
        scene.gateway = scene.plan.start("gw");
        scene.check();
    }
}
