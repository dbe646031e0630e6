//! `madgate demo`: the main job on embedded defaults, with figures.
//!
//! ```text
//!   cluster.toml        a0 (cp, bench) ──tcp──> gw (gateway) ──shm──> b0 (serve)
//!   direct-left.toml    a0 (bench) ──tcp──> gw (serve)
//!   direct-right.toml                       gw (bench) ──shm──> b0 (serve)
//! ```
//!
//! Every node is a process of its own. What is direct is measured between plain nodes that
//! stand where the three stand, as a gateway that measured itself would disturb it.

mod measure;
pub(crate) mod place;
mod report;
mod verify;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::child::{Family, Process};
use crate::cp::PRINTED_FAILURES;
use crate::deadline::Deadline;
use crate::failure::{Context, Failure};
use crate::files::walk::Source;
use crate::load::Watch;
use crate::output::{print, say, shown};
use measure::Samples;
use place::{Place, Stage};
use report::Report;

/// The size of the generated file.
const GENERATED_BYTES: usize = 256 << 20;
/// How long the demo may take, with some seconds left to clean up within a minute.
const LIMIT: Duration = Duration::from_secs(55);
/// How many rounds are measured, if time allows.
const ROUNDS: usize = 3;
/// A round is begun only when this much time is left.
const ROUND_RESERVE: Duration = Duration::from_secs(15);
/// How long a node may take to be ready.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// The file that the gateway leaves its counters in.
const STATS: &str = "gateway-stats.json";

/// How often the gateway writes them.
const STATS_INTERVAL: &str = "50ms";

