//! `madgate cp`: copies files and folders to another node.

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use indicatif::{ProgressBar, ProgressStyle};
use madgate_vchannel::{Channel, Delivery, NodeId, PackError, UnpackError};
use thiserror::Error;

use crate::failure::{Context, Failure};
use crate::files::send::{Peer, Report, send};
use crate::files::walk::Source;
use crate::files::wire::{MAX_PATH_BYTES, Reply, Request, WireError};
use crate::limits;
use crate::motion::Motion;
use crate::node::{channel_to, join, leave, read_cluster};
use crate::output::{print, say, shown};
use crate::service::talk::{self, Incoming, TalkError};
use crate::units::{counted, duration, grouped, rate, size};

/// Failures that are printed; the rest is counted.
pub(crate) const PRINTED_FAILURES: usize = 100;

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
    #[arg(value_name = "DEST:PATH", value_parser = OsStringValueParser::new().try_map(target))]
    destination: Target,
}

/// Where to copy to.
#[derive(Debug, Clone)]
struct Target {
    node: String,
    /// Relative to the folder that the node serves.
    path: Bytes,
}

fn target(text: OsString) -> Result<Target, String> {
    let text = Bytes::from(text.into_vec());
    let colon = text.iter().position(|byte| *byte == b':');
    let colon = colon.ok_or("it has no colon; expected DEST:PATH, such as \"b0:incoming/\", or \"b0:\" (files are sent, never fetched: run this where they are)")?;
    let path = text.slice(colon + 1..);
    if path.len() > MAX_PATH_BYTES {
        return Err(format!(
            "its path is too long: it has more than {MAX_PATH_BYTES} bytes"
        ));
    }
    Ok(Target {
        node: String::from_utf8_lossy(&text[..colon]).into_owned(),
        path,
    })
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Target { node, path } = &arguments.destination;
    let sources = Source::all(&arguments.sources).or_fail(|| "cannot copy".into())?;
    limits::raise_descriptors();
    let (cluster, own) = read_cluster(&arguments.cluster, &arguments.node)?;
    let to = cluster.find_node(node)?;
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
        last: None,
        motion: Motion::from(channel.progress(to)),
    };
    // Not before something is sent, so that it does not stand beside what is logged before.
    let mut shown = None;
    let mut report = Report::default();
    let started = Instant::now();
    let result = send(
        &mut destination,
        &sources,
        path.clone(),
        &mut report,
        |bytes| {
            shown.get_or_insert_with(|| bar(&sources)).inc(bytes);
        },
    );
    let took = started.elapsed();
    drop(destination);
    if let Some(bar) = shown {
        bar.finish_and_clear();
    }
    tell(&report, node, took, result.is_ok())?;
    result.or_fail(|| format!("cannot copy to {node}"))?;
    leave(session, channel);
    Ok(ExitCode::from(u8::from(report.failed() > 0)))
}

/// A progress bar; an invisible one where no terminal shows it.
fn bar(sources: &[Source]) -> ProgressBar {
    let bar = ProgressBar::no_length();
    if !bar.is_hidden() {
        // A large tree takes long to count: the copy does not wait for that.
        if let Ok(style) = ProgressStyle::with_template("{decimal_bytes}  {decimal_bytes_per_sec}")
        {
            bar.set_style(style);
        }
        let (counted, sources) = (bar.clone(), sources.to_vec());
        let count = move || show_total(&counted, Source::total_bytes(&sources));
        let thread = thread::Builder::new().name("madgate-count".to_owned());
        // Without one, how much there is stays unknown.
        let _ = thread.spawn(count);
    }
    bar
}

/// How much there is, once that is known.
fn show_total(bar: &ProgressBar, bytes: u64) {
    let template = "{bar:30} {percent:>3} %  {decimal_bytes} of {decimal_total_bytes}  {decimal_bytes_per_sec}  {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_length(bytes);
}

