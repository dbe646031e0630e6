//! The figures of many flows as tables for people and as lines of JSON for programs.

use std::io::{self, Write};

use madgate_benches::json;
use madgate_benches::rounds::as_float;
use madgate_benches::samples::Samples;
use madgate_benches::table::Table;
use serde::Serialize;

use super::{BULK_BYTES, Case, Measured, Results};
use crate::cell;

const BYTES_PER_MIB: f64 = 1_048_576.0;

/// What was measured of one case, as medians; ratios are medians of each round's.
#[derive(Debug, Serialize)]
struct Line {
    flows: usize,
    message_bytes: usize,
    gb_per_s: Option<f64>,
    messages_per_s: Option<f64>,
    /// Of the best with messages of this size.
    of_best: Option<f64>,
    /// Of one flow with messages of this size.
    of_one: Option<f64>,
    slowest_share: Option<f64>,
    gateway_peak_mib: Option<f64>,
    gateway_cap_mib: f64,
}

pub(super) fn print_json(results: &Results, cap_bytes: u64) -> io::Result<()> {
    json::print_lines(lines(results, cap_bytes))
}

pub(super) fn print_tables(results: &Results, cap_bytes: u64) -> io::Result<()> {
    let lines = lines(results, cap_bytes);
    let mut stdout = io::stdout().lock();
    for group in lines.chunk_by(|one, next| one.message_bytes == next.message_bytes) {
        let Some(Line { message_bytes, .. }) = group.first() else {
            continue;
        };
        let is_bulk = *message_bytes >= BULK_BYTES;
        let throughput = if is_bulk {
            "GB/s"
        } else {
            "million messages/s"
        };
        let mut table = Table::new([
            "senders",
            throughput,
            "of the best",
            "of one",
            "slowest flow, of a fair share",
            "gateway, MiB",
            "of its cap",
        ]);
        for line in group {
            let rate = if is_bulk {
                line.gb_per_s
            } else {
                line.messages_per_s.map(|per_s| per_s / 1e6)
            };
            let of_cap = line
                .gateway_peak_mib
                .map(|peak| peak / line.gateway_cap_mib);
            table.row([
                line.flows.to_string(),
                cell(rate, 2),
                cell(line.of_best, 2),
                cell(line.of_one, 2),
                cell(line.slowest_share, 2),
                cell(line.gateway_peak_mib, 0),
                cell(of_cap, 2),
            ]);
        }
        writeln!(stdout, "\nmessages of {message_bytes} bytes\n\n{table}")?;
    }
    writeln!(
        stdout,
        "Medians; ratios are medians of each round's. Of a gateway: the most memory that was \
         resident; its cap is `memory` of the cluster file."
    )
}

fn lines(results: &Results, cap_bytes: u64) -> Vec<Line> {
    let rate = |case: &Case| Some(&results.get(case)?.messages_per_s);
    let line = |(case, measured): (&Case, &Measured)| {
        let Case {
            message_bytes,
            flows,
        } = *case;
        let alike = results
            .iter()
            .filter(|(other, _)| other.message_bytes == message_bytes)
            .map(|(_, measured)| &measured.messages_per_s);
        let best = alike.max_by(|one, other| {
            let [one, other] = [one, other].map(|it| it.median().unwrap_or(0.0));
            one.total_cmp(&other)
        });
        let one = rate(&Case {
            message_bytes,
            flows: 1,
        });
        // Of the same rounds, in which the machine was as fast for one as for the other.
        let of = |other: Option<&Samples>| measured.messages_per_s.ratios_to(other?).median();
        Line {
            flows,
            message_bytes,
            gb_per_s: measured.gb_per_s.median(),
            messages_per_s: measured.messages_per_s.median(),
            of_best: of(best),
            of_one: of(one),
            slowest_share: measured.slowest_share.median(),
            gateway_peak_mib: measured.memory.median().map(|peak| peak / BYTES_PER_MIB),
            gateway_cap_mib: as_float(cap_bytes) / BYTES_PER_MIB,
        }
    };
    results.iter().map(line).collect()
}
