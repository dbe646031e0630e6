//! The figures of many flows as tables for people and as lines of JSON for programs.

use std::io::{self, Write};

use madgate_benches::json;
use madgate_benches::measured::AtDistance;
use madgate_benches::samples::Samples;
use madgate_benches::table::Table;
use serde::Serialize;

use super::{BULK_BYTES, Case, Figures, Results};
use crate::cell;

type There = AtDistance<Case, Figures>;

const BYTES_PER_MIB: f64 = 1_048_576.0;

/// What was measured of one case, as medians; ratios are medians of each round's, and those of medians at one
/// distance.
#[derive(Debug, Serialize)]
struct Line {
    through: &'static str,
    flows: usize,
    message_bytes: usize,
    gb_per_s: Option<f64>,
    messages_per_s: Option<f64>,
    /// Of what was best in all rounds with messages of this size through the same.
    of_best: Option<f64>,
    /// Of one such flow.
    of_one: Option<f64>,
    slowest_share: Option<f64>,
    /// The most memory that the relay had, and may have.
    relay_peak_mib: Option<f64>,
    relay_cap_mib: Option<f64>,
    /// At which distance, see [`AtDistance::line_ns_range`]; null of all rounds.
    line_ns_range: Option<[f64; 2]>,
    /// How often it was measured at one distance; null of all rounds.
    measurements: Option<usize>,
}

pub(super) fn print_json(all: &Results, distances: &[There]) -> io::Result<()> {
    let there = distances.iter().flat_map(|at| lines(all, Some(at)));
    json::print_lines(lines(all, None).into_iter().chain(there))
}

pub(super) fn print_tables(all: &Results, distances: &[There]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    print_groups(&mut stdout, &lines(all, None), |_| String::new())?;
    for at in distances {
        let heading = |bytes| {
            at.heading(&[bytes])
                .map_or(String::new(), |it| format!(", {it}"))
        };
        print_groups(&mut stdout, &lines(all, Some(at)), heading)?;
    }
    writeln!(
        stdout,
        "\nMedians; ratios are medians of each round's where nothing else is said. The best is what had \
         the greatest median in all rounds. Of the relay: the most memory that was \
         resident; a gateway's cap is `memory` of the cluster file."
    )
}

/// A table for each size, headed by the size and what else `of_size` there is to say.
fn print_groups(
    stdout: &mut impl Write,
    lines: &[Line],
    of_size: impl Fn(usize) -> String,
) -> io::Result<()> {
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
            "through",
            "senders",
            throughput,
            "of the best",
            "of one",
            "slowest flow, of a fair share",
            "relay, MiB",
            "of its cap",
        ]);
        for line in group {
            let rate = if is_bulk {
                line.gb_per_s
            } else {
                line.messages_per_s.map(|per_s| per_s / 1e6)
            };
            let of_cap = line.relay_peak_mib.zip(line.relay_cap_mib);
            let of_cap = of_cap.map(|(peak, cap)| peak / cap);
            table.row([
                line.through.to_owned(),
                line.flows.to_string(),
                cell(rate, 2),
                cell(line.of_best, 2),
                cell(line.of_one, 2),
                cell(line.slowest_share, 2),
                cell(line.relay_peak_mib, 0),
                cell(of_cap, 2),
            ]);
        }
        let more = of_size(*message_bytes);
        write!(
            stdout,
            "\nmessages of {message_bytes} bytes{more}\n\n{table}"
        )?;
    }
    Ok(())
}

/// Those of all rounds, or of what was measured at one distance.
fn lines(all: &Results, distance: Option<&There>) -> Vec<Line> {
    let results = distance.map_or(all, |at| &at.results);
    let rate = |case: &Case| Some(&results.get(case)?.messages_per_s);
    let line = |(case, measured): (&Case, &Figures)| {
        let Case {
            message_bytes,
            through,
            flows,
        } = *case;
        let alike = all
            .iter()
            .filter(|(other, _)| (other.message_bytes, other.through) == (message_bytes, through));
        let best = alike.max_by(|(_, one), (_, other)| {
            let [one, other] = [one, other].map(|it| it.messages_per_s.median().unwrap_or(0.0));
            one.total_cmp(&other)
        });
        // At one distance it may be missing.
        let best = best.and_then(|(best, _)| rate(best));
        let one = rate(&Case { flows: 1, ..*case });
        // Of the same rounds, in which the machine was as fast for one as for the other; or of medians.
        let of = |other: Option<&Samples>| measured.messages_per_s.ratios_to(other?).median();
        Line {
            through: through.name(),
            flows,
            message_bytes,
            gb_per_s: measured.gb_per_s.median(),
            messages_per_s: measured.messages_per_s.median(),
            of_best: of(best),
            of_one: of(one),
            slowest_share: measured.slowest_share.median(),
            relay_peak_mib: measured.memory.median().map(|peak| peak / BYTES_PER_MIB),
            relay_cap_mib: measured.memory_cap.median().map(|cap| cap / BYTES_PER_MIB),
            line_ns_range: distance.map(|at| at.line_ns_range),
            measurements: distance.and_then(|at| at.times.get(case).copied()),
        }
    };
    results.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Through;
    use super::*;

    fn results(messages_per_s: &[(usize, &[f64])]) -> Results {
        let result = |(flows, samples): &(usize, &[f64])| {
            let case = Case {
                message_bytes: BULK_BYTES,
                through: Through::Madgate,
                flows: *flows,
            };
            let figures = Figures {
                messages_per_s: Samples::of(samples.to_vec()),
                ..Figures::default()
            };
            (case, figures)
        };
        messages_per_s.iter().map(result).collect()
    }

    #[test]
    fn the_best_is_that_of_all_rounds_at_each_distance_too() {
        let all = results(&[(1, &[8.0, 16.0]), (16, &[6.0, 12.0]), (256, &[6.0, 8.0])]);
        let of_best = |distance: Option<&There>| -> Vec<_> {
            let lines = lines(&all, distance);
            lines.iter().map(|line| line.of_best).collect()
        };
        assert_eq!(of_best(None), [Some(1.0), Some(0.75), Some(0.625)]);
        let at = |results| There {
            line_ns_range: [50.0, 60.0],
            results,
            times: BTreeMap::new(),
        };
        let there = at(results(&[(1, &[16.0]), (16, &[18.0]), (256, &[8.0])]));
        assert_eq!(of_best(Some(&there)), [Some(1.0), Some(1.125), Some(0.5)]);
        // It may not have been measured there.
        let there = at(results(&[(16, &[18.0]), (256, &[10.0])]));
        assert_eq!(of_best(Some(&there)), [None, None]);
    }
}
