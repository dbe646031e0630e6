//! Measures every contestant at every point, in alternating rounds.
//!
//! What else happens on the machine comes and goes within seconds. So a round measures all
//! contestants at a point directly after each other before it goes to the next point, every
//! round starts with another contestant, and what counts is the median over the rounds. Where the
//! [machine changes](crate::line) while they are measured at a point, they are measured there again.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::contestant::{Contestant, Measure, Point, Report, RoundArguments, Stage, Timing};
use crate::line::Watch;
use crate::process::{PATIENCE, Process};
use crate::samples::Samples;

/// What a GB is.
pub const BYTES_PER_GB: f64 = 1e9;
/// What a GiB is.
pub const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// How often all are measured at a point in a round, at most, to find the machine the same from the
/// first to the last.
const TRIES: u32 = 3;

/// What was measured of one contestant at one point. What does not apply has no samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Bandwidth, in 10⁹ bytes per second.
    pub gb_per_s: Samples,
    /// Messages per second.
    pub messages_per_s: Samples,
    /// CPU time that the relay used for each GiB.
    pub cpu_s_per_gib: Samples,
    /// The same of all processes: source, sink, and relay if there is one.
    pub all_cpu_s_per_gib: Samples,
    /// Half of the median round trip.
    pub half_rtt_us: Samples,
    /// Half of the round trip that 99 of 100 stay below.
    pub half_rtt_p99_us: Samples,
}

impl Figures {
    /// Adds those of another round.
    fn append(&mut self, other: Self) {
        let Self {
            gb_per_s,
            messages_per_s,
            cpu_s_per_gib,
            all_cpu_s_per_gib,
            half_rtt_us,
            half_rtt_p99_us,
        } = other;
        self.gb_per_s.append(gb_per_s);
        self.messages_per_s.append(messages_per_s);
        self.cpu_s_per_gib.append(cpu_s_per_gib);
        self.all_cpu_s_per_gib.append(all_cpu_s_per_gib);
        self.half_rtt_us.append(half_rtt_us);
        self.half_rtt_p99_us.append(half_rtt_p99_us);
    }
}

/// All figures, by contestant and point.
pub type Results = BTreeMap<(&'static str, Point), Figures>;

/// Measures all `contestants` at all `points`, and says on standard error what it is at.
/// Those that this machine lacks something for are named there, and have no figures.
///
/// # Errors
///
/// The first measurement that fails ends all, with the name of the contestant.
pub fn run(
    contestants: &[Box<dyn Contestant>],
    points: &[Point],
    arguments: &RoundArguments,
) -> io::Result<Results> {
    let (present, absent): (Vec<_>, Vec<_>) = contestants
        .iter()
        .map(|contestant| (contestant, contestant.missing()))
        .partition(|(_, missing)| missing.is_none());
    for (contestant, missing) in absent {
        let missing = missing.unwrap_or_default();
        eprintln!("{} is left out: {missing}", contestant.name());
    }
    let timing = arguments.timing()?;
    let rounds = arguments.count();
    let mut results = Results::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for point in points {
            let all = || in_turn(&present, round).map(|(contestant, _)| &***contestant);
            for (name, figures) in measure_evenly(all, *point, timing)? {
                results.entry((name, *point)).or_default().append(figures);
            }
        }
    }
    Ok(results)
}

/// Measures all contestants at a point, on a machine that is the same for all of them.
fn measure_evenly<'c, C>(
    all: impl Fn() -> C,
    point: Point,
    timing: Timing,
) -> io::Result<Vec<(&'static str, Figures)>>
where
    C: Iterator<Item = &'c dyn Contestant>,
{
    let mut tries = 0;
    loop {
        tries += 1;
        let mut line = Watch::default();
        let mut measured = Vec::new();
        for contestant in all() {
            line.look()?;
            let mut figures = Figures::default();
            contestant
                .stage(point, timing)
                .and_then(|stage| measure(stage, point, timing, &mut figures))
                .map_err(|error| {
                    let (name, measure) = (contestant.name(), point.measure.name());
                    let bytes = point.message_bytes;
                    let what = format!("{name}, {measure} of {bytes} bytes: {error}");
                    io::Error::new(error.kind(), what)
                })?;
            measured.push((contestant.name(), figures));
        }
        line.look()?;
        if line.is_even() {
            return Ok(measured);
        }
        let (measure, bytes) = (point.measure.name(), point.message_bytes);
        eprint!("the machine has changed: {measure} of {bytes} bytes ");
        if tries == TRIES {
            eprintln!("count all the same");
            return Ok(measured);
        }
        eprintln!("once more");
    }
}

/// Who is measured when in a round: each round starts with another one.
pub fn in_turn<T>(all: &[T], round: u16) -> impl Iterator<Item = &T> {
    let first = usize::from(round) % all.len().max(1);
    all[first..].iter().chain(&all[..first])
}

/// Measures what is staged, once.
///
/// # Errors
///
/// If an end fails, or says nothing.
pub fn measure(
    mut stage: Stage,
    point: Point,
    timing: Timing,
    figures: &mut Figures,
) -> io::Result<()> {
    let before = CpuTimes::of(&stage)?;
    stage.source.go()?;
    let reporter = match point.measure {
        Measure::Stream | Measure::Unread => &stage.sink,
        Measure::PingPong => &stage.source,
    };
    let line = reporter.line(timing.warm_up + timing.time + PATIENCE)?;
    match serde_json::from_str(&line)? {
        Report::Stream(report) => {
            let used = CpuTimes::of(&stage)?.since(before);
            let bytes = as_float(report.messages) * as_float(point.message_bytes as u64);
            figures.gb_per_s.push(bytes / report.seconds / BYTES_PER_GB);
            figures
                .messages_per_s
                .push(as_float(report.messages) / report.seconds);
            let gib = as_float(report.total_bytes) / BYTES_PER_GIB;
            let all = used.relay.unwrap_or_default() + used.ends;
            figures.all_cpu_s_per_gib.push(all.as_secs_f64() / gib);
            if let Some(relay) = used.relay {
                figures.cpu_s_per_gib.push(relay.as_secs_f64() / gib);
            }
        }
        Report::Ping(report) => {
            figures.half_rtt_us.push(report.half_rtt_us);
            figures.half_rtt_p99_us.push(report.half_rtt_p99_us);
        }
    }
    Ok(())
}

/// CPU time of the processes of a measurement.
#[derive(Debug, Clone, Copy)]
struct CpuTimes {
    relay: Option<Duration>,
    ends: Duration,
}

impl CpuTimes {
    fn of(stage: &Stage) -> io::Result<Self> {
        Ok(Self {
            relay: stage.relay.as_ref().map(Process::cpu_time).transpose()?,
            ends: stage.source.cpu_time()? + stage.sink.cpu_time()?,
        })
    }

    fn since(self, before: Self) -> Self {
        let relay = self.relay.zip(before.relay);
        Self {
            relay: relay.map(|(now, before)| now.saturating_sub(before)),
            ends: self.ends.saturating_sub(before.ends),
        }
    }
}

/// Exact up to 2⁵³, and close enough beyond.
pub fn as_float(count: u64) -> f64 {
    count as f64
}
