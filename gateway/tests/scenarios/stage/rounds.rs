//! Measuring side by side: what arrived at a node in a while, and ratios of such figures
//! over rounds that alternate.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use super::LONG;
use super::process::Process;
use crate::support::report;

/// Between two looks at what has arrived.
const LOOK: Duration = Duration::from_millis(5);

/// Rounds, from fewest to most. Where ratios decide there are so many, whatever they say: who stops
/// when it looks good fools himself. Where only a floor does, a machine that is busy with other
/// things gets more of them before a ratio is believed to be below it.
fn rounds() -> RangeInclusive<usize> {
    if ratios_decide() { 9..=9 } else { 2..=11 }
}

/// What arrived at a node, per channel and source: `main/a0`.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    /// When the last message was complete.
    nanos: u64,
    arrived: HashMap<String, Arrived>,
}

/// What arrived from one source.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    begun: u64,
    messages: u64,
    bytes: u64,
}

impl Counts {
    /// What has arrived until now.
    pub(crate) fn of(node: &mut Process) -> Self {
        let answer = node.ask("counts");
        let mut words = answer.split(' ').filter(|word| !word.is_empty());
        let nanos = words.next().unwrap().parse().unwrap();
        let arrived = words
            .map(|word| {
                let (from, counts) = word.split_once('=').unwrap();
                let mut counts = counts.split('/').map(|count| count.parse().unwrap());
                let arrived = Arrived {
                    begun: counts.next().unwrap(),
                    messages: counts.next().unwrap(),
                    bytes: counts.next().unwrap(),
                };
                (from.to_owned(), arrived)
            })
            .collect();
        Self { nanos, arrived }
    }

    /// Messages from one source over one channel that have begun to be unpacked.
    pub(crate) fn begun(&self, from: &str) -> u64 {
        self.arrived.get(from).map_or(0, |arrived| arrived.begun)
    }

    /// Messages from one source over one channel.
    pub(crate) fn messages(&self, from: &str) -> u64 {
        self.arrived.get(from).map_or(0, |arrived| arrived.messages)
    }

    /// Bytes of them.
    pub(crate) fn bytes(&self, from: &str) -> u64 {
        self.arrived.get(from).map_or(0, |arrived| arrived.bytes)
    }

    /// Bytes from everybody.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.arrived.values().map(|arrived| arrived.bytes).sum()
    }
}

/// Megabytes per second that arrive at some nodes, all measured in the same while.
pub(crate) struct Rates(pub(crate) Vec<f64>);

impl Rates {
    /// Of everything that arrives at each node.
    pub(crate) fn at(nodes: &mut [&mut Process], time: Duration) -> Self {
        let before: Vec<_> = nodes.iter_mut().map(|node| Counts::of(node)).collect();
        thread::sleep(time);
        let rates = nodes.iter_mut().zip(before).map(|(node, before)| {
            let after = Counts::of(node);
            let bytes = after.all_bytes() - before.all_bytes();
            if bytes == 0 {
                return 0.0;
            }
            // From message to message, so that it does not matter when was asked.
            1e3 * float(bytes) / float(after.nanos - before.nanos)
        });
        Self(rates.collect())
    }

    /// Of all nodes together.
    pub(crate) fn sum(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// Waits until so many messages have arrived at a node from a source over a channel
/// (`main/a0`), for as long as some do.
pub(crate) fn await_messages(node: &mut Process, from: &str, messages: u64) {
    let mut deadline = Instant::now() + LONG;
    let mut before = 0;
    loop {
        let arrived = Counts::of(node).messages(from);
        if arrived >= messages {
            return;
        }
        if arrived > before {
            (before, deadline) = (arrived, Instant::now() + LONG);
        }
        let name = node.name();
        let is_late = Instant::now() >= deadline;
        assert!(!is_late, "{name} has {arrived} of {messages} from {from}");
        thread::sleep(LOOK);
    }
}

/// Whether ratios of what was measured decide (`MADGATE_RATIOS=1`): they mean something on a
/// machine that has nothing else to do. Else they are reported, and only what is far below (or
/// beyond) is an error.
fn ratios_decide() -> bool {
    std::env::var_os("MADGATE_RATIOS").is_some()
}

/// What of a ratio has to be reached on any machine, whatever else it does.
const FLOOR: f64 = 0.5;

/// How many times what is allowed is too much on any machine.
const CEILING: f64 = 4.0;

/// What decides where `most` is allowed of what was measured.
pub(crate) fn bound(most: f64) -> f64 {
    if ratios_decide() {
        most
    } else {
        most * CEILING
    }
}

/// Measures in [`rounds`] whether the median ratio of what a round answers (first over second) is
/// `least` at least. Fails when it is not: with `MADGATE_RATIOS=1`, or when it does not come near.
pub(crate) fn alternate(what: &str, least: f64, mut round: impl FnMut() -> (f64, f64)) -> f64 {
    let needed = if ratios_decide() {
        least
    } else {
        least * FLOOR
    };
    let mut ratios = Vec::new();
    let mut firsts = Vec::new();
    let mut seconds = Vec::new();
    let rounds = rounds();
    while ratios.len() < *rounds.end() {
        let (first, second) = round();
        firsts.push(first);
        seconds.push(second);
        ratios.push(first / second);
        let is_enough = median(&ratios) >= needed;
        if ratios.len() >= *rounds.start() && is_enough {
            break;
        }
    }
    let ratio = median(&ratios);
    report(&format!(
        "{what}: {:.1} to {:.1}, ratio {ratio:.3} of {} rounds (at least {least})",
        median(&firsts),
        median(&seconds),
        ratios.len()
    ));
    assert!(ratio >= needed, "{what}: {ratios:.3?}");
    if ratio < least {
        report(&format!(
            "{what}: below what is to be reached; alone on the machine, MADGATE_RATIOS=1 makes this an error"
        ));
    }
    median(&firsts)
}

pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[allow(clippy::cast_precision_loss, reason = "ratios for people")]
pub(crate) fn float(number: u64) -> f64 {
    number as f64
}
