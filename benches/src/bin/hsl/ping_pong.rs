//! The ping-pong of the papers: half of a round trip, and bandwidth, for each size.

use std::io::{self, Write};
use std::path::Path;

use madgate_benches::json;
use madgate_benches::table::Table;
use serde::Serialize;

use crate::exchange::both_ends;
use crate::plan::{How, Memory, Plan, Wanted};
use crate::plot::{self, Curve};

/// Messages are 1 byte to 4 MiB.
const LARGEST_SHIFT: u32 = 22;

/// One size in one way.
#[derive(Debug, Serialize)]
struct Line<'a> {
    table: &'static str,
    device: String,
    how: &'a str,
    memory: &'a str,
    message_bytes: usize,
    half_rtt_us: f64,
    gb_per_s: f64,
}

/// What follows from all sizes of one way.
#[derive(Debug, Serialize)]
struct WayLine<'a> {
    table: &'static str,
    device: String,
    how: &'a str,
    memory: &'a str,
    half_bandwidth_bytes: Option<usize>,
}

/// How much longer the smallest message takes with interrupts than with polling.
#[derive(Debug, Serialize)]
struct RatioLine {
    table: &'static str,
    ratio: f64,
}

/// One way, for all sizes.
struct Way {
    how: How,
    memory: Memory,
    half_rtt_us: Vec<f64>,
}

fn bandwidth(bytes: usize, half_rtt_us: f64) -> f64 {
    // Sizes are far below 2^52.
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let bytes = bytes as f64;
    bytes / half_rtt_us / 1e3
}

/// Measures, and prints what was measured; draws it too, where `plots` says.
pub(crate) fn print(
    wanted: &Wanted,
    quick: bool,
    json: bool,
    plots: Option<&Path>,
) -> io::Result<()> {
    let step = if quick { 11 } else { 1 };
    let sizes: Vec<usize> = (0..=LARGEST_SHIFT)
        .step_by(step)
        .map(|shift| 1 << shift)
        .collect();
    let rounds = if quick { 50 } else { 5000 };
    let mut ways = Vec::new();
    for &how in wanted.hows() {
        for &memory in wanted.memories() {
            eprintln!(
                "ping-pong: {}, {}, {} memory",
                wanted.name(),
                how.name(),
                memory.name()
            );
            let plan = Plan {
                wanted: wanted.clone(),
                ..Plan::of(how, memory, sizes.clone(), rounds)
            };
            match both_ends(&plan) {
                Ok(outcome) => ways.push(Way {
                    how,
                    memory,
                    half_rtt_us: outcome
                        .each_us
                        .iter()
                        .map(|samples| samples.median().unwrap_or(f64::NAN))
                        .collect(),
                }),
                Err(error) => {
                    let (how, memory) = (how.name(), memory.name());
                    eprintln!("{how} with {memory} memory is left out: {error}");
                }
            }
        }
    }
    if ways.is_empty() {
        return Err(io::Error::other("nothing could be measured: see above"));
    }
    if let Some(folder) = plots {
        draw(&ways, &sizes, folder)?;
    }
    if json {
        print_json(wanted, &ways, &sizes)
    } else {
        print_tables(&ways, &sizes)
    }
}

fn draw(ways: &[Way], sizes: &[usize], folder: &Path) -> io::Result<()> {
    let curves = |of: &dyn Fn(usize, f64) -> f64| -> Vec<Curve> {
        ways.iter()
            .map(|way| Curve {
                name: format!("{}, {}", way.how.name(), way.memory.name()),
                points: sizes
                    .iter()
                    .zip(&way.half_rtt_us)
                    .map(|(bytes, half)| (*bytes, of(*bytes, *half)))
                    .collect(),
            })
            .collect()
    };
    std::fs::create_dir_all(folder)?;
    plot::write(
        &folder.join("half-round-trip.svg"),
        "half round trip, µs",
        &curves(&|_, half| half),
    )?;
    plot::write(
        &folder.join("bandwidth.svg"),
        "bandwidth, GB/s",
        &curves(&bandwidth),
    )
}

fn print_json(wanted: &Wanted, ways: &[Way], sizes: &[usize]) -> io::Result<()> {
    let lines = ways.iter().flat_map(|way| {
        let points = sizes.iter().zip(&way.half_rtt_us);
        points.map(|(bytes, half_rtt_us)| Line {
            table: "ping-pong",
            device: wanted.name(),
            how: way.how.name(),
            memory: way.memory.name(),
            message_bytes: *bytes,
            half_rtt_us: *half_rtt_us,
            gb_per_s: bandwidth(*bytes, *half_rtt_us),
        })
    });
    json::print_lines(lines)?;
    let ways_alone = ways.iter().map(|way| WayLine {
        table: "ping-pong-way",
        device: wanted.name(),
        how: way.how.name(),
        memory: way.memory.name(),
        half_bandwidth_bytes: half_bandwidth(way, sizes),
    });
    json::print_lines(ways_alone)?;
    json::print_lines(interrupt_ratio(ways).map(|ratio| RatioLine {
        table: "ping-pong-interrupt-ratio",
        ratio,
    }))
}

fn print_tables(ways: &[Way], sizes: &[usize]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    for how in How::ALL {
        let ways: Vec<&Way> = ways.iter().filter(|way| way.how == how).collect();
        if ways.is_empty() {
            continue;
        }
        let columns = |what: &'static str| {
            let names = ways.iter().map(|way| way.memory.name());
            names.map(move |name| format!("{name}, {what}"))
        };
        let header = [how.name().to_owned()].into_iter();
        let mut table = Table::new(header.chain(columns("µs")).chain(columns("GB/s")));
        for (place, bytes) in sizes.iter().enumerate() {
            let halves = ways
                .iter()
                .map(|way| format!("{:.2}", way.half_rtt_us[place]));
            let rates = ways
                .iter()
                .map(|way| format!("{:.3}", bandwidth(*bytes, way.half_rtt_us[place])));
            let size = [format!("{bytes} B")];
            table.row(size.into_iter().chain(halves).chain(rates));
        }
        writeln!(stdout, "\n{table}")?;
        for way in ways {
            if let Some(bytes) = half_bandwidth(way, sizes) {
                let memory = way.memory.name();
                writeln!(
                    stdout,
                    "half of its bandwidth with {memory} memory: {bytes} B"
                )?;
            }
        }
    }
    if let Some(ratio) = interrupt_ratio(ways) {
        writeln!(
            stdout,
            "\nlatency of interrupts against polling: {ratio:.2} (MPI-MPC: 26 µs / 15 µs = 1.73)"
        )?;
    }
    Ok(())
}

/// How much longer the smallest message takes with interrupts than with polling.
fn interrupt_ratio(ways: &[Way]) -> Option<f64> {
    let first = |how| {
        let way = ways.iter().find(|way| way.how == how);
        way.and_then(|way| way.half_rtt_us.first().copied())
    };
    Some(first(How::Interrupt)? / first(How::Polling)?)
}

/// The smallest size from which on all reach half of the highest bandwidth.
fn half_bandwidth(way: &Way, sizes: &[usize]) -> Option<usize> {
    let bandwidths = sizes
        .iter()
        .zip(&way.half_rtt_us)
        .map(|(bytes, half)| (*bytes, bandwidth(*bytes, *half)));
    let highest = bandwidths.clone().map(|(_, rate)| rate).fold(0.0, f64::max);
    bandwidths
        .rev()
        .take_while(|(_, rate)| *rate >= highest / 2.0)
        .map(|(bytes, _)| bytes)
        .last()
}
