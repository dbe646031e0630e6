//! Beside others, in one run: UCX over shared memory, where both ends look all the time; and
//! where the other end sleeps, the bare call that wakes it.
//!
//! Rounds alternate, each beginning with another contestant; what counts is the median of each, and
//! of what each has of the reference in the same round. A round counts if all in it had the same
//! machine: while the time in which processors pass a line of memory to each other has changed, others
//! are measured.

use std::io::{self, Write};
use std::time::Duration;

use madgate_benches::cluster::{BenchNetwork, write_cluster};
use madgate_benches::contestant::Measure;
use madgate_benches::distance::Watch;
use madgate_benches::madgate::stage_madgate;
use madgate_benches::rounds::measure;
use madgate_benches::samples::Samples;
use madgate_benches::table::Table;
use madgate_benches::waiting::Wait;
use madgate_benches::{Figures, Point, Timing};
use serde::Serialize;

use crate::exchange::both_ends;
use crate::plan::{How, Memory, Plan, Traffic};
use crate::ucx;
use crate::waking;

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contestant {
    /// `ucx_perftest`.
    Ucx,
    /// The calls that a wake-up cannot do without.
    Bare,
    /// A port of remote write.
    Port,
    /// Whole messages, packed and unpacked, over a network of this protocol.
    Messages(&'static str),
}

impl Contestant {
    fn name(self) -> &'static str {
        match self {
            Self::Ucx => "ucx",
            Self::Bare => "bare",
            Self::Port => "port",
            Self::Messages(protocol) => protocol,
        }
    }
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Half of the round trip of 8 bytes; both look.
    Latency,
    /// Many messages of so many bytes.
    Bandwidth(usize),
    /// Half of the round trip of 8 bytes; both sleep.
    Waking,
}

/// One comparison: all against the first, and what is wanted of them.
struct Comparison {
    what: What,
    reference: Contestant,
    /// Each with the ratio that is wanted: at most this, or of a bandwidth at least.
    others: [(Contestant, f64); 3],
}

impl Comparison {
    /// All that take part, the reference first.
    fn contestants(&self) -> [Contestant; 4] {
        let [(first, _), (second, _), (third, _)] = self.others;
        [self.reference, first, second, third]
    }
}

const PORT: Contestant = Contestant::Port;
const HSL: Contestant = Contestant::Messages("hsl");
const SHM: Contestant = Contestant::Messages("shm");

const COMPARISONS: [Comparison; 4] = [
    Comparison {
        what: What::Latency,
        reference: Contestant::Ucx,
        others: [(PORT, 1.0), (HSL, 1.5), (SHM, 1.5)],
    },
    Comparison {
        what: What::Bandwidth(64 << 10),
        reference: Contestant::Ucx,
        others: [(PORT, 1.0), (HSL, 1.0), (SHM, 1.0)],
    },
    Comparison {
        what: What::Bandwidth(1 << 20),
        reference: Contestant::Ucx,
        others: [(PORT, 1.0), (HSL, 1.0), (SHM, 1.0)],
    },
    Comparison {
        what: What::Waking,
        reference: Contestant::Bare,
        others: [(PORT, 1.2), (HSL, 1.2), (SHM, 1.2)],
    },
];

const BYTES_OF_LATENCY: usize = 8;

impl What {
    fn name(self) -> String {
        match self {
            Self::Latency => "8 B, half round trip, µs".to_owned(),
            Self::Bandwidth(bytes) => format!("{} KiB, GB/s", bytes >> 10),
            Self::Waking => "8 B, half round trip, both asleep, µs".to_owned(),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Latency | Self::Waking => BYTES_OF_LATENCY,
            Self::Bandwidth(bytes) => bytes,
        }
    }
}

/// Rounds that are measured at most, for each that is to count.
const ROUNDS_FOR_EACH: usize = 4;

/// How much is measured each time.
#[derive(Debug, Clone, Copy)]
struct Effort {
    rounds: usize,
    round_trips: usize,
    wake_ups: usize,
    /// Bytes that go one way.
    bytes: usize,
    time: Duration,
}

const THOROUGH: Effort = Effort {
    rounds: 7,
    round_trips: 200_000,
    wake_ups: 3000,
    bytes: 256 << 20,
    time: Duration::from_millis(700),
};

const QUICK: Effort = Effort {
    rounds: 1,
    round_trips: 500,
    wake_ups: 50,
    bytes: 32 << 20,
    time: Duration::from_millis(100),
};

/// One figure of one contestant; without a ratio that of the reference.
#[derive(Debug, Serialize)]
struct Line {
    table: &'static str,
    figure: String,
    contestant: &'static str,
    median: f64,
    /// Of the rounds, the one that others disturbed least.
    best: f64,
    /// Of the reference in the same round: the median.
    ratio: Option<f64>,
    /// What is wanted of the ratio: of a bandwidth at least this, else at most;
    wanted: Option<f64>,
    is_least: bool,
    /// and whether it is so.
    is_met: Option<bool>,
    /// How long a line of memory took between the processors, in nanoseconds: the median.
    line_ns: Option<f64>,
    /// Rounds that do not count, as that changed,
    uneven_rounds: usize,
    /// and those that count all the same, for want of others.
    uneven_counted: usize,
}

