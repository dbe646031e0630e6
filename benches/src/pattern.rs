//! What the messages of a bench contain, and the check that they arrive as they were sent.
//!
//! A message starts with its sequence number (8 bytes, little-endian). The rest repeats one
//! pattern of [`PERIOD`] bytes, entered at a place that depends on the sequence number. The
//! period is prime, so that no piece of a message that lands at the place of another, or in
//! another message, looks right; and short enough for the check to run from the cache.

use std::error::Error;
use std::fmt;

use bytes::Bytes;

/// Length of the repeated pattern: prime, and half of a first-level cache at most.
pub const PERIOD: usize = 16_381;

/// Bytes of the sequence number; no message is shorter.
pub const SEQUENCE_BYTES: usize = 8;

/// How far the place where a message enters the pattern moves from message to message.
const STRIDE: u64 = 61;

/// A message that is not what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The message that was due.
    pub sequence: u64,
    /// Where in it the first part that differs begins.
    pub offset: usize,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, offset } = self;
        write!(
            formatter,
            "message {sequence} differs from what was sent, at or after byte {offset}"
        )
    }
}

impl Error for Mismatch {}

/// The sending side: messages as slices of one buffer, without copying.
#[derive(Debug)]
pub struct Pattern {
    bytes: Vec<u8>,
    /// What the sequence number of the latest message covers, and where.
    covered: ([u8; SEQUENCE_BYTES], usize),
}

impl Pattern {
    /// A pattern for messages of up to `largest` bytes.
    pub fn new(largest: usize) -> Self {
        let bytes = repeated(PERIOD + largest.max(SEQUENCE_BYTES));
        let mut covered = [0; SEQUENCE_BYTES];
        covered.copy_from_slice(&bytes[..SEQUENCE_BYTES]);
        Self {
            bytes,
            covered: (covered, 0),
        }
    }

    /// Message `sequence`, `length` bytes long; valid until the next call.
    ///
    /// # Panics
    ///
    /// If `length` is less than [`SEQUENCE_BYTES`] or more than `new` was told.
    #[inline]
    pub fn message(&mut self, sequence: u64, length: usize) -> &mut [u8] {
        let (covered, place) = self.covered;
        self.bytes[place..place + SEQUENCE_BYTES].copy_from_slice(&covered);

        let start = entry(sequence);
        let message = &mut self.bytes[start..start + length];
        let front = &mut message[..SEQUENCE_BYTES];
        self.covered.0.copy_from_slice(front);
        self.covered.1 = start;
        front.copy_from_slice(&sequence.to_le_bytes());
        message
    }
}

/// The sending side of an end that gives its messages away: the same messages, without the
/// sequence number, as parts of memory that is shared and never changed.
#[derive(Debug)]
pub struct SharedPattern(Bytes);

impl SharedPattern {
    /// A pattern for messages of up to `largest` bytes.
    pub fn new(largest: usize) -> Self {
        Self(repeated(PERIOD + largest.max(SEQUENCE_BYTES)).into())
    }

    /// What follows the sequence number in message `sequence` of `length` bytes.
    ///
    /// # Panics
    ///
    /// If `length` is less than [`SEQUENCE_BYTES`] or more than `new` was told.
    #[inline]
    pub fn rest_of(&self, sequence: u64, length: usize) -> Bytes {
        let start = entry(sequence);
        self.0.slice(start + SEQUENCE_BYTES..start + length)
    }
}

/// The receiving side.
#[derive(Debug)]
pub struct Checker {
    expected: Vec<u8>,
}

impl Default for Checker {
    fn default() -> Self {
        Self {
            expected: repeated(2 * PERIOD),
        }
    }
}

impl Checker {
    /// Whether `message` is message `sequence`, every byte of it.
    ///
    /// # Errors
    ///
    /// [`Mismatch`] if it is not.
    #[inline]
    pub fn check(&self, sequence: u64, message: &[u8]) -> Result<(), Mismatch> {
        let Some((front, rest)) = message.split_first_chunk::<SEQUENCE_BYTES>() else {
            return Err(Mismatch {
                sequence,
                offset: 0,
            });
        };
        if *front != sequence.to_le_bytes() {
            return Err(Mismatch {
                sequence,
                offset: 0,
            });
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = (entry(sequence) + SEQUENCE_BYTES) % PERIOD;
        for (index, part) in rest.chunks(PERIOD).enumerate() {
            if part != &self.expected[start..start + part.len()] {
                return Err(Mismatch {
                    sequence,
                    offset: SEQUENCE_BYTES + index * PERIOD,
                });
            }
        }
        Ok(())
    }
}

/// The sequence number that a message claims; `None` if it is too short to have one.
#[inline]
pub fn sequence_of(message: &[u8]) -> Option<u64> {
    message
        .first_chunk::<SEQUENCE_BYTES>()
        .map(|bytes| u64::from_le_bytes(*bytes))
}

/// Where message `sequence` enters the pattern.
#[inline]
fn entry(sequence: u64) -> usize {
    // The remainder is below PERIOD, which fits anything.
    usize::try_from(sequence.wrapping_mul(STRIDE) % (PERIOD as u64)).unwrap_or(0)
}

fn repeated(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let period: Vec<u8> = (0..PERIOD)
        .map(|_| {
            // xorshift64: any noise does, as long as it is the same in every process.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect();
    period.iter().copied().cycle().take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [usize; 6] = [8, 9, 64, PERIOD, 65_536, 1 << 20];

    #[test]
    fn what_is_sent_passes_the_check() {
        let checker = Checker::default();
        let mut pattern = Pattern::new(1 << 20);
        for (sequence, length) in LENGTHS.iter().cycle().take(60).enumerate() {
            let sequence = sequence as u64;
            let message = pattern.message(sequence, *length).to_vec();
            assert_eq!(sequence_of(&message), Some(sequence));
            assert_eq!(checker.check(sequence, &message), Ok(()));
            assert!(checker.check(sequence + 1, &message).is_err());
        }
    }

    #[test]
    fn one_wrong_byte_is_found() {
        let checker = Checker::default();
        let mut pattern = Pattern::new(1 << 20);
        for place in [8, 9, PERIOD + 8, 70_000, (1 << 20) - 1] {
            let mut message = pattern.message(5, 1 << 20).to_vec();
            message[place] ^= 1;
            let mismatch = checker.check(5, &message).unwrap_err();
            assert!(mismatch.offset <= place);
        }
    }

    #[test]
    fn fragments_in_the_wrong_place_are_found() {
        let checker = Checker::default();
        let mut pattern = Pattern::new(1 << 20);
        let message = pattern.message(5, 1 << 20).to_vec();
        for (from, to) in [(1, 2), (2, 1), (15, 3)] {
            let mut moved = message.clone();
            moved.copy_within(from * 65_536..(from + 1) * 65_536, to * 65_536);
            assert!(checker.check(5, &moved).is_err());
        }
    }

    #[test]
    fn a_message_without_a_sequence_number_is_wrong() {
        assert!(Checker::default().check(0, &[0; 7]).is_err());
    }
}
