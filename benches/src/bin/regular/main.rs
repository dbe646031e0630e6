//! The regular path: two processes, nothing between them, over a socket of the kernel's.
//!
//! What a message API over one hop is measured against: a bare TCP connection on loopback,
//! and a Unix socket, with ends that wait in the same way.
//!
//! ```text
//! cargo run --release -p madgate-benches --bin regular -- --help
//! ```

#![forbid(unsafe_code)]

mod apart;
mod direct;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use madgate_benches::children::ChildCommand;
use madgate_benches::cluster::Setting;
use madgate_benches::contestant::{Measure, RoundArguments, each_once};
use madgate_benches::json;
use madgate_benches::paths::Regular;
use madgate_benches::rounds::Results;
use madgate_benches::table::Table;
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Machine, Point, rounds};
use serde::Serialize;

use apart::Apart;
use direct::{DirectTcp, DirectUnix};

/// What is measured: bandwidth, rate of small messages, latency.
const POINTS: [Point; 4] = [
    Point::stream(1 << 20),
    Point::stream(64 << 10),
    Point::stream(8),
    Point::ping_pong(8),
];

/// What is compared with what.
const COMPARED: [(&str, &str); 7] = [
    ("madgate-tcp", "tcp"),
    ("madgate-tcp-set", "madgate-tcp"),
    ("madgate-shm", "unix"),
    ("madgate-shm", "unix-asleep"),
    ("madgate-shm-set", "madgate-shm"),
    ("madgate-hsl", "madgate-shm"),
    ("madgate-hsl-set", "madgate-hsl"),
];

/// Measures one hop without a relay, side by side.
#[derive(Debug, Parser)]
#[command(name = "regular", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Print one line of JSON per path and measurement instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rounds: RoundArguments,
    /// The paths to measure.
    #[arg(long, value_enum, value_delimiter = ',', num_args = 1.., default_values = ["tcp", "madgate-tcp", "unix", "unix-asleep", "madgate-shm", "madgate-hsl"])]
    paths: Vec<Path>,
    /// How the ends wait.
    #[arg(long, value_enum, default_value = "adaptive")]
    wait: Wait,
    /// Where the ends run.
    #[arg(long, value_enum, default_value = "apart")]
    place: Place,
    /// Measure the paths of madgate that it concerns once more with this in their cluster file, as
    /// `madgate-tcp-set` and the like: SECTION is network, tcp, shm, hsl, channel or endpoint. May
    /// be given several times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    settings: Vec<Setting>,
    #[command(subcommand)]
    child: Option<ChildCommand>,
}

/// Where the ends run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// Each on a processor of its own, as those of two hosts do.
    Apart,
    /// Where the system puts them: now apart, now beside each other, where one waits for the
    /// other.
    Anywhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Path {
    Tcp,
    Unix,
    /// A Unix socket whose ends sleep in the kernel, whatever `--wait` says.
    UnixAsleep,
    MadgateTcp,
    MadgateShm,
    MadgateHsl,
}

