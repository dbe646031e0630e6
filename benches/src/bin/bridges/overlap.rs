//! A stage that costs processor time on each side of a gateway: done by one thread in turn, and
//! by two at once, with the double buffer between them.
//!
//! The stage ([`madgate_benches::stage`]) stands between the lanes of a real gateway and its
//! engine. The contestants differ in one line of the cluster file, `handover`.

use std::io::{self, Write};

use clap::Args;
use madgate_benches::cluster::Setting;
use madgate_benches::json;
use madgate_benches::paths::Forwarded;
use madgate_benches::rounds::{BYTES_PER_GB, BYTES_PER_GIB, Results};
use madgate_benches::table::Table;
use madgate_benches::{Contestant, Point};
use serde::Serialize;

use crate::{Common, cell, rounds};

/// Bytes of the messages.
const MESSAGE_BYTES: usize = 1 << 20;

const IN_TURN: &str = "one thread";
const AT_ONCE: &str = "two threads";

/// Who does the stages, and what says so in the gateway's section.
const CONTESTANTS: [(&str, &str); 2] = [
    (IN_TURN, "gateway.handover=inline"),
    (AT_ONCE, "gateway.handover=thread"),
];

#[derive(Debug, Args)]
pub(crate) struct OverlapArguments {
    #[command(flatten)]
    pub(super) common: Common,
    /// How often each side computes SHA-256 of every byte.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    passes: u32,
}

/// What was measured with one hand-over, as medians.
#[derive(Debug, Serialize)]
struct Line {
    stages: &'static str,
    passes: u32,
    message_bytes: usize,
    gb_per_s: Option<f64>,
    gateway_cpu_s_per_gib: Option<f64>,
    /// Processors that the gateway kept busy.
    gateway_processors: Option<f64>,
    /// Of the ends' processes.
    ends_cpu_s_per_gib: Option<f64>,
    /// Throughput, next to that of one thread.
    ratio: Option<f64>,
}

pub(crate) fn bench(arguments: &OverlapArguments) -> io::Result<()> {
    let OverlapArguments { common, passes } = arguments;
    let contestants = CONTESTANTS.map(|(name, setting)| -> io::Result<Box<dyn Contestant>> {
        Ok(Box::new(Forwarded {
            settings: Setting::read_all(&[setting])?,
            stage_passes: *passes,
            ..Forwarded::new(name, ["tcp", "tcp"], common.wait)
        }))
    });
    let contestants: Vec<_> = contestants.into_iter().collect::<io::Result<_>>()?;
    let points: Vec<_> = common
        .rounds
        .sizes_or(&[MESSAGE_BYTES])
        .into_iter()
        .map(Point::stream)
        .collect();
    let results = rounds::run(&contestants, &points, &common.rounds)?.all();
    for point in points {
        let lines = CONTESTANTS.map(|(stages, _)| line(&results, stages, point, *passes));
        if common.json {
            json::print_lines(&lines)?;
        } else {
            print_table(point.message_bytes, &lines)?;
        }
    }
    Ok(())
}

fn line(results: &Results, stages: &'static str, point: Point, passes: u32) -> Line {
    let mine = results.get(&(stages, point));
    let in_turn = results.get(&(IN_TURN, point));
    // Round by round, as the machine differs from one to the next.
    let processors = mine.and_then(|it| {
        let busy = |cpu, gb| cpu * gb * BYTES_PER_GB / BYTES_PER_GIB;
        it.cpu_s_per_gib.with(&it.gb_per_s, busy).median()
    });
    let ends = mine.and_then(|it| {
        let others = |all, gateway| all - gateway;
        it.all_cpu_s_per_gib
            .with(&it.cpu_s_per_gib, others)
            .median()
    });
    let ratio = mine
        .zip(in_turn)
        .and_then(|(mine, one)| mine.gb_per_s.ratios_to(&one.gb_per_s).median());
    Line {
        stages,
        passes,
        message_bytes: point.message_bytes,
        gb_per_s: mine.and_then(|it| it.gb_per_s.median()),
        gateway_cpu_s_per_gib: mine.and_then(|it| it.cpu_s_per_gib.median()),
        gateway_processors: processors,
        ends_cpu_s_per_gib: ends,
        ratio,
    }
}

fn print_table(message_bytes: usize, lines: &[Line]) -> io::Result<()> {
    let mut table = Table::new([
        "stages done by",
        "GB/s",
        "ratio",
        "CPU s/GiB, gateway",
        "processors busy",
        "CPU s/GiB, ends",
    ]);
    for line in lines {
        table.row([
            line.stages.to_owned(),
            cell(line.gb_per_s, 3),
            cell(line.ratio, 2),
            cell(line.gateway_cpu_s_per_gib, 2),
            cell(line.gateway_processors, 2),
            cell(line.ends_cpu_s_per_gib, 2),
        ]);
    }
    let passes = lines.first().map_or(0, |line| line.passes);
    let mut stdout = io::stdout().lock();
    writeln!(
        stdout,
        "\nmessages of {message_bytes} bytes, SHA-256 {passes} times on each side\n\n{table}"
    )?;
    writeln!(
        stdout,
        "Medians; the ratio is the median of each round's. Processors busy: those that the gateway had \
         for itself, of two that the ends need too."
    )
}
