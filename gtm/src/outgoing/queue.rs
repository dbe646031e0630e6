//! What a flow keeps: not yet sent, and not yet delivered.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

use super::Outgoing;
use super::bundle::Joinable;
use crate::wire::{
    BUNDLED_BYTES, DESCRIPTOR_BYTES, Descriptor, Flags, HEADER_BYTES, Header, Kind, encoded,
};

/// Small frames are gathered in pieces of this size.
const TAIL_BYTES: usize = 64 << 10;
/// A flow that sends little starts with this much.
const FIRST_TAIL_BYTES: usize = 4 << 10;
/// Pieces that wait to be used again at most: what a window of the usual size holds.
const SPARE_TAILS: usize = 64;

/// Something that waits to be sent.
#[derive(Debug)]
pub(super) enum Pending<D> {
    /// Encoded small frames without position, label and checksum.
    Frames(BytesMut),
    /// A part of a block in the caller's memory.
    Block(BlockRange<D>),
}

impl<D> Pending<D> {
    /// Bytes that are kept for it.
    fn retained_bytes(&self) -> u64 {
        match self {
            Self::Frames(frames) => frames.len() as u64,
            Self::Block(part) => part.range.end - part.range.start,
        }
    }
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

impl<D> BlockRange<D> {
    /// Bytes in front of the first of `range`.
    pub(super) const fn descriptor_bytes(&self) -> u64 {
        if self.described {
            DESCRIPTOR_BYTES as u64
        } else {
            0
        }
    }
}

/// Something that was sent and is not delivered.
#[derive(Debug)]
pub(super) struct Sent<D> {
    /// Positions that it takes.
    pub(super) positions: Range<u64>,
    /// The number after the last message that ends in it.
    pub(super) messages_ended: Option<u32>,
    /// Whether a message ends with its last byte.
    pub(super) ends_message: bool,
    pub(super) what: SentFrames<D>,
}

#[derive(Debug)]
pub(super) enum SentFrames<D> {
    Frames(Bytes),
    /// Frames that left one by one; more may follow.
    Run(BytesMut),
    Fragment(BlockRange<D>),
    /// A fragment of this message, which was given up: the memory is the caller's again.
    Forgotten(u32),
}

impl<D> Sent<D> {
    /// Bytes that are kept for it.
    fn retained_bytes(&self) -> u64 {
        match &self.what {
            SentFrames::Frames(bytes) => bytes.len() as u64,
            SentFrames::Run(bytes) => bytes.len() as u64,
            SentFrames::Fragment(part) => part.range.end - part.range.start,
            SentFrames::Forgotten(_) => 0,
        }
    }

