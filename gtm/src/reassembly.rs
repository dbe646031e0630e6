//! Frames back into blocks.
//!
//! A flow's frames reach [`Reassembly`] in order; it says which part of which block each of
//! them is, and refuses what no honest source sends: a gap, an overlap, a block that is
//! longer than its descriptor. It is a small value, so that a caller can ask where a
//! payload *will* belong on a copy, and keep the copy once the payload has arrived intact.

#[cfg(test)]
mod tests;

use crate::wire::{DESCRIPTOR_BYTES, Descriptor, Flags, Header, WireError, bundled};

/// Part of one block, as one frame carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Number of the message in its flow.
    pub message: u32,
    /// Number of the block in the message.
    pub block: u32,
    /// Size and modes of the block.
    pub descriptor: Descriptor,
    /// Where in the block this part starts, in bytes.
    pub offset: u64,
    /// Bytes of this part.
    pub length: usize,
}

impl Record {
    /// Whether the block's last byte is in this part.
    #[must_use]
    pub fn ends_block(&self) -> bool {
        self.offset + self.length as u64 == self.descriptor.length()
    }
}

/// What an honest source never sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A frame of another message while one is not complete.
    #[error("message {got} starts while message {expected} is not complete")]
    OtherMessage {
        /// The message that is not complete.
        expected: u32,
        /// The message of the frame.
        got: u32,
    },
    /// A frame that does not go on where the one before it ended.
    #[error(
        "block {block} goes on at byte {offset}, where block {expected_block}, byte {expected_offset} was due"
    )]
    OutOfPlace {
        /// The frame's block.
        block: u32,
        /// The frame's offset in it.
        offset: u64,
        /// The block that was due.
        expected_block: u32,
        /// The offset that was due.
        expected_offset: u64,
    },
    /// More bytes than the block's descriptor announced.
    #[error("block {block} is longer than announced")]
    TooLong {
        /// The block.
        block: u32,
    },
    /// The message ends before its last block does.
    #[error("message {message} ends inside a block")]
    EndsInsideBlock {
        /// The message.
        message: u32,
    },
    /// A frame with neither payload nor end, which would mean nothing.
    #[error("an empty frame that ends nothing")]
    Empty,
    /// A frame that is longer than any of a flow that was opened so.
    #[error("a frame of {bytes} bytes on a flow that was opened for {most} at most")]
    LongerThanOpened {
        /// Bytes of the frame, its header included.
        bytes: usize,
        /// Bytes of the largest that the opening allows.
        most: usize,
    },
    /// More than was granted.
    #[error("a frame up to position {end} where {granted} was granted")]
    BeyondCredit {
        /// Where the frame ends.
        end: u64,
        /// Where the credit ends.
        granted: u64,
    },
    /// A frame that covers part of what was received already.
    #[error(
        "a frame at position {position} overlaps what was received, which is complete up to {delivered}"
    )]
    Overlap {
        /// Where the frame starts.
        position: u64,
        /// What was received without a gap.
        delivered: u64,
    },
    /// A descriptor or an opening that cannot be.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Where a flow's messages stand at their destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reassembly {
    /// The message that has begun and not ended.
    message: Option<u32>,
    /// The next block to be described.
    next_block: u32,
    /// The block that has begun and not ended, and how much of it is there.
    current: Option<(Descriptor, u64)>,
}

impl Reassembly {
    /// The message that has begun and not ended, if there is one.
    #[must_use]
    pub const fn message(&self) -> Option<u32> {
        self.message
    }

    /// Drops the message that has begun: its source gave it up, or is gone.
    pub const fn abandon(&mut self) {
        *self = Self {
            message: None,
            next_block: 0,
            current: None,
        };
    }

    /// Takes a small frame, whose payload lies in one piece (without an opening), and hands
    /// each part of it to `take` in order. Returns whether the message ends; one that is
    /// given up ([`Flags::ABORT`]) does not, and is forgotten. Of a bundle all messages end,
    /// each before the next begins.
    ///
    /// # Errors
    /// When no honest source sends this. The state may be that of part of the frame: the flow is
    /// not to be used further, or what has begun is to be [abandoned](Self::abandon).
    pub fn handle_small<'a>(
        &mut self,
        header: &Header,
        payload: &'a [u8],
        mut take: impl FnMut(Record, &'a [u8]),
    ) -> Result<bool, Violation> {
        if header.is_bare_opening() {
            return Ok(false);
        }
        self.start(header)?;
        if header.flags.has(Flags::ABORT) {
            self.abandon();
            return Ok(false);
        }
        if header.flags.has(Flags::BUNDLE) {
            self.unbundle(header, payload, take)?;
            return Ok(true);
        }
        if header.flags.has(Flags::DESCRIBED) {
            let mut rest = payload;
            while let Some((descriptor, data)) = rest.split_first_chunk::<DESCRIPTOR_BYTES>() {
                let record = self.describe(header, Descriptor::parse(*descriptor)?, data.len())?;
                let (part, after) = data.split_at(record.length);
                take(record, part);
                rest = after;
            }
            if !rest.is_empty() {
                return Err(WireError::Descriptor.into());
            }
        } else if !payload.is_empty() {
            take(self.proceed(header, payload.len())?, payload);
        }
        self.finish(header)
    }

