//! The benches that a node answers: it echoes, counts, sends, or watches itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use madgate_gateway::{Counters, Observer};
use madgate_vchannel::{Channel, Delivery, NodeId, PackError, ReceiveMode, Unpacking};

use super::envelope::Head;
use super::order::{Answer, MAX_MESSAGE_BYTES, Order, Report};
use super::pattern::{Check, Messages};
use super::seen::Seen;
use super::talk::{self, TalkError};
use super::under_way::{UnderWay, Way, weight};
use crate::tunable::Trials;

/// Small messages that are sent between two looks whether it is enough.
const SENT_PER_LOOK: usize = 64;

/// A stream that is answered with has no more under way than goes through in this time: its report stands
/// behind all of it.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// How often who waits for that looks whether it is enough.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The answering end of one bench.
#[derive(Debug)]
pub(crate) struct Meter {
    check: Check,
    /// Where messages are unpacked that are checked; empty where none are.
    buffer: Vec<u8>,
    kind: Kind,
    messages: u64,
    wrong: u64,
    /// Whether the last answer could be sent: who takes none in is not waited for again.
    is_heard: bool,
}

/// What becomes of payloads that come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They are sent back.
    Echo,
    /// They are checked.
    Sink,
    /// They are checked, and answered with nothing.
    Take,
    /// None should come.
    None,
}

impl Meter {
    fn new(order: Order) -> Self {
        let (kind, bytes) = match order {
            Order::Echo => (Kind::Echo, 0),
            Order::Sink { message_bytes } | Order::Both { message_bytes } => {
                (Kind::Sink, message_bytes)
            }
            Order::Take { message_bytes } => (Kind::Take, message_bytes),
            Order::Source { .. } | Order::Watch | Order::Stop => (Kind::None, 0),
        };
        // Whether that fits was looked at.
        let bytes = usize::try_from(bytes).unwrap_or(0).min(MAX_MESSAGE_BYTES);
        Self {
            check: Check::new(),
            buffer: vec![0; bytes],
            kind,
            messages: 0,
            wrong: 0,
            is_heard: true,
        }
    }

    const fn report(&self, sent: u64) -> Report {
        Report {
            arrived: self.messages,
            wrong: self.wrong,
            sent,
        }
    }

    /// Deals with a payload of `size` bytes.
    pub(crate) fn payload(
        &mut self,
        channel: &Channel,
        mut unpacking: Unpacking<'_>,
        size: usize,
    ) -> Result<(), TalkError> {
        if self.kind == Kind::None || (self.kind == Kind::Echo && size > MAX_MESSAGE_BYTES) {
            return Ok(());
        }
        let source = unpacking.source();
        let back = if self.kind == Kind::Echo {
            let bytes = unpacking.unpack_owned(size, ReceiveMode::Cheaper)?.freeze();
            unpacking.end_unpacking()?;
            self.messages += 1;
            bytes
        } else {
            self.count(unpacking, size)?;
            Bytes::new()
        };
        if self.kind == Kind::Sink {
            return Ok(());
        }
        let answered = talk::answer_payload(channel, source, back, self.is_heard);
        self.is_heard = answered.sent.is_ok();
        answered.or_drop();
        Ok(())
    }

    fn count(&mut self, unpacking: Unpacking<'_>, size: usize) -> Result<(), TalkError> {
        let sequence = self.messages;
        self.messages += 1;
        if size == self.buffer.len() {
            unpack(unpacking, &mut self.buffer)?;
            self.wrong += u64::from(!self.check.matches(sequence, &self.buffer));
        } else {
            self.wrong += 1;
        }
        Ok(())
    }
}

/// Messages that the answering end sends, by a thread of its own.
#[derive(Debug)]
pub(crate) struct Stream {
    to: NodeId,
    tag: u64,
    message_bytes: usize,
    meter: Arc<Mutex<Meter>>,
    is_stopped: Arc<AtomicBool>,
}

impl Stream {
    /// Sends until it is stopped or the other end is gone, something at least; then reports.
    pub(crate) fn run(&self, channel: &Channel, is_ending: &AtomicBool) {
        let end = End {
            is_ending,
            is_stopped: &self.is_stopped,
        };
        let sent = match self.send(channel, &end) {
            Ok(sent) => sent,
            Err(error) => {
                tracing::debug!(%error, "a stream has broken off");
                return;
            }
        };
        let report = lock(&self.meter).report(sent);
        let answer = Answer::Report(report).encode(self.tag);
        if let Err(error) = talk::send(channel, self.to, answer) {
            tracing::debug!(%error, "a report is dropped");
        }
    }

