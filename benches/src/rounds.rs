//! Measures every contestant at every point, in alternating rounds.
//!
//! What else happens on the machine comes and goes within seconds. So a round measures all
//! contestants at a point directly after each other before it goes to the next point, every
//! round starts with another contestant, and what counts is the median over the rounds. A contestant that
//! found the processors at another [distance](crate::line) from each other than most did in a round is
//! measured again.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::contestant::{Contestant, Measure, Point, Report, RoundArguments, Stage, Timing};
use crate::line::{Looks, When, usual};
use crate::measured::{Gather, Measured, Rounds};
use crate::process::{PATIENCE, Process};
use crate::samples::Samples;

/// What a GB is.
pub const BYTES_PER_GB: f64 = 1e9;
/// What a GiB is.
pub const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// How often one is measured at a point in a round, at most, to find the distance that most find.
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

impl Gather for Figures {
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

    fn count(&self) -> usize {
        self.gb_per_s.count().max(self.half_rtt_us.count())
    }

    fn medians(&self) -> Self {
        Self {
            gb_per_s: self.gb_per_s.to_median(),
            messages_per_s: self.messages_per_s.to_median(),
            cpu_s_per_gib: self.cpu_s_per_gib.to_median(),
            all_cpu_s_per_gib: self.all_cpu_s_per_gib.to_median(),
            half_rtt_us: self.half_rtt_us.to_median(),
            half_rtt_p99_us: self.half_rtt_p99_us.to_median(),
        }
    }
}

/// A contestant at a point.
pub type At = (&'static str, Point);

/// All figures, by contestant and point.
pub type Results = BTreeMap<At, Figures>;

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
) -> io::Result<Rounds<At, Figures>> {
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
            let measure_one = |(name, point): At| {
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
            let name = |(name, _): At| name.to_owned();
            measured.append(evenly(round, (&what, when), all, name, measure_one)?);
        }
    }
    Ok(measured)
}

/// Measures all of some subjects in a round that are to be compared, with the processors at one distance if
/// it can be had. `when` to look is said with `what` is measured; the latter, and each subject's `name`, are
/// for what standard error tells of those that were moved.
///
/// # Errors
///
/// What `measure` says, or if a thread may not run on one of the processors.
pub fn evenly<S: Copy, F>(
    round: u16,
    (what, when): (&str, When),
    all: impl Iterator<Item = S>,
    name: impl Fn(S) -> String,
    mut measure: impl FnMut(S) -> io::Result<F>,
) -> io::Result<Vec<Measured<S, F>>> {
    let mut measure = |subject| {
        let (figures, looks) = Looks::at(when, || measure(subject))?;
        Ok(Measured {
            round,
            subject,
            figures,
            looks,
            was_repeated: false,
        })
    };
    let mut measured = all.map(&mut measure).collect::<io::Result<Vec<_>>>()?;
    let mut repeated = Vec::new();
    let mut tries = 1;
    loop {
        let unlike = unlike_most(&measured);
        if unlike.is_empty() {
            break;
        }
        let names: Vec<_> = unlike
            .iter()
            .map(|one| name(measured[*one].subject))
            .collect();
        let names = names.join("; ");
        if tries == TRIES {
            eprintln!("the processors were moved: {what} counts all the same for {names}");
            break;
        }
        eprintln!("the processors were moved: {what} once more for {names}");
        tries += 1;
        for one in unlike {
            let again = measure(measured[one].subject)?;
            repeated.push(Measured {
                was_repeated: true,
                ..std::mem::replace(&mut measured[one], again)
            });
        }
    }
    measured.append(&mut repeated);
    Ok(measured)
}

/// Which of those that were measured found another distance than most did.
fn unlike_most<S, F>(measured: &[Measured<S, F>]) -> Vec<usize> {
    let looks = measured.iter().filter_map(|one| one.looks.as_ref());
    let found = |looks: &Looks| looks.usual().map(|ns| (ns, looks.is_like(ns)));
    let found: Vec<_> = looks.filter_map(found).collect();
    // What was moved meanwhile counts if all was.
    let mut kept: Vec<f64> = found.iter().filter(|it| it.1).map(|it| it.0).collect();
    if kept.is_empty() {
        kept.extend(found.iter().map(|it| it.0));
    }
    let Some(usual) = usual(&kept) else {
        return Vec::new();
    };
    let is_unlike = |one: &Measured<S, F>| {
        let looks = one.looks.as_ref();
        looks.is_some_and(|looks| !looks.is_like(usual))
    };
    (0..measured.len())
        .filter(|one| is_unlike(&measured[*one]))
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(looks: Option<Looks>) -> Measured<(), ()> {
        Measured {
            round: 0,
            subject: (),
            figures: (),
            looks,
            was_repeated: false,
        }
    }

    fn unlike_of(looks: &[[f64; 2]]) -> Vec<usize> {
        let all = looks.iter().map(|looks| measured(Some(Looks::of(looks))));
        unlike_most(&all.collect::<Vec<_>>())
    }

    #[test]
    fn who_found_another_distance_than_most_is_known() {
        assert!(unlike_of(&[]).is_empty());
        assert!(unlike_of(&[[60.0, 65.0], [70.0, 55.0]]).is_empty());
        // One found another, and one another one before than after.
        let unlike = unlike_of(&[[60.0, 65.0], [200.0, 210.0], [65.0, 200.0], [60.0, 60.0]]);
        assert_eq!(unlike, [1, 2]);
        // As many of both: that of the first counts, whichever that is.
        assert_eq!(unlike_of(&[[60.0, 60.0], [200.0, 200.0]]), [1]);
        assert_eq!(unlike_of(&[[200.0, 200.0], [60.0, 60.0]]), [1]);
        // Who was moved meanwhile has no say, unless all were.
        assert_eq!(unlike_of(&[[60.0, 210.0], [210.0, 210.0]]), [0]);
        assert_eq!(unlike_of(&[[60.0, 210.0], [60.0, 200.0]]), [0, 1]);
        // With one processor there is nothing to know.
        assert!(unlike_most(&[measured(None)]).is_empty());
    }
}
