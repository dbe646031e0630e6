//! The figures as a table for people and as lines of JSON for programs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use madgate_benches::Figures;
use madgate_benches::contestant::{Measure, Point};
use madgate_benches::json;
use madgate_benches::measured::AtDistance;
use madgate_benches::rounds::{AtPoint, Results};
use madgate_benches::samples::Samples;
use madgate_benches::table::Table;
use serde::Serialize;

/// From this size on, what counts is bandwidth; below, messages per second.
const LARGE_BYTES: usize = 64 * 1024;

/// All that is known of one relay and one size.
#[derive(Debug, Serialize)]
struct Line<'a> {
    relay: &'a str,
    message_bytes: usize,
    #[serde(flatten)]
    medians: Values,
    /// The medians of each round's ratios to these.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ratios: BTreeMap<&'a str, Values>,
    /// At which distance, see [`AtDistance::line_ns_range`]; null of all rounds.
    line_ns_range: Option<[f64; 2]>,
}

/// One value for each figure; what was not measured is null.
#[derive(Debug, Serialize)]
struct Values {
    gb_per_s: Option<f64>,
    cpu_s_per_gib: Option<f64>,
    messages_per_s: Option<f64>,
    half_rtt_us: Option<f64>,
    half_rtt_p99_us: Option<f64>,
}

/// Chooses one figure.
type Figure = fn(&Figures) -> &Samples;

impl Values {
    /// What is `found` of each figure at its point.
    fn of(message_bytes: usize, found: impl Fn(Point, Figure) -> Option<f64>) -> Self {
        let large = message_bytes >= LARGE_BYTES;
        let at = |measure, figure| {
            let point = Point {
                measure,
                message_bytes,
            };
            found(point, figure)
        };
        let bulk = |figure| large.then(|| at(Measure::Stream, figure)).flatten();
        let small = |figure| (!large).then(|| at(Measure::Stream, figure)).flatten();
        Self {
            gb_per_s: bulk(|it| &it.gb_per_s),
            cpu_s_per_gib: bulk(|it| &it.cpu_s_per_gib),
            messages_per_s: small(|it| &it.messages_per_s),
            half_rtt_us: at(Measure::PingPong, |it| &it.half_rtt_us),
            half_rtt_p99_us: at(Measure::PingPong, |it| &it.half_rtt_p99_us),
        }
    }
}

/// One row of the table: what it shows of a point.
struct Row {
    title: String,
    point: Point,
    figure: Figure,
    /// What one unit in the table is.
    unit: f64,
    decimals: usize,
}

/// The rows that show a point.
fn rows_of(point: Point) -> Vec<Row> {
    let row = |title: &str, figure, unit, decimals| Row {
        title: format!("{}, {title}", named(point.message_bytes)),
        point,
        figure,
        unit,
        decimals,
    };
    match point.measure {
        Measure::PingPong => vec![
            row("half round trip, median µs", |it| &it.half_rtt_us, 1.0, 1),
            row("half round trip, 99 % µs", |it| &it.half_rtt_p99_us, 1.0, 1),
        ],
        Measure::Stream | Measure::Unread if point.message_bytes >= LARGE_BYTES => vec![
            row("GB/s", |it| &it.gb_per_s, 1.0, 2),
            row("relay CPU s/GiB", |it| &it.cpu_s_per_gib, 1.0, 3),
        ],
        Measure::Stream | Measure::Unread => {
            vec![row("million messages/s *", |it| &it.messages_per_s, 1e6, 2)]
        }
    }
}

/// A size as people write it: `64 KiB`.
fn named(bytes: usize) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

const NOTES: &str = "\
* Each message framed on its own. The ends of a TCP relay write them in batches of 64 KiB:
  a relay has no messages of its own, and cannot do better.";

/// Prints the table of what was measured at one distance, of those of these points that were.
pub(crate) fn print_distance(
    at: &AtDistance<AtPoint, Figures>,
    points: &[Point],
    references: &[&str],
) -> io::Result<()> {
    let Some(heading) = at.heading(points) else {
        return Ok(());
    };
    writeln!(io::stdout().lock(), "\nThe same {heading}:")?;
    print_table(&at.results, points, references)
}

