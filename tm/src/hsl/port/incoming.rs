//! Messages on their way by rendezvous, as who receives them sees it; and the slots that are out.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Arrived;
use super::arena::ArenaBuffer;
use super::block::Block;
use super::layout::{Geometry, SEGMENTS_MAX};
use super::matching::{Cursor, Span};
use crate::hsl::layout::REQUESTS_MAX;
use crate::hsl::put::{Name, Target};
use crate::lane::ReceivedSlot;
use crate::local::arrivals::{Arrivals, Claimed, GoesBack, Lending};
use crate::local::memory::Mapping;

/// Messages for which memory is posted at once, at most.
const POSTED_MOST: usize = 1024;
/// Bytes of a message at most.
const MESSAGE_BYTES_MAX: u64 = 1 << 40;

/// A bit for each slot that is free again and has not been told of.
#[derive(Debug, Default)]
struct Freed(AtomicU64);

impl GoesBack for Arc<Freed> {
    fn give_back(&self, slot: u32) {
        // Release: what was read from the slot has been read.
        self.0.fetch_or(1 << slot, Ordering::Release);
    }
}

/// What there is memory for, and what waits for some.
#[derive(Debug)]
pub(super) struct Incoming<T> {
    shorts: Arc<Arrivals<Arc<Freed>>>,
    freed_slots: Arc<Freed>,
    /// Those of them that were copied by the port itself.
    copied_slots: u64,
    /// So many of them are worth a message of their own.
    told_from: u32,
    buffers: Arc<Arrivals<Arc<Freed>>>,
    freed_buffers: Arc<Freed>,
    buffer_bytes: u64,
    posted: VecDeque<Posted<T>>,
    /// Requests that wait for memory, and bytes of each, in their order.
    waiting: VecDeque<(u32, u64)>,
    /// Requests that have some.
    begun: [Option<Begun<T>>; REQUESTS_MAX as usize],
    /// Those whose answers are to be sent.
    unanswered: VecDeque<u32>,
    /// The answer that is being sent.
    spans: Vec<Span>,
}

#[derive(Debug)]
struct Begun<T> {
    memory: Memory<T>,
    length: u64,
    done: u64,
    /// Where that is, in memory that was posted.
    at: Cursor,
    /// What the last answer has room for.
    expected: u64,
}

/// Memory that was posted, and how many bytes that is.
#[derive(Debug)]
struct Posted<T> {
    segments: Vec<Segment<T>>,
    room: u64,
}

#[derive(Debug)]
enum Memory<T> {
    Posted(Vec<Segment<T>>),
    Buffer(u32),
}

/// A block that was posted.
#[derive(Debug)]
pub(super) enum Segment<T> {
    Arena(ArenaBuffer),
    Other(T),
}

impl<T: Target> Incoming<T> {
    pub(super) fn new(own: &Arc<Mapping>, geometry: Geometry) -> Self {
        let (slots, buffers) = (geometry.control_row(), geometry.buffer_row());
        let all = |count: u32| match count {
            0 => 0,
            count => u64::MAX >> (u64::BITS - count),
        };
        let freed_slots = Arc::new(Freed(AtomicU64::new(all(slots.slots))));
        let freed_buffers = Arc::new(Freed(AtomicU64::new(all(buffers.slots))));
        Self {
            shorts: Arc::new(Arrivals::new(own.clone(), slots, freed_slots.clone())),
            freed_slots,
            copied_slots: 0,
            told_from: slots.slots / 2,
            buffers: Arc::new(Arrivals::new(own.clone(), buffers, freed_buffers.clone())),
            freed_buffers,
            buffer_bytes: buffers.slot_bytes.into(),
            posted: VecDeque::new(),
            waiting: VecDeque::with_capacity(REQUESTS_MAX as usize),
            begun: [const { None }; REQUESTS_MAX as usize],
            unanswered: VecDeque::with_capacity(REQUESTS_MAX as usize),
            spans: Vec::with_capacity(SEGMENTS_MAX),
        }
    }

    /// The slots that the other side fills, and that may be lent to who reads them.
    pub(super) fn lending(&self) -> [Arc<dyn Lending>; 2] {
        [self.shorts.clone(), self.buffers.clone()]
    }

    // ---- credit -------------------------------------------------------------------------

    /// Control slots that are free again; whoever takes them tells the other side.
    pub(super) fn take_credit(&mut self) -> u64 {
        let copied = mem::take(&mut self.copied_slots);
        // What is freed only now goes with the next message, or by itself when the port settles.
        if self.freed_slots.0.load(Ordering::Relaxed) == 0 {
            return copied;
        }
        copied | self.freed_slots.0.swap(0, Ordering::Acquire)
    }

    /// Whether so many are that they are worth a message of their own.
    pub(super) fn owes_credit(&self) -> bool {
        let free = self.copied_slots | self.freed_slots.0.load(Ordering::Relaxed);
        free.count_ones() >= self.told_from
    }

    // ---- what the other side says ---------------------------------------------------------

