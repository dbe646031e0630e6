//! Messages on their way by rendezvous, as who sends them sees it.

use std::collections::VecDeque;
use std::ops::Range;

use super::block::Block;
use super::layout::{SEGMENT_BYTES, SEGMENTS_MAX};
use super::matching::{Matched, Span, matched};
use crate::hsl::host::{FOREIGN, HostCard};
use crate::hsl::layout::REQUESTS_MAX;
use crate::hsl::message::{Kind, identifier};
use crate::hsl::put::{Address, Descriptor, NodeNumber, Notify, PutError, Sending};

/// Messages that have been sent and nobody has asked about, at most.
const SENT_MOST: usize = 1024;

/// Messages that were asked for, and those that have left.
#[derive(Debug)]
pub(super) struct Outgoing {
    requests: [Option<Message>; REQUESTS_MAX as usize],
    /// How many there are.
    waiting: usize,
    sent: VecDeque<(u64, Vec<Block>)>,
    next: u64,
}

#[derive(Debug)]
struct Message {
    number: u64,
    blocks: Vec<Block>,
    length: u64,
    done: u64,
}

/// Why what was answered is not sent.
#[derive(Debug)]
pub(super) enum Unsent {
    /// The answer is wrong: so.
    Answer(String),
    /// The card does not do it.
    Card(PutError),
}

impl From<PutError> for Unsent {
    fn from(error: PutError) -> Self {
        Self::Card(error)
    }
}

/// What a message is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// At this port.
    pub(super) message: u64,
    /// At both ends, while it is on its way.
    pub(super) number: u32,
}

impl Span {
    /// A segment of an answer.
    pub(super) fn encode(self) -> [u8; SEGMENT_BYTES] {
        let mut bytes = [0; SEGMENT_BYTES];
        bytes[0..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; SEGMENT_BYTES]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, ..] = bytes;
        Self {
            at: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
        }
    }

    fn range(self) -> Range<u64> {
        self.at..self.at.saturating_add(self.length.into())
    }
}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self {
            requests: [const { None }; REQUESTS_MAX as usize],
            waiting: 0,
            sent: VecDeque::with_capacity(SENT_MOST),
            next: 0,
        }
    }

    /// Whether one more message can be taken.
    pub(super) fn has_room(&self) -> bool {
        self.sent.len() + self.waiting < SENT_MOST
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Takes a message to ask for; gives it back when too many wait.
    pub(super) fn begin(&mut self, blocks: Vec<Block>, length: u64) -> Result<Request, Vec<Block>> {
        let place = self.requests.iter().position(Option::is_none);
        let Some((place, number)) =
            place.and_then(|place| Some((place, u32::try_from(place).ok()?)))
        else {
            return Err(blocks);
        };
        if !self.has_room() {
            return Err(blocks);
        }
        let message = self.number();
        self.waiting += 1;
        self.requests[place] = Some(Message {
            number: message,
            blocks,
            length,
            done: 0,
        });
        Ok(Request { message, number })
    }

    /// A message has left without being asked for.
    pub(super) fn sent_at_once(&mut self, blocks: Vec<Block>) -> u64 {
        let number = self.number();
        self.sent.push_back((number, blocks));
        number
    }

    pub(super) fn next_sent(&mut self) -> Option<(u64, Vec<Block>)> {
        self.sent.pop_front()
    }

    /// The other side has answered request `number` with so many segments, which `read` copies:
    /// puts what they have room for.
    pub(super) fn put(
        &mut self,
        number: u32,
        segments: u64,
        read: impl FnOnce(&mut [u8]),
        card: &mut HostCard,
        destination: NodeNumber,
        credit: u64,
    ) -> Result<(), Unsent> {
        let place = self.requests.get_mut(number as usize);
        let Some(place) = place.filter(|place| place.is_some()) else {
            let what = format!("it answers request {number}, which there is not");
            return Err(Unsent::Answer(what));
        };
        let Some(count) = usize::try_from(segments)
            .ok()
            .filter(|count| (1..=SEGMENTS_MAX).contains(count))
        else {
            let what = format!("it answers with {segments} segments");
            return Err(Unsent::Answer(what));
        };
        let mut bytes = [0; SEGMENTS_MAX * SEGMENT_BYTES];
        read(&mut bytes[..count * SEGMENT_BYTES]);
        let mut spans = [Span { at: 0, length: 0 }; SEGMENTS_MAX];
        for (span, segment) in spans.iter_mut().zip(bytes.as_chunks().0) {
            *span = Span::decode(*segment);
        }
        let spans = &spans[..count];
        let Some(message) = place else {
            return Ok(());
        };
        let foreign = spans.iter().filter(|span| span.at & FOREIGN != 0);
        card.offer(foreign.map(|span| span.range()))?;
        let sent = message.put(spans, number, card, destination, credit)?;
        if sent == 0 {
            let what = format!("it answers request {number} with no room");
            return Err(Unsent::Answer(what));
        }
        message.done += sent;
        if message.done == message.length
            && let Some(Message { number, blocks, .. }) = place.take()
        {
            self.waiting -= 1;
            self.sent.push_back((number, blocks));
        }
        Ok(())
    }
}

impl Message {
    /// Puts as much as `spans` have room for, and tells the other side; how much that is.
    fn put(
        &self,
        spans: &[Span],
        number: u32,
        card: &mut HostCard,
        destination: NodeNumber,
        credit: u64,
    ) -> Result<u64, PutError> {
        let lengths = self.blocks.iter().map(|block| {
            // Longer ones cannot be put at once; the rest waits for the next answer.
            u32::try_from(block.len()).unwrap_or(u32::MAX)
        });
        let mut pieces = matched(lengths, self.done, spans).peekable();
        let mut sent = 0;
        while let Some(piece) = pieces.next() {
            sent += u64::from(piece.length);
            let descriptor = Descriptor {
                destination,
                local: Address(0),
                remote: Address(piece.remote),
                length: piece.length,
                message: identifier(Kind::Data, number),
                notify: Notify {
                    sent: false,
                    received: pieces.peek().is_none(),
                },
                words: [sent, credit],
            };
            self.put_piece(&piece, descriptor, card)?;
        }
        Ok(sent)
    }

    fn put_piece(
        &self,
        piece: &Matched,
        mut descriptor: Descriptor,
        card: &mut HostCard,
    ) -> Result<(), PutError> {
        match &self.blocks[piece.segment] {
            Block::Arena(buffer) => {
                descriptor.local = Address(buffer.address().0 + u64::from(piece.offset));
                card.try_add(&descriptor)
            }
            Block::Other(bytes) => {
                let start = piece.offset as usize;
                let bytes = &bytes[start..start + piece.length as usize];
                card.try_add_from(bytes, &descriptor)
            }
        }
    }
}
