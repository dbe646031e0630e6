//! The copies that a node receives over one channel: one per sending node, each with a thread
//! of its own, which reads the bodies of its messages itself. So a sender that stops in the
//! middle of a message, or a slow disk, holds up its own copy and nobody else.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use madgate_vchannel::cluster::format_duration;
use madgate_vchannel::{Channel, NodeId, PackError, Unpacking};

use super::envelope::Head;
use super::receiver::Receiver as CopyReceiver;
use super::talk;
use crate::files::root::Root;
use crate::files::wire::{MAX_REPLIES, Reply, Request};

/// Most copies that a node receives at the same time, over all channels.
pub(crate) const MAX_COPIES: usize = 32;

/// Most messages that wait for the thread of a copy while it writes or syncs, as many as it may
/// owe replies: all that the window of a sender has room for, and as many that cost nothing of
/// it, of which one comes every few seconds. Small messages are taken off their flow before they
/// are unpacked, so that credit does not bound them.
const MAX_WAITING: usize = MAX_REPLIES;

/// Why a copy ends that has more.
const TOO_MANY: &str = "it sends more messages than may wait to be dealt with";

/// Why a copy ends when its node begins another.
const ANOTHER: &str = "another copy has begun";

/// Why somebody who asks about a copy is told nothing more of it.
const ENDED: &str = "the copy has ended there, and its last answers were lost";

/// Why copies end with the server.
const LEAVING: &str = "the server there is being ended; copy again when it is back";

/// What the copies of all channels share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The folder that is served; without one, every copy is refused.
    root: Option<Arc<Root>>,
    running: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(root: Option<Arc<Root>>) -> Arc<Self> {
        let running = AtomicUsize::new(0);
        Arc::new(Self { root, running })
    }

    /// How many copies run.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Removes what copies have written that do not end, if that is done within `limit`: a disk
    /// may answer nobody.
    pub(crate) fn remove_unfinished(&self, limit: Duration) {
        let Some(root) = self.root.clone() else {
            return;
        };
        let (done, ended) = bounded::<()>(0);
        let remove = move || {
            root.unfinished.remove_all();
            drop(done);
        };
        let started = thread::Builder::new()
            .name("madgate-remove".into())
            .spawn(remove);
        // Nothing is ever sent.
        if started.is_err() || ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("unfinished files stay behind until this starts again");
        }
    }
}

/// How often the sender of a copy that is busy hears that it is: well within the silence that a
/// sender bears.
const ALIVE_EVERY: Duration = Duration::from_secs(2);

/// How a copy ended, for a sender that has not heard it and asks; and whether it is busy until
/// then.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    ended: AtomicBool,
    reason: OnceLock<String>,
    /// The sender has heard an answer, and goes on.
    goes_on: AtomicBool,
    /// Its thread writes or syncs, and does not answer.
    busy: AtomicBool,
}

impl Ending {
    /// The first reason is the one.
    fn because(&self, reason: &str) {
        let _ = self.reason.set(reason.to_owned());
    }

    fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Answers to the sender's node were lost. If they were of this copy, it ends: its sender
    /// would wait for them for ever. Before it has heard one, it asks until it does, and what was
    /// lost may have been for the process before it.
    fn answers_lost(&self, why: &PackError) {
        if self.goes_on.load(Ordering::Relaxed) {
            self.because(&match why {
                PackError::Unreachable { node, within, .. } => format!(
                    "answers were lost: {node} was not reached for {}; copy again",
                    format_duration(*within)
                ),
                why => format!("answers were lost: {why}"),
            });
        }
    }
}

/// A place among the copies that run, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    ending: Arc<Ending>,
    /// Tells who waits for the end, when it is dropped.
    _runs: Sender<()>,
    end: Receiver<()>,
    /// The end of the copy that this one makes superfluous.
    before: Option<Receiver<()>>,
    /// Whether it counts among those that run.
    counts: bool,
}

