//! A gateway between unlike networks, with many flows, and with stages that cost: each beside
//! what it is to be compared with, in alternating rounds.
//!
//! ```text
//! cargo run --release -p madgate-benches --bin bridges -- --help
//! ```
//!
//! | subcommand | what it compares |
//! |---|---|
//! | [`pairs`] | two unlike networks with a gateway between, and each of the two alone |
//! | [`many`] | a gateway with few flows, and with many |
//! | [`overlap`] | a gateway whose stages one thread does in turn, and two at once |
//!
//! Everything is kept on two processors, where there are more.

#![forbid(unsafe_code)]

mod many;
mod overlap;
mod pairs;

use std::io;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use madgate_benches::children::ChildCommand;
use madgate_benches::contestant::RoundArguments;
use madgate_benches::cores::Kept;
use madgate_benches::process::die_with_parent;
use madgate_benches::waiting::Wait;
use madgate_benches::{Machine, rounds};

use many::ManyArguments;
use overlap::OverlapArguments;
use pairs::PairsArguments;

/// Measures a gateway between unlike networks, with many flows, and with stages that cost.
#[derive(Debug, Parser)]
#[command(name = "bridges")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Two unlike networks with a gateway between, beside each of the two alone: throughput, and
    /// the processor time of all processes; or half round trips.
    Pairs(PairsArguments),
    /// Senders to as many receivers through one gateway: all together, the slowest flow, and the
    /// gateway's memory.
    Many(ManyArguments),
    /// A stage that costs processor time on each side of a gateway, done by one thread in turn
    /// and by two at once.
    Overlap(OverlapArguments),
    #[command(flatten)]
    End(ChildCommand),
    /// Sends from many nodes.
    #[command(hide = true)]
    ManySources(many::ends::EndsArguments),
    /// Receives at many nodes.
    #[command(hide = true)]
    ManySinks(many::ends::EndsArguments),
}

/// What all of them are told.
#[derive(Debug, Args)]
struct Common {
    /// Print lines of JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rounds: RoundArguments,
    /// How the gateway and the ends wait.
    #[arg(long, value_enum, default_value = "adaptive")]
    wait: Wait,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Pairs(arguments) => bench(arguments.common.json, || pairs::bench(&arguments)),
        Command::Many(arguments) => bench(arguments.common.json, || many::bench(&arguments)),
        Command::Overlap(arguments) => bench(arguments.common.json, || overlap::bench(&arguments)),
        Command::End(child) => child.run(),
        Command::ManySources(sources) => die_with_parent().and_then(|()| sources.sources()),
        Command::ManySinks(sinks) => die_with_parent().and_then(|()| sinks.sinks()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bridges: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says where this is measured, and keeps all processes on two processors.
fn bench(json: bool, run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    Machine::announce(json)?;
    let _kept = Kept::on_two()?;
    run()
}

/// A figure for people, `-` where there is none.
fn cell(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}
