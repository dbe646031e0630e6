//! The thread of one copy: messages of one sender to files.
//!
//! It never waits for the sender to take its replies while the sender waits for it: replies
//! that cannot leave now are kept, and bounded by the sender's window.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Queue, RecvTimeoutError, TryRecvError};
use madgate_vchannel::cluster::format_duration;
use madgate_vchannel::{Channel, NodeId, TrySendError};

use super::copies::{Place, Unread};
use super::talk;
use crate::files::receive::Reception;
use crate::files::root::Root;
use crate::files::wire::{MAX_REPLIES, Reply, Request, count, length};

/// How long a sender may say nothing before its copy is given up, beyond the time that links
/// may be lost for. A sender that has nothing to send asks every few seconds, so this one is
/// stopped; one that is gone, or whose way is lost, is noticed by its link. What it sends may wait
/// at a gateway for as long, behind others' fragments, where a rate is low.
const IDLE_MARGIN: Duration = Duration::from_secs(120);

/// How soon replies are tried again that could not leave.
const RETRY: Duration = Duration::from_millis(5);

/// How long a copy waits for its sender before it looks whether others have learnt that it is to
/// end.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The receiving end of one copy.
#[derive(Debug)]
pub(crate) struct Receiver<'a> {
    channel: &'a Channel,
    source: NodeId,
    tag: u64,
    messages: Queue<Unread<'a>>,
    replies: VecDeque<Reply>,
    /// Why the first entry failed that did.
    first_failure: Option<String>,
    tally: Tally,
    place: Place,
}

/// What the log says of a copy.
#[derive(Debug, Default)]
struct Tally {
    /// Where it goes, as its sender wrote it.
    path: String,
    /// Files and folders that are there.
    done: u64,
    /// Bytes that came, of files that failed too.
    bytes: u64,
}

/// Why a copy ends before its end.
enum Early {
    /// The sender's process is gone, or this one ends: nobody listens.
    Broken(String),
    /// The sender is told why.
    Refused(String),
}

impl<'a> Receiver<'a> {
    pub(crate) fn new(
        channel: &'a Channel,
        source: NodeId,
        tag: u64,
        messages: Queue<Unread<'a>>,
        place: Place,
    ) -> Self {
        Self {
            channel,
            source,
            tag,
            messages,
            replies: VecDeque::new(),
            first_failure: None,
            tally: Tally::default(),
            place,
        }
    }

    /// Receives until the copy has ended.
    pub(crate) fn run(mut self, root: Arc<Root>) {
        self.place.wait_for_turn();
        let source = self.channel.session().cluster().node_name(self.source);
        let ended = self.receive(root);
        let Tally { path, done, bytes } = std::mem::take(&mut self.tally);
        let _copy = tracing::error_span!("copy", source, path, entries = done, bytes).entered();
        match ended {
            Ok(0) => tracing::info!("it is complete"),
            Ok(failed) => {
                let first = self.first_failure.as_deref();
                tracing::warn!(failed, first, "it has ended, and entries of it failed");
            }
            Err(Early::Broken(reason)) => tracing::warn!(reason, "it has broken off"),
            Err(Early::Refused(reason)) => {
                tracing::warn!(reason, "it is refused");
                self.place.ends_because(&reason);
                self.replies.push_back(Reply::Refused { reason });
                // Who does not hear it asks, and is told.
                let _ = self.flush();
            }
        }
    }

    /// Returns how many entries failed here.
    fn receive(&mut self, root: Arc<Root>) -> Result<usize, Early> {
        let mut reception = match self.next(|_| ())? {
            Request::Begin { many, path } => {
                self.tally.path = String::from_utf8_lossy(&path).into_owned();
                Reception::begin(root, many, &path)
                    .map_err(|error| Early::Refused(error.to_string()))?
            }
            _ => return Err(Early::Refused("it does not begin".into())),
        };
        self.replies.push_back(Reply::Opened);
        let mut replies = Vec::new();
        let mut failed = 0;
        while !reception.has_ended() {
            let mut settled = Vec::new();
            let request = self.next(|receiver| {
                reception.settle(&mut settled);
                failed += receiver.note(&settled);
                receiver.replies.extend(settled.drain(..));
            })?;
            if let Request::Chunk { bytes, .. } = &request {
                self.tally.bytes += length(bytes);
            }
            reception
                .handle(request, &mut replies)
                .map_err(|error| Early::Refused(error.to_string()))?;
            failed += self.note(&replies);
            self.replies.extend(replies.drain(..));
            if self.replies.len() > MAX_REPLIES {
                return Err(Early::Broken("the sender does not take its replies".into()));
            }
        }
        self.place.is_complete();
        // The sender has nothing more to say, and listens.
        for reply in std::mem::take(&mut self.replies) {
            if let Err(lost) = talk::send(self.channel, self.source, reply.encode(self.tag)) {
                self.place.answers_lost(&lost);
                return Err(self.ending());
            }
        }
        Ok(failed)
    }

