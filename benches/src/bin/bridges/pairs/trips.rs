//! How long a small message is on its way, next to the sum of both networks alone.

use std::io::{self, Write};

use madgate_benches::contestant::RoundArguments;
use madgate_benches::samples::Samples;
use madgate_benches::table::Table;
use madgate_benches::{Point, json};
use serde::Serialize;

use super::{Measured, Part};
use crate::cell;

/// Bytes of the messages.
const MESSAGE_BYTES: [usize; 1] = [8];

/// What was measured of one way, as medians; ratios as those of throughput.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    of: Measured,
    half_rtt_us: Option<f64>,
    half_rtt_p99_us: Option<f64>,
    half_rtt_of_direct: Option<f64>,
}

/// What is measured.
pub(super) fn points(arguments: &RoundArguments) -> Vec<Point> {
    let sizes = arguments.sizes_or(&MESSAGE_BYTES).into_iter();
    sizes.map(Point::ping_pong).collect()
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
    let mut table = Table::new(["", "half round trip µs", "99 % µs", "of both direct"]);
    for line in lines {
        table.row([
            line.of.path.to_owned(),
            cell(line.half_rtt_us, 2),
            cell(line.half_rtt_p99_us, 2),
            cell(line.half_rtt_of_direct, 2),
        ]);
    }
    let mut stdout = io::stdout().lock();
    write!(stdout, "\nmessages of {heading}\n\n{table}")?;
    if part.distance.is_none() {
        writeln!(
            stdout,
            "\nMedians; ratios are medians of each round's. Of both direct: the ratio of the median to the \
             sum of both networks'. Header: with `checksum = \"header\"` of the channel."
        )?;
    }
    Ok(())
}

fn lines(part: Part<'_>) -> Vec<Line> {
    let line = |(of, protocols): (Measured, Option<[&'static str; 2]>)| {
        let median = part.samples(of.path, |it| &it.half_rtt_us);
        let p99 = part.samples(of.path, |it| &it.half_rtt_p99_us);
        let sum = part.sum(protocols, |it| &it.half_rtt_us);
        let ratios = median.zip(sum).map(|(all, sum)| all.ratios_to(&sum));
        Line {
            half_rtt_us: median.and_then(Samples::median),
            half_rtt_p99_us: p99.and_then(Samples::median),
            half_rtt_of_direct: ratios.as_ref().and_then(Samples::median),
            of,
        }
    };
    part.ways().map(line).collect()
}

#[cfg(test)]
mod tests {
    use madgate_benches::Figures;
    use madgate_benches::rounds::Results;

    use super::*;

    #[test]
    fn a_pair_is_compared_with_the_sum_of_both() {
        let point = Point::ping_pong(MESSAGE_BYTES[0]);
        let figures = |median: f64| Figures {
            half_rtt_us: Samples::of(vec![median]),
            half_rtt_p99_us: Samples::of(vec![2.0 * median]),
            ..Figures::default()
        };
        let results = Results::from([
            (("tcp", point), figures(6.0)),
            (("shm", point), figures(0.5)),
            (("shm->tcp", point), figures(13.0)),
        ]);
        let lines = lines(Part {
            results: &results,
            point,
            distance: None,
        });
        let figures = lines.iter().map(|line| {
            let path = line.of.path;
            (
                path,
                line.half_rtt_us,
                line.half_rtt_p99_us,
                line.half_rtt_of_direct,
            )
        });
        let expected = [
            ("tcp", Some(6.0), Some(12.0), None),
            ("shm", Some(0.5), Some(1.0), None),
            ("shm->tcp", Some(13.0), Some(26.0), Some(2.0)),
        ];
        assert_eq!(figures.collect::<Vec<_>>(), expected);
    }
}
