//! Compares runs of the benches of the parts, and says what changed beyond noise.
//!
//! ```text
//! cargo bench -p madgate-benches --bench '*' -- --save-baseline before-1     (and before-2, …)
//! cargo bench -p madgate-benches --bench '*' -- --save-baseline after-1      (and after-2, …)
//! cargo run --release -p madgate-benches --bin compare -- --before before-1,before-2,… --after after-1,after-2,…
//! ```
//!
//! Of each run the median of a bench is known within an interval (bootstrap, 99 %). A machine
//! that others use too differs more from run to run than within one; so each side may be several
//! runs, best in turns, and its interval holds those of all of them. Something has changed where
//! the intervals of the two sides have nothing in common. Where nothing has, and runs differ by
//! chance alone, all of one side still lie on one side of all of the other in one of 126 benches with
//! five runs each; in one of ten with three.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use madgate_benches::contestant::each_once;
use madgate_benches::samples::Samples;
use madgate_benches::table::Table;
use serde::Deserialize;
use serde_json::json;

/// Resamples of a run.
const RESAMPLES: usize = 1000;
/// Resamples beyond the interval, at each of its ends: 1 % in all.
const BEYOND: usize = RESAMPLES / 200;

/// Compares runs of the benches of the parts, and says what changed beyond noise.
#[derive(Debug, Parser)]
#[command(name = "compare")]
struct Arguments {
    /// The baselines that criterion has saved before.
    #[arg(long, value_delimiter = ',', required = true)]
    before: Vec<String>,
    /// Those that it has saved after.
    #[arg(long, value_delimiter = ',', required = true)]
    after: Vec<String>,
    /// Where criterion saves them.
    #[arg(long, default_value_os_t = criterion_folder())]
    folder: PathBuf,
    /// Print one line of JSON per bench.
    #[arg(long)]
    json: bool,
    /// End with 1 where something has become slower.
    #[arg(long)]
    fail_if_slower: bool,
}

/// What criterion saves of one run of one bench.
#[derive(Debug, Deserialize)]
struct Sample {
    iters: Vec<f64>,
    times: Vec<f64>,
}

/// What criterion says which bench it is.
#[derive(Debug, Deserialize)]
struct Named {
    full_id: String,
}

/// Nanoseconds that the median lies between, and the median.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Interval {
    least: f64,
    median: f64,
    most: f64,
}

/// What is to be said of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Faster,
    Slower,
    Noise,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "SLOWER",
            Self::Noise => "",
        }
    }

    /// In JSON.
    const fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Noise => "noise",
        }
    }
}

/// Runs of a side that tell what is noise on a machine that others use too.
const RUNS_WANTED: usize = 5;

/// Where criterion saves what cargo has it measure.
fn criterion_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("CRITERION_HOME") {
        return folder.into();
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    target.join("criterion")
}

