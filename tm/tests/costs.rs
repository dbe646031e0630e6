//! The papers' table 2 (000), as the cards count it: what a message costs in system calls and in
//! interrupts. One test, in a process of its own, as cards count for all of a process.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use madgate_tm::hsl::port::{Arrived, Block, Port, PortStart, PortTuning};
use madgate_tm::hsl::{Counters, Mode, counters};

/// Messages of each kind.
const MESSAGES: u64 = 50;

/// Bytes of a rendezvous.
const LONG_BYTES: u32 = 64 << 10;

/// How long it may take: a test that waits for ever says nothing.
const LIMIT: Duration = Duration::from_secs(60);

type Ends = [Port; 2];

fn pair(mode: Mode) -> Ends {
    let (one, other) = UnixStream::pair().unwrap();
    let tuning = || PortTuning {
        mode,
        ..PortTuning::default()
    };
    let mut starts = [(one, true), (other, false)]
        .map(|(socket, connects)| PortStart::new(socket, connects, tuning()).unwrap());
    let mut ports = [None, None];
    let begun = Instant::now();
    while ports.iter().any(Option::is_none) {
        for (start, port) in starts.iter_mut().zip(&mut ports) {
            if port.is_none() {
                *port = start.advance().unwrap();
            }
        }
        assert!(begun.elapsed() < LIMIT, "they do not meet");
        thread::yield_now();
    }
    ports.map(Option::unwrap)
}

/// Both ends go on until `found` finds what it looks for.
fn until<T>(ports: &mut Ends, mut found: impl FnMut(&mut Ends) -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        for port in ports.iter_mut() {
            port.progress().unwrap();
        }
        if let Some(found) = found(ports) {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "it never comes");
        thread::yield_now();
    }
}

fn send_short(ports: &mut Ends) {
    until(ports, |[from, _]| {
        from.send_short(&[7; 100]).unwrap().then_some(())
    });
    let arrived = until(ports, |[_, to]| to.next_arrived());
    assert!(matches!(arrived, Arrived::Short(slot) if slot.len() == 100));
}

/// A rendezvous from arena to arena.
fn send_long(ports: &mut Ends) {
    let block = |port: &Port| Block::Arena(port.arena().allocate(LONG_BYTES).unwrap());
    let [posted, sent] = [block(&ports[1]), block(&ports[0])];
    ports[1].post(vec![posted]).unwrap();
    ports[0].send(vec![sent]).unwrap();
    let arrived = until(ports, |[_, to]| to.next_arrived());
    assert!(matches!(arrived, Arrived::Posted(_, length) if length == u64::from(LONG_BYTES)));
    until(ports, |[from, _]| from.next_sent());
}

/// What the cards of both ends do for [`MESSAGES`] of what `send` sends, and to meet: a handler may
/// hear what it was rung for then when messages go already.
fn cost(mode: Mode, send: fn(&mut Ends)) -> Counters {
    let before = counters();
    let mut ports = pair(mode);
    for _ in 0..MESSAGES {
        send(&mut ports);
    }
    let mut cost = counters();
    cost.puts -= before.puts;
    cost.doorbells -= before.doorbells;
    cost.interrupts -= before.interrupts;
    cost.foreign_calls -= before.foreign_calls;
    assert!(cost.puts >= MESSAGES, "{cost:?}");
    cost
}

#[test]
fn messages_cost_what_the_papers_count() {
    // Polling: nobody is rung for, and nothing is called.
    for send in [send_short, send_long] {
        let cost = cost(Mode::Polling, send);
        let calls = (cost.doorbells, cost.interrupts, cost.foreign_calls);
        assert_eq!(calls, (0, 0, 0), "{cost:?}");
    }

    // By interrupts, each notification rings: one of a control message (and more for credit), three
    // of a rendezvous, its request, its answer and its end.
    for (send, rings) in [(send_short as fn(&mut Ends), 1), (send_long, 3)] {
        let cost = cost(Mode::Interrupt, send);
        assert!(cost.doorbells >= rings * MESSAGES, "{cost:?}");
        assert!(cost.doorbells <= (rings + 1) * MESSAGES, "{cost:?}");
        assert!((1..=cost.doorbells).contains(&cost.interrupts), "{cost:?}");
        assert_eq!(cost.foreign_calls, 0, "{cost:?}");
    }
}