    /// How many entries failed, by these replies; why the first one did is kept, and how many are
    /// there.
    fn note(&mut self, replies: &[Reply]) -> usize {
        let is_done = |reply: &&Reply| matches!(reply, Reply::Done { .. });
        self.tally.done += count(replies.iter().filter(is_done).count());
        let reason = |reply: &'_ Reply| match reply {
            Reply::Failed { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        let mut reasons = replies.iter().filter_map(reason).peekable();
        if self.first_failure.is_none() {
            self.first_failure = reasons.peek().cloned();
        }
        reasons.count()
    }

    /// The next message; calls `idle` before it waits for one.
    fn next(&mut self, idle: impl FnOnce(&mut Self)) -> Result<Request, Early> {
        self.flush()?;
        self.check_goes_on()?;
        let (head, unpacking) = match self.messages.try_recv() {
            Ok(unread) => unread,
            Err(TryRecvError::Disconnected) => return Err(self.ending()),
            Err(TryRecvError::Empty) => {
                idle(self);
                self.place.set_busy(false);
                self.wait()?
            }
        };
        // Until all of it is here, this waits for the sender.
        self.place.set_busy(false);
        let body =
            talk::body(unpacking, &head).map_err(|error| Early::Broken(error.to_string()))?;
        self.place.set_busy(true);
        let request =
            Request::decode(&head, body).map_err(|error| Early::Refused(error.to_string()))?;
        if !matches!(request, Request::Begin { .. } | Request::Ask) {
            self.place.sender_goes_on();
        }
        Ok(request)
    }

    /// Whether the copy is to end.
    fn check_goes_on(&self) -> Result<(), Early> {
        match self.place.is_to_end() {
            Some(reason) => Err(Early::Refused(reason.to_owned())),
            None => Ok(()),
        }
    }

    /// Why nothing more is passed on to it.
    fn ending(&self) -> Early {
        match self.place.is_to_end() {
            Some(reason) => Early::Refused(reason.to_owned()),
            None => Early::Broken("this node ends".into()),
        }
    }

    fn wait(&mut self) -> Result<Unread<'a>, Early> {
        let link_timeout = self.channel.session().cluster().link_timeout();
        let limit = link_timeout + IDLE_MARGIN;
        let deadline = Instant::now() + limit;
        loop {
            self.flush()?;
            self.check_goes_on()?;
            let left = deadline.saturating_duration_since(Instant::now());
            let look_after = if self.replies.is_empty() {
                LOOK_AFTER
            } else {
                RETRY
            };
            let patience = left.min(look_after);
            match self.messages.recv_timeout(patience) {
                Ok(unread) => return Ok(unread),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ending()),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    let limit = format_duration(limit);
                    return Err(Early::Refused(format!("nothing was heard for {limit}")));
                }
            }
        }
    }

    /// Sends replies, as many as can leave now.
    fn flush(&mut self) -> Result<(), Early> {
        while let Some(reply) = self.replies.front() {
            let answered = talk::answer(self.channel, self.source, reply.encode(self.tag));
            if let Some(lost) = answered.lost {
                self.place.answers_lost(&lost);
                self.check_goes_on()?;
            }
            match answered.sent {
                Ok(_) => drop(self.replies.pop_front()),
                Err(TrySendError::NotNow) => break,
                Err(error) => return Err(Early::Broken(error.to_string())),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crossbeam_channel::unbounded;
    use madgate_vchannel::handshake::SessionKey;
    use madgate_vchannel::{Cluster, PackError, Session};

    use super::super::copies::Shared;
    use super::*;

    /// b0; a0 is not there, which is noticed soon.
    fn receiving_end(folder: &Path) -> Session {
        let key = folder.join("session.key");
        SessionKey::generate().write_new(&key).unwrap();
        let text = "[session]\nname = \"test\"\nkey_file = \"session.key\"\n\
            link_timeout = \"100ms\"\n\
            [[network]]\nname = \"left\"\nprotocol = \"shm\"\ndirectory = \"left\"\n\
            [[node]]\nname = \"a0\"\naddresses = { left = \"a0\" }\n\
            [[node]]\nname = \"b0\"\naddresses = { left = \"b0\" }\n\
            [[channel]]\nname = \"main\"\nnetworks = [\"left\"]\n";
        let cluster = Cluster::parse(text, folder).unwrap();
        Session::open(Arc::new(cluster), "b0").unwrap()
    }

    #[test]
    fn a_copy_that_is_to_end_takes_no_more_messages() {
        let folder = tempfile::tempdir().unwrap();
        let session = receiving_end(folder.path());
        let source = session.cluster().node("a0").unwrap();
        let channel = session.channel("main").unwrap();
        let place = Place::take(&Shared::new(None)).unwrap();
        place.ends_because("too many");
        // What waits for it is dropped, and what has not come is not waited for.
        let (_queue, messages) = unbounded();
        let mut receiver = Receiver::new(&channel, source, 1, messages, place);
        let next = receiver.next(|_| ());
        assert!(matches!(next, Err(Early::Refused(reason)) if reason == "too many"));
    }

    #[test]
    fn a_copy_ends_when_answers_were_lost_that_its_sender_waits_for() {
        let folder = tempfile::tempdir().unwrap();
        let session = receiving_end(folder.path());
        let source = session.cluster().node("a0").unwrap();
        let channel = session.channel("main").unwrap();
        let place = Place::take(&Shared::new(None)).unwrap();
        let (_queue, messages) = unbounded();
        let mut receiver = Receiver::new(&channel, source, 1, messages, place);
        // Before its sender has heard anything, what was lost may have been for another.
        let node = "a0".to_owned();
        receiver.place.answers_lost(&PackError::Failed { node });
        assert_eq!(receiver.place.is_to_end(), None);
        receiver.place.sender_goes_on();
        let reason = loop {
            if receiver.replies.is_empty() {
                receiver.replies.push_back(Reply::Alive);
            }
            match receiver.flush() {
                Ok(()) => std::thread::yield_now(),
                Err(Early::Refused(reason)) => break reason,
                Err(Early::Broken(reason)) => panic!("{reason}"),
            }
        };
        let expected = "answers were lost: a0 was not reached for 100ms; copy again";
        assert_eq!(reason, expected);
    }
}
