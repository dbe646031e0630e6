//! Senders to as many receivers through one gateway, over TCP.
//!
//! ```text
//!  a0 ──┐                ┌──> b0       each a node with a session, links and a thread of its
//!  a1 ──┤   ┌────────┐   ├──> b1       own; all a's are in one process, and all b's in another
//!  …  ──┼──>│ gw     │───┼──> …
//!  aN ──┘   └────────┘   └──> bN
//! ```
//!
//! All flows are counted over the same time: once before, once after it, by who receives. It is
//! longer where there are many. With `--beside haproxy` the same is measured of as many bare
//! connections through HAProxy, whose ends have a thread each as well.
//!
//! How many flows carry of what few do is told at each [distance](madgate_benches::distance) of the processors
//! too: what lasts longer is the likelier to see them moved.

pub(crate) mod ends;
mod report;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;

use clap::{Args, ValueEnum};
use madgate_benches::children::EndArguments;
use madgate_benches::children::any_loopback;
use madgate_benches::cluster::{BenchNetwork, Setting, write_cluster};
use madgate_benches::contestant::each_once;
use madgate_benches::distance::When;
use madgate_benches::even::evenly;
use madgate_benches::gateway::{GATEWAY, start_gateway};
use madgate_benches::haproxy::{self, Splice};
use madgate_benches::measured::{Gather, Rounds, Subject};
use madgate_benches::process::{PATIENCE, Process};
use madgate_benches::rounds::{BYTES_PER_GB, as_float, in_turn};
use madgate_benches::samples::Samples;
use madgate_benches::{Point, Timing};
use madgate_vchannel::Cluster;

use crate::Common;
use ends::{Counted, Meeting, sending_time};

/// Flows with large messages.
const BULK_FLOWS: [usize; 5] = [1, 4, 16, 64, 256];
const BULK_BYTES: usize = 64 << 10;

/// Flows with small messages.
const SMALL_FLOWS: [usize; 2] = [1, 64];
const SMALL_BYTES: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct ManyArguments {
    #[command(flatten)]
    pub(super) common: Common,
    /// How many senders and receivers, instead of 1, 4, 16, 64 and 256 with messages of 64 KiB,
    /// and 1 and 64 with messages of 8 bytes.
    #[arg(long, value_delimiter = ',', num_args = 1.., value_parser = clap::value_parser!(u16).range(1..=1000))]
    flows: Vec<u16>,
    /// Put this into the cluster file: SECTION is `network`, `tcp`, `channel`, `endpoint` or
    /// `gateway`; such as `endpoint.window=256KiB`. May be given several times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    settings: Vec<Setting>,
    /// Measure the same through another relay, whose ends sleep while they wait.
    #[arg(long, value_enum)]
    beside: Option<Beside>,
}

/// What else can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Beside {
    Haproxy,
}

/// What flows pass through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Through {
    Madgate,
    Haproxy,
}

impl Through {
    fn name(self) -> &'static str {
        match self {
            Self::Madgate => "madgate",
            Self::Haproxy => "haproxy",
        }
    }
}

/// Each so many flows lengthen a measurement by what it takes with one: every thread gets its turns
/// in it, and what one of them could do in a turn does not count as its share. Where two processors
/// carry 64 flows, a turn comes every tenth of a second, and it takes some to find out how wide a
/// window has to be.
const FLOWS_PER_TIME: usize = 8;

/// So many flows, of messages of so many bytes, through one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    message_bytes: usize,
    through: Through,
    flows: usize,
}

impl Case {
    fn timing(self, one: Timing) -> Timing {
        let times = u32::try_from(1 + self.flows / FLOWS_PER_TIME).unwrap_or(u32::MAX);
        Timing {
            warm_up: one.warm_up * times,
            time: one.time * times,
        }
    }
}

/// All numbers of flows of messages of a size are compared.
impl Subject for Case {
    type Group = usize;

    fn group(self) -> usize {
        self.message_bytes
    }

    fn name(self) -> String {
        format!("{} flows through {}", self.flows, self.through.name())
    }
}

