//! The sending end of a copy: keeps the window, matches replies to entries, and counts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use madgate_vchannel::cluster::format_duration;
use thiserror::Error;

use super::read::{AHEAD, Begins, Ended, EntryKind, LatestFailure, NOT_SENT, Outgoing, read};
use super::walk::{Source, Step, walk};
use super::wire::{Reply, Request, WINDOW_BYTES, charge, count, length};

/// How long the sender waits for a reply before it asks whether the copy is still known: so long at
/// most, and a tenth of `link_timeout` at most, as who asks learns that nobody was reached.
pub(crate) const ASK_AFTER: Duration = Duration::from_secs(2);

/// The same for the first reply. What is sent to a node that has just been restarted, while it
/// is not known yet that it was, is lost; here this process is the one that was.
pub(crate) const ASK_FIRST_AFTER: Duration = Duration::from_millis(250);

/// How long the other end may say nothing at all, beyond the time that links may be lost for. It
/// says something every few seconds, even while it writes.
pub(crate) const SILENCE_MARGIN: Duration = Duration::from_secs(10);

/// The way to the receiver.
pub(crate) trait Peer {
    /// Why it ended.
    type Error: std::error::Error + 'static;

    /// Sends one message.
    fn send(&mut self, request: &Request) -> Result<(), Self::Error>;

    /// The next reply, if one comes within `patience`; zero does not wait.
    fn receive(&mut self, patience: Duration) -> Result<Option<Reply>, Self::Error>;

    /// Whether what was sent before the last questions is still on its way, and has moved since this was
    /// asked the last time.
    fn moves(&mut self) -> Result<bool, Self::Error>;

    /// How long a link on the way may be lost before the way counts as gone.
    fn link_timeout(&self) -> Duration;
}

/// What a copy did.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Files that are complete at the other end.
    pub(crate) files: u64,
    /// Folders that are.
    pub(crate) folders: u64,
    /// Bytes in those files.
    pub(crate) bytes: u64,
    /// What is not, and why.
    pub(crate) failures: Vec<(PathBuf, String)>,
    /// How many more are not.
    pub(crate) more_failures: u64,
}

/// Failures that a report names; the rest is counted.
const MAX_NAMED_FAILURES: usize = 10_000;

impl Report {
    /// How many things were not copied.
    pub(crate) fn failed(&self) -> u64 {
        count(self.failures.len()) + self.more_failures
    }

    fn fail(&mut self, path: PathBuf, reason: String) {
        if self.failures.len() < MAX_NAMED_FAILURES {
            self.failures.push((path, reason));
        } else {
            self.more_failures += 1;
        }
    }
}

/// Why a copy ended before everything had been tried.
#[derive(Debug, Error)]
pub(crate) enum SendError<E: std::error::Error + 'static> {
    /// The way to the receiver is gone.
    #[error(transparent)]
    Peer(E),
    /// The receiver does not want it.
    #[error("refused: {0}")]
    Refused(String),
    /// The receiver is not known to be gone, and says nothing.
    #[error(
        "nothing was heard for {}: the process there is stopped, or serves nobody (`madgate serve`); or a network on the way is cut, or lets no answers through, and the log of a gateway says where",
        format_duration(*.0)
    )]
    Silent(Duration),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// Copies everything; `progress` is told the bytes of each chunk that is sent. The report has
/// everything that was to be copied, whatever the result.
pub(crate) fn send<P: Peer>(
    peer: &mut P,
    sources: &[Source],
    path: Bytes,
    report: &mut Report,
    progress: impl FnMut(u64),
) -> Result<(), SendError<P::Error>> {
    let (failure, ended) = (LatestFailure::default(), Ended::default());
    let mut sender = Sender {
        peer,
        report,
        progress,
        failure: &failure,
        ended: &ended,
        sent: 0,
        taken: 0,
        outstanding: BTreeMap::new(),
        opened: false,
        closed: false,
    };
    let result = sender.copy(sources, path);
    sender.fail_outstanding();
    result
}

