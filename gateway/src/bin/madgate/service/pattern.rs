//! What the messages of a bench contain, and the check that they arrive as they were sent.

use bytes::Bytes;

/// Length of the pattern that is repeated: prime, so that what lands at the place of
/// something else looks wrong, and short enough to be compared from the nearest cache.
const PERIOD: usize = 8191;

/// How far the place where a message enters the pattern moves from message to message.
const STRIDE: u64 = 61;

fn entry(sequence: u64) -> usize {
    let period = crate::files::wire::count(PERIOD);
    usize::try_from((sequence % period) * STRIDE % period).unwrap_or(0)
}

fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let period: Vec<u8> = (0..PERIOD)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect();
    period.iter().copied().cycle().take(length).collect()
}

/// Messages of one size, as slices of one buffer.
#[derive(Debug)]
pub(crate) struct Messages {
    bytes: Bytes,
    size: usize,
}

impl Messages {
    /// Messages of `size` bytes.
    pub(crate) fn new(size: usize) -> Self {
        let bytes = pattern(PERIOD + size).into();
        Self { bytes, size }
    }

    /// How long each is.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Message `sequence`, to be given away.
    pub(crate) fn owned(&self, sequence: u64) -> Bytes {
        let start = entry(sequence);
        self.bytes.slice(start..start + self.size)
    }

    /// Message `sequence`, to be looked at.
    pub(crate) fn borrowed(&self, sequence: u64) -> &[u8] {
        let start = entry(sequence);
        &self.bytes[start..start + self.size]
    }
}

/// Checks messages of any size.
#[derive(Debug)]
pub(crate) struct Check {
    /// Two periods, so that one period can be read from any place.
    twice: Vec<u8>,
}

impl Check {
    pub(crate) fn new() -> Self {
        Self {
            twice: pattern(2 * PERIOD),
        }
    }

    /// Whether `bytes` are those of message `sequence`.
    pub(crate) fn matches(&self, sequence: u64, bytes: &[u8]) -> bool {
        let start = entry(sequence);
        let period = &self.twice[start..start + PERIOD];
        bytes
            .chunks(PERIOD)
            .all(|chunk| *chunk == period[..chunk.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_match_their_own_number_only() {
        let check = Check::new();
        for size in [8, 1000, PERIOD, 3 * PERIOD + 5] {
            let messages = Messages::new(size);
            for sequence in [0, 1, 2, 134, 135, u64::MAX] {
                assert_eq!(messages.owned(sequence), messages.borrowed(sequence));
                assert!(check.matches(sequence, messages.borrowed(sequence)));
                assert!(!check.matches(sequence.wrapping_add(1), messages.borrowed(sequence)));
            }
            let mut damaged = messages.borrowed(3).to_vec();
            damaged[size - 1] ^= 1;
            assert!(!check.matches(3, &damaged));
        }
        assert!(check.matches(9, &[]));
    }
}
