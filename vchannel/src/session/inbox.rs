//! What has arrived on one flow and is not unpacked.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use madgate_gtm::Record;
use madgate_gtm::wire::{ReceiveMode, bundled_bytes, bundled_prefix_bytes};

use super::crumbs::Crumbs;
use super::early::Early;
use super::kept::{Contents, Parts};

/// Parts up to this size are copied into the inbox's own memory, one after the other; a
/// larger one keeps the buffer that it arrived in.
const COPY_BYTES: usize = 4 << 10;

/// Memory that an inbox keeps while nothing comes ([`Inbox::shrink`]): bytes of small parts, and parts.
pub(super) const IDLE_BYTES: usize = 4 << 10;
const IDLE_PARTS: usize = 64;

/// Why a message that had begun ends without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Its sender dropped it half-packed.
    Aborted,
    /// Its sender is another incarnation now.
    SourceRestarted,
    /// Nothing came from its sender for the link timeout after the way to it was lost, or after it was
    /// silent for long.
    SourceLost,
    /// It came with a violation of the protocol.
    Misbehaved,
}

/// The next thing in an inbox.
#[derive(Debug)]
enum Part {
    /// Part of a block.
    Block {
        record: Record,
        /// The bytes, when they are not in the inbox's own memory.
        outside: Option<Contents>,
        ends_message: bool,
        /// What reading it gives back of the flow's credit.
        charge: u64,
    },
    /// A tiny message that came in one frame; taken out as a whole ([`Inbox::take_early`]).
    Whole { message: Early, charge: u64 },
    /// The same of a longer one, which has so many bytes in the inbox's own memory.
    Longer { bytes: usize, charge: u64 },
    /// Small messages that came in one frame, of which so many bytes are left, in the inbox's own
    /// memory; taken out one by one ([`Inbox::take_early`]).
    Bundle { bytes: usize, charge: u64 },
    /// Many small blocks of one frame; never at the front.
    Crumbs {
        blocks: Crumbs,
        ends_message: bool,
        charge: u64,
    },
    /// The end of a message that came on its own.
    End { charge: u64 },
    /// The message before it will not go on.
    Broken(Broken),
}

/// What [`Inbox::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// So many bytes of the block; more of it is to come.
    Some(usize),
    /// The rest of the block.
    Block(usize),
    /// Nothing has arrived yet.
    Nothing,
    /// Another block, or the same with another mode, was packed here.
    Mismatch(Packed),
    /// The message will not go on.
    Broken(Broken),
}

/// What was packed where a block was to be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed {
    /// A block of this size and mode.
    Block {
        /// Bytes of the block.
        length: u64,
        /// When its receiver needs it, as its sender said.
        receive: ReceiveMode,
    },
    /// Nothing: the message ends.
    End,
}

/// What has arrived on one flow and is not unpacked, in order.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// A tiny message that came in one frame, in front of all parts; taken out as a whole
    /// ([`Inbox::take_early`]): most messages that come before somebody asks for them, with nothing else
    /// before or behind.
    whole: Early,
    /// What reading it gives back of the flow's credit.
    whole_charge: u64,
    parts: VecDeque<Part>,
    /// Bytes of small parts, back to back.
    memory: VecDeque<u8>,
    /// Bytes of the part at the front that have been read.
    progress: usize,
    /// Credit to give back for what was read.
    consumed: u64,
    /// Whether the message that is being read has ended.
    ended: bool,
    /// What the part that was read last was in, until it is dropped without the lock.
    spent: Option<Contents>,
}

impl Inbox {
    /// Appends part of a block, copying it. `charge` is what its frame cost, with its last
    /// part.
    pub(crate) fn push_copy(
        &mut self,
        record: Record,
        bytes: &[u8],
        ends_message: bool,
        charge: u64,
    ) {
        if bytes.len() > COPY_BYTES {
            let copy = Contents::Shared(Bytes::copy_from_slice(bytes));
            self.push_kept(record, copy, ends_message, charge);
            return;
        }
        self.memory.extend(bytes);
        self.parts.push_back(Part::Block {
            record,
            outside: None,
            ends_message,
            charge,
        });
    }

