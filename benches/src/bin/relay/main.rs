//! One relay hop over TCP on loopback: source, relay and sink, three processes.
//!
//! Measures madgate's peers side by side, in alternating rounds: bandwidth and the relay's
//! CPU time for large messages, messages per second for small ones, and half round trips.
//!
//! ```text
//! cargo run --release -p madgate-benches --bin relay -- --help
//! ```
//!
//! A relay is a [`Contestant`] in a file of its own. The ends of the peers are ordinary
//! programs over bare sockets with the kernel's default buffers ([`madgate_benches::plain`]);
//! a TCP relay has no messages, so that their small ones travel in batches of 64 KiB.

#![deny(unsafe_code)]

mod bare;
mod haproxy;
mod report;
mod socat;
mod switches;
mod uring;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use madgate_benches::children::ChildCommand;
use madgate_benches::cluster::Setting;
use madgate_benches::contestant::{RoundArguments, each_once};
use madgate_benches::haproxy::Splice;
use madgate_benches::paths::Forwarded;
use madgate_benches::process::die_with_parent;
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Machine, Point, rounds};

use bare::{Bare, Calls};
use haproxy::Haproxy;

/// What is measured: bandwidth, rate of small messages, latency.
const POINTS: [Point; 6] = [
    Point::stream(1 << 20),
    Point::stream(64 << 10),
    Point::stream(8),
    Point::stream(64),
    Point::stream(1024),
    Point::ping_pong(8),
];

/// Measures one relay hop over TCP on loopback, side by side.
#[derive(Debug, Parser)]
#[command(name = "relay", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Print one line of JSON per relay and size instead of a table, and one more for each distance of the
    /// processors from each other, where there were several.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rounds: RoundArguments,
    /// The relays to measure.
    #[arg(long, value_enum, value_delimiter = ',', num_args = 1.., default_values = ["madgate", "bare", "haproxy", "haproxy-pipes", "socat"])]
    relays: Vec<Relay>,
    /// The relays that the others are compared with, of those that are measured; haproxy and haproxy-pipes,
    /// if none is named.
    #[arg(long, value_enum, value_name = "RELAY", value_delimiter = ',', num_args = 1.., conflicts_with = "switches")]
    reference: Vec<Relay>,
    /// How the gateway and the ends of madgate wait.
    #[arg(long, value_enum, default_value = "adaptive")]
    wait: Wait,
    /// Measure madgate once more with this in its cluster file, as `madgate-set`: SECTION is
    /// network, tcp, channel, endpoint or gateway. May be given several times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    settings: Vec<Setting>,
    /// Measure madgate alone, with its defaults and without one of its fast paths after the other:
    /// what each brings. With `--json` each has a line under its name.
    #[arg(long, conflicts_with_all = ["relays", "settings", "ends"])]
    switches: bool,
    /// How the ends of the peers wait.
    #[arg(long, value_enum, default_value = "sleep")]
    ends: Wait,
    #[command(subcommand)]
    child: Option<Child>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Relay {
    Madgate,
    Bare,
    BareLooking,
    Haproxy,
    HaproxyPipes,
    HaproxyAuto,
    Socat,
    Uring,
    UringLooking,
}

impl Relay {
    /// What is measured of it, where the ends of madgate and its gateway, and the `ends` of its peers, wait like
    /// that.
    fn contestant(self, wait: Wait, ends: Wait) -> Box<dyn Contestant> {
        match self {
            Self::Madgate => Box::new(forwarded("madgate", wait)),
            Self::Bare => Box::new(Bare::Asleep(Calls::Ordinary, ends)),
            Self::BareLooking => Box::new(Bare::Looking(Calls::Ordinary)),
            Self::Haproxy => Box::new(Haproxy(Splice::Always, ends)),
            Self::HaproxyPipes => Box::new(Haproxy(Splice::LargePipes, ends)),
            Self::HaproxyAuto => Box::new(Haproxy(Splice::Auto, ends)),
            Self::Socat => Box::new(socat::Socat(ends)),
            Self::Uring => Box::new(Bare::Asleep(Calls::Uring, ends)),
            Self::UringLooking => Box::new(Bare::Looking(Calls::Uring)),
        }
    }
}

/// madgate, between two networks over TCP.
fn forwarded(name: &'static str, wait: Wait) -> Forwarded {
    Forwarded::new(name, ["tcp", "tcp"], wait)
}

#[derive(Debug, Subcommand)]
enum Child {
    #[command(flatten)]
    End(ChildCommand),
    /// The bare relay.
    #[command(hide = true)]
    BareRelay(bare::BareArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.child {
        Some(Child::End(child)) => child.run(),
        Some(Child::BareRelay(relay)) => die_with_parent().and_then(|()| relay.run()),
        None => bench(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &Arguments) -> io::Result<()> {
    Machine::announce(arguments.json)?;
    if arguments.switches {
        let contestants = switches::contestants(arguments.wait)?;
        let points = switches::points(&arguments.rounds)?;
        let results = rounds::run(&contestants, &points, &arguments.rounds)?.all();
        return match arguments.json {
            true => report::print_json(&results, &[], None),
            false => switches::print_table(&results),
        };
    }
    let contestant = |relay: Relay| relay.contestant(arguments.wait, arguments.ends);
    let name = |relay: &Relay| contestant(*relay).name();
    let is_measured = |relay: &&Relay| arguments.relays.contains(relay);
    if let Some(other) = arguments.reference.iter().find(|it| !is_measured(it)) {
        let why = format!(
            "--reference {}: it is none of the relays to measure (--relays)",
            name(other)
        );
        return Err(io::Error::other(why));
    }
    let references: Vec<_> = match &arguments.reference[..] {
        [] => [Relay::Haproxy, Relay::HaproxyPipes]
            .iter()
            .map(name)
            .collect(),
        named => each_once(named.iter().copied()).iter().map(name).collect(),
    };
    let relays = each_once(arguments.relays.iter().copied());
    let mut contestants: Vec<_> = relays.into_iter().map(contestant).collect();
    if !arguments.settings.is_empty() {
        let forwarded = Forwarded {
            settings: arguments.settings.clone(),
            ..forwarded("madgate-set", arguments.wait)
        };
        forwarded.check()?;
        contestants.push(Box::new(forwarded));
    }
    let points = arguments.rounds.points(&POINTS);
    let measured = rounds::run(&contestants, &points, &arguments.rounds)?;
    let (all, distances) = (measured.all(), measured.by_distance());
    if arguments.json {
        report::print_json(&all, &references, None)?;
    } else {
        report::print_table(&all, &points, &references)?;
        report::print_notes(&all, &points, &references)?;
    }
    for at in &distances {
        match arguments.json {
            true => report::print_json(&at.results, &references, Some(at.line_ns_range))?,
            false => report::print_distance(at, &points, &references)?,
        }
    }
    Ok(())
}
