//! What each fast path brings: madgate without one of them, after the other, beside itself.

use std::io::{self, Write};

use madgate_benches::Contestant;
use madgate_benches::cluster::Setting;
use madgate_benches::contestant::{Point, RoundArguments};
use madgate_benches::paths::Forwarded;
use madgate_benches::rounds::{Figures, Results};
use madgate_benches::samples::Samples;
use madgate_benches::table::Table;
use madgate_benches::waiting::Wait;

/// Madgate as it is without being asked for anything.
const DEFAULT: &str = "madgate";

/// A fast path, and what switches it off; those that are off by default are switched on.
struct Switch {
    path: &'static str,
    settings: &'static [&'static str],
}

const fn switch(path: &'static str, settings: &'static [&'static str]) -> Switch {
    Switch { path, settings }
}

/// Those that there are between TCP and TCP.
const SWITCHES: [Switch; 21] = [
    // A batch holds a frame at least.
    switch(
        "no batches",
        &[
            "gateway.batch=64KiB",
            "gateway.depth=1",
            "channel.mtu=60KiB",
        ],
    ),
    switch("no run to completion", &["gateway.handover=thread"]),
    switch(
        "no adaptive waiting",
        &["gateway.wait=sleep", "endpoint.wait=sleep"],
    ),
    switch("no lookout", &["gateway.lookout=false"]),
    switch("no deputies", &["gateway.deputies=false"]),
    switch("no scheduling in batches", &["gateway.sched_batch=false"]),
    switch(
        "no gathered writes",
        &["gateway.gather=false", "endpoint.gather=false"],
    ),
    switch("no pipes", &["gateway.splice=false"]),
    switch("low-water marks", &["tcp.low_water=true"]),
    switch(
        "small socket buffers",
        &["tcp.socket_buffer=256KiB", "tcp.unsent=256KiB"],
    ),
    switch("paced within the host", &["tcp.congestion=bbr"]),
    switch("no fragment ramps", &["endpoint.ramps=false"]),
    switch("no fragments by speed", &["endpoint.sized_by_speed=false"]),
    switch("no wide windows", &["endpoint.wide_windows=false"]),
    switch("nothing straight to an end", &["endpoint.straight=false"]),
    switch("no batches of short payloads", &["endpoint.batches=false"]),
    switch("no leads", &["endpoint.leads=false"]),
    switch("no bundles", &["endpoint.bundles=false"]),
    switch("no messages alone", &["endpoint.alone=false"]),
    switch("no whole messages", &["endpoint.whole=false"]),
    switch("no unsealed frames", &["endpoint.unsealed=false"]),
];

/// What is measured.
pub(crate) const POINTS: [Point; 4] = [
    Point::stream(1 << 20),
    Point::stream(64 << 10),
    Point::stream(8),
    Point::ping_pong(8),
];

/// Madgate, and once more for each switch.
///
/// # Errors
///
/// When nodes would not take one.
pub(crate) fn contestants(wait: Wait) -> io::Result<Vec<Box<dyn Contestant>>> {
    let plain = |name| Forwarded::new(name, ["tcp", "tcp"], wait);
    let mut contestants: Vec<Box<dyn Contestant>> = vec![Box::new(plain(DEFAULT))];
    for Switch { path, settings } in SWITCHES {
        let forwarded = Forwarded {
            settings: Setting::read_all(settings)?,
            ..plain(path)
        };
        forwarded.check()?;
        contestants.push(Box::new(forwarded));
    }
    Ok(contestants)
}

/// A column: what it shows of a point.
struct Column {
    title: &'static str,
    point: Point,
    figure: fn(&Figures) -> &Samples,
}

const fn column(title: &'static str, point: Point, figure: fn(&Figures) -> &Samples) -> Column {
    Column {
        title,
        point,
        figure,
    }
}

const COLUMNS: [Column; 6] = [
    column("1 MiB, GB/s", POINTS[0], |it| &it.gb_per_s),
    column("processor", POINTS[0], |it| &it.cpu_s_per_gib),
    column("64 KiB, GB/s", POINTS[1], |it| &it.gb_per_s),
    column("processor", POINTS[1], |it| &it.cpu_s_per_gib),
    column("8 B, messages/s", POINTS[2], |it| &it.messages_per_s),
    column("half round trip", POINTS[3], |it| &it.half_rtt_us),
];

/// What is measured.
///
/// # Errors
///
/// If messages of a size are asked for that the table has no column for.
pub(crate) fn points(rounds: &RoundArguments) -> io::Result<Vec<Point>> {
    let points = rounds.points(&POINTS);
    match points.iter().find(|point| !POINTS.contains(point)) {
        None => Ok(points),
        Some(point) => Err(io::Error::other(format!(
            "--switches compares messages of 8, 65536 and 1048576 bytes, and not of {}",
            point.message_bytes
        ))),
    }
}

const NOTES: &str = "\
Of madgate's with its defaults, the median of the ratios of each round, and the least and the
greatest of them. Processor: the gateway's, for each GiB; less of it is better, and of a half round
trip.";

/// Prints the ratios to the defaults.
pub(crate) fn print_table(results: &Results) -> io::Result<()> {
    let columns: Vec<_> = COLUMNS
        .iter()
        .filter(|column| results.contains_key(&(DEFAULT, column.point)))
        .collect();
    let titles = columns.iter().map(|column| column.title);
    let mut table = Table::new(["", "with"].into_iter().chain(titles));
    for Switch { path, settings } in &SWITCHES {
        let cells = columns.iter().map(|column| {
            let samples = |name| Some((column.figure)(results.get(&(name, column.point))?));
            let ratios = || Some(samples(path)?.ratios_to(samples(DEFAULT)?));
            let cell = ratios().and_then(|ratios| {
                let (median, least) = (ratios.median()?, ratios.least()?);
                let greatest = ratios.greatest()?;
                Some(format!("{median:.2} ({least:.2} to {greatest:.2})"))
            });
            cell.unwrap_or_else(|| "-".to_owned())
        });
        let front = [(*path).to_owned(), settings.join(", ")];
        table.row(front.into_iter().chain(cells));
    }
    writeln!(io::stdout().lock(), "\n{table}\n{NOTES}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_is_taken_and_is_in_the_manual() {
        let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance.md");
        let manual = std::fs::read_to_string(manual).unwrap();
        assert_eq!(
            contestants(Wait::Adaptive).unwrap().len(),
            SWITCHES.len() + 1
        );
        for setting in SWITCHES.iter().flat_map(|switch| switch.settings) {
            let setting: Setting = setting.parse().unwrap();
            let name = setting.name();
            let key = name.rsplit('.').next().unwrap();
            assert!(manual.contains(&format!("`{key}`")), "{name}");
        }
    }
}
