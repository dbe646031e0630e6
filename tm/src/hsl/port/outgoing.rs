//! Messages on their way by rendezvous, as who sends them sees it.

use std::collections::VecDeque;
use std::ops::Range;

use super::arena::ArenaBuffer;
use super::block::Block;
use super::layout::{SEGMENT_BYTES, SEGMENTS_MAX};
use super::matching::{Cursor, Matched, Span, matched};
use crate::hsl::host::FOREIGN;
use crate::hsl::layout::REQUESTS_MAX;
use crate::hsl::message::{Kind, identifier};
use crate::hsl::put::{
    Address, Descriptor, Name, NodeNumber, Notify, Offered, PutError, Reaching, Source,
};

/// Messages that have been sent and nobody has asked about, at most.
const SENT_MOST: usize = 1024;
/// Pieces that a card has and has not sent, at most; the rest of an answer waits.
const PIECES_MOST: u32 = 512;

/// Messages that were asked for, and those that have left.
#[derive(Debug)]
pub(super) struct Outgoing<S> {
    requests: [Option<Message<S>>; REQUESTS_MAX as usize],
    /// How many there are.
    waiting: usize,
    /// Pieces that the card has and has not sent, where it sends later than it is told.
    under_way: u32,
    /// Requests whose answers have more pieces than the card was given, in their order.
    held: VecDeque<u32>,
    sent: VecDeque<(u64, Vec<Block>)>,
    next: u64,
    /// The answer that is being taken in.
    spans: Vec<Span>,
}

#[derive(Debug)]
struct Message<S> {
    number: u64,
    parts: Vec<Part<S>>,
    length: u64,
    done: u64,
    /// Where that is.
    at: Cursor,
    /// Pieces that the card has and has not sent.
    under_way: u32,
    /// The answer whose pieces the card has not all been given.
    held: Option<Held>,
}

/// An answer, of which so many pieces have been given to the card.
#[derive(Debug)]
struct Held {
    spans: Vec<Span>,
    given: usize,
}

/// A block that is being sent.
#[derive(Debug)]
pub(super) enum Part<S> {
    Arena(ArenaBuffer),
    Other(S),
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

/// Who puts, and to whom.
#[derive(Debug)]
pub(super) struct Way<'a, C> {
    pub(super) card: &'a mut C,
    pub(super) destination: NodeNumber,
    /// Whether the card has sent when it returns.
    pub(super) sends_at_once: bool,
}

impl Span {
    /// A segment of an answer.
    pub(super) fn encode(self) -> [u8; SEGMENT_BYTES] {
        let mut bytes = [0; SEGMENT_BYTES];
        bytes[0..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.name.key.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.name.address.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; SEGMENT_BYTES]) -> Self {
        let mut words = [[0; 8]; SEGMENT_BYTES / 8];
        words.as_flattened_mut().copy_from_slice(&bytes);
        let [at, [l0, l1, l2, l3, ..], key, address] = words;
        Self {
            at: u64::from_le_bytes(at),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            name: Name {
                key: u64::from_le_bytes(key),
                address: u64::from_le_bytes(address),
            },
        }
    }

    fn range(self) -> Range<u64> {
        self.at..self.at.saturating_add(self.length.into())
    }

    /// What it offers outside of the arena, if it does.
    fn offered(self) -> Option<Offered> {
        (self.at & FOREIGN != 0).then(|| Offered {
            range: self.range(),
            name: self.name,
        })
    }
}

impl<S: Source> Outgoing<S> {
    pub(super) fn new() -> Self {
        Self {
            requests: [const { None }; REQUESTS_MAX as usize],
            waiting: 0,
            under_way: 0,
            held: VecDeque::with_capacity(REQUESTS_MAX as usize),
            sent: VecDeque::with_capacity(SENT_MOST),
            next: 0,
            spans: Vec::with_capacity(SEGMENTS_MAX),
        }
    }

    /// Whether one more message can be taken.
    pub(super) fn has_room(&self) -> bool {
        self.sent.len() + self.waiting < SENT_MOST
    }

