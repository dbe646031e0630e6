//! Measurements of the demo: `madgate bench`, over every stage in turn, several times.

use std::ffi::OsString;

use serde_json::Value;

use super::place::{Place, Stage};
use crate::child::{Family, Process};
use crate::failure::{Context, Failure};
use crate::statistics::median;

/// What is measured in one run.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Bandwidth,
    Latency,
}

/// What was measured over one stage, run by run.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    mb_per_s: Vec<f64>,
    half_rtt_us: Vec<f64>,
}

impl Samples {
    /// The median bandwidth.
    pub(crate) fn mb_per_s(&self) -> f64 {
        median(&self.mb_per_s).unwrap_or_default()
    }

    /// The median of the median half round trips.
    pub(crate) fn half_rtt_us(&self) -> f64 {
        median(&self.half_rtt_us).unwrap_or_default()
    }

    /// How many rounds there were.
    pub(crate) fn rounds(&self) -> usize {
        self.mb_per_s.len().min(self.half_rtt_us.len())
    }

    /// Measures once more.
    pub(crate) fn measure(
        &mut self,
        family: &Family,
        place: &Place,
        stage: Stage,
    ) -> Result<(), Failure> {
        self.mb_per_s
            .push(run(family, place, stage, Kind::Bandwidth)?);
        self.half_rtt_us
            .push(run(family, place, stage, Kind::Latency)?);
        Ok(())
    }
}

/// The message sizes, for the words around the figures.
pub(crate) const BANDWIDTH_SIZE: &str = "1MiB";
pub(crate) const LATENCY_SIZE: &str = "8B";

fn run(family: &Family, place: &Place, stage: Stage, kind: Kind) -> Result<f64, Failure> {
    let (from, to) = stage.ends();
    let (bench, size, time, figure) = match kind {
        Kind::Bandwidth => ("stream", BANDWIDTH_SIZE, "1s", "mb_per_s"),
        Kind::Latency => ("pingpong", LATENCY_SIZE, "500ms", "p50_us"),
    };
    let mut arguments: Vec<OsString> = vec!["bench".into(), place.cluster(stage).into()];
    let more = [
        "--node", from, "--to", to, bench, "--size", size, "--time", time, "--json",
    ];
    arguments.extend(more.map(OsString::from));
    let log = place.log(stage, "bench");
    let printed = Process::start(family, "bench", &arguments, Some(&log))?.succeed()?;
    let result: Value = serde_json::from_str(&printed).or_fail(|| "cannot read a result".into())?;
    result[figure]
        .as_f64()
        .ok_or_else(|| Failure::new(format!("a result without {figure}: {printed}")))
}
