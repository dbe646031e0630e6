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
//! longer where there are many.

pub(crate) mod ends;
mod report;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;

use clap::Args;
use madgate_benches::children::EndArguments;
use madgate_benches::cluster::{BenchNetwork, Setting, write_cluster};
use madgate_benches::gateway::{GATEWAY, start_gateway};
use madgate_benches::process::{PATIENCE, Process};
use madgate_benches::rounds::{BYTES_PER_GB, as_float, in_turn};
use madgate_benches::samples::Samples;
use madgate_benches::{Point, Timing};
use madgate_vchannel::Cluster;

use crate::Common;
use ends::Counted;

/// Flows with large messages.
const BULK_FLOWS: [usize; 5] = [1, 4, 16, 64, 256];
const BULK_BYTES: usize = 64 << 10;

/// Flows with small messages.
const SMALL_FLOWS: [usize; 2] = [1, 64];
const SMALL_BYTES: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct ManyArguments {
    #[command(flatten)]
    common: Common,
    /// How many senders and receivers, instead of 1, 4, 16, 64 and 256 with messages of 64 KiB,
    /// and 1 and 64 with messages of 8 bytes.
    #[arg(long, value_delimiter = ',', num_args = 1.., value_parser = clap::value_parser!(u16).range(1..=1000))]
    flows: Vec<u16>,
    /// Put this into the cluster file: SECTION is `network`, `tcp`, `channel`, `endpoint` or
    /// `gateway`; such as `endpoint.window=256KiB`. May be given several times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    settings: Vec<Setting>,
}

/// Each so many flows lengthen a measurement by what it takes with one: every thread gets its turns
/// in it, and what one of them could do in a turn does not count as its share.
const FLOWS_PER_TIME: usize = 32;

/// So many flows, of messages of so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    message_bytes: usize,
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

/// What was measured of one case.
#[derive(Debug, Clone, Default)]
struct Measured {
    gb_per_s: Samples,
    messages_per_s: Samples,
    /// What the slowest flow carried, next to what each would if all were equal.
    slowest_share: Samples,
    /// The most memory that the gateway had, in bytes.
    memory: Samples,
}

type Results = BTreeMap<Case, Measured>;

pub(crate) fn bench(arguments: &ManyArguments) -> io::Result<()> {
    let common = &arguments.common;
    let cases = cases(arguments);
    let timing = common.rounds.timing()?;
    let count = common.rounds.count();
    let mut results = Results::new();
    let mut cap_bytes = 0;
    for round in 0..count {
        eprintln!("round {} of {count}", round + 1);
        for case in in_turn(&cases, round) {
            let measured = results.entry(*case).or_default();
            cap_bytes =
                measure(*case, case.timing(timing), arguments, measured).map_err(|error| {
                    let Case {
                        message_bytes,
                        flows,
                    } = case;
                    let what = format!("{flows} flows of {message_bytes} bytes: {error}");
                    io::Error::new(error.kind(), what)
                })?;
        }
    }
    match common.json {
        true => report::print_json(&results, cap_bytes),
        false => report::print_tables(&results, cap_bytes),
    }
}

fn cases(arguments: &ManyArguments) -> Vec<Case> {
    let flows_of = |usual: &[usize]| match &arguments.flows[..] {
        [] => usual.to_vec(),
        asked => asked.iter().copied().map(usize::from).collect(),
    };
    let rounds = &arguments.common.rounds;
    let sizes = rounds.sizes_or(&[BULK_BYTES, SMALL_BYTES]);
    sizes
        .into_iter()
        .flat_map(|message_bytes| {
            let flows = match message_bytes {
                ..BULK_BYTES => flows_of(&SMALL_FLOWS),
                _ => flows_of(&BULK_FLOWS),
            };
            flows.into_iter().map(move |flows| Case {
                message_bytes,
                flows,
            })
        })
        .collect()
}

/// Measures a case once; returns the cap on the gateway's memory.
fn measure(
    case: Case,
    timing: Timing,
    arguments: &ManyArguments,
    measured: &mut Measured,
) -> io::Result<u64> {
    let Case {
        message_bytes,
        flows,
    } = case;
    let names = ['a', 'b'].map(|side| -> Vec<_> {
        let ends = (0..flows).map(|at| format!("{side}{at}"));
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
    let cap_bytes = cluster
        .node(GATEWAY)
        .map_or(0, |gateway| cluster.engine_memory_bytes(gateway));

    let start = |role: &str| {
        let mut arguments: Vec<OsString> = vec![role.into(), path.clone().into()];
        arguments.push(flows.to_string().into());
        arguments.extend(EndArguments::for_child(
            Point::stream(message_bytes),
            timing,
        ));
        Process::again(role, arguments)
    };
    let gateway = start_gateway(&path, 0)?;
    let mut sinks = start("many-sinks")?;
    sinks.word("at ")?;
    let mut sources = start("many-sources")?;
    sources.word("connected")?;
    sinks.word("connected")?;
    sources.go()?;
    sinks.go()?;
    let line = sinks.line(timing.warm_up + timing.time + PATIENCE)?;
    let counted: Counted = serde_json::from_str(&line)?;
    measured.note(&counted, message_bytes);
    let (_, peak_bytes) = gateway.memory()?;
    measured.memory.push(as_float(peak_bytes));
    Ok(cap_bytes)
}

impl Measured {
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
        let mut measured = Measured::default();
        let counted = Counted {
            seconds: 2.0,
            messages: vec![10, 20, 30],
        };
        measured.note(&counted, 1000);
        assert_eq!(measured.messages_per_s.median(), Some(30.0));
        assert_eq!(measured.slowest_share.median(), Some(0.5));
        assert_eq!(measured.gb_per_s.median(), Some(30e3 / 1e9));
    }
}
