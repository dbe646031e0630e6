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

#![forbid(unsafe_code)]

mod bare;
mod haproxy;
mod report;
mod socat;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use madgate_benches::children::ChildCommand;
use madgate_benches::process::die_with_parent;
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Machine, Point, Timing, rounds};

/// What is measured: bandwidth, rate of small messages, latency.
const POINTS: [Point; 6] = [
    Point::stream(1 << 20),
    Point::stream(64 << 10),
    Point::stream(8),
    Point::stream(64),
    Point::stream(1024),
    Point::ping_pong(8),
];

/// The warm-up, as a part of the time that is counted.
const WARM_UP: f64 = 0.25;

/// Measures one relay hop over TCP on loopback, side by side.
#[derive(Debug, Parser)]
#[command(name = "relay", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Print one line of JSON per relay and size instead of a table.
    #[arg(long)]
    json: bool,
    /// How often everything is measured; what counts is the median.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 1.0)]
    time: f64,
    /// The relays to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["bare", "haproxy", "socat"])]
    relays: Vec<Relay>,
    /// How the ends of the peers wait.
    #[arg(long, value_enum, default_value = "sleep")]
    ends: Wait,
    /// One short round: shows that everything works, not how fast.
    #[arg(long)]
    quick: bool,
    #[command(subcommand)]
    child: Option<Child>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Relay {
    Bare,
    Haproxy,
    Socat,
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
    let machine = Machine::describe();
    eprintln!("{machine}");
    if let Some(warning) = machine.warning() {
        eprintln!("warning: {warning}");
    }

    let mut contestants: Vec<Box<dyn Contestant>> = Vec::new();
    for relay in &arguments.relays {
        let contestant: Box<dyn Contestant> = match relay {
            Relay::Bare => Box::new(bare::Bare(arguments.ends)),
            Relay::Haproxy => Box::new(haproxy::Haproxy(arguments.ends)),
            Relay::Socat => Box::new(socat::Socat(arguments.ends)),
        };
        match contestant.missing() {
            Some(missing) => eprintln!("{} is left out: {missing}", contestant.name()),
            None => contestants.push(contestant),
        }
    }

    let (rounds, time) = match arguments.quick {
        true => (1, 0.2),
        false => (usize::from(arguments.rounds), arguments.time),
    };
    let timing = Timing {
        warm_up: seconds(time * WARM_UP)?,
        time: seconds(time)?,
    };
    let results = rounds::run(&contestants, &POINTS, timing, rounds, |what| {
        eprintln!("{what}");
    })?;
    let names: Vec<_> = contestants
        .iter()
        .map(|contestant| contestant.name())
        .collect();
    match arguments.json {
        true => report::print_json(&names, &results),
        false => report::print_table(&names, &results),
    }
}

fn seconds(value: f64) -> io::Result<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| io::Error::other(format!("{value} s as a time: {error}")))
}