/// Measures, and prints what was measured.
pub(crate) fn print(quick: bool, json: bool) -> io::Result<()> {
    let effort = if quick { QUICK } else { THOROUGH };
    if let Some(missing) = ucx::missing() {
        eprintln!("{missing}: nothing is compared with it");
    }
    let mut lines = Vec::new();
    for comparison in &COMPARISONS {
        lines.extend(compare(comparison, effort)?);
    }
    let mut stdout = io::stdout().lock();
    if json {
        for line in &lines {
            writeln!(stdout, "{}", serde_json::to_string(line)?)?;
        }
        return Ok(());
    }
    let mut table = Table::new([
        "beside others",
        "of",
        "median",
        "best",
        "ratio",
        "wanted",
        "",
    ]);
    let figure = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
    for line in &lines {
        table.row([
            line.figure.clone(),
            line.contestant.to_owned(),
            format!("{:.3}", line.median),
            format!("{:.3}", line.best),
            figure(line.ratio),
            line.wanted.map_or_else(String::new, |wanted| {
                let bound = if line.is_least { "least" } else { "most" };
                format!("at {bound} {wanted:.2}")
            }),
            match line.is_met {
                Some(false) => "missed".to_owned(),
                _ => String::new(),
            },
        ]);
    }
    writeln!(
        stdout,
        "\n{table}\nRatio: to the first, the median of all rounds'."
    )?;
    for line in lines.iter().filter(|line| line.wanted.is_none()) {
        let Some(ns) = line.line_ns else { continue };
        let uneven = match line.uneven_rounds {
            0 => String::new(),
            count => format!("; {count} more rounds do not count, as that changed in them"),
        };
        let counted = match line.uneven_counted {
            0 => String::new(),
            count => format!("; {count} count although it did"),
        };
        writeln!(
            stdout,
            "{}: a line of memory took {ns:.0} ns between both processors{uneven}{counted}.",
            line.figure
        )?;
    }
    Ok(())
}

/// What all contestants of a comparison had in one round.
struct Round {
    figures: [Option<f64>; 4],
    line: Watch,
}

fn compare(comparison: &Comparison, effort: Effort) -> io::Result<Vec<Line>> {
    let (mut even, mut uneven) = (Vec::new(), Vec::new());
    for number in 0..ROUNDS_FOR_EACH * effort.rounds {
        if even.len() == effort.rounds {
            break;
        }
        eprintln!(
            "{}: round {} of {}",
            comparison.what.name(),
            even.len() + 1,
            effort.rounds
        );
        let round = measure_round(comparison, effort, number)?;
        if round.line.is_even() {
            even.push(round);
        } else {
            uneven.push(round);
        }
    }
    let missing = effort.rounds - even.len();
    if missing > 0 {
        eprintln!(
            "{missing} of the rounds had a machine that changed, and count for want of others"
        );
        even.extend(uneven.drain(..missing));
    }
    Ok(lines(comparison, &even, [uneven.len(), missing]))
}

/// Measures all contestants of a comparison, each round beginning with another one.
fn measure_round(comparison: &Comparison, effort: Effort, number: usize) -> io::Result<Round> {
    let mut round = Round {
        figures: [None; 4],
        line: Watch::default(),
    };
    let all = comparison.contestants();
    for turn in 0..all.len() {
        round.line.look()?;
        let place = (turn + number) % all.len();
        if all[place] == Contestant::Ucx && ucx::missing().is_some() {
            continue;
        }
        let told = |error: &io::Error| {
            let (name, what) = (all[place].name(), comparison.what.name());
            format!("{name}, {what}: {error}")
        };
        match one(comparison.what, all[place], effort) {
            Ok(figure) => round.figures[place] = Some(figure),
            // Others' mistakes are not ours.
            Err(error) if all[place] == Contestant::Ucx => {
                eprintln!("left out of this round: {}", told(&error));
            }
            Err(error) => return Err(io::Error::new(error.kind(), told(&error))),
        }
    }
    round.line.look()?;
    Ok(round)
}

