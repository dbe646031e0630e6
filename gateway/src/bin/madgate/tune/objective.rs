//! What is to become better, and one measurement of it.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use madgate_vchannel::cluster::{format_duration, format_size};

use super::route::{Route, Stop};
use crate::bench;
use crate::failure::Failure;
use crate::files::wire::count;
use crate::statistics::geometric_mean;
use crate::units::{counted, float};

/// The shortest and the longest that one figure is measured.
const FIGURE_TIME: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(1);
/// So many figures fit into a budget, or more where each takes the shortest time.
const FIGURES: u32 = 400;
/// The part of that time that passes before it counts.
const WARM_UP_PART: u32 = 4;

/// Measurements without which there is nothing to be said: half of them for a verdict.
pub(super) const MEASUREMENTS_LEAST: u32 = 24;

/// Messages that a figure takes at least, where each takes longer than it is measured.
const MESSAGES_OF_FIGURE: u32 = 4;

/// What a route is tuned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Aim {
    /// Bytes per second of one message after another; 1MiB unless --size says otherwise.
    Throughput,
    /// The median half round trip of lone messages; 8B unless --size says otherwise.
    Latency,
    /// Both, each as much: their geometric mean; 8B and 1MiB unless --size says otherwise.
    Balanced,
}

/// One figure of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gauge {
    Stream(usize),
    Pingpong(usize),
}

/// What is measured of a point.
#[derive(Debug, Clone)]
pub(crate) struct Objective {
    pub(crate) gauges: Vec<Gauge>,
    /// How long each figure is measured.
    time: Duration,
}

impl Aim {
    /// What its values are called on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Balanced => "balanced",
        }
    }

    const fn usual_sizes(self) -> &'static [usize] {
        match self {
            Self::Throughput => &[1 << 20],
            Self::Latency => &[8],
            Self::Balanced => &[8, 1 << 20],
        }
    }
}

impl Gauge {
    /// What is measured, in words.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Stream(size) => format!("{} messages", format_size(count(size))),
            Self::Pingpong(size) => format!("{} half round trip", format_size(count(size))),
        }
    }

    /// What its figures are in.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Stream(_) => "MB/s",
            Self::Pingpong(_) => "us",
        }
    }

    /// A figure, with its unit.
    pub(crate) fn figure(self, figure: f64) -> String {
        match self {
            Self::Stream(_) => crate::units::bandwidth(figure),
            Self::Pingpong(_) => format!("{figure:.1} us"),
        }
    }

    /// The more the better.
    fn merit(self, figure: f64) -> f64 {
        match self {
            Self::Stream(_) => figure,
            Self::Pingpong(_) => 1.0 / figure,
        }
    }
}

impl Objective {
    /// With messages of these sizes, or the usual ones.
    ///
    /// # Errors
    /// When messages without bytes are to have a throughput, or so many figures take more than the budget.
    pub(crate) fn new(aim: Aim, sizes: &[usize], budget: Duration) -> Result<Self, Failure> {
        if aim != Aim::Latency && sizes.contains(&0) {
            return Err(Failure::usage(
                "messages without bytes have no throughput; name other sizes, or --for latency",
            ));
        }
        let sizes = if sizes.is_empty() {
            aim.usual_sizes()
        } else {
            sizes
        };
        let streams = sizes.iter().copied().map(Gauge::Stream);
        let pingpongs = sizes.iter().copied().map(Gauge::Pingpong);
        let gauges: Vec<Gauge> = match aim {
            Aim::Throughput => streams.collect(),
            Aim::Latency => pingpongs.collect(),
            Aim::Balanced => streams.chain(pingpongs).collect(),
        };
        let shortest = *FIGURE_TIME.start();
        let least = Self::time_of(shortest, gauges.len()) * MEASUREMENTS_LEAST;
        if least > budget {
            let figures = counted(gauges.len(), "figure");
            return Err(Failure::usage(format!(
                "a measurement has {figures}, too many for a budget of {}: name fewer messages with \
                 --size, or a --budget of {} at least",
                format_duration(budget),
                format_duration(least),
            )));
        }
        // As long as so many fit in.
        let part = budget.as_secs_f64() / least.as_secs_f64();
        let time = (budget / FIGURES).min(shortest.mul_f64(part));
        let time = time.clamp(shortest, *FIGURE_TIME.end());
        Ok(Self { gauges, time })
    }

    /// What so many figures take that are measured for so long each.
    fn time_of(time: Duration, gauges: usize) -> Duration {
        let figures = u32::try_from(gauges).unwrap_or(u32::MAX);
        (time + time / WARM_UP_PART).saturating_mul(figures)
    }