/// One measurement; what does not apply is null.
#[derive(Debug, Serialize)]
struct Line<'a> {
    path: &'a str,
    message_bytes: usize,
    gb_per_s: Option<f64>,
    messages_per_s: Option<f64>,
    half_rtt_us: Option<f64>,
    half_rtt_p99_us: Option<f64>,
    /// Bandwidth or half round trip as a part of those that the path is compared with: the median
    /// of the ratios of each round.
    ratios: BTreeMap<&'a str, f64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.child {
        Some(child) => child.run(),
        None => bench(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("regular: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &Arguments) -> io::Result<()> {
    Machine::announce(arguments.json)?;
    let regular = |name, protocol| Regular::new(name, protocol, arguments.wait);
    let paths = each_once(arguments.paths.iter().copied());
    let mut contestants: Vec<Box<dyn Contestant>> = paths
        .iter()
        .map(|path| -> Box<dyn Contestant> {
            match path {
                Path::Tcp => Box::new(DirectTcp(arguments.wait)),
                Path::Unix => Box::new(DirectUnix::new(arguments.wait)),
                Path::UnixAsleep => Box::new(DirectUnix::asleep()),
                Path::MadgateTcp => Box::new(regular("madgate-tcp", "tcp")),
                Path::MadgateShm => Box::new(regular("madgate-shm", "shm")),
                Path::MadgateHsl => Box::new(regular("madgate-hsl", "hsl")),
            }
        })
        .collect();
    contestants.extend(with_settings(arguments, &paths)?);
    if arguments.place == Place::Apart {
        contestants = contestants
            .into_iter()
            .map(|contestant| -> Box<dyn Contestant> { Box::new(Apart(contestant)) })
            .collect();
    }
    let points = arguments.rounds.points(&POINTS);
    let results = rounds::run(&contestants, &points, &arguments.rounds)?.all();
    if arguments.json {
        return print_json(&results);
    }
    print_table(&contestants, &points, &results)
}

/// The chosen paths of madgate again, with what `--set` says of them.
fn with_settings(arguments: &Arguments, paths: &[Path]) -> io::Result<Vec<Box<dyn Contestant>>> {
    let mut contestants: Vec<Box<dyn Contestant>> = Vec::new();
    let protocols = |path: &Path| match path {
        Path::MadgateTcp => Some(("madgate-tcp-set", "tcp")),
        Path::MadgateShm => Some(("madgate-shm-set", "shm")),
        Path::MadgateHsl => Some(("madgate-hsl-set", "hsl")),
        Path::Tcp | Path::Unix | Path::UnixAsleep => None,
    };
    let chosen: Vec<_> = paths.iter().filter_map(protocols).collect();
    let all: Vec<_> = chosen.iter().map(|(_, protocol)| *protocol).collect();
    let is_idle = |setting: &&Setting| {
        // No path has a gateway.
        all.is_empty() || !setting.concerns(&all) || setting.is_of("gateway")
    };
    if let Some(idle) = arguments.settings.iter().find(is_idle) {
        let why = format!(
            "--set {}: it concerns none of the chosen paths",
            idle.name()
        );
        return Err(io::Error::other(why));
    }
    for (name, protocol) in chosen {
        let settings: Vec<Setting> = arguments
            .settings
            .iter()
            .filter(|setting| setting.concerns(&[protocol]))
            .cloned()
            .collect();
        if settings.is_empty() {
            continue;
        }
        let path = Regular {
            settings,
            ..Regular::new(name, protocol, arguments.wait)
        };
        path.check()?;
        contestants.push(Box::new(path));
    }
    Ok(contestants)
}

fn print_json(results: &Results) -> io::Result<()> {
    json::print_lines(results.iter().map(|((path, point), figures)| {
        Line {
            path,
            message_bytes: point.message_bytes,
            gb_per_s: figures.gb_per_s.median(),
            messages_per_s: figures.messages_per_s.median(),
            half_rtt_us: figures.half_rtt_us.median(),
            half_rtt_p99_us: figures.half_rtt_p99_us.median(),
            ratios: COMPARED
                .iter()
                .filter(|(compared, _)| compared == path)
                .filter_map(|(_, bare)| Some((*bare, ratio(results, path, bare, *point)?)))
                .collect(),
        }
    }))
}

/// What `path` does at `point` as a part of what `bare` does: the median over the rounds.
fn ratio(results: &Results, path: &'static str, bare: &'static str, point: Point) -> Option<f64> {
    let samples = |name| {
        let figures = results.get(&(name, point))?;
        Some(match point.measure {
            Measure::Stream | Measure::Unread => &figures.gb_per_s,
            Measure::PingPong => &figures.half_rtt_us,
        })
    };
    samples(path)?.ratios_to(samples(bare)?).median()
}

fn print_table(
    contestants: &[Box<dyn Contestant>],
    points: &[Point],
    results: &Results,
) -> io::Result<()> {
    let names = contestants.iter().map(|contestant| contestant.name());
    let mut table = Table::new([""].into_iter().chain(names.clone()));
    for &point in points {
        let rows: &[(&str, f64)] = match point.measure {
            Measure::Stream | Measure::Unread => &[("GB/s", 1.0), ("million messages/s", 1e6)],
            Measure::PingPong => &[("half round trip, median µs", 1.0), ("99 %, µs", 1.0)],
        };
        for (index, (title, unit)) in rows.iter().enumerate() {
            let mut cells = vec![format!("{} B, {title}", point.message_bytes)];
            cells.extend(names.clone().map(|name| {
                let median = results.get(&(name, point)).and_then(|figures| {
                    match (point.measure, index) {
                        (Measure::Stream | Measure::Unread, 0) => &figures.gb_per_s,
                        (Measure::Stream | Measure::Unread, _) => &figures.messages_per_s,
                        (Measure::PingPong, 0) => &figures.half_rtt_us,
                        (Measure::PingPong, _) => &figures.half_rtt_p99_us,
                    }
                    .median()
                });
                median.map_or("-".to_owned(), |value| format!("{:.3}", value / unit))
            }));
            table.row(cells);
        }
    }
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "\n{table}")?;
    for (path, bare) in COMPARED {
        let ratios: Vec<String> = points
            .iter()
            .filter_map(|point| {
                let of_what = match point.measure {
                    Measure::Stream | Measure::Unread => "bandwidth",
                    Measure::PingPong => "half round trip",
                };
                let (bytes, ratio) = (point.message_bytes, ratio(results, path, bare, *point)?);
                Some(format!("{ratio:.2} of its {of_what} at {bytes} B"))
            })
            .collect();
        if !ratios.is_empty() {
            writeln!(stdout, "{path} against {bare}: {}", ratios.join(", "))?;
        }
    }
    Ok(())
}