struct Sender<'a, P, F> {
    peer: &'a mut P,
    report: &'a mut Report,
    progress: F,
    failure: &'a LatestFailure,
    ended: &'a Ended,
    /// Charge of all messages sent so far.
    sent: u64,
    /// Charge that the receiver has taken.
    taken: u64,
    outstanding: BTreeMap<u64, Outstanding>,
    opened: bool,
    closed: bool,
}

/// An entry that has begun and is neither done nor failed.
struct Outstanding {
    path: PathBuf,
    kind: EntryKind,
    bytes: u64,
    sent: bool,
}

impl<P: Peer, F: FnMut(u64)> Sender<'_, P, F> {
    fn copy(&mut self, sources: &[Source], path: Bytes) -> Result<(), SendError<P::Error>> {
        self.open(sources, path)
            .inspect_err(|_| self.fail_all(sources))?;
        let (out, outgoing) = bounded(AHEAD);
        let (failure, ended) = (self.failure, self.ended);
        thread::scope(|scope| {
            thread::Builder::new()
                .name("madgate-read".into())
                .spawn_scoped(scope, move || read(sources, &out, failure, ended))
                .map_err(SendError::Thread)
                .inspect_err(|_| self.fail_all(sources))?;
            self.pass_on(&outgoing).inspect_err(|_| {
                self.ended.set();
                self.fail_outstanding();
                outgoing
                    .iter()
                    .for_each(|outgoing| self.fail_outgoing(outgoing));
            })
        })?;
        self.request(&Request::End)?;
        self.wait_until(|sender| sender.closed)
    }

    /// Begins a copy at the other end.
    fn open(&mut self, sources: &[Source], path: Bytes) -> Result<(), SendError<P::Error>> {
        self.request(&Request::Begin {
            many: sources.len() > 1,
            path,
        })?;
        self.wait_until(|sender| sender.opened)
    }

    /// Reports what has begun, and will not be confirmed any more.
    fn fail_outstanding(&mut self) {
        for entry in std::mem::take(&mut self.outstanding).into_values() {
            let reason = if entry.sent {
                "was sent, but is not confirmed"
            } else {
                "was not sent completely"
            };
            self.report.fail(entry.path, reason.into());
        }
    }

    /// Reports what was read, or is only named, and is not sent any more.
    fn fail_outgoing(&mut self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Request {
                begins: Some(begins),
                ..
            } => self.report.fail(begins.path, NOT_SENT.into()),
            Outgoing::Problem {
                entry: None,
                path,
                reason,
            } => self.report.fail(path, reason),
            // Of something that has begun, which is reported.
            Outgoing::Request { begins: None, .. } | Outgoing::Problem { .. } => {}
        }
    }

    /// Reports everything, of which nothing has begun.
    fn fail_all(&mut self, sources: &[Source]) {
        walk(sources, |step| {
            match step {
                Step::Folder { path, .. } | Step::File { path, .. } => {
                    self.report.fail(path, NOT_SENT.into());
                }
                Step::Problem { path, reason } => self.report.fail(path, reason),
                Step::Leave => {}
            }
            true
        });
    }

    /// Passes on what is read, until that is all.
    fn pass_on(&mut self, outgoing: &Receiver<Outgoing>) -> Result<(), SendError<P::Error>> {
        let mut said = Instant::now();
        loop {
            match outgoing.recv_timeout(self.ask_after()) {
                Ok(outgoing) => {
                    if self.outgoing(outgoing)? {
                        said = Instant::now();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            // What is copied is slow to read, or much of it cannot be read; the receiver hears that this
            // is still here, and may say that it is not.
            if said.elapsed() >= self.ask_after() {
                self.take_replies()?;
                self.peer.send(&Request::Ask).map_err(SendError::Peer)?;
                said = Instant::now();
            }
        }
    }

    /// Returns whether something was sent.
    fn outgoing(&mut self, outgoing: Outgoing) -> Result<bool, SendError<P::Error>> {
        let (request, begins) = match outgoing {
            Outgoing::Request { request, begins } => (request, begins),
            Outgoing::Problem {
                entry,
                path,
                reason,
            } => {
                let is_reported =
                    entry.is_some_and(|entry| self.outstanding.remove(&entry).is_none());
                if !is_reported {
                    self.report.fail(path, reason);
                }
                return Ok(false);
            }
        };
        if let Some(Begins { entry, path, kind }) = begins {
            self.outstanding.insert(
                entry,
                Outstanding {
                    path,
                    kind,
                    bytes: 0,
                    sent: false,
                },
            );
        }
        let mut chunk = 0;
        match &request {
            Request::Chunk { entry, bytes } => {
                chunk = length(bytes);
                if let Some(outstanding) = self.outstanding.get_mut(entry) {
                    outstanding.bytes += chunk;
                }
            }
            Request::Finish { entry, .. } | Request::Leave { entry } => {
                if let Some(outstanding) = self.outstanding.get_mut(entry) {
                    outstanding.sent = true;
                }
            }
            _ => {}
        }
        self.request(&request)?;
        (self.progress)(chunk);
        Ok(true)
    }

    /// Sends a message as soon as the window has room for it.
    fn request(&mut self, request: &Request) -> Result<(), SendError<P::Error>> {
        let cost = charge(request.body_bytes());
        self.take_replies()?;
        self.wait_until(|sender| sender.sent + cost <= sender.taken.saturating_add(WINDOW_BYTES))?;
        self.peer.send(request).map_err(SendError::Peer)?;
        self.sent += cost;
        Ok(())
    }

    /// How long it waits before it asks whether the copy is still known.
    fn ask_after(&self) -> Duration {
        let most = ASK_AFTER.min(self.peer.link_timeout() / 10);
        most.max(ASK_FIRST_AFTER)
    }

    fn take_replies(&mut self) -> Result<(), SendError<P::Error>> {
        while let Some(reply) = self.peer.receive(Duration::ZERO).map_err(SendError::Peer)? {
            self.reply(reply)?;
        }
        Ok(())
    }

    fn wait_until(
        &mut self,
        mut ready: impl FnMut(&Self) -> bool,
    ) -> Result<(), SendError<P::Error>> {
        let link_timeout = self.peer.link_timeout();
        let limit = link_timeout + SILENCE_MARGIN;
        let ask_after = self.ask_after();
        // The waits that were asked for: while this process itself was stopped, it heard nothing
        // either.
        let mut silence = Duration::ZERO;
        while !ready(self) {
            let patience = if self.opened {
                ask_after
            } else {
                ASK_FIRST_AFTER
            };
            match self.peer.receive(patience).map_err(SendError::Peer)? {
                Some(reply) => {
                    silence = Duration::ZERO;
                    self.reply(reply)?;
                }
                None if self.peer.moves().map_err(SendError::Peer)? => silence = Duration::ZERO,
                None => {
                    silence += patience;
                    if silence >= limit {
                        return Err(SendError::Silent(limit));
                    }
                    self.peer.send(&Request::Ask).map_err(SendError::Peer)?;
                }
            }
        }
        Ok(())
    }

    fn reply(&mut self, reply: Reply) -> Result<(), SendError<P::Error>> {
        match reply {
            // Who knows the copy has opened it.
            Reply::Opened | Reply::Alive => self.opened = true,
            Reply::Refused { reason } => return Err(SendError::Refused(reason)),
            Reply::Taken { charge } => self.taken = self.taken.max(charge.min(self.sent)),
            Reply::Done { entry } => {
                if let Some(done) = self.outstanding.remove(&entry) {
                    match done.kind {
                        EntryKind::File => self.report.files += 1,
                        EntryKind::Folder => self.report.folders += 1,
                    }
                    self.report.bytes += done.bytes;
                }
            }
            Reply::Failed { entry, reason } => {
                self.failure.set(entry);
                if let Some(failed) = self.outstanding.remove(&entry) {
                    let reason = format!("at the destination: {reason}");
                    self.report.fail(failed.path, reason);
                }
            }
            Reply::Closed => self.closed = true,
        }
        Ok(())
    }
}