    /// The number that one more message can be asked for with, if it can.
    pub(super) fn free_number(&self) -> Option<u32> {
        let place = self.requests.iter().position(Option::is_none);
        let number = place.and_then(|place| u32::try_from(place).ok());
        number.filter(|_| self.has_room())
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Takes a message to ask for with `number`, which is free.
    pub(super) fn begin(&mut self, number: u32, parts: Vec<Part<S>>, length: u64) -> Request {
        let message = self.number();
        self.waiting += 1;
        self.requests[number as usize] = Some(Message {
            number: message,
            parts,
            length,
            done: 0,
            at: Cursor::default(),
            under_way: 0,
            held: None,
        });
        Request { message, number }
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

    /// The other side has answered request `number` with so many segments, which `read` copies one by
    /// one:
    /// puts what they have room for. `credit` goes with the last of it.
    pub(super) fn put<C: Reaching<Source = S>>(
        &mut self,
        number: u32,
        segments: u64,
        read: impl Fn(usize) -> [u8; SEGMENT_BYTES],
        way: Way<'_, C>,
        credit: impl FnOnce() -> u64,
    ) -> Result<(), Unsent> {
        let place = self.requests.get_mut(number as usize);
        let Some(message) = place.and_then(Option::as_mut) else {
            let what = format!("it answers request {number}, which there is not");
            return Err(Unsent::Answer(what));
        };
        if message.held.is_some() || message.done == message.length {
            let what = format!("it answers request {number} again");
            return Err(Unsent::Answer(what));
        }
        let Some(count) = usize::try_from(segments)
            .ok()
            .filter(|count| (1..=SEGMENTS_MAX).contains(count))
        else {
            let what = format!("it answers with {segments} segments");
            return Err(Unsent::Answer(what));
        };
        let mut spans = std::mem::take(&mut self.spans);
        spans.clear();
        spans.extend((0..count).map(|segment| Span::decode(read(segment))));
        let given = self.give(number, &spans, 0, way, credit);
        self.spans = spans;
        given
    }

    /// Goes on with answers of which the card was not given everything.
    pub(super) fn go_on<C: Reaching<Source = S>>(
        &mut self,
        way: &mut Way<'_, C>,
        mut credit: impl FnMut() -> u64,
    ) -> Result<(), Unsent> {
        // Those that are held again stand at the end.
        for _ in 0..self.held.len() {
            if self.under_way >= PIECES_MOST {
                break;
            }
            let number = self.held.pop_front();
            let message = number.and_then(|number| self.requests[number as usize].as_mut());
            if let (Some(number), Some(message)) = (number, message)
                && let Some(Held { spans, given }) = message.held.take()
            {
                let way = Way {
                    card: &mut *way.card,
                    ..*way
                };
                self.give(number, &spans, given, way, &mut credit)?;
            }
        }
        Ok(())
    }

    /// Gives the card the pieces of an answer, but the first `given`, which it has.
    fn give<C: Reaching<Source = S>>(
        &mut self,
        number: u32,
        spans: &[Span],
        given: usize,
        way: Way<'_, C>,
        credit: impl FnOnce() -> u64,
    ) -> Result<(), Unsent> {
        let Some(message) = &mut self.requests[number as usize] else {
            return Ok(());
        };
        way.card
            .offer(spans.iter().filter_map(|span| span.offered()))?;
        let most = if way.sends_at_once {
            u32::MAX
        } else {
            PIECES_MOST.saturating_sub(self.under_way)
        };
        let sends_at_once = way.sends_at_once;
        let put = message.put(spans, given, most, number, way, credit)?;
        if !sends_at_once {
            message.under_way += put.pieces;
            self.under_way += put.pieces;
        }
        match put.bytes {
            Some(0) => {
                let what = format!("it answers request {number} with no room");
                return Err(Unsent::Answer(what));
            }
            Some(bytes) => message.note_done(bytes),
            None => {
                message.held = Some(Held {
                    spans: spans.to_vec(),
                    given: given + put.pieces as usize,
                });
                self.held.push_back(number);
            }
        }
        self.settle(number);
        Ok(())
    }

    /// The card has sent a piece of request `number`.
    pub(super) fn piece_sent(&mut self, number: u32) {
        if let Some(Some(message)) = self.requests.get_mut(number as usize) {
            message.under_way = message.under_way.saturating_sub(1);
            self.under_way = self.under_way.saturating_sub(1);
            self.settle(number);
        }
    }

    /// A message of which all is sent has left.
    fn settle(&mut self, number: u32) {
        let place = &mut self.requests[number as usize];
        let is_sent = place
            .as_ref()
            .is_some_and(|message| message.done == message.length && message.under_way == 0);
        if is_sent && let Some(Message { number, parts, .. }) = place.take() {
            self.waiting -= 1;
            let blocks = parts.into_iter().map(Part::back).collect();
            self.sent.push_back((number, blocks));
        }
    }
}

/// What has been given to a card.
#[derive(Debug)]
struct Put {
    pieces: u32,
    /// All that the answer has room for; `None` when that is more pieces than the card may have.
    bytes: Option<u64>,
}

impl<S: Source> Message<S> {
    fn note_done(&mut self, bytes: u64) {
        self.done += bytes;
        let rest = self.parts[self.at.segment..].iter();
        self.at.advance(bytes, rest.map(|part| part.len() as u64));
    }

    /// Puts as much as `spans` have room for, and tells the other side; but the first `given`
    /// pieces, and at most `most` of them.
    fn put<C: Reaching<Source = S>>(
        &self,
        spans: &[Span],
        given: usize,
        most: u32,
        number: u32,
        way: Way<'_, C>,
        credit: impl FnOnce() -> u64,
    ) -> Result<Put, PutError> {
        let Cursor { segment, offset } = self.at;
        let lengths = self.parts[segment..].iter().map(|part| {
            // Longer ones cannot be put at once; the rest waits for the next answer.
            u32::try_from(part.len()).unwrap_or(u32::MAX)
        });
        let largest = way.card.largest();
        let found = matched(lengths, offset, spans, largest);
        let mut found = found
            .map(|piece| Matched {
                segment: segment + piece.segment,
                ..piece
            })
            .peekable();
        let (mut bytes, mut pieces) = (0, 0);
        for piece in found.by_ref().take(given) {
            bytes += u64::from(piece.length);
        }
        let mut credit = Some(credit);
        while let Some(piece) = found.next() {
            if pieces == most {
                return Ok(Put {
                    pieces,
                    bytes: None,
                });
            }
            bytes += u64::from(piece.length);
            let is_last = found.peek().is_none();
            let credit = match credit.take_if(|_| is_last) {
                Some(credit) => credit(),
                None => 0,
            };
            let descriptor = Descriptor {
                destination: way.destination,
                local: Address(0),
                remote: Address(piece.remote),
                length: piece.length,
                message: identifier(Kind::Data, number),
                notify: Notify {
                    sent: !way.sends_at_once,
                    received: is_last,
                },
                words: [bytes, credit],
            };
            self.put_piece(&piece, descriptor, way.card)?;
            pieces += 1;
        }
        Ok(Put {
            pieces,
            bytes: Some(bytes),
        })
    }

    fn put_piece<C: Reaching<Source = S>>(
        &self,
        piece: &Matched,
        mut descriptor: Descriptor,
        card: &mut C,
    ) -> Result<(), PutError> {
        match &self.parts[piece.segment] {
            Part::Arena(buffer) => {
                descriptor.local = Address(buffer.address().0 + u64::from(piece.offset));
                card.try_add(&descriptor)
            }
            Part::Other(source) => {
                let start = piece.offset as usize;
                let part = start..start + piece.length as usize;
                card.try_add_part(source, part, &descriptor)
            }
        }
    }
}

impl<S: Source> Part<S> {
    fn len(&self) -> usize {
        match self {
            Self::Arena(buffer) => buffer.len(),
            Self::Other(source) => source.bytes(),
        }
    }

    pub(super) fn back(self) -> Block {
        match self {
            Self::Arena(buffer) => Block::Arena(buffer),
            Self::Other(source) => Block::Other(source.back()),
        }
    }
}