fn main() -> ExitCode {
    match compare(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &Arguments) -> io::Result<ExitCode> {
    let before = each_once(arguments.before.iter().cloned());
    let after = each_once(arguments.after.iter().cloned());
    if before.len().min(after.len()) < RUNS_WANTED {
        eprintln!(
            "warning: with fewer than {RUNS_WANTED} runs a side, noise between runs is taken for a change; \
             save more of each, in turns"
        );
    }
    let before = read_side(&arguments.folder, &before)?;
    let after = read_side(&arguments.folder, &after)?;
    if pairs(&before, &after).next().is_none() {
        return Err(io::Error::other(
            "no bench has been run on both sides: are these runs of the same benches?",
        ));
    }
    let mut table = Table::new(["bench", "before", "after", "change", ""]);
    let mut has_slower = false;
    for (name, (before, after)) in pairs(&before, &after) {
        let verdict = judge(before, after);
        has_slower |= verdict == Verdict::Slower;
        let percent = 100.0 * (after.median / before.median - 1.0);
        if arguments.json {
            println!(
                "{}",
                json!({
                    "bench": name,
                    "before_ns": before.median,
                    "after_ns": after.median,
                    "change_percent": percent,
                    "verdict": verdict.name(),
                })
            );
        } else {
            table.row([
                name.to_owned(),
                time(before),
                time(after),
                format!("{percent:+.1} %"),
                verdict.word().to_owned(),
            ]);
        }
    }
    if !arguments.json {
        print!("{table}");
    }
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    let new = after.keys().filter(|name| !before.contains_key(*name));
    let alone = gone.map(|name| ("before", name));
    for (side, name) in alone.chain(new.map(|name| ("after", name))) {
        if arguments.json {
            let verdict = format!("only {side}");
            println!("{}", json!({ "bench": name, "verdict": verdict }));
        } else {
            println!("only {side}: {name}");
        }
    }
    Ok(if has_slower && arguments.fail_if_slower {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

type Side = BTreeMap<String, Interval>;

fn pairs<'a>(
    before: &'a Side,
    after: &'a Side,
) -> impl Iterator<Item = (&'a str, (Interval, Interval))> {
    before
        .iter()
        .filter_map(|(name, before)| Some((name.as_str(), (*before, *after.get(name)?))))
}

fn judge(before: Interval, after: Interval) -> Verdict {
    if after.most < before.least {
        Verdict::Faster
    } else if after.least > before.most {
        Verdict::Slower
    } else {
        Verdict::Noise
    }
}

/// Every bench of these runs.
fn read_side(folder: &Path, runs: &[String]) -> io::Result<Side> {
    let mut intervals: BTreeMap<String, Vec<Interval>> = BTreeMap::new();
    for run in runs {
        let mut found = Vec::new();
        collect(folder, run, &mut found)?;
        if found.is_empty() {
            return Err(io::Error::other(format!(
                "{} has no baseline {run:?}; save one with `cargo bench -p madgate-benches --bench '*' -- \
                 --save-baseline {run}`",
                folder.display()
            )));
        }
        for (name, interval) in found {
            intervals.entry(name).or_default().push(interval);
        }
    }
    for (name, of_runs) in &intervals {
        if of_runs.len() < runs.len() {
            eprintln!(
                "warning: {name} is in {} of {} runs only ({})",
                of_runs.len(),
                runs.len(),
                runs.join(", ")
            );
        }
    }
    let sides = intervals.into_iter();
    Ok(sides
        .filter_map(|(name, runs)| Some((name, Interval::around(&runs)?)))
        .collect())
}

/// Looks for what a run has saved, in all folders below.
fn collect(folder: &Path, run: &str, found: &mut Vec<(String, Interval)>) -> io::Result<()> {
    let entries = fs::read_dir(folder).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot read {}: {error}", folder.display()),
        )
    })?;
    for entry in entries {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        let sample = path.join("sample.json");
        if path.file_name().is_some_and(|name| name == run) && sample.exists() {
            let named: Named = read(&path.join("benchmark.json"))?;
            let interval = Interval::of(&read(&sample)?);
            let interval = interval
                .ok_or_else(|| io::Error::other(format!("{} holds no sample", sample.display())))?;
            found.push((named.full_id, interval));
        } else {
            collect(&path, run, found)?;
        }
    }
    Ok(())
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<T> {
    let error = |error: &dyn std::error::Error| {
        io::Error::other(format!("cannot read {}: {error}", path.display()))
    };
    let text = fs::read_to_string(path).map_err(|cause| error(&cause))?;
    serde_json::from_str(&text).map_err(|cause| error(&cause))
}

impl Interval {
    /// Of one run; `None` of one without samples.
    fn of(sample: &Sample) -> Option<Self> {
        let both = sample.iters.iter().zip(&sample.times);
        let each: Vec<f64> = both
            .filter(|(iterations, _)| **iterations > 0.0)
            .map(|(iterations, nanos)| nanos / iterations)
            .collect();
        let median = Samples::of(each.clone()).median()?;
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut medians = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            let again = (0..each.len()).map(|_| each[random.below(each.len())]);
            medians.push(Samples::of(again.collect()).median()?);
        }
        medians.sort_by(f64::total_cmp);
        Some(Self {
            least: medians[BEYOND],
            median,
            most: medians[RESAMPLES - 1 - BEYOND],
        })
    }

    /// What holds all of several runs, with the median of their medians; `None` of none.
    fn around(runs: &[Self]) -> Option<Self> {
        let medians: Samples = Samples::of(runs.iter().map(|run| run.median).collect());
        Some(Self {
            least: runs
                .iter()
                .map(|run| run.least)
                .fold(f64::INFINITY, f64::min),
            median: medians.median()?,
            most: runs.iter().map(|run| run.most).fold(0.0, f64::max),
        })
    }
}

