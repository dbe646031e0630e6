//! The `madgate` command: one file per subcommand, and what they share.
//!
//! - about the cluster file: [`keygen`], [`check`], [`routes`];
//! - services and their clients: [`gateway`], [`serve`], [`cp`], [`bench`](mod@bench), and all of them
//!   together: [`demo`];
//! - what a node answers: [`service`]; how files are copied: [`files`];
//! - finding values for the cluster file: [`tune`]; what can be set: [`knobs`]; what the nodes of a
//!   route do for it: [`tunable`].

#![forbid(unsafe_code)]

mod bench;
mod check;
mod child;
mod cp;
mod deadline;
mod demo;
mod failure;
mod files;
mod gateway;
mod keygen;
mod knobs;
mod limits;
mod load;
mod logging;
mod motion;
mod node;
mod output;
mod routes;
mod save;
mod serve;
mod service;
mod signals;
mod statistics;
mod stats;
mod tunable;
mod tune;
mod units;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

/// Forwards messages between the networks of clusters, and copies files through them.
#[derive(Debug, Parser)]
#[command(name = "madgate", version, arg_required_else_help = true)]
struct Command {
    /// What is logged to stderr, such as "info"; otherwise MADGATE_LOG says so.
    #[arg(long, global = true, value_name = "FILTER", value_parser = logging::read_filter)]
    log: Option<String>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Demo(demo::Arguments),
    Keygen(keygen::Arguments),
    Check(check::Arguments),
    Routes(routes::Arguments),
    Gateway(gateway::Arguments),
    Serve(serve::Arguments),
    Cp(cp::Arguments),
    Bench(bench::Arguments),
    Tune(tune::Arguments),
}

impl Action {
    /// What is logged unless somebody says otherwise.
    fn usual_log(&self) -> &'static str {
        match self {
            Self::Gateway(_) | Self::Serve(_) => "info",
            // Which links cannot be had, at once: these wait for them.
            Self::Cp(_) | Self::Bench(_) | Self::Tune(_) => "warn,madgate_vchannel=info",
            _ => "warn",
        }
    }

    fn run(&self) -> Result<ExitCode, Failure> {
        match self {
            Self::Demo(arguments) => demo::run(arguments),
            Self::Keygen(arguments) => keygen::run(arguments).map(|()| ExitCode::SUCCESS),
            Self::Check(arguments) => check::run(arguments).map(|()| ExitCode::SUCCESS),
            Self::Routes(arguments) => routes::run(arguments).map(|()| ExitCode::SUCCESS),
            Self::Gateway(arguments) => gateway::run(arguments),
            Self::Serve(arguments) => serve::run(arguments),
            Self::Cp(arguments) => cp::run(arguments),
            Self::Bench(arguments) => bench::run(arguments),
            Self::Tune(arguments) => tune::run(arguments),
        }
    }
}

fn main() -> ExitCode {
    let command = Command::parse();
    let result = child::follow_parent()
        .and_then(|()| signals::outlive_file_limits())
        .and_then(|()| logging::start(command.log.as_deref(), command.action.usual_log()))
        .and_then(|()| command.action.run());
    let code = result.unwrap_or_else(|failure| {
        output::say(&format!("madgate: {failure}"));
        failure.exit_code()
    });
    logging::settle();
    code
}