    /// Sends until it is time to end; how many messages.
    fn send(&self, channel: &Channel, end: &End<'_>) -> Result<u64, PackError> {
        let messages = Messages::new(self.message_bytes);
        let burst = if self.message_bytes > talk::COPY_BYTES {
            1
        } else {
            SENT_PER_LOOK
        };
        let weight = weight(burst, self.message_bytes);
        let mut under_way = UnderWay::within(UNDER_WAY, weight, Instant::now());
        let mut sent = 0;
        loop {
            for _ in 1..burst {
                talk::send_payload(channel, self.to, &messages, sent)?;
                sent += 1;
            }
            let now = Instant::now();
            let mark = if under_way.wants_mark(weight, now) {
                let mark = talk::send_payload_tracked(channel, self.to, &messages, sent)?;
                Some(mark)
            } else {
                talk::send_payload(channel, self.to, &messages, sent)?;
                None
            };
            sent += 1;
            under_way.note(end, weight, mark, now)?;
            if end.is_here() {
                return Ok(sent);
            }
        }
    }
}

/// When a stream is to end.
struct End<'a> {
    is_ending: &'a AtomicBool,
    is_stopped: &'a AtomicBool,
}

impl End<'_> {
    fn is_here(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed) || self.is_stopped.load(Ordering::Relaxed)
    }
}

impl Way for End<'_> {
    type Mark = Delivery;
    type Error = PackError;

    fn has_arrived(&self, mark: &Delivery) -> Result<bool, PackError> {
        mark.is_delivered()
    }

    /// Or until nothing more is sent, so that it does not matter.
    fn arrives(&self, mark: &Delivery) -> Result<(), PackError> {
        while !self.is_here() && !mark.wait_within(LOOK_EVERY)? {}
        Ok(())
    }
}

fn lock(meter: &Mutex<Meter>) -> MutexGuard<'_, Meter> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unpacks the one block of a message.
fn unpack<'a>(mut unpacking: Unpacking<'a>, into: &'a mut [u8]) -> Result<(), TalkError> {
    unpacking.unpack_cheaper(into)?;
    Ok(unpacking.end_unpacking()?)
}

/// Most benches that one channel of a node answers at the same time.
pub(crate) const MAX_METERS: usize = 64;

/// Most memory that their messages are unpacked into.
pub(crate) const MAX_BUFFERS_BYTES: usize = 8 * MAX_MESSAGE_BYTES;

/// The benches that a node answers over one channel, at most one per measuring node, and beside
/// that one that watches.
#[derive(Debug)]
pub(crate) struct Meters {
    entries: Vec<Entry>,
    /// Of the gateway that this node is.
    observer: Option<Observer>,
    trials: Arc<Trials>,
}

#[derive(Debug)]
struct Entry {
    source: NodeId,
    tag: u64,
    meter: Arc<Mutex<Meter>>,
    /// What it takes to unpack messages.
    buffer_bytes: usize,
    /// Where messages are sent: raised to stop that.
    stream: Option<Arc<AtomicBool>>,
    /// What the gateway had done before.
    watched: Option<Box<Counters>>,
    /// How many messages there were when the latest order of anybody came.
    marked: Option<u64>,
}

impl Entry {
    /// How many messages have come; `None` while one is being unpacked.
    fn messages(&self) -> Option<u64> {
        self.meter.try_lock().ok().map(|meter| meter.messages)
    }

    /// Whether something has happened since the previous order, or its messages are being sent.
    fn is_alive(&self) -> bool {
        let is_sending = |stream: &Arc<_>| Arc::strong_count(stream) > 1;
        self.stream.as_ref().is_some_and(is_sending)
            || self.marked.is_none()
            || self.messages() != self.marked
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            stream.store(true, Ordering::Relaxed);
        }
    }
}

/// What an order leads to.
#[derive(Debug, Default)]
pub(crate) struct Obeyed {
    /// What to answer now.
    pub(crate) answer: Option<(Head, Bytes)>,
    /// What to send from then on.
    pub(crate) stream: Option<Stream>,
    /// Whether the answer is the last word of a bench, which nobody asks for again.
    pub(crate) has_ended: bool,
}

impl Meters {
    /// None yet; `observer` is of the gateway that this node is.
    pub(crate) const fn new(observer: Option<Observer>, trials: Arc<Trials>) -> Self {
        Self {
            entries: Vec::new(),
            observer,
            trials,
        }
    }