/// Numbers that are the same each time, so that a comparison is.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The upper half: small enough for any machine's words.
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}

/// A median with its interval, in a unit that suits it.
fn time(interval: Interval) -> String {
    let (unit, scale) = match interval.median {
        nanos if nanos >= 1e6 => ("ms", 1e6),
        nanos if nanos >= 1e3 => ("us", 1e3),
        _ => ("ns", 1.0),
    };
    format!(
        "{:.2} {unit} ({:.2} to {:.2})",
        interval.median / scale,
        interval.least / scale,
        interval.most / scale
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(nanos: impl Iterator<Item = f64>) -> Sample {
        let times: Vec<f64> = nanos.map(|nanos| nanos * 10.0).collect();
        Sample {
            iters: vec![10.0; times.len()],
            times,
        }
    }

    /// Between `nanos` and a tenth more.
    fn spread(nanos: f64) -> Interval {
        Interval::of(&sample(
            (0..100).map(|at| nanos * (1.0 + f64::from(at) / 1000.0)),
        ))
        .unwrap()
    }

    #[test]
    fn only_what_lies_apart_has_changed() {
        let (old, same, faster) = (spread(100.0), spread(101.0), spread(80.0));
        assert!(old.least < old.median && old.median < old.most, "{old:?}");
        assert!((old.median - 105.0).abs() < 1.0);
        assert_eq!(judge(old, same), Verdict::Noise);
        assert_eq!(judge(old, faster), Verdict::Faster);
        assert_eq!(judge(faster, old), Verdict::Slower);
        // Where one side differs as much from run to run, that is no change.
        let both = Interval::around(&[old, faster]).unwrap();
        assert_eq!(judge(both, old), Verdict::Noise);
        assert_eq!(Interval::around(&[]), None);
        assert_eq!(Interval::of(&sample(std::iter::empty())), None);
    }

    #[test]
    fn saved_runs_are_found_and_those_that_are_missing_named() {
        let folder = tempfile::tempdir().unwrap();
        let of = |bench: &str, run: &str, times: &str| {
            let path = folder.path().join(bench).join(run);
            fs::create_dir_all(&path).unwrap();
            let named = format!("{{\"full_id\":\"{bench}\",\"title\":\"x\"}}");
            fs::write(path.join("benchmark.json"), named).unwrap();
            let sample =
                format!("{{\"sampling_mode\":\"Flat\",\"iters\":[1,1],\"times\":{times}}}");
            fs::write(path.join("sample.json"), sample).unwrap();
        };
        of("one", "old", "[5.0, 5.0]");
        of("one", "older", "[7.0, 7.0]");
        of("two", "old", "[1.0, 3.0]");
        let runs = ["old".to_owned(), "older".to_owned()];
        let side = read_side(folder.path(), &runs).unwrap();
        assert_eq!(side.keys().collect::<Vec<_>>(), ["one", "two"]);
        let one = side["one"];
        assert_eq!((one.least, one.median, one.most), (5.0, 6.0, 7.0));
        assert_eq!(pairs(&side, &side).count(), 2);
        let missing = read_side(folder.path(), &["new".to_owned()]).unwrap_err();
        assert!(missing.to_string().contains("--save-baseline new"));
        of("three", "old", "[]");
        assert!(read_side(folder.path(), &runs).is_err());
    }
}