    /// Whether a frame that begins and ends a message with this payload would be taken, with no
    /// message begun before it: it leaves nothing behind then.
    #[must_use]
    #[inline]
    pub fn takes_whole(&self, payload: &[u8]) -> bool {
        let mut rest = payload;
        while let Some((descriptor, data)) = rest.split_first_chunk::<DESCRIPTOR_BYTES>() {
            let length = Descriptor::parse(*descriptor).map_or(u64::MAX, |it| it.length());
            let after = usize::try_from(length).ok().and_then(|at| data.get(at..));
            let Some(after) = after else { return false };
            rest = after;
        }
        self.message.is_none() && rest.is_empty()
    }

    /// Takes a fragment: a frame of which the whole payload (behind the descriptor, if it
    /// has one) is part of one block. Its bytes need not be there yet. Returns the part and
    /// whether the message ends.
    ///
    /// # Errors
    /// As [`handle_small`](Self::handle_small).
    pub fn handle_fragment(
        &mut self,
        header: &Header,
        descriptor: Option<[u8; DESCRIPTOR_BYTES]>,
    ) -> Result<(Record, bool), Violation> {
        if header.flags.has(Flags::BUNDLE) {
            return Err(WireError::Bundle.into());
        }
        self.start(header)?;
        let length = header.payload_bytes();
        let record = match descriptor {
            Some(bytes) => {
                let data_bytes = length.saturating_sub(DESCRIPTOR_BYTES);
                let record = self.describe(header, Descriptor::parse(bytes)?, data_bytes)?;
                if record.length != data_bytes {
                    return Err(Violation::TooLong {
                        block: record.block,
                    });
                }
                record
            }
            None => self.proceed(header, length)?,
        };
        Ok((record, self.finish(header)?))
    }

    /// Takes the messages of a bundle, one after the other; each is whole.
    fn unbundle<'a>(
        &mut self,
        header: &Header,
        payload: &'a [u8],
        mut take: impl FnMut(Record, &'a [u8]),
    ) -> Result<(), Violation> {
        let mut of_message = *header;
        let mut messages = 0;
        let mut rest = payload;
        while !rest.is_empty() {
            let at = bundled::first(rest)?;
            let (mut records, after) = (&rest[at.clone()], &rest[at.end..]);
            self.next_block = 0;
            while let Some((descriptor, data)) = records.split_first_chunk::<DESCRIPTOR_BYTES>() {
                let descriptor = Descriptor::parse(*descriptor)?;
                let record = self.describe(&of_message, descriptor, data.len())?;
                let (part, next) = data.split_at(record.length);
                take(record, part);
                records = next;
            }
            if !records.is_empty() {
                return Err(WireError::Descriptor.into());
            }
            if self.current.is_some() {
                let message = of_message.message;
                return Err(Violation::EndsInsideBlock { message });
            }
            of_message.message = of_message.message.wrapping_add(1);
            messages += 1;
            rest = after;
        }
        self.abandon();
        if messages == header.offset {
            Ok(())
        } else {
            Err(WireError::Bundle.into())
        }
    }

    fn start(&mut self, header: &Header) -> Result<(), Violation> {
        match self.message {
            Some(expected) if expected != header.message => {
                return Err(Violation::OtherMessage {
                    expected,
                    got: header.message,
                });
            }
            Some(_) => {}
            None => {
                *self = Self {
                    message: Some(header.message),
                    next_block: 0,
                    current: None,
                };
            }
        }
        let due = self.next_block;
        if header.flags.has(Flags::DESCRIBED) && (header.block != due || self.current.is_some()) {
            return Err(self.out_of_place(header));
        }
        Ok(())
    }

    /// A block begins with up to `available` bytes.
    fn describe(
        &mut self,
        header: &Header,
        descriptor: Descriptor,
        available: usize,
    ) -> Result<Record, Violation> {
        if self.current.is_some() {
            return Err(self.out_of_place(header));
        }
        let length = usize::try_from(descriptor.length()).map_or(available, |l| l.min(available));
        let block = self.next_block;
        self.next_block = block.checked_add(1).ok_or(Violation::TooLong { block })?;
        let there = length as u64;
        self.current = (there < descriptor.length()).then_some((descriptor, there));
        Ok(Record {
            message: header.message,
            block,
            descriptor,
            offset: 0,
            length,
        })
    }

    /// The block that has begun goes on with `length` bytes.
    fn proceed(&mut self, header: &Header, length: usize) -> Result<Record, Violation> {
        let Some((descriptor, offset)) = self.current else {
            return Err(self.out_of_place(header));
        };
        let block = self.next_block - 1;
        if header.block != block || header.offset != offset {
            return Err(self.out_of_place(header));
        }
        let there = offset + length as u64;
        if there > descriptor.length() {
            return Err(Violation::TooLong { block });
        }
        self.current = (there < descriptor.length()).then_some((descriptor, there));
        Ok(Record {
            message: header.message,
            block,
            descriptor,
            offset,
            length,
        })
    }

    fn finish(&mut self, header: &Header) -> Result<bool, Violation> {
        if !header.flags.has(Flags::END) {
            return if header.payload_bytes() == 0 {
                Err(Violation::Empty)
            } else {
                Ok(false)
            };
        }
        if self.current.is_some() {
            return Err(Violation::EndsInsideBlock {
                message: header.message,
            });
        }
        self.abandon();
        Ok(true)
    }

    fn out_of_place(&self, header: &Header) -> Violation {
        let (expected_block, expected_offset) = match self.current {
            Some((_, offset)) => (self.next_block - 1, offset),
            None => (self.next_block, 0),
        };
        Violation::OutOfPlace {
            block: header.block,
            offset: header.offset,
            expected_block,
            expected_offset,
        }
    }
}
