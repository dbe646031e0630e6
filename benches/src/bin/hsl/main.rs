//! Remote write: what a message costs, as papers 000 and 004 measured it.
//!
//! - Their table 2: system calls, interrupts and copies for each message, counted by the cards
//!   themselves, and by `strace` from outside (many messages less none).
//! - Their ping-pong: half of a round trip and bandwidth for sizes from 1 byte to 4 MiB, by
//!   polling, by interrupts and adaptively, with memory of the arena and with other memory.
//!
//! Two processes with a port between them, and nothing else.
//!
//! ```text
//! cargo run --release -p madgate-benches --bin hsl -- --help
//! ```

#![forbid(unsafe_code)]

mod counted;
mod exchange;
mod ping_pong;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use madgate_benches::Machine;

use exchange::Plan;

/// Measures remote write between two processes.
#[derive(Debug, Parser)]
#[command(name = "hsl", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Print lines of JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Few messages: to see that it works, not how fast anything is.
    #[arg(long)]
    quick: bool,
    #[command(subcommand)]
    child: Option<ChildCommand>,
}

/// What this program does in the processes that it starts.
#[derive(Debug, Subcommand)]
#[command(hide = true)]
enum ChildCommand {
    /// Both ends of an exchange, of which nothing is printed: for `strace`.
    #[command(hide = true)]
    Exchange(Plan),
    /// The end that answers.
    #[command(hide = true)]
    Peer(exchange::Peer),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.child {
        Some(ChildCommand::Exchange(plan)) => exchange::both_ends(plan).map(drop),
        Some(ChildCommand::Peer(peer)) => peer.run(),
        None => bench(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hsl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &Arguments) -> io::Result<()> {
    Machine::announce();
    counted::print(arguments.quick, arguments.json)?;
    ping_pong::print(arguments.quick, arguments.json)
}
