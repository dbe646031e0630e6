//! Small messages that are there as a whole when they are asked for: their receiver takes them
//! out of the flow at once, and unpacks them without asking again.

use madgate_gtm::Record;
use madgate_gtm::wire::{BUNDLED_BYTES, DESCRIPTOR_BYTES, Descriptor, ReceiveMode};

use super::inbox::{Packed, Taken};

/// Bytes of such a message at most, with a descriptor in front of each block.
pub(super) const RECORDS_BYTES: usize = BUNDLED_BYTES;

const _: () = assert!(RECORDS_BYTES <= u8::MAX as usize);

/// Bytes of a block of such a message at most.
pub(crate) const SMALL_BLOCK_BYTES: usize = RECORDS_BYTES - DESCRIPTOR_BYTES;

/// A whole small message, or none.
#[derive(Debug)]
pub(crate) struct Early {
    /// Blocks as they are in a frame, each behind its descriptor.
    records: [u8; RECORDS_BYTES],
    /// Bytes of that which are there, and which have been read.
    filled: u8,
    read: u8,
}

impl Default for Early {
    fn default() -> Self {
        Self::none()
    }
}

impl Early {
    /// No message.
    #[inline]
    pub(crate) const fn none() -> Self {
        Self {
            records: [0; RECORDS_BYTES],
            filled: 0,
            read: 0,
        }
    }

    /// Whether there is a message: one has a block at least.
    pub(crate) const fn is_some(&self) -> bool {
        self.filled > 0
    }

    /// Becomes the message in the payload of a frame that reassembly has taken in, which is no
    /// longer than [`RECORDS_BYTES`].
    pub(crate) fn set(&mut self, records: &[u8]) {
        self.records[..records.len()].copy_from_slice(records);
        self.filled = short(records.len());
        self.read = 0;
    }

    /// There is no message any more.
    pub(super) const fn clear(&mut self) {
        self.filled = 0;
    }

    /// All of its blocks, as they were [set](Self::set).
    pub(super) fn records(&self) -> &[u8] {
        &self.records[..usize::from(self.filled)]
    }

    /// Becomes a message of so many bytes, at most [`RECORDS_BYTES`]; returns where its records go.
    pub(super) fn fill(&mut self, length: usize) -> &mut [u8] {
        self.filled = short(length);
        self.read = 0;
        &mut self.records[..length]
    }

    /// Whether a whole block of this record still fits behind `filled` bytes; the bytes with it.
    pub(super) fn room_for(record: &Record, filled: usize) -> Option<usize> {
        let is_whole = record.offset == 0 && record.ends_block();
        let filled = filled + DESCRIPTOR_BYTES + record.length;
        (is_whole && filled <= RECORDS_BYTES).then_some(filled)
    }

    /// Appends a block for which there is room; returns the memory for its bytes.
    pub(super) fn push(&mut self, record: &Record) -> &mut [u8] {
        let start = usize::from(self.filled);
        let data = start + DESCRIPTOR_BYTES;
        let end = data + record.length;
        self.records[start..data].copy_from_slice(&record.descriptor.to_bytes());
        self.filled = short(end);
        &mut self.records[data..end]
    }

    /// What the next block is.
    pub(crate) fn peek(&self) -> Packed {
        match self.next() {
            Some((descriptor, _)) => Packed::Block {
                length: descriptor.length(),
                receive: descriptor.receive,
            },
            None => Packed::End,
        }
    }

    /// Reads the next block, if it is as long as `into` and of this mode.
    pub(crate) fn take(&mut self, receive: ReceiveMode, into: &mut [u8]) -> Taken {
        let length = into.len();
        match self.next() {
            Some((descriptor, data))
                if descriptor.length() == length as u64 && descriptor.receive == receive =>
            {
                into.copy_from_slice(&data[..length]);
                self.read += short(DESCRIPTOR_BYTES + length);
                Taken::Block(length)
            }
            _ => Taken::Mismatch(self.peek()),
        }
    }

    /// The next block's descriptor, and what is behind it.
    fn next(&self) -> Option<(Descriptor, &[u8])> {
        let rest = &self.records[usize::from(self.read)..usize::from(self.filled)];
        let (descriptor, data) = rest.split_first_chunk()?;
        Some((Descriptor::parse(*descriptor).ok()?, data))
    }
}

/// A length within [`RECORDS_BYTES`].
fn short(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use madgate_gtm::wire::SendMode;

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
    fn a_payload_is_a_message() {
        let mut early = Early::none();
        assert!(!early.is_some());
        let mut payload = [9; RECORDS_BYTES];
        let length = RECORDS_BYTES - DESCRIPTOR_BYTES;
        let descriptor = record(length, ReceiveMode::Cheaper).descriptor;
        payload[..DESCRIPTOR_BYTES].copy_from_slice(&descriptor.to_bytes());
        early.set(&payload);
        assert!(early.is_some());
        let mut block = [0; RECORDS_BYTES - DESCRIPTOR_BYTES];
        let taken = early.take(ReceiveMode::Cheaper, &mut block);
        assert_eq!((taken, block), (Taken::Block(length), [9; 72]));
        assert_eq!(early.peek(), Packed::End);
        early.set(&payload[..0]);
        assert!(!early.is_some());
    }

    #[test]
    fn blocks_come_out_as_they_went_in() {
        let lengths = [3, 0, 37];
        let mut early = Early::none();
        let mut filled = 0;
        for length in lengths {
            let record = record(length, ReceiveMode::Cheaper);
            filled = Early::room_for(&record, filled).unwrap();
            early.push(&record).fill(7);
        }
        let mut part = record(4, ReceiveMode::Cheaper);
        assert_eq!(Early::room_for(&part, filled), Some(76));
        assert_eq!(Early::room_for(&part, filled + 5), None, "no room");
        part.offset = 1;
        assert_eq!(Early::room_for(&part, filled), None, "not whole");

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
        let mut block = [0; 37];
        assert_eq!(
            early.take(ReceiveMode::Cheaper, &mut block),
            Taken::Block(37)
        );
        assert_eq!(block, [7; 37]);
        assert_eq!(early.peek(), Packed::End);
        assert_eq!(
            early.take(ReceiveMode::Cheaper, &mut []),
            Taken::Mismatch(Packed::End)
        );
    }
}
