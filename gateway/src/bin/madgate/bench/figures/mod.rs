//! `madgate bench --figure6`: the papers' figures 6 and 7 (003, 3.3 and 3.4) on this machine.
//!
//! Bandwidth against message size through a gateway between two unlike networks, TCP and shared
//! memory, one curve per packet size, in both directions. One message is under way at a time.
//!
//! ```text
//!   figure 6   t ──tcp──> gw ──shm──> s      (paper: from SCI to Myrinet)
//!   figure 7   t <──tcp── gw <──shm── s      (paper: from Myrinet to SCI)
//!   direct     t ──tcp──> gw,  gw ──shm──> s, as plain nodes
//! ```
//!
//! Every node is a process of its own. What packets take directly, and what the gateway says of
//! its switches, is what the model predicts from.

mod report;
mod scene;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use madgate_vchannel::cluster::format_size;
use serde_json::Value;

use super::chart::{self, Chart};
use crate::child::{Family, Process};
use crate::deadline::Deadline;
use crate::failure::{Context, Failure};
use crate::files::wire::count;
use crate::output::{print, say};
use crate::save::Target;
use report::{Direct, Direction, Figure, Point};
use scene::{Nodes, Scene};

/// The papers' packet sizes.
const PACKETS: [usize; 5] = [8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
/// Sizes of messages.
const MESSAGES: [usize; 7] = [
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
];
/// How long each point is measured.
const TIME: Duration = Duration::from_millis(200);
/// How long a node may take to be ready.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// How long all of it may take, beside so many times what is measured.
const LIMIT: Duration = Duration::from_secs(3600);
const TIMES_MEASURED: u32 = 2;

/// What is asked for; empty lists and nothing mean the usual.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) packets: &'a [usize],
    pub(super) messages: &'a [usize],
    pub(super) time: Option<Duration>,
    pub(super) json: bool,
    pub(super) plot: bool,
    pub(super) svg: Option<&'a Path>,
}

