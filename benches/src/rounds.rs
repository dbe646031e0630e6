//! Measures every contestant at every point, in alternating rounds.
//!
//! What else happens on the machine comes and goes within seconds. So a round measures all
//! contestants at a point directly after each other before it goes to the next point, every
//! round starts with another contestant, and what counts is the median over the rounds.

use std::collections::BTreeMap;
use std::io;

use crate::contestant::{Contestant, Measure, Point, Report, RoundArguments, Stage, Timing};
use crate::process::PATIENCE;
use crate::samples::Samples;

const BYTES_PER_GB: f64 = 1e9;
const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// What was measured of one contestant at one point. What does not apply has no samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Bandwidth, in 10⁹ bytes per second.
    pub gb_per_s: Samples,
    /// Messages per second.
    pub messages_per_s: Samples,
    /// CPU time that the relay used for each GiB.
    pub cpu_s_per_gib: Samples,
    /// Half of the median round trip.
    pub half_rtt_us: Samples,
    /// Half of the round trip that 99 of 100 stay below.
    pub half_rtt_p99_us: Samples,
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
        for point in points.iter().filter(|point| arguments.includes(point)) {
            for turn in 0..present.len() {
                let (contestant, _) = present[(turn + usize::from(round)) % present.len()];
                let name = contestant.name();
                let what = || {
                    let Point {
                        measure,
                        message_bytes,
                    } = point;
                    format!("{name}, {} of {message_bytes} bytes", measure.name())
                };
                let figures = results.entry((name, *point)).or_default();
                contestant
                    .stage(*point, timing)
                    .and_then(|stage| measure(stage, *point, timing, figures))
                    .map_err(|error| {
                        io::Error::new(error.kind(), format!("{}: {error}", what()))
                    })?;
            }
        }
    }
    Ok(results)
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
    let relay_cpu = |stage: &Stage| {
        stage
            .relay
            .as_ref()
            .map(|relay| relay.cpu_time())
            .transpose()
    };
    let before = relay_cpu(&stage)?;
    stage.source.go()?;
    let reporter = match point.measure {
        Measure::Stream | Measure::Unread => &stage.sink,
        Measure::PingPong => &stage.source,
    };
    let line = reporter.line(timing.warm_up + timing.time + PATIENCE)?;
    match serde_json::from_str(&line)? {
        Report::Stream(report) => {
            let after = relay_cpu(&stage)?;
            let bytes = as_float(report.messages) * as_float(point.message_bytes as u64);
            figures.gb_per_s.push(bytes / report.seconds / BYTES_PER_GB);
            figures
                .messages_per_s
                .push(as_float(report.messages) / report.seconds);
            if let (Some(before), Some(after)) = (before, after) {
                let used = after.saturating_sub(before).as_secs_f64();
                let gib = as_float(report.total_bytes) / BYTES_PER_GIB;
                figures.cpu_s_per_gib.push(used / gib);
            }
        }
        Report::Ping(report) => {
            figures.half_rtt_us.push(report.half_rtt_us);
            figures.half_rtt_p99_us.push(report.half_rtt_p99_us);
        }
    }
    Ok(())
}

/// Exact up to 2⁵³, and close enough beyond.
fn as_float(count: u64) -> f64 {
    count as f64
}
