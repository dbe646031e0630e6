//! What crosses, and what it costs: next to what crossing each network alone costs, and to what two
//! processors have time for at that, which is what waiting for each other loses.

use std::io::{self, Write};

use madgate_benches::contestant::{Measure, RoundArguments};
use madgate_benches::rounds::{BYTES_PER_GB, BYTES_PER_GIB};
use madgate_benches::samples::Samples;
use madgate_benches::table::Table;
use madgate_benches::{Point, json};
use serde::Serialize;

use super::{Measured, Part};
use crate::cell;

/// Bytes of the messages.
const MESSAGE_BYTES: [usize; 2] = [64 << 10, 1 << 20];

/// Processors that the bench has.
const PROCESSORS: f64 = 2.0;

/// What was measured of one way, as medians; the ratios are medians of each round's, but ratios of medians at
/// one distance, and null where nothing is between.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    of: Measured,
    gb_per_s: Option<f64>,
    cpu_s_per_gib: Option<f64>,
    gateway_cpu_s_per_gib: Option<f64>,
    cpu_of_direct: Option<f64>,
    throughput_of_possible: Option<f64>,
}

/// What is measured; with `unread`, sinks look at the numbers of messages only.
pub(super) fn points(arguments: &RoundArguments, unread: bool) -> Vec<Point> {
    let measure = if unread {
        Measure::Unread
    } else {
        Measure::Stream
    };
    let sizes = arguments.sizes_or(&MESSAGE_BYTES).into_iter();
    let point = |message_bytes| Point {
        measure,
        message_bytes,
    };
    sizes.map(point).collect()
}

/// Prints a table, or lines of JSON.
pub(super) fn print(part: Part<'_>, as_json: bool) -> io::Result<()> {
    let Some(heading) = part.heading() else {
        return Ok(());
    };
    let lines = lines(part);
    if as_json {
        return json::print_lines(&lines);
    }
    print_table(&heading, &lines)?;
    if part.distance.is_none() {
        print_notes()?;
    }
    Ok(())
}

fn lines(part: Part<'_>) -> Vec<Line> {
    let line = |(of, protocols): (Measured, Option<[&'static str; 2]>)| {
        let all = part.samples(of.path, |it| &it.all_cpu_s_per_gib);
        let gateway = part.samples(of.path, |it| &it.cpu_s_per_gib);
        let gb_per_s = part.samples(of.path, |it| &it.gb_per_s);
        let sum = part.sum(protocols, |it| &it.all_cpu_s_per_gib);
        // Both of the same rounds, in which the machine was as fast for one as for the other.
        let of_sum = |these: Option<&Samples>, ratio: fn(f64, f64) -> f64| {
            these?.with(sum.as_ref()?, ratio).median()
        };
        Line {
            gb_per_s: gb_per_s.and_then(Samples::median),
            cpu_s_per_gib: all.and_then(Samples::median),
            gateway_cpu_s_per_gib: gateway.and_then(Samples::median),
            cpu_of_direct: of_sum(all, |cpu, sum| cpu / sum),
            throughput_of_possible: of_sum(gb_per_s, |gb, sum| gb / possible(sum)),
            of,
        }
    };
    part.ways().map(line).collect()
}

/// GB per second that the processors have time for, when each GiB costs them so much.
fn possible(cpu_s_per_gib: f64) -> f64 {
    PROCESSORS / cpu_s_per_gib * BYTES_PER_GIB / BYTES_PER_GB
}

fn print_table(of: &str, lines: &[Line]) -> io::Result<()> {
    let mut table = Table::new([
        "",
        "GB/s",
        "CPU s/GiB, all",
        "of both direct",
        "GB/s of possible",
        "CPU s/GiB, gateway",
    ]);
    for line in lines {
        table.row([
            line.of.path.to_owned(),
            cell(line.gb_per_s, 2),
            cell(line.cpu_s_per_gib, 3),
            cell(line.cpu_of_direct, 2),
            cell(line.throughput_of_possible, 2),
            cell(line.gateway_cpu_s_per_gib, 3),
        ]);
    }
    let mut stdout = io::stdout().lock();
    write!(stdout, "\nmessages of {of}\n\n{table}")
}

fn print_notes() -> io::Result<()> {
    writeln!(
        io::stdout().lock(),
        "\nMedians; ratios are medians of each round's. CPU: user and system time of source, sink \
         and gateway. Of both direct: its ratio to the sum of both networks'. Possible: what \
         {PROCESSORS} processors have time for at that sum. Header: with `checksum = \"header\"` of the \
         channel, so that no payload has a checksum, as over one network alone."
    )
}

#[cfg(test)]
mod tests {
    use madgate_benches::Figures;
    use madgate_benches::rounds::Results;

    use super::*;

    /// Figures of one round.
    fn figures(gb_per_s: f64, all: f64) -> Figures {
        Figures {
            gb_per_s: Samples::of(vec![gb_per_s]),
            all_cpu_s_per_gib: Samples::of(vec![all]),
            ..Figures::default()
        }
    }

    #[test]
    fn a_pair_is_compared_with_the_sum_of_both() {
        let point = Point::stream(MESSAGE_BYTES[0]);
        let results = Results::from([
            (("tcp", point), figures(2.0, 0.75)),
            (("shm", point), figures(3.0, 0.25)),
            (("tcp->shm", point), figures(1.0, 1.5)),
        ]);
        let lines = lines(Part {
            results: &results,
            point,
            distance: None,
        });
        let of = |path| lines.iter().find(|line| line.of.path == path).unwrap();
        assert_eq!(of("tcp->shm").cpu_of_direct, Some(1.5));
        // Two processors have time for 2 GiB per second.
        let share = of("tcp->shm").throughput_of_possible.unwrap();
        assert!((share - 1e9 / 2_147_483_648.0).abs() < 1e-12);
        assert_eq!(of("tcp").cpu_of_direct, None);
        // Of what was not measured there is no line.
        assert!(lines.iter().all(|line| line.of.path != "tcp->hsl"));
    }
}
