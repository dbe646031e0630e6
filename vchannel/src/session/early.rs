//! Small messages that are there as a whole when they are asked for: their receiver takes them
//! out of the flow at once, and unpacks them without asking again.

use madgate_gtm::Record;
use madgate_gtm::wire::{DESCRIPTOR_BYTES, ReceiveMode};

use super::inbox::{Packed, Taken};

/// Blocks of such a message at most.
pub(super) const BLOCKS: usize = 6;

/// Bytes of it at most.
pub(super) const BYTES: usize = 40;

/// The blocks of a frame whose payload is no longer than this always fit, whatever they are.
pub(super) const PAYLOAD_BYTES: usize = BYTES + DESCRIPTOR_BYTES;

const _: () = assert!(PAYLOAD_BYTES / DESCRIPTOR_BYTES <= BLOCKS);

/// A whole small message.
#[derive(Debug)]
pub(crate) struct Early {
    blocks: [(u8, ReceiveMode); BLOCKS],
    count: u8,
    next: u8,
    bytes: [u8; BYTES],
    /// Bytes before the next block, and of all blocks.
    read: u8,
    filled: u8,
}

impl Early {
    pub(super) const fn new() -> Self {
        Self {
            blocks: [(0, ReceiveMode::Express); BLOCKS],
            count: 0,
            next: 0,
            bytes: [0; BYTES],
            read: 0,
            filled: 0,
        }
    }

    /// Whether a whole block of this record still fits.
    pub(super) fn has_room(&self, record: &Record) -> bool {
        let is_whole = record.offset == 0 && record.ends_block();
        let fits = record.length <= BYTES - usize::from(self.filled);
        is_whole && fits && usize::from(self.count) < BLOCKS
    }

    /// Appends a block that has room.
    pub(super) fn push_with(&mut self, record: &Record, bytes: &[u8]) {
        let start = usize::from(self.filled);
        self.push(record);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Notes a block that has room; its bytes follow with those of all others.
    pub(super) fn push(&mut self, record: &Record) {
        let length = u8::try_from(record.length).unwrap_or(u8::MAX);
        self.blocks[usize::from(self.count)] = (length, record.descriptor.receive);
        self.count += 1;
        self.filled += length;
    }

    /// Memory for the bytes of all blocks.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.filled)]
    }

    /// What the next block is.
    pub(crate) fn peek(&self) -> Packed {
        if self.next == self.count {
            return Packed::End;
        }
        let (length, receive) = self.blocks[usize::from(self.next)];
        let length = u64::from(length);
        Packed::Block { length, receive }
    }

    /// Reads the next block, if it is as long as `into` and of this mode.
    pub(crate) fn take(&mut self, receive: ReceiveMode, into: &mut [u8]) -> Taken {
        let length = into.len();
        let wanted = Packed::Block {
            length: length as u64,
            receive,
        };
        let packed = self.peek();
        if packed != wanted {
            return Taken::Mismatch(packed);
        }
        let start = usize::from(self.read);
        into.copy_from_slice(&self.bytes[start..start + length]);
        // It is as long as a block of this message, which has 40 bytes at most.
        self.read += u8::try_from(length).unwrap_or(u8::MAX);
        self.next += 1;
        Taken::Block(length)
    }
}

#[cfg(test)]
mod tests {
    use madgate_gtm::wire::{Descriptor, SendMode};

    use super::*;

    fn record(length: usize, receive: ReceiveMode) -> Record {
        let descriptor = Descriptor::new(length as u64, SendMode::Safer, receive).unwrap();
        Record {
            message: 1,
            block: 0,
            descriptor,
            offset: 0,
            length,
        }
    }

    #[test]
    fn the_smallest_blocks_of_a_short_frame_fit() {
        let mut early = Early::new();
        for _ in 0..PAYLOAD_BYTES / DESCRIPTOR_BYTES {
            assert!(early.has_room(&record(0, ReceiveMode::Express)));
            early.push_with(&record(0, ReceiveMode::Express), &[]);
        }
        let mut early = Early::new();
        let bytes = [5; PAYLOAD_BYTES - DESCRIPTOR_BYTES];
        assert!(early.has_room(&record(bytes.len(), ReceiveMode::Cheaper)));
        early.push_with(&record(bytes.len(), ReceiveMode::Cheaper), &bytes);
        let mut block = [0; PAYLOAD_BYTES - DESCRIPTOR_BYTES];
        let taken = early.take(ReceiveMode::Cheaper, &mut block);
        assert_eq!((taken, block), (Taken::Block(bytes.len()), bytes));
        assert_eq!(early.peek(), Packed::End);
    }

    #[test]
    fn blocks_come_out_as_they_went_in() {
        let mut early = Early::new();
        for length in [3, 0, 37] {
            assert!(early.has_room(&record(length, ReceiveMode::Cheaper)));
            early.push(&record(length, ReceiveMode::Cheaper));
        }
        assert!(
            !early.has_room(&record(1, ReceiveMode::Cheaper)),
            "no bytes"
        );
        for _ in 3..BLOCKS {
            assert!(early.has_room(&record(0, ReceiveMode::Express)));
            early.push(&record(0, ReceiveMode::Express));
        }
        assert!(
            !early.has_room(&record(0, ReceiveMode::Express)),
            "no block"
        );
        early.bytes_mut().fill(7);

        let mut block = [0; 3];
        assert_eq!(
            early.take(ReceiveMode::Express, &mut block),
            Taken::Mismatch(Packed::Block {
                length: 3,
                receive: ReceiveMode::Cheaper
            })
        );
        assert_eq!(
            early.take(ReceiveMode::Cheaper, &mut block),
            Taken::Block(3)
        );
        assert_eq!(block, [7; 3]);
        assert_eq!(early.take(ReceiveMode::Cheaper, &mut []), Taken::Block(0));
        assert_eq!(
            early.take(ReceiveMode::Cheaper, &mut [0; 37]),
            Taken::Block(37)
        );
        for _ in 3..BLOCKS {
            assert_eq!(early.take(ReceiveMode::Express, &mut []), Taken::Block(0));
        }
        assert_eq!(early.peek(), Packed::End);
        assert_eq!(
            early.take(ReceiveMode::Express, &mut []),
            Taken::Mismatch(Packed::End)
        );
    }
}