/// What was measured of one case.
#[derive(Debug, Clone, Default)]
struct Figures {
    gb_per_s: Samples,
    messages_per_s: Samples,
    /// What the slowest flow carried, next to what each would if all were equal.
    slowest_share: Samples,
    /// The most memory that the relay had, in bytes.
    memory: Samples,
    /// What it may have at most, in bytes, where it has such a bound.
    memory_cap: Samples,
}

impl Gather for Figures {
    fn samples(&mut self) -> Vec<&mut Samples> {
        let Self {
            gb_per_s,
            messages_per_s,
            slowest_share,
            memory,
            memory_cap,
        } = self;
        vec![gb_per_s, messages_per_s, slowest_share, memory, memory_cap]
    }

    fn count(&self) -> usize {
        self.messages_per_s.count()
    }
}

type Results = BTreeMap<Case, Figures>;

pub(crate) fn bench(arguments: &ManyArguments) -> io::Result<()> {
    let common = &arguments.common;
    let is_idle = |setting: &&Setting| !setting.concerns(&["tcp"]);
    if let Some(idle) = arguments.settings.iter().find(is_idle) {
        let why = format!("--set {}: both networks are of TCP", idle.name());
        return Err(io::Error::other(why));
    }
    let cases = cases(arguments);
    let timing = common.rounds.timing()?;
    let count = common.rounds.count();
    let mut rounds = Rounds::default();
    let sizes = each_once(cases.iter().map(|case| case.message_bytes));
    for round in 0..count {
        eprintln!("round {} of {count}", round + 1);
        for bytes in &sizes {
            let of_these = |case: &&Case| case.message_bytes == *bytes;
            let of_these: Vec<Case> = cases.iter().filter(of_these).copied().collect();
            let what = format!("messages of {bytes} bytes");
            let measure = |case: Case| measure(case, case.timing(timing), arguments);
            let in_turn = in_turn(&of_these, round).copied();
            rounds.append(evenly(round, &what, When::Meanwhile, in_turn, measure)?);
        }
    }
    let (all, distances) = (rounds.all(), rounds.by_distance());
    match common.json {
        true => report::print_json(&all, &distances),
        false => report::print_tables(&all, &distances),
    }
}

fn cases(arguments: &ManyArguments) -> Vec<Case> {
    let flows_of = |usual: &[usize]| match &arguments.flows[..] {
        [] => usual.to_vec(),
        asked => each_once(asked.iter().copied().map(usize::from)),
    };
    let beside = arguments.beside.filter(|Beside::Haproxy| {
        let missing = haproxy::missing();
        if let Some(missing) = &missing {
            eprintln!("{missing}: it is left out");
        }
        missing.is_none()
    });
    let through = [Through::Madgate]
        .into_iter()
        .chain(beside.map(|Beside::Haproxy| Through::Haproxy));
    let through: Vec<_> = through.collect();
    let rounds = &arguments.common.rounds;
    let sizes = rounds.sizes_or(&[BULK_BYTES, SMALL_BYTES]);
    sizes
        .into_iter()
        .flat_map(|message_bytes| {
            let flows = match message_bytes {
                ..BULK_BYTES => flows_of(&SMALL_FLOWS),
                _ => flows_of(&BULK_FLOWS),
            };
            let through = &through;
            flows.into_iter().flat_map(move |flows| {
                through.iter().map(move |&through| Case {
                    message_bytes,
                    through,
                    flows,
                })
            })
        })
        .collect()
}

/// Measures a case once.
fn measure(case: Case, timing: Timing, arguments: &ManyArguments) -> io::Result<Figures> {
    let measured = match case.through {
        Through::Madgate => measure_madgate(case, timing, arguments),
        Through::Haproxy => measure_haproxy(case, timing),
    };
    measured.map_err(|error| {
        let what = format!("{} of {} bytes: {error}", case.name(), case.message_bytes);
        io::Error::new(error.kind(), what)
    })
}