/// Says what was copied, on stdout when that is everything; else on stderr, with what was not.
fn tell(report: &Report, node: &str, took: Duration, is_whole: bool) -> Result<(), Failure> {
    for (path, reason) in report.failures.iter().take(PRINTED_FAILURES) {
        say(&format!("madgate: {}: {reason}", shown(path)));
    }
    let printed = report.failures.len().min(PRINTED_FAILURES);
    let more = report.failed() - crate::files::wire::count(printed);
    if more > 0 {
        say(&format!("madgate: and {} more", grouped(more)));
    }
    let copied = copied(report);
    let figures = format!(
        "{} in {} ({})",
        size(report.bytes),
        duration(took),
        rate(report.bytes, took)
    );
    if is_whole && report.failed() == 0 {
        return print(&format!("copied {copied} to {node}: {figures}\n"));
    }
    let failed = format!(
        "{} {} not{}",
        grouped(report.failed()),
        were(report.failed()),
        if is_whole { "" } else { "; it ended early" },
    );
    if report.files + report.folders == 0 {
        say(&format!("madgate: NOTHING was copied to {node}: {failed}"));
        return Ok(());
    }
    say(&format!(
        "madgate: NOT ALL was copied to {node}: {copied} {} ({figures}), {failed}",
        were(report.files + report.folders),
    ));
    Ok(())
}

/// What was copied, in words: `2 files and 1 folder`.
fn copied(report: &Report) -> String {
    let (files, folders) = (
        counted(report.files, "file"),
        counted(report.folders, "folder"),
    );
    match (report.files, report.folders) {
        (_, 0) => files,
        (0, _) => folders,
        _ => format!("{files} and {folders}"),
    }
}

fn were(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// The receiver at the other end of a channel.
struct Destination<'a> {
    channel: &'a Channel,
    to: NodeId,
    tag: u64,
    /// The last message that was no question.
    last: Option<Delivery>,
    motion: Motion,
}

/// Why the way to the receiver ended.
#[derive(Debug, Error)]
enum PeerError {
    #[error("{}", without_messages(.0))]
    Pack(PackError),
    #[error(transparent)]
    Talk(#[from] TalkError),
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// What happened, without the numbers of the messages: who copies files knows no messages, and
/// is told which files were not copied.
fn without_messages(error: &PackError) -> String {
    match error {
        PackError::Unreachable {
            node,
            within,
            reason,
            ..
        } => {
            let reason = reason.as_ref().map(|reason| format!(" ({reason})"));
            format!(
                "{node} was not reached for {within:?}{}",
                reason.unwrap_or_default()
            )
        }
        PackError::Restarted { node, .. } => format!("{node} was restarted"),
        PackError::Disagreement { node, .. } => format!(
            "a node on the way to {node} refuses: the nodes disagree about the cluster; give all of them the same cluster file"
        ),
        error => error.to_string(),
    }
}

impl From<PackError> for PeerError {
    fn from(error: PackError) -> Self {
        Self::Pack(error)
    }
}

impl From<UnpackError> for PeerError {
    fn from(error: UnpackError) -> Self {
        Self::Talk(error.into())
    }
}

impl Peer for Destination<'_> {
    type Error = PeerError;

    fn send(&mut self, request: &Request) -> Result<(), PeerError> {
        let message = request.encode(self.tag);
        if matches!(request, Request::Ask) {
            talk::send(self.channel, self.to, message)?;
        } else {
            self.last = Some(talk::send_tracked(self.channel, self.to, message)?);
        }
        Ok(())
    }

    fn moves(&mut self) -> Result<bool, PeerError> {
        // Questions that arrive say nothing of whoever is to answer them.
        let is_under_way = match &self.last {
            Some(last) => !last.is_delivered()?,
            None => false,
        };
        let has_moved = self.motion.has_moved(self.channel.progress(self.to));
        Ok(is_under_way && has_moved)
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

    fn link_timeout(&self) -> Duration {
        self.channel.session().cluster().link_timeout()
    }
}