    /// How many benches there are.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The bench of a node.
    pub(crate) fn of(&self, source: NodeId) -> Option<Arc<Mutex<Meter>>> {
        let place = self.place_of(source, false)?;
        Some(Arc::clone(&self.entries[place].meter))
    }

    /// Deals with an order.
    pub(crate) fn order(&mut self, source: NodeId, head: &Head) -> Obeyed {
        let Some(order) = Order::decode(head) else {
            return Obeyed::default();
        };
        // A late order of an earlier process is not about this one's bench.
        let is_own = |entry: &Entry| entry.source == source && entry.tag == head.tag;
        let own = self.entries.iter().position(is_own);
        let mut stream = None;
        let answer = match (order, own) {
            (Order::Stop, None) => None,
            (Order::Stop, Some(own)) => self.end(own),
            // Asked again: the answer was lost.
            (_, Some(_)) => Some(Answer::Ready),
            (order, None) => {
                if let Some(place) = self.place_of(source, order == Order::Watch) {
                    self.entries.swap_remove(place);
                }
                let (answer, begun) = self.begin(source, head.tag, order);
                stream = begun;
                Some(answer)
            }
        };
        Obeyed {
            answer: answer.map(|answer| answer.encode(head.tag)),
            stream,
            has_ended: order == Order::Stop,
        }
    }

    /// What a node has ordered: to be measured with, or to watch.
    fn place_of(&self, source: NodeId, watches: bool) -> Option<usize> {
        let is_it = |entry: &Entry| entry.source == source && entry.watched.is_some() == watches;
        self.entries.iter().position(is_it)
    }

    /// What to say at the end of a bench; nothing where its stream reports.
    fn end(&mut self, own: usize) -> Option<Answer> {
        let entry = self.entries.swap_remove(own);
        if entry.stream.is_some() {
            return None;
        }
        if let (Some(before), Some(observer)) = (&entry.watched, &self.observer) {
            let period = observer.counters().since(before);
            let seen = Seen::in_period(&period, self.trials.are_on());
            return Some(Answer::Seen(Box::new(seen)));
        }
        let report = lock(&entry.meter).report(0);
        Some(Answer::Report(report))
    }

    fn begin(&mut self, source: NodeId, tag: u64, order: Order) -> (Answer, Option<Stream>) {
        let (message_bytes, sends, takes) = match order {
            Order::Sink { message_bytes } | Order::Take { message_bytes } => {
                (message_bytes, false, true)
            }
            Order::Source { message_bytes } => (message_bytes, true, false),
            Order::Both { message_bytes } => (message_bytes, true, true),
            Order::Echo | Order::Watch | Order::Stop => (0, false, false),
        };
        let message_bytes = usize::try_from(message_bytes).unwrap_or(usize::MAX);
        let buffer_bytes = if takes { message_bytes } else { 0 };
        if !self.make_room(buffer_bytes) || message_bytes > MAX_MESSAGE_BYTES {
            return (Answer::Busy, None);
        }
        let watched = match (order, &self.observer) {
            (Order::Watch, Some(observer)) => Some(Box::new(observer.counters())),
            (Order::Watch, None) => return (Answer::Unable, None),
            _ => None,
        };
        let meter = Arc::new(Mutex::new(Meter::new(order)));
        let is_stopped = sends.then(Arc::<AtomicBool>::default);
        let stream = is_stopped.clone().map(|is_stopped| Stream {
            to: source,
            tag,
            message_bytes,
            meter: Arc::clone(&meter),
            is_stopped,
        });
        self.entries.push(Entry {
            source,
            tag,
            meter,
            buffer_bytes,
            stream: is_stopped,
            watched,
            marked: None,
        });
        (Answer::Ready, stream)
    }

    /// Whether there is room for another bench that takes so much memory. Where there is none,
    /// forgets those that have stood still since the previous order: their nodes are gone.
    fn make_room(&mut self, buffer_bytes: usize) -> bool {
        let fits = |entries: &[Entry]| {
            let taken: usize = entries.iter().map(|entry| entry.buffer_bytes).sum();
            entries.len() < MAX_METERS && taken.saturating_add(buffer_bytes) <= MAX_BUFFERS_BYTES
        };
        if !fits(&self.entries) {
            self.entries.retain(Entry::is_alive);
        }
        for entry in &mut self.entries {
            entry.marked = entry.messages();
        }
        fits(&self.entries)
    }
}