/// Those of `references` that were measured, as they are named in the results.
fn measured(references: &[&str], names: &[&'static str]) -> Vec<&'static str> {
    let named = |reference: &&str| names.iter().copied().find(|name| name == reference);
    references.iter().filter_map(named).collect()
}

/// Prints the table, of those of these points that were measured; relays are compared with each of
/// `references`.
pub(crate) fn print_table(
    results: &Results,
    points: &[Point],
    references: &[&str],
) -> io::Result<()> {
    let names = names(results);
    let references = measured(references, &names);
    let mut table = Table::new([""].iter().chain(&names).copied());
    let rows = rows_of_all(results, points);
    for row in &rows {
        let samples = |name| Some((row.figure)(results.get(&(name, row.point))?));
        let median = |name| samples(name).and_then(Samples::median);
        let ratio = |name, reference| {
            samples(name)?
                .ratios_to(samples(reference)?)
                .median()
                .filter(|_| name != reference)
        };
        let mut cells = vec![row.title.clone()];
        cells.extend(names.iter().map(|name| {
            let Some(value) = median(name) else {
                return "-".to_owned();
            };
            let value = format!("{:.*}", row.decimals, value / row.unit);
            let ratios = references.iter().map(|reference| ratio(name, reference));
            let ratios: Vec<_> = ratios.collect();
            if ratios.iter().all(Option::is_none) {
                return value;
            }
            let ratios = ratios.into_iter().map(|ratio| match ratio {
                Some(ratio) => format!("{ratio:.2}x"),
                None => "-".to_owned(),
            });
            format!("{value} ({})", ratios.collect::<Vec<_>>().join(", "))
        }));
        table.row(cells);
    }
    write!(io::stdout().lock(), "\n{table}")
}

/// Prints what is to be known of the table.
pub(crate) fn print_notes(
    results: &Results,
    points: &[Point],
    references: &[&str],
) -> io::Result<()> {
    let (names, rows) = (names(results), rows_of_all(results, points));
    let spread = rows
        .iter()
        .flat_map(|row| names.iter().map(move |name| (row, *name)))
        .filter_map(|(row, name)| (row.figure)(results.get(&(name, row.point))?).spread())
        .fold(0.0, f64::max);
    let mut stdout = io::stdout().lock();
    let references = measured(references, &names);
    if references.is_empty() {
        writeln!(stdout)?;
    } else {
        writeln!(
            stdout,
            "\nIn parentheses: compared with {}, the median of the ratios of each round.",
            references.join(" and with ")
        )?;
    }
    if rows.iter().any(|row| row.title.ends_with('*')) {
        writeln!(stdout, "{NOTES}")?;
    }
    if spread > 0.0 {
        let spread = spread * 100.0;
        writeln!(
            stdout,
            "Medians; the rounds of one figure differ by up to {spread:.0} %."
        )?;
    }
    Ok(())
}

/// The rows that show what was measured of these points.
fn rows_of_all(results: &Results, points: &[Point]) -> Vec<Row> {
    let is_measured = |point: &Point| results.keys().any(|(_, measured)| measured == point);
    let measured = points.iter().copied().filter(is_measured);
    measured.flat_map(rows_of).collect()
}

/// Prints one line of JSON for each relay and size that was measured, compared with each of `references`.
pub(crate) fn print_json(
    results: &Results,
    references: &[&str],
    line_ns_range: Option<[f64; 2]>,
) -> io::Result<()> {
    let mut sizes: Vec<usize> = results
        .keys()
        .map(|(_, point)| point.message_bytes)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let names = names(results);
    let references = measured(references, &names);
    let is_measured = |name: &str, bytes: usize| {
        let mut measured = results.keys();
        measured.any(|(relay, point)| *relay == name && point.message_bytes == bytes)
    };
    let line = |relay, message_bytes| {
        let medians = |point, figure: Figure| figure(results.get(&(relay, point))?).median();
        let others = references.iter().filter(|reference| **reference != relay);
        let ratios = others.map(|reference| {
            let ratio = |point, figure: Figure| {
                let of = figure(results.get(&(*reference, point))?);
                figure(results.get(&(relay, point))?).ratios_to(of).median()
            };
            (*reference, Values::of(message_bytes, ratio))
        });
        Line {
            relay,
            message_bytes,
            medians: Values::of(message_bytes, medians),
            ratios: ratios.collect(),
            line_ns_range,
        }
    };
    let lines = names.iter().flat_map(|name| {
        let measured = sizes.iter().filter(|bytes| is_measured(name, **bytes));
        measured.map(|bytes| line(name, *bytes)).collect::<Vec<_>>()
    });
    json::print_lines(lines)
}

/// The relays that were measured.
fn names(results: &Results) -> Vec<&'static str> {
    let mut names: Vec<_> = results.keys().map(|(name, _)| *name).collect();
    names.dedup();
    names
}