    /// Appends part of a block that keeps the memory it arrived in.
    pub(crate) fn push_kept(
        &mut self,
        record: Record,
        contents: Contents,
        ends_message: bool,
        charge: u64,
    ) {
        self.parts.push_back(Part::Block {
            record,
            outside: Some(contents),
            ends_message,
            charge,
        });
    }

    /// The last part that was pushed is the last of its message, and of its frame, which
    /// cost `charge`; or, with nothing pushed for the frame, the message just ends.
    pub(crate) fn end_frame(&mut self, pushed: usize, message_ended: bool, charge: u64) {
        match self.parts.back_mut() {
            Some(
                Part::Block {
                    ends_message,
                    charge: of_part,
                    ..
                }
                | Part::Crumbs {
                    ends_message,
                    charge: of_part,
                    ..
                },
            ) if pushed > 0 => {
                *ends_message = message_ended;
                *of_part += charge;
            }
            _ => self.parts.push_back(Part::End { charge }),
        }
        self.unfold_front();
    }

    /// Appends a small message that came as the payload of one frame, which cost `charge`.
    pub(crate) fn push_whole(&mut self, records: &[u8], charge: u64) {
        if !Early::is_tiny(records) {
            self.memory.extend(records);
            let bytes = records.len();
            self.parts.push_back(Part::Longer { bytes, charge });
            return;
        }
        if self.is_empty() {
            self.whole.set(records);
            self.whole_charge = charge;
            return;
        }
        // Written where it stays: what is written piece by piece cannot be moved as a whole
        // before all of it has left the processor's store buffer.
        self.parts.push_back(Part::Whole {
            message: Early::none(),
            charge: 0,
        });
        if let Some(Part::Whole {
            message,
            charge: cost,
        }) = self.parts.back_mut()
        {
            message.set(records);
            *cost = charge;
        }
    }

    /// Appends the small messages in the payload of a bundle, which cost `charge` and was found to
    /// be right.
    pub(crate) fn push_bundle(&mut self, payload: &[u8], charge: u64) {
        self.memory.extend(payload);
        let bytes = payload.len();
        self.parts.push_back(Part::Bundle { bytes, charge });
    }

    /// Appends the blocks of a frame that is kept as it came.
    pub(crate) fn push_crumbs(&mut self, blocks: Crumbs) {
        self.parts.push_back(Part::Crumbs {
            blocks,
            ends_message: false,
            charge: 0,
        });
    }

    /// The message that has begun will not go on. If none of it has been read (and it is
    /// not `claimed` to be), it vanishes.
    pub(crate) fn break_message(&mut self, message: u32, claimed: bool, why: Broken) {
        // Its parts are the newest. Older ones may have its number: each incarnation of a source
        // counts from 0.
        let is_its = |part: &Part| match part {
            Part::Block {
                record,
                ends_message: false,
                ..
            } => record.message == message,
            Part::Crumbs {
                blocks,
                ends_message: false,
                ..
            } => blocks.message == message,
            _ => false,
        };
        let newest = self.parts.iter().rev();
        let count = newest.take_while(|part| is_its(part)).count();
        let first = (count > 0).then(|| self.parts.len() - count);
        let vanishes = match first {
            Some(index) => index > 0 || !claimed || self.ended,
            None => false,
        };
        if let (true, Some(index)) = (vanishes, first) {
            let mut kept = 0;
            for (place, part) in self.parts.range(..index).enumerate() {
                match part {
                    Part::Block {
                        record,
                        outside: None,
                        ..
                    } => kept += record.length - if place == 0 { self.progress } else { 0 },
                    Part::Bundle { bytes, .. } | Part::Longer { bytes, .. } => kept += bytes,
                    _ => {}
                }
            }
            self.memory.truncate(kept);
            for part in self.parts.drain(index..) {
                if let Part::Block { charge, .. } | Part::Crumbs { charge, .. } = part {
                    self.consumed += charge;
                }
            }
        } else if claimed {
            self.parts.push_back(Part::Broken(why));
        }
    }

