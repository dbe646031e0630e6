//! What a flow keeps: not yet sent, and not yet delivered.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

use super::Outgoing;
use crate::wire::header::RAW;
use crate::wire::{CHARGE_PER_FRAME, Descriptor, Flags, HEADER_BYTES, Header, Kind};

/// Something that waits to be sent.
#[derive(Debug)]
pub(super) enum Pending<D> {
    /// Encoded small frames without position, label and checksum.
    Frames(BytesMut),
    /// A part of a block in the caller's memory.
    Block(BlockRange<D>),
}

/// A part of a block in the caller's memory.
#[derive(Debug, Clone)]
pub(super) struct BlockRange<D> {
    pub(super) message: u32,
    pub(super) block: u32,
    pub(super) descriptor: Descriptor,
    pub(super) memory: D,
    /// Bytes of the block.
    pub(super) range: Range<u64>,
    /// Whether the descriptor goes with the first byte of `range`.
    pub(super) described: bool,
    /// Whether the message ends with the last byte of `range`.
    pub(super) ends_message: bool,
}

/// Something that was sent and is not delivered.
#[derive(Debug)]
pub(super) struct Sent<D> {
    /// Positions that it takes.
    pub(super) positions: Range<u64>,
    /// The number after the last message that ends in it.
    pub(super) messages_ended: Option<u32>,
    pub(super) what: SentFrames<D>,
}

#[derive(Debug)]
pub(super) enum SentFrames<D> {
    Frames(Bytes),
    Fragment(BlockRange<D>),
}

impl<D> Sent<D> {
    /// Whether its first byte is the first of a message.
    pub(super) fn starts_message(&self) -> bool {
        match &self.what {
            SentFrames::Frames(bytes) => {
                let flags = RAW.flags(bytes);
                flags & Flags::DESCRIBED.bits() != 0 && RAW.block(bytes) == 0
                    || bytes.len() == HEADER_BYTES
            }
            SentFrames::Fragment(part) => part.block == 0 && part.described,
        }
    }
}

impl<D: Clone> Outgoing<D> {
    /// Appends one small data frame of `message`, encoded at once.
    ///
    /// With [`Flags::DESCRIBED`] the payload is records, of which `block` is the first;
    /// else the frame must be empty.
    ///
    /// # Panics
    /// When the payload is longer than [`SMALL_PAYLOAD_BYTES`](crate::wire::SMALL_PAYLOAD_BYTES):
    /// the caller gathers, and knows.
    pub fn push_frame(&mut self, flags: Flags, message: u32, block: u32, payload: &[u8]) {
        assert!(payload.len() <= crate::wire::SMALL_PAYLOAD_BYTES);
        let mut header = Header::new(Kind::Data, self.settings.flow, 0);
        header.flags = flags.with(Flags::HEADER_ONLY.when(!self.settings.checksum_payload));
        header.message = message;
        header.block = block;
        // Bounded by the assertion above.
        header.length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let frame_bytes = HEADER_BYTES + payload.len();
        if self.tail.capacity() - self.tail.len() < frame_bytes {
            self.grow_tail(frame_bytes);
        }
        self.tail.extend_from_slice(&header.to_bytes());
        self.tail.extend_from_slice(payload);
        self.retained_bytes += frame_bytes as u64;
    }

    /// Appends a block that stays in the caller's memory. `ends_message` says that it is the
    /// message's last.
    pub fn push_block(
        &mut self,
        message: u32,
        block: u32,
        descriptor: Descriptor,
        memory: D,
        ends_message: bool,
    ) {
        if !self.tail.is_empty() {
            let tail = self.tail.split();
            self.pending.push_back(Pending::Frames(tail));
        }
        self.retained_bytes += descriptor.length();
        self.pending.push_back(Pending::Block(BlockRange {
            message,
            block,
            descriptor,
            memory,
            range: 0..descriptor.length(),
            described: true,
            ends_message,
        }));
    }

    /// Forgets what is delivered up to `delivered`.
    pub(super) fn release(&mut self, delivered: u64) {
        self.delivered = self.delivered.max(delivered);
        while let Some(first) = self.sent.front()
            && first.positions.end <= delivered
        {
            if let Some(ended) = first.messages_ended {
                self.delivered_messages = ended;
            }
            self.retained_bytes -= match &first.what {
                SentFrames::Frames(bytes) => bytes.len() as u64,
                SentFrames::Fragment(part) => part.range.end - part.range.start,
            };
            self.sent.pop_front();
        }
    }

    /// Forgets what is delivered up to `delivered`, and everything sent behind it becomes
    /// pending again, to be cut anew.
    pub(super) fn rewind(&mut self, delivered: u64) {
        self.release(delivered);
        if !self.tail.is_empty() {
            let tail = self.tail.split();
            self.pending.push_back(Pending::Frames(tail));
        }
        while let Some(last) = self.sent.pop_back() {
            let again = match last.what {
                SentFrames::Frames(bytes) => {
                    let skipped = delivered_prefix(&bytes, last.positions.start, delivered);
                    self.retained_bytes -= skipped as u64;
                    let mut rest = BytesMut::from(&bytes[skipped..]);
                    clear_seals(&mut rest);
                    Pending::Frames(rest)
                }
                SentFrames::Fragment(part) => Pending::Block(part),
            };
            self.pending.push_front(again);
        }
        self.position = delivered;
    }

    /// Forgets the blocks of `message` that have not been sent.
    pub(super) fn forget_blocks_of(&mut self, message: u32) {
        let mut forgotten = 0;
        self.pending.retain(|pending| match pending {
            Pending::Block(part) if part.message == message => {
                forgotten += part.range.end - part.range.start;
                false
            }
            _ => true,
        });
        self.retained_bytes -= forgotten;
    }

    /// Makes room for a frame at the end of the tail. What is there becomes pending, so that
    /// it need not be moved.
    #[cold]
    fn grow_tail(&mut self, frame_bytes: usize) {
        /// Small frames are gathered in pieces of this size.
        const TAIL_BYTES: usize = 64 << 10;
        /// A flow that sends little starts with this much.
        const FIRST_TAIL_BYTES: usize = 4 << 10;
        if !self.tail.is_empty() {
            let tail = self.tail.split();
            self.pending.push_back(Pending::Frames(tail));
        }
        let bytes = if self.sent.is_empty() && self.pending.is_empty() {
            FIRST_TAIL_BYTES
        } else {
            TAIL_BYTES
        };
        self.tail = BytesMut::with_capacity(bytes.max(frame_bytes));
    }
}

/// Bytes of the frames in `bytes`, the first of which has position `start`, that lie before
/// `delivered`.
fn delivered_prefix(bytes: &Bytes, start: u64, delivered: u64) -> usize {
    let mut position = start;
    let mut rest = bytes.as_ref();
    while !rest.is_empty() && position < delivered {
        let length = RAW.length(rest) as usize;
        position += length as u64 + CHARGE_PER_FRAME;
        rest.advance(HEADER_BYTES + length);
    }
    bytes.len() - rest.len()
}

/// Takes back what sealing wrote besides position and label: flags and checksum.
fn clear_seals(frames: &mut [u8]) {
    let mut rest = frames;
    while !rest.is_empty() {
        let length = HEADER_BYTES + RAW.length(rest) as usize;
        let (frame, after) = rest.split_at_mut(length);
        RAW.unseal(frame);
        rest = after;
    }
}
