//! Two processes with a port between them: this one asks, and another, which is this program too,
//! answers.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use clap::Args;
use madgate_benches::children::say;
use madgate_benches::cores::Kept;
use madgate_benches::process::{PATIENCE, Process, die_with_parent};
use madgate_benches::samples::Samples;
use madgate_tm::hsl::port::PortDevice;

use crate::end::{Counted, End};
use crate::plan::{Device, Plan};

/// What the end that answers says when it has found the one that asks.
pub(crate) const CONNECTED: &str = "connected";

/// What came out at the end that asks.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// For each size half of each round trip, in microseconds; or of a stream, the time for each
    /// message.
    pub(crate) each_us: Vec<Samples>,
    /// What both ends counted.
    pub(crate) counted: Counted,
}

/// The process that answers.
#[derive(Debug, Args)]
pub(crate) struct Peer {
    /// Where the other end listens.
    #[arg(long)]
    socket: PathBuf,
    #[command(flatten)]
    plan: Plan,
}

impl Peer {
    pub(crate) fn run(&self) -> io::Result<()> {
        die_with_parent()?;
        let _kept = keep(&self.plan, 1)?;
        let socket = UnixStream::connect(&self.socket)?;
        say(CONNECTED)?;
        let counted = match self.plan.wanted.device {
            Device::Host => self.answer(End::of_host(socket, true, &self.plan)?),
            Device::Libfabric => self.answer(End::of_fabric(socket, true, &self.plan)?),
        };
        println!("{}", serde_json::to_string(&counted?)?);
        Ok(())
    }

    fn answer<D: PortDevice>(&self, mut end: End<D>) -> io::Result<Counted> {
        for bytes in self.plan.sizes.iter().copied() {
            end.answer(bytes, self.plan.rounds_of(bytes))?;
        }
        Ok(end.counted())
    }
}

/// Keeps this thread on a processor of its own, where there are two.
fn keep(plan: &Plan, end: usize) -> io::Result<Option<Kept>> {
    plan.cores().map(|cores| Kept::on(cores[end])).transpose()
}

/// Starts the other end, and exchanges messages with it.
pub(crate) fn both_ends(plan: &Plan) -> io::Result<Outcome> {
    let folder = madgate_benches::scratch::folder()?;
    let socket = folder.path().join("port");
    let listener = UnixListener::bind(&socket)?;
    let at = format!("--socket={}", socket.display());
    let arguments = [vec!["peer".to_owned(), at], plan.arguments()].concat();
    let peer = Process::again("peer", arguments)?;
    let _kept = keep(plan, 0)?;
    // One that never comes is not waited for without end.
    peer.word(CONNECTED)?;
    let socket = listener.accept()?.0;
    match plan.wanted.device {
        Device::Host => ask(plan, End::of_host(socket, false, plan)?, &peer),
        Device::Libfabric => ask(plan, End::of_fabric(socket, false, plan)?, &peer),
    }
}

fn ask<D: PortDevice>(plan: &Plan, mut end: End<D>, peer: &Process) -> io::Result<Outcome> {
    let mut each_us = Vec::new();
    for bytes in plan.sizes.iter().copied() {
        each_us.push(end.ask(bytes, plan.rounds_of(bytes))?);
    }
    let theirs: Counted = serde_json::from_str(&peer.line(PATIENCE)?)?;
    let counted = end.counted().plus(theirs);
    Ok(Outcome { each_us, counted })
}
