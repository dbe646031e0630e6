//! Remote write: what a message costs, as papers 000 and 004 measured it, and beside others.
//!
//! - Their table 2: system calls, interrupts and copies for each message, counted by the cards
//!   themselves, and by `strace` from outside (many messages less none).
//! - Their ping-pong: half of a round trip and bandwidth for sizes from 1 byte to 4 MiB, by
//!   polling, by interrupts and adaptively; with memory of the arena and with other memory, also
//!   registered for each message, and through a registration cache; over the emulated card, or one
//!   of libfabric's.
//! - What happens at the threshold between the two transmission modules.
//! - A port, and whole messages over remote write and shared memory, beside UCX; and to be woken,
//!   beside the bare call.
//!
//! ```text
//!  main ── counted, ping_pong, threshold, beside: what is measured, and how it is told
//!                     │          │                   │
//!                     │        plan ──> exchange ──> end ══════ end (another process)
//!                     │                              port        port
//!                     └──> packed (session) ══════ packed (another process)
//! ```
//!
//! ```text
//! cargo run --release -p madgate-benches --bin hsl -- --help
//! ```

#![forbid(unsafe_code)]

mod beside;
mod counted;
mod end;
mod exchange;
mod packed;
mod ping_pong;
mod plan;
mod plot;
mod threshold;
mod translation;
mod ucx;
mod waking;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use madgate_benches::Machine;
use madgate_benches::children::ChildCommand;
use madgate_benches::process::die_with_parent;

use plan::{Device, Plan, Wanted};

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
    /// Draw the ping-pong too: SVG files in this folder.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    wanted: Wanted,
    /// What is measured: all, if left out; over libfabric, the ping-pong.
    #[arg(long, value_enum, value_delimiter = ',', num_args = 1..)]
    tables: Option<Vec<Table>>,
    #[command(subcommand)]
    child: Option<Child>,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Table {
    /// System calls, interrupts and copies.
    Costs,
    /// Half round trip and bandwidth for each size.
    PingPong,
    /// Where rendezvous begins.
    Threshold,
    /// UCX, and bare wake-ups.
    Beside,
}

impl Table {
    const ALL: [Self; 4] = [Self::Costs, Self::PingPong, Self::Threshold, Self::Beside];
}

/// What this program does in the processes that it starts.
#[derive(Debug, Subcommand)]
#[command(hide = true)]
enum Child {
    /// Both ends of an exchange, of which nothing is printed: for `strace`.
    #[command(hide = true)]
    Exchange(Plan),
    /// The end that answers.
    #[command(hide = true)]
    Peer(exchange::Peer),
    /// Both ends of whole messages, of which nothing is printed: for `strace`.
    #[command(hide = true)]
    Packed(packed::Packed),
    /// The end of those that answers.
    #[command(hide = true)]
    PackedPeer(packed::PackedPeer),
    /// The end that is woken by bare calls.
    #[command(hide = true)]
    Sleeper(waking::Sleeper),
    #[command(flatten)]
    Shared(ChildCommand),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.child {
        Some(Child::Exchange(plan)) => die_with_parent()
            .and_then(|()| exchange::both_ends(&plan))
            .map(drop),
        Some(Child::Peer(peer)) => peer.run(),
        Some(Child::Packed(packed)) => die_with_parent()
            .and_then(|()| packed.both_ends())
            .map(drop),
        Some(Child::PackedPeer(peer)) => peer.run(),
        Some(Child::Sleeper(sleeper)) => sleeper.run(),
        Some(Child::Shared(child)) => child.run(),
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
    let wanted = &arguments.wanted;
    if wanted.device == Device::Host && wanted.provider.is_some() {
        return Err(io::Error::other(
            "only cards of libfabric's have a provider: add `--device libfabric`",
        ));
    }
    let (quick, json) = (arguments.quick, arguments.json);
    Machine::announce(json)?;
    let tables = match (wanted.device, &arguments.tables) {
        (_, Some(tables)) => tables.as_slice(),
        (Device::Host, None) => &Table::ALL,
        (Device::Libfabric, None) => &[Table::PingPong],
    };
    if wanted.device == Device::Libfabric && tables.iter().any(|table| *table != Table::PingPong) {
        return Err(io::Error::other(
            "over libfabric there is the ping-pong alone: leave `--tables` out",
        ));
    }
    if arguments.plot.is_some() && !tables.contains(&Table::PingPong) {
        return Err(io::Error::other(
            "--plot draws the ping-pong, which is none of the tables to print (--tables)",
        ));
    }
    if let Some(folder) = &arguments.plot {
        // Before anything is measured: that takes a while.
        std::fs::create_dir_all(folder).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
        })?;
    }
    for table in tables {
        match table {
            Table::Costs => counted::print(quick, json)?,
            Table::PingPong => {
                ping_pong::print(&arguments.wanted, quick, json, arguments.plot.as_deref())?
            }
            Table::Threshold => threshold::print(quick, json)?,
            Table::Beside => beside::print(quick, json)?,
        }
    }
    Ok(())
}