fn measure_madgate(case: Case, timing: Timing, arguments: &ManyArguments) -> io::Result<Figures> {
    let names = ['a', 'b'].map(|side| -> Vec<_> {
        let ends = (0..case.flows).map(|at| format!("{side}{at}"));
        ends.chain([GATEWAY.to_owned()]).collect()
    });
    let [left, right] = names
        .each_ref()
        .map(|names| -> Vec<&str> { names.iter().map(String::as_str).collect() });
    let network = |name, nodes| BenchNetwork {
        name,
        protocol: "tcp",
        keys: "",
        nodes,
    };
    let networks = [network("left", &left[..]), network("right", &right[..])];
    let ManyArguments {
        common, settings, ..
    } = arguments;
    let (_files, path) = write_cluster(&networks, common.wait, settings)?;
    let cluster = Cluster::read(&path).map_err(io::Error::other)?;
    let gateway = start_gateway(&path, 0)?;
    let at = Meeting::Cluster(path);
    let sinks = start("many-sinks", &at, case, timing)?;
    sinks.word("at ")?;
    let sources = start("many-sources", &at, case, timing)?;
    let mut figures = run(case, timing, [sources, sinks], &gateway)?;
    if let Some(gateway) = cluster.node(GATEWAY) {
        let cap = cluster.engine_memory_bytes(gateway);
        figures.memory_cap.push(as_float(cap));
    }
    Ok(figures)
}

fn measure_haproxy(case: Case, timing: Timing) -> io::Result<Figures> {
    let files = madgate_benches::scratch::folder()?;
    let at = Meeting::Tcp(any_loopback());
    let sinks = start("many-sinks", &at, case, timing)?;
    let sink = sinks.word("at ")?.parse().map_err(io::Error::other)?;
    let (relay, at) = haproxy::start(Splice::Always, case.flows, sink, files.path())?;
    let sources = start("many-sources", &Meeting::Tcp(at), case, timing)?;
    run(case, timing, [sources, sinks], &relay)
}

/// Starts all ends of one side.
fn start(role: &str, at: &Meeting, case: Case, timing: Timing) -> io::Result<Process> {
    let mut arguments: Vec<OsString> = vec![role.into(), at.to_string().into()];
    arguments.push(case.flows.to_string().into());
    let point = Point::stream(case.message_bytes);
    arguments.extend(EndArguments::for_child(point, timing));
    Process::again(role, arguments)
}

/// Lets them go when all are there, and notes what arrives.
fn run(
    case: Case,
    timing: Timing,
    [mut sources, mut sinks]: [Process; 2],
    relay: &Process,
) -> io::Result<Figures> {
    sources.word("connected")?;
    sinks.word("connected")?;
    sources.go()?;
    sinks.go()?;
    // Receivers speak when all flows have ended.
    let line = sinks.line(sending_time(timing) + PATIENCE)?;
    let counted: Counted = serde_json::from_str(&line)?;
    let mut figures = Figures::default();
    figures.note(&counted, case.message_bytes);
    let (_, peak_bytes) = relay.memory()?;
    figures.memory.push(as_float(peak_bytes));
    Ok(figures)
}

impl Figures {
    fn note(&mut self, counted: &Counted, message_bytes: usize) {
        let all: u64 = counted.messages.iter().sum();
        let per_s = as_float(all) / counted.seconds;
        self.messages_per_s.push(per_s);
        let bytes = as_float(message_bytes as u64);
        self.gb_per_s.push(per_s * bytes / BYTES_PER_GB);
        let least = counted.messages.iter().min().copied().unwrap_or(0);
        let fair = as_float(all) / as_float(counted.messages.len() as u64);
        // Where nothing came, nobody had anything.
        self.slowest_share.push(if all == 0 {
            0.0
        } else {
            as_float(least) / fair
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_flow_is_compared_with_an_equal_share() {
        let mut figures = Figures::default();
        let counted = Counted {
            seconds: 2.0,
            messages: vec![10, 20, 30],
        };
        figures.note(&counted, 1000);
        assert_eq!(figures.messages_per_s.median(), Some(30.0));
        assert_eq!(figures.slowest_share.median(), Some(0.5));
        assert_eq!(figures.gb_per_s.median(), Some(30e3 / 1e9));
    }
}
