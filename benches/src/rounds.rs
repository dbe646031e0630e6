//! Measures every contestant at every point, in alternating rounds.
//!
//! What else happens on the machine comes and goes within seconds. So a round measures all
//! contestants at a point directly after each other before it goes to the next point, every
//! round starts with another contestant, and what counts is the median over the rounds. A contestant that
//! found the processors at another [distance](crate::distance) from each other than most did in a round is
//! measured again ([`even`](crate::even)).

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::contestant::{Contestant, Measure, Point, Report, RoundArguments, Stage, Timing};
use crate::distance::When;
use crate::even::evenly;
use crate::measured::{Gather, Rounds, Subject};
use crate::process::{PATIENCE, Process};
use crate::samples::Samples;

/// What a GB is.
pub const BYTES_PER_GB: f64 = 1e9;
/// What a GiB is.
pub const BYTES_PER_GIB: f64 = 1_073_741_824.0;

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

impl Gather for Figures {
    fn samples(&mut self) -> Vec<&mut Samples> {
        let Self {
            gb_per_s,
            messages_per_s,
            cpu_s_per_gib,
            all_cpu_s_per_gib,
            half_rtt_us,
            half_rtt_p99_us,
        } = self;
        vec![
            gb_per_s,
            messages_per_s,
            cpu_s_per_gib,
            all_cpu_s_per_gib,
            half_rtt_us,
            half_rtt_p99_us,
        ]
    }

    fn count(&self) -> usize {
        self.gb_per_s.count().max(self.half_rtt_us.count())
    }
}

/// A contestant at a point.
pub type AtPoint = (&'static str, Point);

/// Contestants are compared at a point.
impl Subject for AtPoint {
    type Group = Point;

    fn group(self) -> Point {
        self.1
    }

    fn name(self) -> String {
        self.0.to_owned()
    }
}

/// All figures, by contestant and point.
pub type Results = BTreeMap<AtPoint, Figures>;

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
) -> io::Result<Rounds<AtPoint, Figures>> {
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
    let mut measured = Rounds::default();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for point in points {
            let all = in_turn(&present, round).map(|(one, _)| (one.name(), *point));
            let measure_one = |(name, point): AtPoint| {
                let named = present.iter().find(|(one, _)| one.name() == name);
                let (contestant, _) = named.expect("it is one of them");
                measure_once(&***contestant, point, timing)
            };
            let (measure, bytes) = (point.measure.name(), point.message_bytes);
            let what = format!("{measure} of {bytes} bytes");
            let when = match point.measure {
                Measure::Stream | Measure::Unread => When::Meanwhile,
                Measure::PingPong => When::Around,
            };
            measured.append(evenly(round, &what, when, all, measure_one)?);
        }
    }
    Ok(measured)
}

/// Measures a contestant at a point once.
fn measure_once(contestant: &dyn Contestant, point: Point, timing: Timing) -> io::Result<Figures> {
    let mut figures = Figures::default();
    contestant
        .stage(point, timing)
        .and_then(|stage| measure(stage, point, timing, &mut figures))
        .map_err(|error| {
            let (name, measure) = (contestant.name(), point.measure.name());
            let what = format!(
                "{name}, {measure} of {} bytes: {error}",
                point.message_bytes
            );
            io::Error::new(error.kind(), what)
        })?;
    Ok(figures)
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
