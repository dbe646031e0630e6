//! What reads one channel.
//!
//! One thread at a time has the desk: it takes the next message, and gives what belongs to a
//! copy to that copy's thread. The payloads of benches it unpacks itself, as a hand-over would
//! be most of what is measured, and it answers them; for that time it leaves the desk. Should that take
//! long, as who sent it has stopped in the middle of it, another thread has taken the desk when
//! it looks next. There is one such understudy for each bench.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use madgate_vchannel::{Channel, NodeId, Unpacking};

use super::copies::{Copies, Shared};
use super::envelope::Head;
use super::meters::{Meter, Meters, Obeyed};
use super::order::Order;
use super::talk::{self, Incoming, TalkError};
use crate::files::wire::Request;
use crate::tunable::{Received, Trials, wire};

/// How often a thread without the desk looks whether it is free, and the one that has it
/// whether the service is to end.
const LOOK: Duration = Duration::from_millis(200);
/// The same while the node is tuned, which is to end and begin its service many times.
const LOOK_WHILE_TUNED: Duration = Duration::from_millis(5);

/// Everything that reads one channel.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) channel: Channel,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) trials: Arc<Trials>,
    pub(crate) meters: Mutex<Meters>,
    /// Threads that have the desk or wait for it.
    pub(crate) hands: AtomicUsize,
    /// Disconnects when the desk has ended.
    pub(crate) _alive: Sender<()>,
}

/// What has the desk has, which are the copies.
type Front<'scope, 'env> = Arc<Mutex<Copies<'scope, 'env>>>;

/// What is dealt with away from the desk.
enum Away<'env> {
    /// A payload of so many bytes.
    Payload(Arc<Mutex<Meter>>, Unpacking<'env>, usize),
    /// What an order of this node leads to.
    Obeyed(NodeId, Obeyed),
}

impl Desk {
    /// Reads until the service ends.
    pub(crate) fn run(self) {
        thread::scope(|scope| {
            let copies = Copies::new(scope, &self.channel, Arc::clone(&self.shared));
            self.hands.store(1, Ordering::Relaxed);
            // The copies end when the last hand lets go of them; then the scope ends.
            self.hand(scope, Arc::new(Mutex::new(copies)));
        });
    }

    fn hand<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        front: Front<'scope, 'env>,
    ) {
        while !self.stopping.load(Ordering::Relaxed) {
            let mut copies = match front.try_lock() {
                Ok(copies) => copies,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    if self.is_spare() {
                        return;
                    }
                    thread::park_timeout(self.look());
                    continue;
                }
            };
            let done = match self.message(&mut copies) {
                Ok(Some(Away::Payload(meter, unpacking, size))) => {
                    // Before another hand has the desk: payloads of one bench are dealt with in
                    // the order in which they came. Who has the meter deals with the payload
                    // before, which is all there, and is held up only by who takes no answers, once
                    // each time that it begins to take none.
                    let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
                    drop(copies);
                    meter.payload(&self.channel, unpacking, size)
                }
                Ok(Some(Away::Obeyed(source, obeyed))) => {
                    drop(copies);
                    self.understudy(scope, &front);
                    self.follow(scope, source, obeyed);
                    Ok(())
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                tracing::debug!(%error, "a message is of no use");
            }
        }
    }

    /// Takes the next message, and deals with it as far as that takes no time.
    fn message<'env>(
        &'env self,
        copies: &mut Copies<'_, 'env>,
    ) -> Result<Option<Away<'env>>, TalkError> {
        copies.tell_alive();
        let Some(mut unpacking) = self.channel.begin_unpacking_within(self.look())? else {
            return Ok(None);
        };
        match talk::read(&mut unpacking)? {
            Incoming::Service(head) if Request::is_kind(head.kind) => {
                copies.message(head, unpacking);
            }
            Incoming::Service(head) if Order::is_kind(head.kind) => {
                let source = unpacking.source();
                unpacking.end_unpacking()?;
                let obeyed = self.meters().order(source, &head);
                return Ok(Some(Away::Obeyed(source, obeyed)));
            }
            Incoming::Service(head) if wire::Order::is_kind(head.kind) => {
                self.trial(&head, unpacking)?;
            }
            // An answer to somebody who is not here any more.
            Incoming::Service(_) => {}
            Incoming::Payload(size) => {
                let meter = self.meters().of(unpacking.source());
                // What nobody has announced is discarded.
                return Ok(meter.map(|meter| Away::Payload(meter, unpacking, size)));
            }
        }
        Ok(None)
    }

    /// Answers an order, and then begins to send what it asks for.
    fn follow<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        source: NodeId,
        obeyed: Obeyed,
    ) {
        if let Some(answer) = obeyed.answer {
            // An order that is not answered is given again. But not one to stop; and what is sent from now on
            // would leave no room for the answer to another.
            let answered = if obeyed.has_ended || obeyed.stream.is_some() {
                talk::answer_once(&self.channel, source, answer)
            } else {
                talk::answer(&self.channel, source, answer)
            };
            answered.or_drop();
        }
        if let Some(stream) = obeyed.stream {
            let started = thread::Builder::new()
                .name("madgate-stream".into())
                .spawn_scoped(scope, move || stream.run(&self.channel, &self.stopping));
            if let Err(error) = started {
                tracing::warn!(%error, "a bench gets no messages");
            }
        }
    }

    /// Deals with an order of a tuner. A trial begins only when the desk has ended, and so has
    /// answered.
    fn trial(&self, head: &Head, unpacking: Unpacking<'_>) -> Result<(), TalkError> {
        if head.body_bytes > wire::MAX_BODY_BYTES {
            tracing::debug!(bytes = head.body_bytes, "an order is too long");
            return Ok(());
        }
        let from = Received {
            source: unpacking.source(),
            tag: head.tag,
            number: head.number,
            copies: self.shared.running(),
        };
        let body = talk::body(unpacking, head)?;
        let Some(order) = wire::Order::decode(head, &body) else {
            tracing::debug!("an order of a tuner makes no sense");
            return Ok(());
        };
        let answer = self.trials.order(order, &from, Instant::now());
        match answer.encode(head) {
            Ok(answer) => {
                talk::answer(&self.channel, from.source, answer).or_drop();
            }
            Err(error) => tracing::warn!(%error, "an answer cannot be written"),
        }
        Ok(())
    }

    /// Sees to it that there is a thread for each bench, beside the one at the desk. (Who says the last word
    /// of a bench is the one that it had.)
    fn understudy<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        front: &Front<'scope, 'env>,
    ) {
        if self.hands.load(Ordering::Relaxed) > self.meters().count() {
            return;
        }
        let front = Arc::clone(front);
        let started = thread::Builder::new()
            .name("madgate-desk".into())
            .spawn_scoped(scope, move || self.hand(scope, front));
        match started {
            Ok(_) => {
                self.hands.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(%error, "a bench that stops will hold up others"),
        }
    }

    /// Whether the calling thread, which does not have the desk, is one too many; it has to
    /// end then.
    fn is_spare(&self) -> bool {
        let needed = self.meters().count() + 1;
        let leave = |hands: usize| (hands > needed).then(|| hands - 1);
        let relaxed = Ordering::Relaxed;
        self.hands.fetch_update(relaxed, relaxed, leave).is_ok()
    }

    fn look(&self) -> Duration {
        if self.trials.is_held() {
            LOOK_WHILE_TUNED
        } else {
            LOOK
        }
    }

    fn meters(&self) -> MutexGuard<'_, Meters> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
