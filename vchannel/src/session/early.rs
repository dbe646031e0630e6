//! Small messages that are there as a whole when they are asked for: their receiver takes them
//! out of the flow at once, and unpacks them without asking again.

use madgate_gtm::Record;
use madgate_gtm::wire::{BUNDLED_BYTES, DESCRIPTOR_BYTES, Descriptor, ReceiveMode};

use super::inbox::{Packed, Taken};
use super::message_memory::MessageMemory;

/// Bytes of such a message at most, with a descriptor in front of each block.
pub(super) const RECORDS_BYTES: usize = BUNDLED_BYTES;

const _: () = assert!(RECORDS_BYTES <= u16::MAX as usize);

/// Messages up to this size need no memory of their own.
const TINY_BYTES: usize = 80;

/// Bytes of a block of a tiny message at most.
pub(crate) const TINY_BLOCK_BYTES: usize = TINY_BYTES - DESCRIPTOR_BYTES;

/// A whole small message, or none.
#[derive(Debug)]
pub(crate) struct Early {
    /// Blocks as they are in a frame, each behind its descriptor, if they are no more than that.
    tiny: [u8; TINY_BYTES],
    /// The same of a longer message.
    longer: MessageMemory,
    /// Bytes of either that are there, and that have been read.
    filled: u16,
    read: u16,
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
            tiny: [0; TINY_BYTES],
            longer: MessageMemory::none(),
            filled: 0,
            read: 0,
        }
    }

    /// Whether there is a message: one has a block at least.
    pub(crate) const fn is_some(&self) -> bool {
        self.filled > 0
    }

    /// Whether a message of these records is one that needs no memory of its own.
    pub(super) const fn is_tiny(records: &[u8]) -> bool {
        records.len() <= TINY_BYTES
    }

    /// Becomes the message in the payload of a frame that reassembly has taken in, which is no
    /// longer than [`RECORDS_BYTES`].
    #[inline]
    pub(crate) fn set(&mut self, records: &[u8]) {
        self.fill(records.len()).copy_from_slice(records);
    }

    /// There is no message any more.
    pub(super) const fn clear(&mut self) {
        self.filled = 0;
    }

    /// All of its blocks, as they were [set](Self::set).
    #[inline]
    pub(super) fn records(&self) -> &[u8] {
        let length = usize::from(self.filled);
        match self.tiny.get(..length) {
            Some(tiny) => tiny,
            None => self.longer.bytes(length),
        }
    }

    /// Becomes a message of so many bytes, at most [`RECORDS_BYTES`]; returns where its records go.
    #[inline]
    pub(super) fn fill(&mut self, length: usize) -> &mut [u8] {
        self.filled = short(length);
        self.read = 0;
        match self.tiny.get_mut(..length) {
            Some(tiny) => tiny,
            None => self.longer.make(length),
        }
    }

    /// Whether a whole block of this record still fits behind `filled` bytes of a tiny message; the
    /// bytes with it.
    pub(super) fn room_for(record: &Record, filled: usize) -> Option<usize> {
        let is_whole = record.offset == 0 && record.ends_block();
        let filled = filled + DESCRIPTOR_BYTES + record.length;
        (is_whole && filled <= TINY_BYTES).then_some(filled)
    }

    /// Appends a block for which there is room; returns the memory for its bytes.
    pub(super) fn push(&mut self, record: &Record) -> &mut [u8] {
        let start = usize::from(self.filled);
        let data = start + DESCRIPTOR_BYTES;
        let end = data + record.length;
        self.tiny[start..data].copy_from_slice(&record.descriptor.to_bytes());
        self.filled = short(end);
        &mut self.tiny[data..end]
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
        let rest = self.records().get(usize::from(self.read)..)?;
        let (descriptor, data) = rest.split_first_chunk()?;
        Some((Descriptor::parse(*descriptor).ok()?, data))
    }
}

/// A length within [`RECORDS_BYTES`].
fn short(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
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
        // Each where the one before was, and tiny ones on either side of longer ones.
        for bytes in [TINY_BYTES, TINY_BYTES + 1, 9, RECORDS_BYTES, 8] {
            let length = bytes - DESCRIPTOR_BYTES;
            let mut payload = vec![u8::try_from(bytes % 251).unwrap(); bytes];
            let descriptor = record(length, ReceiveMode::Cheaper).descriptor;
            payload[..DESCRIPTOR_BYTES].copy_from_slice(&descriptor.to_bytes());
            let mut block = vec![0; length];
            let mut check = |early: &mut Early| {
                assert!(early.is_some());
                block.fill(0);
                let taken = early.take(ReceiveMode::Cheaper, &mut block);
                assert_eq!(taken, Taken::Block(length));
                assert!(block == payload[DESCRIPTOR_BYTES..], "{bytes} bytes");
                assert_eq!(early.peek(), Packed::End);
            };
            early.set(&payload);
            check(&mut early);
            early.clear();
            assert!(!early.is_some());
            early.fill(bytes).copy_from_slice(&payload);
            check(&mut early);
        }
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
