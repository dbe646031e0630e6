//! `madgate cp`: copies files and folders to another node.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use madgate_vchannel::{Channel, NodeId, PackError, UnpackError};
use thiserror::Error;

use crate::failure::{Context, Failure};
use crate::files::send::{Peer, Report, send};
use crate::files::walk::Source;
use crate::files::wire::{Reply, Request, WireError};
use crate::node::{channel_to, find, join, read_cluster};
use crate::service::talk::{self, Incoming, TalkError};
use crate::units::{duration, rate, size};

/// How long the last acknowledgements may take on their way once everything is confirmed.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Failures that are printed; the rest is counted.
const PRINTED_FAILURES: usize = 100;

/// Copies files and folders to another node.
///
/// Keeps names, permission bits, and empty files and folders. A file is reported as copied
/// when it is written, synced and digest-checked at the other end; until then it has another
/// name there. Links are not copied, and named as failed.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The cluster file.
    cluster: PathBuf,
    /// The node that this process is.
    #[arg(long, value_name = "NAME")]
    node: String,
    /// The channel; without it, the first that both nodes are in.
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// What to copy.
    #[arg(required = true, value_name = "SRC")]
    sources: Vec<PathBuf>,
    /// Where to: a node, and a path relative to the folder that it serves. A folder that is
    /// there is copied into; what is missing on the way is made. A path that ends in "/" is a
    /// folder.
    #[arg(value_name = "DEST:PATH")]
    destination: String,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (node, path) = arguments.destination.split_once(':').ok_or_else(|| {
        Failure::new(format!(
            "{:?} names no node; expected DEST:PATH, such as \"b0:incoming/\"",
            arguments.destination
        ))
    })?;
    let sources = Source::all(&arguments.sources).or_fail(|| "cannot copy".into())?;
    let (cluster, own) = read_cluster(&arguments.cluster, &arguments.node)?;
    let to = find(&cluster, node)?;
    if to == own {
        return Err(Failure::new(format!(
            "{node} is this node itself; use cp(1)"
        )));
    }
    let session = join(&cluster, &arguments.node)?;
    let channel = channel_to(&session, to, arguments.channel.as_deref())?;

    let mut destination = Destination {
        channel: &channel,
        to,
        tag: RandomState::new().build_hasher().finish(),
    };
    let bar = bar(&sources);
    let mut report = Report::default();
    let started = Instant::now();
    let path = Bytes::copy_from_slice(path.as_bytes());
    let result = send(&mut destination, &sources, path, &mut report, |bytes| {
        bar.inc(bytes)
    });
    let took = started.elapsed();
    bar.finish_and_clear();
    print(&report, node, took);
    result.or_fail(|| format!("cannot copy to {node}"))?;
    drop(channel);
    if let Err(error) = session.close(CLOSE_LIMIT) {
        // Everything is confirmed; only acknowledgements of replies can be missing.
        tracing::debug!(%error, "the session is left early");
    }
    Ok(ExitCode::from(u8::from(report.failed() > 0)))
}

/// A progress bar; an invisible one where no terminal shows it.
fn bar(sources: &[Source]) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if !bar.is_hidden() {
        bar.set_length(Source::total_bytes(sources));
        let template = "{bar:30} {percent:>3} %  {decimal_bytes} of {decimal_total_bytes}  {decimal_bytes_per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
    }
    bar
}

fn print(report: &Report, node: &str, took: Duration) {
    for (path, reason) in report.failures.iter().take(PRINTED_FAILURES) {
        eprintln!("madgate: {}: {reason}", path.display());
    }
    let printed = report.failures.len().min(PRINTED_FAILURES);
    let more = report.failed() - crate::files::wire::count(printed);
    if more > 0 {
        eprintln!("madgate: and {more} more were not copied");
    }
    let plural =
        |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    println!(
        "copied {} and {} to {node}: {} in {} ({}){}",
        plural(report.files, "file"),
        plural(report.folders, "folder"),
        size(report.bytes),
        duration(took),
        rate(report.bytes, took),
        match report.failed() {
            0 => String::new(),
            failed => format!("; {failed} not copied"),
        }
    );
}

/// The receiver at the other end of a channel.
struct Destination<'a> {
    channel: &'a Channel,
    to: NodeId,
    tag: u64,
}

/// Why the way to the receiver ended.
#[derive(Debug, Error)]
enum PeerError {
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Talk(#[from] TalkError),
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl From<UnpackError> for PeerError {
    fn from(error: UnpackError) -> Self {
        Self::Talk(error.into())
    }
}

impl Peer for Destination<'_> {
    type Error = PeerError;

    fn send(&mut self, request: &Request) -> Result<(), PeerError> {
        Ok(talk::send(self.channel, self.to, request.encode(self.tag))?)
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Reply>, PeerError> {
        let deadline = Instant::now() + patience;
        loop {
            let unpacking = if patience.is_zero() {
                self.channel.try_begin_unpacking()?
            } else {
                let left = deadline.saturating_duration_since(Instant::now());
                self.channel.begin_unpacking_within(left)?
            };
            let Some(mut unpacking) = unpacking else {
                return Ok(None);
            };
            // Others may talk to this node too; they are not listened to.
            if unpacking.source() != self.to {
                continue;
            }
            if let Incoming::Service(head) = talk::read(&mut unpacking)?
                && head.tag == self.tag
            {
                let body = talk::body(unpacking, &head)?;
                return Ok(Some(Reply::decode(&head, &body)?));
            }
        }
    }
}