/// Measures both figures, and prints them.
pub(super) fn run(order: &Order<'_>) -> Result<ExitCode, Failure> {
    let picture = order.svg.map(|path| Target::prepare(path, None));
    let picture = picture.transpose()?;
    let packets = &*or_usual(order.packets, &PACKETS);
    let messages = &*or_usual(order.messages, &MESSAGES);
    let time = order.time.unwrap_or(TIME);
    let scene = Scene::make()?;
    let family = Family::default();
    let folders = vec![scene.folder().to_owned()];
    let limit = limit(packets.len(), messages.len(), time);
    let deadline = Deadline::start(family.clone(), folders, limit, "bench --figure6")?;
    let bench = Bench {
        scene: &scene,
        family: &family,
        time,
        json: order.json,
    };
    let figures = bench.measure(packets, messages);
    family.kill();
    let figures = deadline.end(figures)?;
    let charts: Vec<Chart> = figures.iter().map(Figure::chart).collect();
    if !order.json {
        for (figure, chart) in figures.iter().zip(&charts) {
            print(&format!("\n{}", figure.table()))?;
            if order.plot {
                print(&format!("\n{}", chart.text()))?;
            }
        }
    }
    for figure in &figures {
        if let Some(doubt) = figure.doubt() {
            say(&format!("madgate: not to be trusted: {doubt}"));
        }
    }
    if let Some(picture) = picture {
        picture.write(&chart::svg(&charts)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was asked for, each once and in order; or the usual.
fn or_usual(asked: &[usize], usual: &[usize]) -> Vec<usize> {
    let mut sizes = if asked.is_empty() { usual } else { asked }.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// How long it may take: packets alone and in a stream over both networks, and messages in packets both ways.
fn limit(packets: usize, messages: usize, time: Duration) -> Duration {
    let points = 2 * packets * (2 + messages);
    let points = u32::try_from(points).unwrap_or(u32::MAX);
    LIMIT.saturating_add(time.saturating_mul(points).saturating_mul(TIMES_MEASURED))
}

struct Bench<'a> {
    scene: &'a Scene,
    family: &'a Family,
    time: Duration,
    json: bool,
}

impl Bench<'_> {
    fn measure(&self, packets: &[usize], messages: &[usize]) -> Result<[Figure; 2], Failure> {
        let tcp = self.direct(Nodes::Tcp, "t", packets)?;
        let shm = self.direct(Nodes::Shm, "s", packets)?;
        let mut figures = [
            Figure::new(Direction::TcpToShm, tcp.clone(), shm.clone()),
            Figure::new(Direction::ShmToTcp, shm, tcp),
        ];
        for packet in packets {
            let cluster = self.scene.cluster(Nodes::Both, *packet)?;
            let _gateway = self.node(&cluster, "gateway", "gw")?;
            for figure in &mut figures {
                let (from, to) = figure.direction.ends();
                self.say(&format!(
                    "measuring {from} -> {to} in packets of {}",
                    format_size(count(*packet))
                ));
                let _end = self.node(&cluster, "serve", to)?;
                for found in self.bench(&cluster, (from, to), "ping", messages)? {
                    let point = Point::read(*packet, &found, figure)?;
                    if self.json {
                        print(&format!("{}\n", serde_json::to_string(&point)?))?;
                    }
                    figure.points.push(point);
                }
            }
        }
        Ok(figures)
    }

    /// What packets take over one network, without a gateway.
    fn direct(&self, nodes: Nodes, from: &str, packets: &[usize]) -> Result<Direct, Failure> {
        self.say(&format!("measuring {from} -> gw, directly"));
        let largest = packets.iter().copied().max().unwrap_or(PACKETS[0]);
        let cluster = self.scene.cluster(nodes, largest)?;
        let _end = self.node(&cluster, "serve", "gw")?;
        let alone = self.bench(&cluster, (from, "gw"), "ping", packets)?;
        let streamed = self.bench(&cluster, (from, "gw"), "stream", packets)?;
        Direct::read(&alone, &streamed)
    }

    fn node(&self, cluster: &Path, command: &str, name: &str) -> Result<Process, Failure> {
        let mut arguments: Vec<OsString> = vec![command.into(), cluster.into()];
        arguments.extend(["--node".into(), name.into()]);
        if command == "serve" {
            arguments.extend(["--dir".into(), self.scene.scratch().into()]);
        }
        let log = self.scene.folder().join(format!("{name}.log"));
        let mut process = Process::start(self.family, name, &arguments, Some(&log))?;
        process.ready(READY_LIMIT)?;
        Ok(process)
    }

    /// Measures messages of each size.
    fn bench(
        &self,
        cluster: &Path,
        (from, to): (&str, &str),
        kind: &str,
        sizes: &[usize],
    ) -> Result<Vec<Value>, Failure> {
        let sizes: Vec<String> = sizes.iter().map(|size| format!("{size}B")).collect();
        let time = format!("{}us", self.time.as_micros());
        let mut arguments: Vec<OsString> = vec!["bench".into(), cluster.into()];
        let more = [
            "--node",
            from,
            "--to",
            to,
            kind,
            "--size",
            &sizes.join(","),
            "--time",
            &time,
            "--json",
        ];
        arguments.extend(more.map(OsString::from));
        // What it doubts stands in its results too.
        let log = self.scene.folder().join("bench.log");
        let printed = Process::start(self.family, "bench", &arguments, Some(&log))?.succeed()?;
        let lines = printed.lines().map(serde_json::from_str);
        lines
            .collect::<Result<_, _>>()
            .or_fail(|| "cannot read a result".into())
    }

    fn say(&self, what: &str) {
        if !self.json {
            say(&format!("{what} ..."));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_measured_once_and_in_order() {
        assert_eq!(or_usual(&[4000, 1537, 4000], &PACKETS), [1537, 4000]);
        assert_eq!(or_usual(&[], &PACKETS), PACKETS);
    }
}
