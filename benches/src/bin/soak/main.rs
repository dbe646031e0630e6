//! Hours in small: messages of all sizes through a gateway, in both directions, nodes that come
//! and go, every message checked; and memory that stays as it is.
//!
//! ```text
//!   a0 <══ tcp ══> gw <══ shm ══> b0        messages of 8 bytes to 8 MiB, both ways
//!   c0 ═══ tcp ═══^                         joins, sends some, leaves, and joins again
//! ```
//!
//! ```text
//! cargo run --release -p madgate-benches --bin soak -- --minutes 30
//! ```

#![forbid(unsafe_code)]

mod node;
mod traffic;
mod watch;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use madgate_benches::Process;
use madgate_benches::cluster::{BenchNetwork, Setting, write_cluster};
use madgate_benches::gateway::{GatewayArguments, start_gateway};
use madgate_benches::process::die_with_parent;
use madgate_benches::waiting::Wait;

use node::{NodeArguments, VisitorArguments};
use watch::{Counts, Watch};

/// How often it looks, in all the time that it runs.
const LOOKS: u32 = 60;

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(200);

/// Memory of the gateway, far less than would go unnoticed if it leaked.
const MEMORY: &str = "gateway.memory=64MiB";

/// Sends messages of mixed sizes through a gateway for a long time, checks them all, and
/// watches how much memory everybody has.
#[derive(Debug, Parser)]
#[command(name = "soak", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// How long.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// How long, instead.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    #[command(subcommand)]
    child: Option<Child>,
}

#[derive(Debug, Subcommand)]
enum Child {
    /// Forwards.
    #[command(hide = true)]
    Gateway(GatewayArguments),
    /// Sends to another node, and checks what comes from it.
    #[command(hide = true)]
    Node(NodeArguments),
    /// Joins, sends some messages, and leaves.
    #[command(hide = true)]
    Visitor(VisitorArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.child {
        Some(child) => die_with_parent().and_then(|()| match child {
            Child::Gateway(gateway) => gateway.run(),
            Child::Node(node) => node.run(),
            Child::Visitor(visitor) => visitor.run(),
        }),
        None => {
            let minutes = Duration::from_secs(60 * arguments.minutes);
            soak(arguments.seconds.map_or(minutes, Duration::from_secs))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

fn soak(time: Duration) -> io::Result<()> {
    let left = BenchNetwork {
        name: "left",
        protocol: "tcp",
        keys: "",
        nodes: &["a0", "c0", "gw"],
    };
    let right = BenchNetwork {
        name: "right",
        protocol: "shm",
        keys: "",
        nodes: &["gw", "b0"],
    };
    let settings = Setting::read_all(&[MEMORY])?;
    let (_files, cluster) = write_cluster(&[left, right], Wait::Adaptive, &settings)?;
    let gateway = start_gateway(&cluster, 0)?;
    let mut ends = [
        start("node", &cluster, &["b0", "a0"])?,
        start("node", &cluster, &["a0", "b0"])?,
    ];
    for end in &ends {
        end.word("ready")?;
    }
    ends.iter_mut().try_for_each(Process::go)?;

    let began = Instant::now();
    let pause = (time / LOOKS).max(SHORTEST);
    let mut watch = Watch::new(&["gw", "b0", "a0"]);
    let mut visits = 0;
    while began.elapsed() < time {
        std::thread::sleep(pause);
        let visitor = start("visitor", &cluster, &["c0", "b0"])?;
        visitor.word("sent")?;
        visitor.finish()?;
        visits += 1;
        let mut counts = Vec::new();
        for end in &mut ends {
            end.go()?;
            counts.push(Counts::parse(&end.word("counts")?)?);
        }
        let memory = [&gateway, &ends[0], &ends[1]].map(Process::memory);
        watch.look(began.elapsed(), counts, visits, memory)?;
    }
    watch.judge(time)
}

/// Starts this program again as one of its children.
fn start(role: &str, cluster: &Path, names: &[&str]) -> io::Result<Process> {
    let mut arguments: Vec<OsString> = vec![role.into(), cluster.into()];
    arguments.extend(names.iter().map(Into::into));
    Process::again(names.first().unwrap_or(&role), arguments)
}
