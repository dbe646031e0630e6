//! What the two ends of a bench tell each other, and the answering end.
//!
//! The measuring end sends `Echo` or `Sink`, waits for `Ready`, and then sends payloads:
//! messages of one block, with nothing around them. An echo comes back as it is; what goes
//! down a sink is checked and counted. `Stop` ends either; the answer is a `Report`.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use madgate_vchannel::{Channel, NodeId, ReceiveMode, Unpacking};

use super::envelope::Head;
use super::pattern::Check;
use super::talk::{TalkError, answer_blocks};

/// The largest message of a bench.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 20;

const ECHO: u8 = 0x30;
const SINK: u8 = 0x31;
const STOP: u8 = 0x32;
const READY: u8 = 0x38;
const REPORT: u8 = 0x39;
const BUSY: u8 = 0x3a;

/// From the measuring end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Send back what comes.
    Echo,
    /// Check and count what comes, in messages of so many bytes.
    Sink { message_bytes: u64 },
    /// That is all.
    Stop,
}

/// From the answering end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Payloads may come.
    Ready,
    /// It serves as many others as it can.
    Busy,
    /// What has come.
    Report { messages: u64, wrong: u64 },
}

impl Order {
    /// Whether a kind is an order.
    pub(crate) fn is_kind(kind: u8) -> bool {
        (ECHO..=STOP).contains(&kind)
    }

    pub(crate) fn encode(self, tag: u64) -> (Head, Bytes) {
        let (kind, number) = match self {
            Self::Echo => (ECHO, 0),
            Self::Sink { message_bytes } => (SINK, message_bytes),
            Self::Stop => (STOP, 0),
        };
        head(kind, tag, number, Bytes::new())
    }

    fn decode(head: &Head) -> Option<Self> {
        match head.kind {
            ECHO => Some(Self::Echo),
            SINK => Some(Self::Sink {
                message_bytes: head.number,
            }),
            STOP => Some(Self::Stop),
            _ => None,
        }
    }
}

impl Answer {
    fn encode(self, tag: u64) -> (Head, Bytes) {
        match self {
            Self::Ready => head(READY, tag, 0, Bytes::new()),
            Self::Busy => head(BUSY, tag, 0, Bytes::new()),
            Self::Report { messages, wrong } => {
                let mut body = BytesMut::with_capacity(8);
                body.put_u64_le(wrong);
                head(REPORT, tag, messages, body.freeze())
            }
        }
    }

    /// Reads an answer to the bench `tag`.
    pub(crate) fn decode(head: &Head, body: &[u8]) -> Option<Self> {
        match head.kind {
            READY => Some(Self::Ready),
            BUSY => Some(Self::Busy),
            REPORT => Some(Self::Report {
                messages: head.number,
                wrong: u64::from_le_bytes(*body.first_chunk()?),
            }),
            _ => None,
        }
    }
}

fn head(kind: u8, tag: u64, number: u64, body: Bytes) -> (Head, Bytes) {
    let head = Head {
        kind,
        body_bytes: body.len(),
        tag,
        number,
    };
    (head, body)
}

/// The answering end of one bench.
#[derive(Debug)]
pub(crate) struct Meter {
    check: Check,
    /// Where messages of a sink are unpacked; empty for an echo.
    buffer: Vec<u8>,
    is_sink: bool,
    messages: u64,
    wrong: u64,
}

impl Meter {
    fn new(sink_bytes: Option<usize>) -> Self {
        Self {
            check: Check::new(),
            buffer: vec![0; sink_bytes.unwrap_or(0)],
            is_sink: sink_bytes.is_some(),
            messages: 0,
            wrong: 0,
        }
    }