    /// Whether there is something to read, which is the start of a message if none is being
    /// read.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.whole.is_some()
    }

    /// Gives back memory that only a burst needed, up to a window of it. To be called when nothing is there,
    /// and nothing is expected.
    pub(crate) fn shrink(&mut self) {
        self.memory.shrink_to(IDLE_BYTES);
        self.parts.shrink_to(IDLE_PARTS);
    }

    /// Bytes of small parts that there is memory for.
    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.memory.capacity()
    }

    /// A message is going to be read from here.
    pub(crate) const fn begin_message(&mut self) {
        self.ended = false;
    }

    /// Whether the message that is being read has ended.
    pub(crate) const fn message_ended(&self) -> bool {
        self.ended
    }

    /// What the next block is, if that is known yet. `Err` when the message is broken.
    pub(crate) fn peek(&self) -> Option<Result<Packed, Broken>> {
        if self.ended {
            return Some(Ok(Packed::End));
        }
        Some(match self.parts.front()? {
            Part::Block { record, .. } => Ok(Packed::Block {
                length: record.descriptor.length(),
                receive: record.descriptor.receive,
            }),
            Part::Crumbs { .. } => return None,
            // It stands behind the message that is read, which ends here.
            Part::Whole { .. } | Part::Longer { .. } | Part::Bundle { .. } | Part::End { .. } => {
                Ok(Packed::End)
            }
            Part::Broken(why) => Err(*why),
        })
    }

    /// Reads the next bytes of a block of `length` bytes in `receive` mode, of which
    /// `filled` have been read, into `into` (the part of the block behind those). What they were
    /// in is [left](Self::take_spent) for its reader to drop.
    pub(crate) fn take(
        &mut self,
        length: u64,
        receive: ReceiveMode,
        filled: u64,
        into: &mut [u8],
    ) -> Taken {
        if self.ended {
            return Taken::Mismatch(Packed::End);
        }
        let mut read = 0;
        loop {
            let is_first = filled == 0 && read == 0;
            let (record, outside) = match self.next_part(length, receive, is_first) {
                Ok(part) => part,
                Err(Taken::Nothing) if read > 0 => return Taken::Some(read),
                Err(other) => return other,
            };
            let target = &mut into[read..];
            let count = target.len().min(record.length - self.progress);
            match outside {
                Some(contents) => contents.copy_out(self.progress, &mut target[..count]),
                None => copy_front(&mut self.memory, &mut target[..count]),
            }
            let part_is_read = self.progress + count == record.length;
            let block_is_read = part_is_read && record.ends_block();
            read += count;
            self.progress += count;
            if part_is_read {
                self.spent = self.pop_front();
            }
            if block_is_read {
                return Taken::Block(read);
            }
            if read == into.len() || self.spent.is_some() {
                return Taken::Some(read);
            }
        }
    }

    /// What a part was in that has been read: to be dropped without the lock, as others may have
    /// to be told that it is free.
    pub(crate) const fn take_spent(&mut self) -> Option<Contents> {
        self.spent.take()
    }

    /// What waits in slots is copied: the lane that they belong to is gone, and all of its memory
    /// would stay with them.
    pub(crate) fn copy_kept(&mut self) {
        for part in &mut self.parts {
            if let Part::Block {
                outside: Some(contents),
                ..
            } = part
            {
                contents.copy_kept();
            }
        }
    }

    /// As [`take`](Self::take), but the parts are handed out in the memory that they are in.
    pub(crate) fn take_parts(
        &mut self,
        length: u64,
        receive: ReceiveMode,
        filled: u64,
        parts: &mut Parts,
    ) -> Taken {
        if self.ended {
            return Taken::Mismatch(Packed::End);
        }
        let mut taken = 0;
        loop {
            let is_first = filled == 0 && taken == 0;
            let record = match self.next_part(length, receive, is_first) {
                Ok((record, _)) => record,
                Err(Taken::Nothing) if taken > 0 => return Taken::Some(taken),
                Err(other) => return other,
            };
            taken += record.length;
            match self.pop_front() {
                Some(contents) => parts.push(contents),
                None => parts.push_copied(record.length, |into| copy_front(&mut self.memory, into)),
            }
            if record.ends_block() {
                return Taken::Block(taken);
            }
        }
    }

    /// The part at the front, if it belongs to a block of `length` bytes in `receive` mode, of
    /// which it `is_first` or not.
    fn next_part(
        &self,
        length: u64,
        receive: ReceiveMode,
        is_first: bool,
    ) -> Result<(Record, Option<&Contents>), Taken> {
        let (record, outside) = match self.parts.front() {
            Some(Part::Block {
                record, outside, ..
            }) => (*record, outside.as_ref()),
            None | Some(Part::Crumbs { .. }) => return Err(Taken::Nothing),
            Some(Part::Broken(why)) => return Err(Taken::Broken(*why)),
            Some(
                Part::Whole { .. } | Part::Longer { .. } | Part::Bundle { .. } | Part::End { .. },
            ) => return Err(Taken::Mismatch(Packed::End)),
        };
        let packed = Packed::Block {
            length: record.descriptor.length(),
            receive: record.descriptor.receive,
        };
        let is_wanted = packed == Packed::Block { length, receive };
        if is_first && self.progress == 0 && !is_wanted {
            return Err(Taken::Mismatch(packed));
        }
        Ok((record, outside))
    }

    /// The next part of a block of `length` bytes in `receive` mode, in its own memory if
    /// it is the whole block and came so.
    pub(crate) fn take_whole(&mut self, length: u64, receive: ReceiveMode) -> Option<BytesMut> {
        let Some(Part::Block {
            record, outside, ..
        }) = self.parts.front_mut()
        else {
            return None;
        };
        let fits = record.descriptor.length() == length
            && record.descriptor.receive == receive
            && record.length as u64 == length;
        if !fits || self.progress != 0 || self.ended {
            return None;
        }
        let Some(Contents::Shared(bytes)) = outside.take_if(|it| matches!(it, Contents::Shared(_)))
        else {
            return None;
        };
        self.pop_front();
        let copy = |bytes: Bytes| BytesMut::from(&bytes[..]);
        Some(bytes.try_into_mut().unwrap_or_else(copy))
    }

    /// Takes the whole message that is next out, if it is small and all there.
    pub(crate) fn take_early(&mut self, into: &mut Early) {
        if self.ended || self.progress != 0 {
            return;
        }
        if self.whole.is_some() {
            into.set(self.whole.records());
            self.whole.clear();
            self.consumed += self.whole_charge;
            self.ended = true;
            return;
        }
        if let Some(Part::Whole { message, charge }) = self.parts.front() {
            into.set(message.records());
            self.consumed += charge;
            self.ended = true;
            self.parts.pop_front();
            self.unfold_front();
            return;
        }
        if let Some(Part::Longer { bytes, charge }) = self.parts.front() {
            copy_front(&mut self.memory, into.fill(*bytes));
            self.consumed += charge;
            self.ended = true;
            self.parts.pop_front();
            self.unfold_front();
            return;
        }
        if let Some(Part::Bundle { bytes, charge }) = self.parts.front_mut() {
            // It was found to be right.
            let length = bundled_bytes([self.memory[0], self.memory[1]]).unwrap_or_default();
            let prefix = bundled_prefix_bytes(length);
            self.memory.drain(..prefix);
            copy_front(&mut self.memory, into.fill(length));
            *bytes -= prefix + length;
            if *bytes == 0 {
                self.consumed += *charge;
                self.parts.pop_front();
                self.unfold_front();
            }
            self.ended = true;
            return;
        }
        for _ in 0..self.early_parts() {
            if let Some(Part::Block { record, .. }) = self.parts.front() {
                copy_front(&mut self.memory, into.push(record));
            }
            self.pop_front();
        }
    }

    /// How many parts the message that is next consists of, if it is small and all there; else
    /// none.
    fn early_parts(&self) -> usize {
        let mut filled = 0;
        for (place, part) in self.parts.iter().enumerate() {
            let Part::Block {
                record,
                outside: None,
                ends_message,
                ..
            } = part
            else {
                return 0;
            };
            match Early::room_for(record, filled) {
                Some(_) if *ends_message => return place + 1,
                Some(with_it) => filled = with_it,
                None => return 0,
            }
        }
        0
    }

    /// Whether the next block is of `length` bytes in `receive` mode, and all there.
    pub(crate) fn has_whole(&self, length: u64, receive: ReceiveMode) -> bool {
        match self.parts.front() {
            Some(Part::Block { record, .. }) => {
                !self.ended
                    && self.progress == 0
                    && record.offset == 0
                    && record.ends_block()
                    && record.descriptor.length() == length
                    && record.descriptor.receive == receive
            }
            _ => false,
        }
    }

    /// Reads and forgets what is there of the message; `true` when that was all of it.
    pub(crate) fn discard_message(&mut self) -> bool {
        while !self.ended {
            match self.parts.front() {
                None | Some(Part::Crumbs { .. }) => return false,
                // The next message: this one has ended.
                Some(Part::Whole { .. } | Part::Longer { .. } | Part::Bundle { .. }) => {
                    self.ended = true;
                }
                Some(Part::Block {
                    record, outside, ..
                }) => {
                    if outside.is_none() {
                        let rest = record.length - self.progress;
                        self.memory.drain(..rest);
                    }
                    self.pop_front();
                }
                Some(Part::End { .. }) => {
                    self.take_end();
                }
                Some(Part::Broken(_)) => {
                    self.take_broken();
                }
            }
        }
        true
    }

    /// Takes the end of the message, if it is next.
    pub(crate) fn take_end(&mut self) -> bool {
        if self.ended {
            return true;
        }
        if let Some(Part::End { charge }) = self.parts.front() {
            self.consumed += charge;
            self.parts.pop_front();
            self.ended = true;
            self.unfold_front();
        }
        self.ended
    }

    /// Takes the sign that the message is broken, which ends it.
    pub(crate) fn take_broken(&mut self) {
        if let Some(Part::Broken(_)) = self.parts.front() {
            self.parts.pop_front();
            self.ended = true;
            self.unfold_front();
        }
    }

    /// Notes that a whole part went straight to where it belongs.
    pub(crate) const fn note_straight(&mut self, ends_message: bool, charge: u64) {
        self.consumed += charge;
        self.ended |= ends_message;
    }

    /// Credit to give back for what was read since the last call.
    pub(crate) const fn take_consumed(&mut self) -> u64 {
        std::mem::replace(&mut self.consumed, 0)
    }

    /// The part at the front has been read; what it was in, if not in the inbox's own memory.
    fn pop_front(&mut self) -> Option<Contents> {
        let mut was_in = None;
        if let Some(Part::Block {
            outside,
            ends_message,
            charge,
            ..
        }) = self.parts.pop_front()
        {
            self.consumed += charge;
            self.ended = ends_message;
            was_in = outside;
        }
        self.progress = 0;
        self.unfold_front();
        was_in
    }

    /// If the next part is many small blocks, the first of them becomes a part of its own.
    fn unfold_front(&mut self) {
        let Some(Part::Crumbs {
            blocks,
            ends_message,
            charge,
        }) = self.parts.front_mut()
        else {
            return;
        };
        let Some((record, bytes)) = blocks.next() else {
            return;
        };
        let is_last = blocks.is_empty();
        let block = Part::Block {
            record,
            outside: Some(Contents::Shared(bytes)),
            ends_message: *ends_message && is_last,
            charge: if is_last { *charge } else { 0 },
        };
        if is_last {
            self.parts.pop_front();
        }
        self.parts.push_front(block);
    }
}

/// Moves the first bytes of a queue to `into`.
fn copy_front(queue: &mut VecDeque<u8>, into: &mut [u8]) {
    let (first, second) = queue.as_slices();
    let split = first.len().min(into.len());
    into[..split].copy_from_slice(&first[..split]);
    let rest = into.len() - split;
    into[split..].copy_from_slice(&second[..rest]);
    queue.drain(..into.len());
}