    /// How long one message of each size takes, with what is in force: the second, as the first sets
    /// up the way, and is not waited for where there is a rate.
    pub(crate) fn time_of_one(
        &self,
        route: &Route<'_>,
        deadline: Instant,
    ) -> Result<Vec<Duration>, Stop> {
        let one = |gauge: &Gauge| {
            let (Gauge::Stream(size) | Gauge::Pingpong(size)) = *gauge;
            let once = || {
                let within = deadline.saturating_duration_since(Instant::now());
                route.keeping(Some(within), |to| bench::time_of_one(to, size))
            };
            once()?;
            once()
        };
        self.gauges.iter().map(one).collect()
    }

    /// How long the messages of a measurement take at least, where one of each size takes so long:
    /// some are under way at once, before it counts and then.
    pub(crate) fn time_of_all(ones: &[Duration]) -> Duration {
        ones.iter().sum::<Duration>() * MESSAGES_OF_FIGURE
    }

    /// Measures each figure once, with what is in force.
    pub(crate) fn measure(&self, route: &mut Route<'_>) -> Result<Vec<f64>, Stop> {
        let times = [self.time / WARM_UP_PART, self.time];
        let mut figures = Vec::with_capacity(self.gauges.len());
        for gauge in &self.gauges {
            route.keep()?;
            figures.push(route.keeping(None, |to| match *gauge {
                Gauge::Stream(size) => {
                    let bytes = float(count(size));
                    Ok(bench::messages_per_s(to, size, times)? * bytes / 1e6)
                }
                Gauge::Pingpong(size) => bench::half_round_trip_us(to, size, times),
            })?);
        }
        Ok(figures)
    }

    /// How good these figures are as a whole.
    pub(crate) fn score(&self, figures: &[f64]) -> f64 {
        let merits: Vec<f64> = self
            .gauges
            .iter()
            .zip(figures)
            // A figure of nothing must not make everything nothing.
            .map(|(gauge, figure)| gauge.merit(figure.max(f64::MIN_POSITIVE)))
            .collect();
        geometric_mean(&merits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_and_shorter_trips_are_better() {
        let budget = Duration::from_secs(120);
        let both = Objective::new(Aim::Balanced, &[], budget).unwrap();
        assert_eq!(both.gauges.len(), 4);
        let score = both.score(&[100.0, 1000.0, 10.0, 500.0]);
        assert!(both.score(&[200.0, 1000.0, 10.0, 500.0]) > score);
        assert!(both.score(&[100.0, 1000.0, 9.0, 500.0]) > score);
        assert!(both.score(&[100.0, 1000.0, 10.0, 600.0]) < score);
        // Twice as good in one and half as good in another is as good.
        assert!((both.score(&[200.0, 500.0, 10.0, 500.0]) / score - 1.0).abs() < 1e-9);
    }

    #[test]
    fn sizes_and_times_follow_what_was_asked_for() {
        let long = Objective::new(Aim::Throughput, &[], Duration::from_secs(3600)).unwrap();
        assert_eq!(long.gauges, [Gauge::Stream(1 << 20)]);
        assert_eq!(long.time, *FIGURE_TIME.end());
        let short = Objective::new(Aim::Latency, &[8, 64], Duration::from_secs(6)).unwrap();
        assert_eq!(short.gauges, [Gauge::Pingpong(8), Gauge::Pingpong(64)]);
        assert_eq!(short.time, *FIGURE_TIME.start());
    }

    #[test]
    fn a_budget_has_room_for_the_figures_that_are_asked_for() {
        let of = |sizes: usize, budget: u64| {
            let sizes: Vec<usize> = (0..sizes).collect();
            Objective::new(Aim::Latency, &sizes, Duration::from_secs(budget))
        };
        let refused = of(4, 11).unwrap_err().to_string();
        assert!(refused.contains("4 figures"), "{refused}");
        assert!(refused.contains("a --budget of 12s at least"), "{refused}");
        assert_eq!(of(4, 12).unwrap().time, *FIGURE_TIME.start());
        // With very many, each takes less, so that they fit in as well.
        for (sizes, budget) in [(1, 40), (8, 400), (30, 300), (100, 3000)] {
            let time = of(sizes, budget).unwrap().time;
            let all = Objective::time_of(time, sizes) * MEASUREMENTS_LEAST;
            assert!(
                all.as_secs_f64() <= 1.001 * budget as f64,
                "{sizes}: {all:?}"
            );
            assert!(time <= Duration::from_secs(budget) / FIGURES);
        }
    }

    #[test]
    fn nothing_has_no_throughput() {
        let budget = Duration::from_secs(60);
        assert!(Objective::new(Aim::Latency, &[0], budget).is_ok());
        for aim in [Aim::Throughput, Aim::Balanced] {
            assert!(Objective::new(aim, &[8, 0], budget).is_err());
        }
    }
}