    /// A control slot has been filled.
    pub(super) fn short(&self, slot: u32, length: u32) -> Result<Claimed, &'static str> {
        self.shorts.claim(slot, length)
    }

    /// Hands it out.
    pub(super) fn hand_out(&self, short: Claimed) -> ReceivedSlot {
        self.shorts.hand_out(short)
    }

    /// Copies it to `into`, which is as long: it is free again.
    pub(super) fn copy_out(&mut self, short: Claimed, into: &mut [u8]) {
        self.copied_slots |= 1 << self.shorts.copy_claimed(short, into);
    }

    /// A message of `length` bytes asks for memory.
    pub(super) fn request(&mut self, number: u32, length: u64) -> Result<(), &'static str> {
        let begun = self.begun.get(number as usize).ok_or("no such request")?;
        if begun.is_some() || self.waiting.iter().any(|(other, _)| *other == number) {
            return Err("it has asked already");
        }
        if length == 0 || length > MESSAGE_BYTES_MAX {
            return Err("no message has so many bytes");
        }
        self.waiting.push_back((number, length));
        self.match_waiting();
        Ok(())
    }

    /// `bytes` of a message are there; the message, when that is all of it.
    pub(super) fn data(
        &mut self,
        number: u32,
        bytes: u64,
    ) -> Result<Option<Arrived>, &'static str> {
        let place = self.begun.get_mut(number as usize);
        let place = place.ok_or("no such request")?;
        let begun = place.as_mut().ok_or("it has not asked")?;
        if bytes == 0 || bytes != begun.expected {
            return Err("that is not what it was answered");
        }
        begun.done += bytes;
        begun.expected = 0;
        if let Memory::Posted(segments) = &begun.memory {
            let rest = segments[begun.at.segment..].iter();
            begun.at.advance(bytes, rest.map(Segment::len));
        }
        if begun.done < begun.length {
            self.unanswered.push_back(number);
            return Ok(None);
        }
        let Some(Begun { memory, length, .. }) = place.take() else {
            return Ok(None);
        };
        match memory {
            Memory::Posted(segments) => {
                let blocks = segments.into_iter().map(Segment::back).collect();
                Ok(Some(Arrived::Posted(blocks, length)))
            }
            Memory::Buffer(buffer) => {
                let length = u32::try_from(length).map_err(|_| "the buffer is smaller")?;
                let slot = self.buffers.receive(buffer, length)?;
                Ok(Some(Arrived::Unposted(slot)))
            }
        }
    }

    // ---- memory -------------------------------------------------------------------------

    /// Memory for a message.
    pub(super) fn can_post(&self) -> bool {
        self.posted.len() < POSTED_MOST
    }

    /// Memory for a message, when there is room for it ([`can_post`](Self::can_post)).
    pub(super) fn post(&mut self, segments: Vec<Segment<T>>) {
        let room = segments.iter().map(Segment::len).sum();
        self.posted.push_back(Posted { segments, room });
        self.match_waiting();
    }

    /// Finds memory for those that wait, in their order: what is posted, or a buffer. One that fits
    /// nowhere holds up none of those behind it.
    fn match_waiting(&mut self) {
        let mut place = 0;
        while let Some((number, length)) = self.waiting.get(place).copied() {
            let Some(memory) = self.memory_for(length) else {
                place += 1;
                continue;
            };
            self.waiting.remove(place);
            self.begun[number as usize] = Some(Begun {
                memory,
                length,
                done: 0,
                at: Cursor::default(),
                expected: 0,
            });
            self.unanswered.push_back(number);
        }
    }

    fn memory_for(&mut self, length: u64) -> Option<Memory<T>> {
        let fits = |posted: &Posted<T>| posted.room >= length;
        if let Some(place) = self.posted.iter().position(fits) {
            let posted = self.posted.remove(place);
            return posted.map(|posted| Memory::Posted(posted.segments));
        }
        if length > self.buffer_bytes {
            return None;
        }
        let freed = &self.freed_buffers.0;
        let free = freed.load(Ordering::Acquire);
        if free == 0 {
            return None;
        }
        let buffer = free.trailing_zeros();
        freed.fetch_and(!(1 << buffer), Ordering::Acquire);
        Some(Memory::Buffer(buffer))
    }

    /// The next answer to be sent: to which request, and where its message goes. Each is to be
    /// sent before the next is asked for.
    pub(super) fn next_answer(&mut self) -> Option<(u32, &[Span])> {
        self.match_waiting();
        let number = self.unanswered.pop_front()?;
        let begun = self.begun[number as usize].as_mut()?;
        self.spans.clear();
        match &mut begun.memory {
            Memory::Posted(segments) => {
                let mut skips = begun.at.offset;
                let mut wanted = begun.length - begun.done;
                for segment in &mut segments[begun.at.segment..] {
                    if wanted == 0 || self.spans.len() == SEGMENTS_MAX {
                        break;
                    }
                    let rest = (segment.len() - skips).min(wanted);
                    if rest > 0 {
                        // What is longer than a put is waits for the next answer.
                        let rest = u32::try_from(rest).unwrap_or(u32::MAX);
                        let (at, name) = segment.tell();
                        self.spans.push(Span {
                            at: at + skips,
                            length: rest,
                            name: Name {
                                address: name.address.wrapping_add(skips),
                                ..name
                            },
                        });
                        wanted -= u64::from(rest);
                    }
                    skips = 0;
                }
            }
            Memory::Buffer(buffer) => {
                let at = self.buffers.row().slot_at(*buffer) as u64;
                let length = u32::try_from(begun.length).unwrap_or(u32::MAX);
                let name = Name::default();
                self.spans.push(Span { at, length, name });
            }
        }
        begun.expected = self.spans.iter().map(|span| u64::from(span.length)).sum();
        Some((number, &self.spans))
    }
}

impl<T: Target> Segment<T> {
    pub(super) fn back(self) -> Block {
        match self {
            Self::Arena(buffer) => Block::Arena(buffer),
            Self::Other(target) => Block::Other(target.back()),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Arena(buffer) => buffer.len() as u64,
            Self::Other(target) => target.bytes() as u64,
        }
    }

    /// Where it begins, and what it is called, to be told to the other side.
    fn tell(&mut self) -> (u64, Name) {
        match self {
            Self::Arena(buffer) => (buffer.address().0, Name::default()),
            Self::Other(target) => target.tell(),
        }
    }
}