impl Place {
    pub(super) fn take(shared: &Arc<Shared>) -> Option<Self> {
        let taken = shared.running.fetch_add(1, Ordering::Relaxed);
        // Counted back at once where there is no room, when this is dropped.
        let (runs, end) = bounded(0);
        let place = Self {
            shared: Arc::clone(shared),
            ending: Arc::default(),
            _runs: runs,
            end,
            before: None,
            counts: true,
        };
        (taken < MAX_COPIES).then_some(place)
    }

    /// Waits until the copy before this one has ended: it may be about to give a file its name, which
    /// is not to replace one of this copy's.
    pub(crate) fn wait_for_turn(&mut self) {
        if let Some(before) = self.before.take() {
            self.set_busy(true);
            // Nothing is ever sent.
            let _ = before.recv();
            self.set_busy(false);
        }
    }

    /// Says whether the thread of the copy does something that may take long, so that its sender
    /// has to be told by somebody else that it is alive.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.ending.busy.store(busy, Ordering::Relaxed);
    }

    /// All of the copy is written: before its sender is told, it is no longer one that could break
    /// off.
    pub(crate) fn is_complete(&mut self) {
        self.set_busy(false);
        if std::mem::take(&mut self.counts) {
            self.shared.running.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Says why the copy ends early.
    pub(crate) fn ends_because(&self, reason: &str) {
        self.ending.because(reason);
    }

    /// The sender has sent something that it only sends when it has heard an answer.
    pub(crate) fn sender_goes_on(&self) {
        self.ending.goes_on.store(true, Ordering::Relaxed);
    }

    /// Answers to the sender's node were lost, which may end the copy.
    pub(crate) fn answers_lost(&self, why: &PackError) {
        self.ending.answers_lost(why);
    }

    /// Why the copy is to end, if it is.
    pub(crate) fn is_to_end(&self) -> Option<&str> {
        self.ending.reason()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.ending.ended.store(true, Ordering::Release);
        self.is_complete();
    }
}

/// A message of a copy, of which only the head is read.
pub(crate) type Unread<'a> = (Head, Unpacking<'a>);

/// One copy, of messages `M`, as the thread that reads the channel has it. Dropped, the copy
/// ends.
#[derive(Debug)]
struct Copying<M> {
    tag: u64,
    /// It holds [`MAX_WAITING`] messages at most, which this sees to: a channel that is bounded
    /// has memory for all of them from the beginning.
    queue: Sender<M>,
    ending: Arc<Ending>,
    end: Receiver<()>,
}

impl<M> Copying<M> {
    fn has_ended(&self) -> bool {
        self.ending.ended.load(Ordering::Acquire)
    }

    /// Whether it goes on, and so takes messages.
    fn goes_on(&self) -> bool {
        !self.has_ended() && self.ending.reason().is_none()
    }

    /// Gives a message to its thread; it ends if there are too many. Whether it was given.
    fn pass_on(&self, message: M) -> bool {
        // Nobody else sends.
        if self.queue.len() >= MAX_WAITING {
            self.ending.because(TOO_MANY);
            return false;
        }
        // Fails when the thread has given up just now, of which it tells the sender.
        let _ = self.queue.send(message);
        true
    }
}

/// The copies of one channel. Their threads live in `scope`.
#[derive(Debug)]
pub(crate) struct Copies<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    channel: &'env Channel,
    shared: Arc<Shared>,
    copies: HashMap<NodeId, Copying<Unread<'env>>>,
    /// When senders were told last that their copies are alive.
    told: Instant,
}

impl Drop for Copies<'_, '_> {
    /// Their senders are told, where that is possible without waiting.
    fn drop(&mut self) {
        for copy in self.copies.values() {
            copy.ending.because(LEAVING);
        }
    }
}

