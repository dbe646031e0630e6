//! Trials of a node that is made up, in made-up time.

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;

use super::trials::{LEASE_BOUNDS, MAX_NAMES};
use super::wire::{Answer, Ask, Order, State, Try};
use super::*;

const FILE: &str = r#"
[session]
name = "s"
key_file = "key"
[[network]]
name = "left"
protocol = "tcp"
[[network]]
name = "right"
protocol = "tcp"
[[node]]
name = "a"
addresses = { left = "127.0.0.1:7001" }
[[node]]
name = "gw"
gateway = true
addresses = { left = "127.0.0.1:7002", right = "127.0.0.1:7003" }
[[node]]
name = "b"
addresses = { right = "127.0.0.1:7004" }
[[channel]]
name = "main"
networks = ["left", "right"]
[gateway]
depth = 3
"#;

const LEASE: Duration = Duration::from_secs(10);

fn trials() -> Arc<Trials> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.toml");
    fs::write(&path, FILE).unwrap();
    read(&path, "gw", true).unwrap().1
}

/// An order of the node with this rank.
struct From(u32, u64);

impl From {
    fn send(&self, trials: &Trials, number: u64, order: Order, now: Instant) -> Answer {
        let cluster = Cluster::parse(FILE, ".").unwrap();
        let received = Received {
            source: cluster.node_with_rank(self.0).unwrap(),
            tag: self.1,
            number,
            copies: 0,
        };
        trials.order(order, &received, now)
    }

    fn tries(&self, trials: &Trials, number: u64, depth: &str, now: Instant) -> Answer {
        self.send(trials, number, depth_of(depth, LEASE), now)
    }
}

fn depth_of(depth: &str, lease: Duration) -> Order {
    Order::Try(Try {
        lease_ms: lease.as_millis().try_into().unwrap(),
        values: [("gateway.depth".to_owned(), depth.to_owned())].into(),
    })
}

#[track_caller]
fn state(answer: Answer) -> State {
    match answer {
        Answer::State(state) => state,
        Answer::Refused(why) => panic!("refused: {why}"),
    }
}

#[track_caller]
fn refusal(answer: Answer) -> String {
    match answer {
        Answer::Refused(why) => why,
        Answer::State(state) => panic!("not refused: {state:?}"),
    }
}

fn depth(change: &Change) -> usize {
    change.cluster.gateway_settings().depth
}

#[test]
fn a_trial_comes_begins_and_ends_with_its_lease() {
    let (trials, now) = (trials(), Instant::now());
    assert!(trials.due(now).is_none() && trials.lease_end().is_none());
    let answer = state(From(0, 7).tries(&trials, 1, "8", now));
    assert_eq!((answer.coming, answer.in_force), (Some(1), None));
    assert!(trials.woken().try_recv().is_ok());
    let change = trials.due(now).unwrap();
    assert_eq!((depth(&change), change.trial), (8, Some((7, 1))));
    assert!(change.what.contains("gateway.depth = 8"), "{}", change.what);
    trials.began(change.trial);

    // Asked again, it is not begun again.
    let answer = state(From(0, 7).tries(&trials, 1, "8", now));
    assert_eq!((answer.coming, answer.in_force), (None, Some(1)));
    assert!(trials.due(now).is_none());

    // A question renews the lease.
    let ask = Order::Ask(Ask {
        lease_ms: 10_000,
        names: vec!["gateway.depth".into(), "gateway.nonsense".into()],
    });
    let later = now + LEASE - Duration::from_secs(1);
    let answer = state(From(0, 7).send(&trials, 0, ask, later));
    assert_eq!(answer.values, [("gateway.depth".into(), "3".into())].into());
    assert!(trials.due(now + LEASE).is_none());
    let end = trials.lease_end().unwrap();
    assert_eq!(end, later + LEASE);
    let change = trials.due(end).unwrap();
    assert_eq!((depth(&change), change.trial), (3, None));
    trials.began(None);
    assert!(trials.due(end + LEASE).is_none());
}

#[test]
fn who_tunes_next_is_told_until_the_values_of_the_one_before_are_gone() {
    let ask = || {
        Order::Ask(Ask {
            lease_ms: 10_000,
            names: Vec::new(),
        })
    };
    let now = Instant::now();
    for ends in [true, false] {
        let trials = trials();
        state(From(0, 7).tries(&trials, 1, "8", now));
        trials.began(trials.due(now).unwrap().trial);
        if ends {
            state(From(0, 7).send(&trials, 1, Order::End, now));
        }
        // One that was killed is this node again, and has said nothing.
        assert!(state(From(0, 8).send(&trials, 0, ask(), now)).of_another);
        assert!(trials.woken().try_recv().is_ok());
        let change = trials.due(now).unwrap();
        assert_eq!((depth(&change), change.trial), (3, None));
        // Asked while it goes back, it does not do so twice.
        assert!(state(From(0, 8).send(&trials, 0, ask(), now)).of_another);
        trials.began(None);
        assert!(!state(From(0, 8).send(&trials, 0, ask(), now)).of_another);
        assert!(trials.due(now).is_none());
        // Its own trials are nobody else's.
        state(From(0, 8).tries(&trials, 1, "4", now));
        trials.began(trials.due(now).unwrap().trial);
        let answer = state(From(0, 8).send(&trials, 1, ask(), now));
        assert_eq!((answer.in_force, answer.of_another), (Some(1), false));
    }
}