    /// Takes the first frame off it if that ends at `delivered` or before. Returns the bytes
    /// of the frame, and the number after its message if that ends there.
    fn split_delivered(&mut self, delivered: u64) -> Option<(usize, Option<u32>)> {
        let frames: &[u8] = match &self.what {
            SentFrames::Frames(bytes) => bytes,
            SentFrames::Run(bytes) => bytes,
            SentFrames::Fragment(_) | SentFrames::Forgotten(_) => return None,
        };
        let frame_bytes = encoded::frame_bytes(frames);
        let charge = encoded::charge(frames);
        if self.positions.start + charge > delivered {
            return None;
        }
        let ends = encoded::has_any(frames, Flags::END.with(Flags::ABORT));
        let ended = ends.then(|| encoded::after_message(frames));
        match &mut self.what {
            SentFrames::Frames(bytes) => bytes.advance(frame_bytes),
            SentFrames::Run(bytes) => bytes.advance(frame_bytes),
            SentFrames::Fragment(_) | SentFrames::Forgotten(_) => {}
        }
        self.positions.start += charge;
        Some((frame_bytes, ended))
    }
}

impl<D: Clone> Outgoing<D> {
    /// Appends one small data frame of `message`, encoded at once. A whole message of few bytes
    /// shares the frame before it, if that holds nothing else and has not been sent.
    ///
    /// With [`Flags::DESCRIBED`] the payload is records, of which `block` is the first;
    /// else the frame must be empty.
    ///
    /// # Panics
    /// When the payload is longer than [`SMALL_PAYLOAD_BYTES`](crate::wire::SMALL_PAYLOAD_BYTES):
    /// the caller gathers, and knows.
    pub fn push_frame(&mut self, flags: Flags, message: u32, block: u32, payload: &[u8]) {
        assert!(payload.len() <= crate::wire::SMALL_PAYLOAD_BYTES);
        let is_whole = block == 0 && flags == Flags::DESCRIBED.with(Flags::END);
        let may_share = is_whole && self.settings.bundles && payload.len() <= BUNDLED_BYTES;
        if may_share && self.join(message, payload) {
            return;
        }
        let mut header = Header::new(Kind::Data, self.settings.flow, 0);
        header.flags = flags.with(self.settings.checksum.flags());
        header.message = message;
        header.block = block;
        // Bounded by the assertion above.
        header.length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let frame_bytes = HEADER_BYTES + payload.len();
        if self.tail.capacity() - self.tail.len() < frame_bytes {
            self.grow_tail(frame_bytes);
        }
        let start = self.tail.len();
        self.tail.extend_from_slice(&[0; HEADER_BYTES]);
        // Written where it stays, field by field.
        if let Some(head) = self.tail[start..].first_chunk_mut() {
            header.write_to(head);
        }
        self.tail.extend_from_slice(payload);
        self.retained_bytes += frame_bytes as u64;
        self.joinable = may_share.then(|| Joinable::new(frame_bytes, message));
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
        self.set_tail_aside();
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

    /// Forgets what is delivered up to `delivered`, frame by frame where a run is delivered in
    /// part, so that the messages in it count at once.
    pub(super) fn release(&mut self, delivered: u64) {
        self.delivered = self.delivered.max(delivered);
        while let Some(first) = self.sent.front_mut() {
            let (released, ended, ends_message) = if first.positions.end <= delivered {
                let whole = (
                    first.retained_bytes(),
                    first.messages_ended,
                    first.ends_message,
                );
                match self.sent.pop_front().map(|sent| sent.what) {
                    Some(SentFrames::Run(run)) => self.keep_run(run),
                    Some(SentFrames::Frames(frames)) => self.keep_tail(frames),
                    _ => {}
                }
                whole
            } else {
                let Some((bytes, ended)) = first.split_delivered(delivered) else {
                    return;
                };
                (bytes as u64, ended, ended.is_some())
            };
            self.retained_bytes -= released;
            self.is_inside_message = !ends_message;
            if let Some(ended) = ended {
                self.delivered_messages = ended;
            }
        }
        if self.sent.is_empty() {
            self.spare_tails.clear();
        }
    }

    /// Forgets what is delivered up to `delivered`, and everything sent behind it becomes
    /// pending again, to be cut anew.
    pub(super) fn rewind(&mut self, delivered: u64) {
        self.release(delivered);
        self.set_tail_aside();
        while let Some(last) = self.sent.pop_back() {
            match last.what {
                SentFrames::Frames(bytes) => self.send_again(bytes.into()),
                SentFrames::Run(run) => self.send_again(run),
                SentFrames::Fragment(part) => self.pending.push_front(Pending::Block(part)),
                SentFrames::Forgotten(message) => self.drop_until_abort(message),
            }
        }
        self.position = delivered;
        self.asked_at = self.asked_at.min(delivered);
    }

    /// Frames that were sent become pending again, before all others.
    fn send_again(&mut self, mut frames: BytesMut) {
        unseal_all(&mut frames);
        self.pending.push_front(Pending::Frames(frames));
    }

    /// Forgets the blocks of `message`, the newest, and what was pushed behind the first of
    /// them that has not been sent whole: without that block it would be out of place.
    pub(super) fn forget_blocks_of(&mut self, message: u32) {
        let is_its_block = |pending: &Pending<D>| matches!(pending, Pending::Block(part) if part.message == message);
        if let Some(first) = self.pending.iter().position(is_its_block) {
            let tail = self.tail.split();
            self.retained_bytes -= tail.len() as u64;
            for pending in self.pending.drain(first..) {
                self.retained_bytes -= pending.retained_bytes();
            }
        }
        for sent in &mut self.sent {
            if let SentFrames::Fragment(part) = &sent.what
                && part.message == message
            {
                self.retained_bytes -= sent.retained_bytes();
                sent.what = SentFrames::Forgotten(message);
            }
        }
    }

    /// Drops what is pending of `message` up to the frame that gives it up.
    fn drop_until_abort(&mut self, message: u32) {
        while let Some(first) = self.pending.front_mut() {
            let Pending::Frames(frames) = first else {
                self.retained_bytes -= first.retained_bytes();
                self.pending.pop_front();
                continue;
            };
            while !frames.is_empty() {
                if encoded::has_any(frames, Flags::ABORT) && encoded::message(frames) == message {
                    return;
                }
                let frame_bytes = encoded::frame_bytes(frames);
                frames.advance(frame_bytes);
                self.retained_bytes -= frame_bytes as u64;
            }
            self.pending.pop_front();
        }
    }

    /// What is in the tail waits behind what is pending.
    fn set_tail_aside(&mut self) {
        if !self.tail.is_empty() {
            let tail = self.tail.split();
            self.pending.push_back(Pending::Frames(tail));
        }
    }

    /// Makes room for a frame at the end of the tail. What is there becomes pending, so that
    /// it need not be moved.
    #[cold]
    fn grow_tail(&mut self, frame_bytes: usize) {
        self.set_tail_aside();
        let bytes = if self.sent.is_empty() && self.pending.is_empty() {
            FIRST_TAIL_BYTES
        } else {
            TAIL_BYTES
        };
        self.tail = match self.spare_tails.pop() {
            Some(spare) => spare,
            None => BytesMut::with_capacity(bytes.max(frame_bytes)),
        };
    }

    /// Frames have been delivered. If they are the last of a piece that nobody refers to any more,
    /// it is used again, while there is something under way.
    fn keep_tail(&mut self, frames: Bytes) {
        if self.sent.is_empty() {
            // Nobody refers to the piece that the tail is in: it begins at its front again.
            drop(frames);
            if self.tail.is_empty() {
                let _ = self.tail.try_reclaim(self.tail.capacity() + 1);
            }
        } else if self.spare_tails.len() < SPARE_TAILS
            && let Ok(mut tail) = frames.try_into_mut()
        {
            tail.clear();
            if tail.try_reclaim(TAIL_BYTES) {
                self.spare_tails.push(tail);
            }
        }
    }
}

/// Takes back what sealing wrote in each of `frames`.
fn unseal_all(mut frames: &mut [u8]) {
    while !frames.is_empty() {
        let (frame, behind) = frames.split_at_mut(encoded::frame_bytes(frames));
        encoded::unseal(frame);
        frames = behind;
    }
}