impl<'scope, 'env> Copies<'scope, 'env> {
    pub(crate) fn new(
        scope: &'scope Scope<'scope, 'env>,
        channel: &'env Channel,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            scope,
            channel,
            shared,
            copies: HashMap::new(),
            told: Instant::now(),
        }
    }

    /// Tells the senders of copies that are busy, and so do not answer, that they are alive; to be
    /// called every now and then. A disk may take minutes for a sync.
    pub(crate) fn tell_alive(&mut self) {
        if self.shared.running() == 0 || self.told.elapsed() < ALIVE_EVERY {
            return;
        }
        self.told = Instant::now();
        for (source, copy) in &self.copies {
            if copy.ending.busy.load(Ordering::Relaxed) {
                self.answer(*source, copy.tag, &Reply::Alive);
            }
        }
    }

    /// Deals with a message of a sender.
    pub(crate) fn message(&mut self, head: Head, unpacking: Unpacking<'env>) {
        let source = unpacking.source();
        if Request::begins(head.kind) {
            return self.begin(source, head, unpacking);
        }
        let copy = self.copies.get(&source).filter(|copy| copy.tag == head.tag);
        let reason = match copy {
            Some(copy) => {
                if copy.goes_on() && copy.pass_on((head, unpacking)) {
                    return;
                }
                copy.ending.reason().or(Some(ENDED))
            }
            None => None,
        };
        // Chunks that were on their way are not worth an answer each.
        if Request::wants_answer(head.kind) {
            let reason =
                reason.unwrap_or("the copy is not known here any more: the node was restarted, or another copy begun");
            self.refuse(source, head.tag, reason);
        }
    }

    fn begin(&mut self, source: NodeId, head: Head, unpacking: Unpacking<'env>) {
        // A process copies once: another copy of the same node is from another process, and
        // the one before it is gone. What has come of its copy is not dealt with any more.
        let before = self.copies.remove(&source).map(|copy| {
            copy.ending.because(ANOTHER);
            copy.end
        });
        if self.copies.len() >= 2 * MAX_COPIES {
            self.copies.retain(|_, copy| !copy.has_ended());
        }
        let Some(root) = self.shared.root.clone() else {
            return self.refuse(
                source,
                head.tag,
                "that node serves no folder; start it with --dir",
            );
        };
        let Some(mut place) = Place::take(&self.shared) else {
            return self.refuse(
                source,
                head.tag,
                "it receives as many copies as it may already",
            );
        };
        place.before = before;
        let (ending, end) = (Arc::clone(&place.ending), place.end.clone());
        let (queue, messages): (_, Receiver<Unread<'env>>) = unbounded();
        let receiver = CopyReceiver::new(self.channel, source, head.tag, messages, place);
        let started = thread::Builder::new()
            .name("madgate-copy".into())
            .spawn_scoped(self.scope, move || receiver.run(root));
        match started {
            Ok(_) => {
                // Its own receiver has just been made, and is waiting.
                let _ = queue.send((head, unpacking));
                let tag = head.tag;
                let copy = Copying {
                    tag,
                    queue,
                    ending,
                    end,
                };
                self.copies.insert(source, copy);
            }
            Err(error) => {
                self.refuse(source, head.tag, &format!("cannot start a thread: {error}"));
            }
        }
    }

    fn refuse(&self, source: NodeId, tag: u64, reason: &str) {
        let reason = reason.to_owned();
        self.answer(source, tag, &Reply::Refused { reason });
    }

    /// Answers without waiting: a sender that gets no answer asks again.
    fn answer(&self, source: NodeId, tag: u64, reply: &Reply) {
        let message: (Head, Bytes) = reply.encode(tag);
        let answered = talk::answer(self.channel, source, message);
        // The thread of the copy learns of it from nobody else.
        if let Some(lost) = &answered.lost
            && let Some(copy) = self.copies.get(&source)
        {
            copy.ending.answers_lost(lost);
        }
        answered.or_drop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_floods_its_copy_ends_it() {
        let place = Place::take(&Shared::new(None)).unwrap();
        let (queue, messages) = unbounded();
        let copy = Copying {
            tag: 1,
            queue,
            ending: Arc::clone(&place.ending),
            end: place.end.clone(),
        };
        for _ in 0..MAX_WAITING {
            assert!(copy.goes_on() && copy.pass_on(()));
        }
        assert_eq!(place.is_to_end(), None);
        assert!(!copy.pass_on(()));
        assert_eq!(messages.len(), MAX_WAITING);
        assert_eq!(place.is_to_end(), Some(TOO_MANY));
        // What waits is not dealt with first.
        assert!(!copy.goes_on());
    }
}