    /// Deals with a payload of `size` bytes.
    pub(crate) fn payload(
        &mut self,
        channel: &Channel,
        mut unpacking: Unpacking<'_>,
        size: usize,
    ) -> Result<(), TalkError> {
        if self.is_sink {
            let sequence = self.messages;
            self.messages += 1;
            if size == self.buffer.len() {
                unpack(unpacking, &mut self.buffer)?;
                self.wrong += u64::from(!self.check.matches(sequence, &self.buffer));
            } else {
                self.wrong += 1;
            }
            return Ok(());
        }
        if size > MAX_MESSAGE_BYTES {
            return Ok(());
        }
        let source = unpacking.source();
        let bytes = unpacking.unpack_owned(size, ReceiveMode::Cheaper)?.freeze();
        unpacking.end_unpacking()?;
        self.messages += 1;
        // Who does not unpack its echoes does not get more of them.
        let blocks = [(bytes, ReceiveMode::Cheaper)];
        if let Err(error) = answer_blocks(channel, source, &blocks) {
            tracing::debug!(%error, "an echo is dropped");
        }
        Ok(())
    }
}

/// Unpacks the one block of a message.
fn unpack<'a>(mut unpacking: Unpacking<'a>, into: &'a mut [u8]) -> Result<(), TalkError> {
    unpacking.unpack_cheaper(into)?;
    Ok(unpacking.end_unpacking()?)
}

/// Most benches that one channel of a node answers at the same time.
pub(crate) const MAX_METERS: usize = 8;

/// The benches that a node answers over one channel, at most one per measuring node.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    source: NodeId,
    tag: u64,
    meter: Arc<Mutex<Meter>>,
    /// How many messages there were when the latest order of anybody came.
    marked: Option<u64>,
}

impl Entry {
    /// How many messages have come; `None` while one is being unpacked.
    fn messages(&self) -> Option<u64> {
        self.meter.try_lock().ok().map(|meter| meter.messages)
    }
}

impl Meters {
    /// How many benches there are.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The bench of a node.
    pub(crate) fn of(&self, source: NodeId) -> Option<Arc<Mutex<Meter>>> {
        let entry = self.entries.iter().find(|entry| entry.source == source)?;
        Some(Arc::clone(&entry.meter))
    }

    /// Deals with an order, and returns what to answer.
    pub(crate) fn order(&mut self, source: NodeId, head: &Head) -> Option<(Head, Bytes)> {
        let mut entries = self.entries.iter();
        let place = entries.position(|entry| entry.source == source);
        // A late order of an earlier process is not about this one's bench.
        let own = place.filter(|place| self.entries[*place].tag == head.tag);
        let answer = match (Order::decode(head)?, own) {
            (Order::Stop, None) => return None,
            (Order::Stop, Some(own)) => {
                let entry = self.entries.swap_remove(own);
                let meter = entry.meter.lock().unwrap_or_else(PoisonError::into_inner);
                Answer::Report {
                    messages: meter.messages,
                    wrong: meter.wrong,
                }
            }
            // Asked again: the answer was lost.
            (_, Some(_)) => Answer::Ready,
            (order, None) => {
                if let Some(place) = place {
                    self.entries.swap_remove(place);
                }
                self.begin(source, head.tag, order)
            }
        };
        Some(answer.encode(head.tag))
    }

    fn begin(&mut self, source: NodeId, tag: u64, order: Order) -> Answer {
        let size = match order {
            Order::Sink { message_bytes } => {
                Some(usize::try_from(message_bytes).unwrap_or(usize::MAX))
            }
            _ => None,
        };
        self.make_room();
        let fits = size.is_none_or(|size| size <= MAX_MESSAGE_BYTES);
        if !fits || self.entries.len() == MAX_METERS {
            return Answer::Busy;
        }
        self.entries.push(Entry {
            source,
            tag,
            meter: Arc::new(Mutex::new(Meter::new(size))),
            marked: None,
        });
        Answer::Ready
    }

    /// Forgets benches that have stood still since the previous order, where there is no
    /// room for another: their nodes are gone.
    fn make_room(&mut self) {
        if self.entries.len() == MAX_METERS {
            self.entries
                .retain(|entry| entry.marked.is_none() || entry.messages() != entry.marked);
        }
        for entry in &mut self.entries {
            entry.marked = entry.messages();
        }
    }
}