/// Shows the main job: copies files from one cluster to another through a gateway.
///
/// Makes a cluster file with a TCP network and a shared-memory network, starts the nodes of
/// both and the gateway between them on this machine, copies, compares, and measures. Ends
/// within 60 seconds, and leaves nothing behind.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to copy; by default this program and a generated file of 256 MiB.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Keeps cluster files, logs and what was received in this new folder.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    place::keep_out_of(&arguments.paths, arguments.keep.as_deref())?;
    let place = Place::make(arguments.keep.as_deref())?;
    let family = Family::default();
    let deadline = Deadline::start(family.clone(), place.temporary_folders(), LIMIT, "the demo")?;
    let demo = Demo {
        say: !arguments.json,
        family: &family,
        deadline: &deadline,
        place: &place,
    };
    let watch = Watch::start();
    let report = demo.run(&arguments.paths);
    family.kill();
    let mut report = deadline.end(report)?;
    report.load = watch.end();
    if arguments.json {
        print(&format!("{}\n", serde_json::to_string(&report)?))?;
    } else {
        print(&format!("\n{}", report.table()))?;
        if let Some(keep) = &arguments.keep {
            print(&format!("\nkept in {}\n", keep.display()))?;
        }
    }
    Ok(if report.verified {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

struct Demo<'a> {
    say: bool,
    family: &'a Family,
    deadline: &'a Deadline,
    place: &'a Place,
}

impl Demo<'_> {
    fn run(&self, paths: &[PathBuf]) -> Result<Report, Failure> {
        let place = self.place;
        let paths = match paths {
            [] => self.default_paths()?,
            paths => paths.to_vec(),
        };
        let sources = Source::all(&paths).or_fail(|| "cannot copy".into())?;

        self.say(
            "starting three processes: a0 and gw meet over tcp, gw and b0 over shared memory",
        )?;
        let stats = place.file(STATS);
        let mut with_stats: Vec<OsString> = vec!["--stats-json".into(), stats.clone().into()];
        with_stats.extend(["--stats-interval", STATS_INTERVAL].map(OsString::from));
        let gateway = self.node(Stage::Forwarded, "gateway", "gw", &with_stats)?;
        let folder = ["--dir".into(), place.received().into()];
        let _b0 = self.node(Stage::Forwarded, "serve", "b0", &folder)?;

        self.say("copying from a0 to b0, which have no network in common")?;
        let started = Instant::now();
        self.copy(&paths)?;
        let copy_seconds = started.elapsed().as_secs_f64();
        let gateway_copies_per_frame = copies_per_frame(&stats)?;
        let comparison = verify::compare(&sources, &place.received());
        for path in comparison.different.iter().take(PRINTED_FAILURES) {
            say(&format!("madgate: {} did not arrive as it is", shown(path)));
        }
        if comparison.different.len() > PRINTED_FAILURES {
            let more = comparison.different.len() - PRINTED_FAILURES;
            say(&format!("madgate: and {more} more"));
        }

        self.say("measuring, forwarded and direct")?;
        let scratch = ["--dir".into(), place.scratch().into()];
        let _left = self.node(Stage::Left, "serve", "gw", &scratch)?;
        let _right = self.node(Stage::Right, "serve", "b0", &scratch)?;
        let [forwarded, left, right] = self.measure()?;

        let gateway_peak_rss_bytes = peak_rss(gateway.id())?;
        gateway.end()?;
        let direct_mb_per_s = left.mb_per_s().min(right.mb_per_s());
        Ok(Report {
            verified: comparison.is_good(),
            files: comparison.files,
            folders: comparison.folders,
            different: comparison.different.len(),
            bytes: comparison.bytes,
            skipped: comparison.skipped,
            copy_seconds,
            direct_mb_per_s,
            direct_left_mb_per_s: left.mb_per_s(),
            direct_right_mb_per_s: right.mb_per_s(),
            forwarded_mb_per_s: forwarded.mb_per_s(),
            efficiency: forwarded.mb_per_s() / direct_mb_per_s.max(f64::MIN_POSITIVE),
            direct_half_rtt_us: left.half_rtt_us().max(right.half_rtt_us()),
            direct_left_half_rtt_us: left.half_rtt_us(),
            direct_right_half_rtt_us: right.half_rtt_us(),
            forwarded_half_rtt_us: forwarded.half_rtt_us(),
            gateway_peak_rss_bytes,
            gateway_copies_per_frame,
            rounds: forwarded.rounds(),
            load: None,
        })
    }

    fn say(&self, what: &str) -> Result<(), Failure> {
        if self.say {
            print(&format!("{what} ...\n"))
        } else {
            Ok(())
        }
    }

    fn default_paths(&self) -> Result<Vec<PathBuf>, Failure> {
        let own = std::env::current_exe().or_fail(|| "cannot find this program".into())?;
        let generated = self.place.file("generated-256MiB.bin");
        generate(&generated).or_fail(|| format!("cannot write {}", generated.display()))?;
        Ok(vec![own, generated])
    }

    fn node(
        &self,
        stage: Stage,
        command: &str,
        name: &str,
        more: &[OsString],
    ) -> Result<Process, Failure> {
        let mut arguments: Vec<OsString> = vec![command.into(), self.place.cluster(stage).into()];
        arguments.extend(["--node".into(), name.into()]);
        arguments.extend_from_slice(more);
        let log = self.place.log(stage, name);
        let mut process = Process::start(self.family, name, &arguments, Some(&log))?;
        process.ready(READY_LIMIT)?;
        Ok(process)
    }

    /// Runs `madgate cp`, which shows its progress and names what it does not copy.
    fn copy(&self, paths: &[PathBuf]) -> Result<(), Failure> {
        let cluster = self.place.cluster(Stage::Forwarded);
        let mut arguments: Vec<OsString> = vec!["cp".into(), cluster.into()];
        arguments.extend(["--node", "a0", "--"].map(OsString::from));
        arguments.extend(paths.iter().map(OsString::from));
        arguments.push("b0:".into());
        let copy = Process::start(self.family, "cp", &arguments, None)?;
        let (status, _) = copy.finish()?;
        // 1: something was not copied, and is named; the rest is there to be compared.
        match status.code() {
            Some(0 | 1) => Ok(()),
            _ => Err(Failure::new(format!("cp: {status}"))),
        }
    }

    fn measure(&self) -> Result<[Samples; 3], Failure> {
        let mut samples = [Samples::default(), Samples::default(), Samples::default()];
        for round in 0..ROUNDS {
            if round > 0 && self.deadline.left() < ROUND_RESERVE {
                break;
            }
            for (stage, samples) in Stage::ALL.into_iter().zip(&mut samples) {
                samples.measure(self.family, self.place, stage)?;
            }
        }
        Ok(samples)
    }
}

/// Writes a file that no compression makes smaller.
fn generate(path: &Path) -> io::Result<()> {
    const WORDS: usize = 8192;
    let mut file = BufWriter::new(File::create(path)?);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut block = Vec::with_capacity(WORDS * 8);
    for _ in 0..GENERATED_BYTES / (WORDS * 8) {
        block.clear();
        for _ in 0..WORDS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    file.flush()
}

/// The most memory that a process has had.
fn peak_rss(process: u32) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))
        .or_fail(|| "cannot look at the gateway".into())?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024))
        .ok_or_else(|| Failure::new("the kernel does not say how much memory the gateway has had"))
}

/// The copies that the gateway has made of each frame until now.
fn copies_per_frame(stats: &Path) -> Result<f64, Failure> {
    let what = || "cannot read the gateway's counters".to_owned();
    // What is there may be old; what comes next is not.
    match fs::remove_file(stats) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).or_fail(what),
        _ => {}
    }
    let asked = Instant::now();
    while !stats.exists() {
        if asked.elapsed() > READY_LIMIT {
            return Err(Failure::new("the gateway does not write its counters"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let text = fs::read_to_string(stats).or_fail(what)?;
    let counters: Value = serde_json::from_str(&text).or_fail(what)?;
    let copies = counters["copies_per_frame"].as_f64();
    copies.ok_or_else(|| Failure::new("the gateway's counters lack copies_per_frame"))
}