#[test]
fn one_node_tunes_at_a_time() {
    let (trials, now) = (trials(), Instant::now());
    state(From(0, 7).tries(&trials, 1, "8", now));
    let why = refusal(From(2, 9).tries(&trials, 1, "4", now));
    assert!(why.contains("a is tuning it"), "{why}");
    // The same node again is a new process, whose trials are others.
    let answer = state(From(0, 8).tries(&trials, 1, "4", now));
    assert_eq!((answer.coming, answer.in_force), (Some(1), None));
    // An order that was late ends nothing.
    state(From(0, 7).send(&trials, 0, Order::End, now));
    assert_eq!(depth(&trials.due(now).unwrap()), 4);
    // When the lease has ended, it is another's turn.
    state(From(2, 9).tries(&trials, 1, "5", now + LEASE));
}

#[test]
fn the_end_leads_back_to_the_file_once() {
    let (trials, now) = (trials(), Instant::now());
    let tuner = From(0, 7);
    tuner.tries(&trials, 1, "8", now);
    trials.began(trials.due(now).unwrap().trial);
    state(tuner.send(&trials, 0, Order::End, now));
    let change = trials.due(now).unwrap();
    assert_eq!((depth(&change), change.trial), (3, None));
    trials.began(None);
    state(tuner.send(&trials, 0, Order::End, now));
    assert!(trials.due(now).is_none());
}

#[test]
fn what_cannot_be_tried_is_refused() {
    let (trials, now) = (trials(), Instant::now());
    let tuner = From(0, 7);
    let other = |name: &str, value: &str| {
        Order::Try(Try {
            lease_ms: 10_000,
            values: [(name.to_owned(), value.to_owned())].into(),
        })
    };
    for (order, expected) in [
        (other("gateway.depth", "0"), "`depth` cannot be 0"),
        (other("gateway.depth", "x"), "gateway.depth: expected"),
        (other("gateway.memory", "8MiB"), "is yours to set"),
        (other("session.key_file", "/etc/passwd"), "is no knob"),
        (
            other("channel.other.mtu", "64KiB"),
            "has no channel.other.mtu",
        ),
        (depth_of("4", *LEASE_BOUNDS.start() / 2), "out of bounds"),
        (depth_of("4", *LEASE_BOUNDS.end() * 2), "out of bounds"),
    ] {
        let why = refusal(tuner.send(&trials, 1, order, now));
        assert!(why.contains(expected), "{why}");
    }
    let many = Order::Try(Try {
        lease_ms: 10_000,
        values: (0..=MAX_NAMES)
            .map(|count| (format!("network.n{count}.unsent"), "2MiB".to_owned()))
            .collect(),
    });
    let why = refusal(tuner.send(&trials, 1, many, now));
    assert!(why.contains("more than"), "{why}");
    let received = Received {
        source: Cluster::parse(FILE, ".").unwrap().node("a").unwrap(),
        tag: 7,
        number: 2,
        copies: 2,
    };
    let why = refusal(trials.order(depth_of("4", LEASE), &received, now));
    assert!(why.contains("receives files, 2 transfers"), "{why}");
    assert!(trials.due(now).is_none());
    let why = refusal(tuner.tries(&Trials::new(None), 1, "4", now));
    assert!(why.contains("--tunable"), "{why}");
}

/// A node that cannot do everything, and what it did.
#[derive(Debug)]
struct Fake {
    log: Rc<RefCell<Vec<String>>>,
    is_busy: bool,
}

impl Node for Fake {
    fn stop(self) -> Result<(), Self> {
        if self.is_busy {
            let is_busy = false;
            return Err(Self { is_busy, ..self });
        }
        self.log.borrow_mut().push("stop".to_owned());
        Ok(())
    }
}

#[test]
fn a_node_follows_its_trials() {
    let (trials, now) = (trials(), Instant::now());
    let log = Rc::new(RefCell::new(Vec::new()));
    let cluster = Arc::new(Cluster::parse(FILE, ".").unwrap());
    let start = |cluster: &Arc<Cluster>| {
        let depth = cluster.gateway_settings().depth;
        log.borrow_mut().push(format!("start {depth}"));
        if depth == 64 {
            return Err(Failure::new("too deep"));
        }
        Ok(Fake {
            log: Rc::clone(&log),
            is_busy: depth == 5,
        })
    };
    let mut node = Tunable::start(&trials, &cluster, start).unwrap();
    let tuner = From(0, 7);
    let did = |expected: &[&str]| assert_eq!(log.replace(Vec::new()), expected);
    did(&["start 3"]);
    assert!(!node.look());
    did(&[]);

    tuner.tries(&trials, 1, "4", now);
    assert!(node.look());
    did(&["stop", "start 4"]);

    // What cannot begin leaves the file's values.
    tuner.tries(&trials, 2, "64", now);
    assert!(node.look());
    did(&["stop", "start 64", "start 3"]);
    let answer = state(tuner.tries(&trials, 2, "64", now));
    assert_eq!(answer.failed, Some((2, "too deep".to_owned())));
    assert_eq!(answer.in_force, None);

    // What does not end stays as it is, and the way back is tried again.
    tuner.tries(&trials, 3, "5", now);
    assert!(node.look());
    did(&["stop", "start 5"]);
    tuner.send(&trials, 0, Order::End, now);
    assert!(node.look());
    did(&[]);
    assert!(node.node().is_some() && node.retry.is_some());
    let again = node.timer().recv().unwrap();
    assert!(again >= now);
    assert!(node.look());
    did(&["stop", "start 3"]);
    assert!(node.retry.is_none() && node.into_node().is_some());
}