/// What the rounds say of each contestant.
///
/// `uneven` are the rounds in which the machine changed: those that do not count, and those that do.
fn lines(comparison: &Comparison, rounds: &[Round], uneven: [usize; 2]) -> Vec<Line> {
    let [uneven_rounds, uneven_counted] = uneven;
    let what = comparison.what;
    let is_least = matches!(what, What::Bandwidth(_));
    let line_ns = rounds.iter().filter_map(|round| round.line.median_ns());
    let line_ns = Samples::of(line_ns.collect()).median();
    let line = |(place, contestant): (usize, Contestant)| {
        let of_all = |figure: &dyn Fn(&Round) -> Option<f64>| {
            Samples::of(rounds.iter().filter_map(figure).collect())
        };
        let samples = of_all(&|round| round.figures[place]);
        let ratios = of_all(&|round| Some(round.figures[place]? / round.figures[0]?));
        let wanted = place.checked_sub(1).map(|place| comparison.others[place].1);
        let ratio = wanted.and(ratios.median());
        let is_met = |(ratio, wanted)| {
            if is_least {
                ratio >= wanted
            } else {
                ratio <= wanted
            }
        };
        Some(Line {
            table: "beside",
            figure: what.name(),
            contestant: contestant.name(),
            median: samples.median()?,
            best: if is_least {
                samples.greatest()?
            } else {
                samples.least()?
            },
            ratio,
            wanted,
            is_least,
            is_met: ratio.zip(wanted).map(is_met),
            line_ns,
            uneven_rounds,
            uneven_counted,
        })
    };
    let contestants = comparison.contestants().into_iter();
    contestants.enumerate().filter_map(line).collect()
}

/// Measures once.
fn one(what: What, contestant: Contestant, effort: Effort) -> io::Result<f64> {
    match contestant {
        Contestant::Ucx => {
            let (test, rounds) = match what {
                What::Bandwidth(bytes) => (ucx::Test::Bandwidth, effort.bytes / bytes),
                What::Latency | What::Waking => (ucx::Test::Latency, effort.round_trips),
            };
            ucx::measure(test, what.bytes(), rounds)
        }
        Contestant::Bare => waking::bare(effort.wake_ups),
        Contestant::Port => port(what, effort),
        Contestant::Messages(protocol) => messages(what, protocol, effort),
    }
}

fn port(what: What, effort: Effort) -> io::Result<f64> {
    let plan = match what {
        What::Latency => Plan {
            traffic: Traffic::Short,
            ..Plan::of(How::Polling, Memory::Other, vec![8], effort.round_trips)
        },
        What::Bandwidth(bytes) => Plan {
            traffic: Traffic::Stream,
            ..Plan::of(
                How::Polling,
                Memory::Arena,
                vec![bytes],
                effort.bytes / bytes,
            )
        },
        What::Waking => Plan {
            traffic: Traffic::Short,
            spin_us: 0,
            ..Plan::of(How::Adaptive, Memory::Other, vec![8], effort.wake_ups)
        },
    };
    let outcome = both_ends(&plan)?;
    let each_us = outcome.each_us.first().and_then(Samples::median);
    let each_us = each_us.ok_or_else(|| io::Error::other("nothing was measured"))?;
    Ok(match what {
        // Far below 2^52.
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        What::Bandwidth(bytes) => bytes as f64 / each_us / 1e3,
        What::Latency | What::Waking => each_us,
    })
}

fn messages(what: What, protocol: &'static str, effort: Effort) -> io::Result<f64> {
    let (measures, wait) = match what {
        What::Latency => (Measure::PingPong, Wait::Spin),
        What::Bandwidth(_) => (Measure::Unread, Wait::Spin),
        What::Waking => (Measure::PingPong, Wait::Sleep),
    };
    let keys = match (protocol, wait) {
        ("hsl", Wait::Spin) => "mode = \"polling\"\n",
        _ => "",
    };
    let network = BenchNetwork {
        name: "net",
        protocol,
        keys,
        nodes: &["a0", "b0"],
    };
    let (files, cluster) = write_cluster(&[network], wait, &[])?;
    let timing = Timing {
        warm_up: effort.time / 4,
        time: effort.time,
    };
    let point = Point {
        measure: measures,
        message_bytes: what.bytes(),
    };
    let stage = stage_madgate(point, timing, files, &cluster, || Ok(None))?;
    stage.keep_apart()?;
    let mut figures = Figures::default();
    measure(stage, point, timing, &mut figures)?;
    let figure = match what {
        What::Bandwidth(_) => figures.gb_per_s,
        What::Latency | What::Waking => figures.half_rtt_us,
    };
    figure
        .median()
        .ok_or_else(|| io::Error::other("nothing was measured"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(figures: [Option<f64>; 4]) -> Round {
        Round {
            figures,
            line: Watch::default(),
        }
    }

    #[test]
    fn ratios_are_those_within_a_round() {
        let rounds = [
            round([1.0, 1.0, 1.4, 1.6].map(Some)),
            round([4.0, 2.0, 5.6, 6.4].map(Some)),
            round([None, Some(9.0), Some(9.0), Some(9.0)]),
        ];
        let lines = lines(&COMPARISONS[0], &rounds, [0, 0]);
        let of = |name| lines.iter().find(|line| line.contestant == name).unwrap();
        assert_eq!((of("ucx").median, of("ucx").ratio), (2.5, None));
        assert_eq!(
            (of("port").ratio, of("port").is_met),
            (Some(0.75), Some(true))
        );
        assert_eq!((of("hsl").ratio, of("hsl").is_met), (Some(1.4), Some(true)));
        assert_eq!(
            (of("shm").ratio, of("shm").is_met),
            (Some(1.6), Some(false))
        );
    }
}
