//! Small messages that are there as a whole when they are asked for: their receiver takes them
//! out of the flow at once, and unpacks them without asking again.

use bytes::Bytes;
use madgate_gtm::Record;
use madgate_gtm::wire::{DESCRIPTOR_BYTES, Descriptor, ReceiveMode, SMALL_PAYLOAD_BYTES};

use super::copies::Copies;
use super::inbox::{Packed, Taken};

/// Bytes of such a message at most, with a descriptor in front of each block: what one small frame
/// holds.
pub(super) const RECORDS_BYTES: usize = SMALL_PAYLOAD_BYTES;

const _: () = assert!(RECORDS_BYTES <= u16::MAX as usize);

/// Messages up to this size are copied once more: that costs less than to share what they are in.
const TINY_BYTES: usize = 80;

/// Bytes of a block of a tiny message at most.
pub(crate) const TINY_BLOCK_BYTES: usize = TINY_BYTES - DESCRIPTOR_BYTES;

/// A whole small message, or none.
#[derive(Debug)]
pub(crate) struct Early {
    /// Blocks as they are in a frame, each behind its descriptor, if they are no more than that.
    tiny: [u8; TINY_BYTES],
    /// The same of a longer message.
    shared: Option<Bytes>,
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
            shared: None,
            filled: 0,
            read: 0,
        }
    }

    /// Whether there is a message: one has a block at least.
    pub(crate) const fn is_some(&self) -> bool {
        self.filled > 0
    }

    /// Becomes the message in the payload of a frame that reassembly has taken in, which is no
    /// longer than [`RECORDS_BYTES`]. It is copied, to memory of `copies` if it is not tiny.
    #[inline]
    pub(super) fn set(&mut self, records: &[u8], copies: &mut Copies) {
        self.begin(records.len());
        match self.tiny.get_mut(..records.len()) {
            Some(tiny) => tiny.copy_from_slice(records),
            None => self.shared = Some(copies.of_bytes(records)),
        }
    }

    /// Becomes the message at `start` of `payload`, of so many bytes, at most [`RECORDS_BYTES`].
    #[inline]
    pub(super) fn set_shared(&mut self, payload: &Bytes, start: usize, length: usize) {
        self.begin(length);
        let range = start..start + length;
        match self.tiny.get_mut(..length) {
            Some(tiny) => tiny.copy_from_slice(&payload[range]),
            None => self.shared = Some(payload.slice(range)),
        }
    }

    /// Becomes what another is, which then is no message.
    #[inline]
    pub(super) fn take_over(&mut self, other: &mut Self) {
        let length = usize::from(std::mem::take(&mut other.filled));
        self.begin(length);
        match self.tiny.get_mut(..length) {
            Some(tiny) => tiny.copy_from_slice(&other.tiny[..length]),
            None => self.shared = other.shared.take(),
        }
    }

    /// So many bytes, none of which has been read.
    fn begin(&mut self, length: usize) {
        self.filled = short(length);
        self.read = 0;
    }

    /// All of its blocks.
    fn records(&self) -> &[u8] {
        let length = usize::from(self.filled);
        match (self.tiny.get(..length), &self.shared) {
            (Some(tiny), _) => tiny,
            (None, Some(shared)) => shared,
            (None, None) => &[],
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
        let mut copies = Copies::default();
        let (mut early, mut other) = (Early::none(), Early::none());
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
            early.set(&payload, &mut copies);
            check(&mut early);
            other.take_over(&mut early);
            check(&mut other);
            assert!(!early.is_some());
            let among_others = [&[7; 3], &payload[..], &[7; 3]].concat().into();
            early.set_shared(&among_others, 3, bytes);
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
