//! What the messages are: their sizes follow from their numbers, so that both ends know them.

use std::io;

use bytes::Bytes;
use madgate_benches::pattern::{Checker, Mismatch, SEQUENCE_BYTES, SharedPattern, sequence_of};
use madgate_vchannel::{Channel, NodeId, PackError, ReceiveMode, Unpacking};

/// The largest message.
const LARGEST: usize = 8 << 20;

/// Of a hundred messages: how many are of up to how many bytes.
const MIX: [(u64, usize); 5] = [
    (40, 64),
    (30, 4 << 10),
    (20, 64 << 10),
    (9, 1 << 20),
    (1, LARGEST),
];

/// Bytes of message `number`.
fn length_of(number: u64) -> usize {
    let drawn = scramble(number);
    let mut part = drawn % 100;
    for (of_hundred, most) in MIX {
        if part < of_hundred {
            let range = u64::try_from(most - SEQUENCE_BYTES).unwrap_or(0) + 1;
            let more = (drawn >> 8) % range;
            return SEQUENCE_BYTES + usize::try_from(more).unwrap_or(0);
        }
        part -= of_hundred;
    }
    SEQUENCE_BYTES
}

/// SplitMix64's last step.
const fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Messages one after another, in all ways to pack them.
#[derive(Debug)]
pub(crate) struct Sender {
    pattern: SharedPattern,
    next: u64,
}

impl Sender {
    pub(crate) fn new() -> Self {
        Self {
            pattern: SharedPattern::new(LARGEST),
            next: 0,
        }
    }

    pub(crate) fn send(&mut self, channel: &Channel, to: NodeId) -> Result<(), PackError> {
        let number = self.next;
        self.next += 1;
        let rest: Bytes = self.pattern.rest_of(number, length_of(number));
        let mut packing = channel.begin_packing(to)?;
        packing.pack_safer(&number.to_le_bytes(), ReceiveMode::Express)?;
        match number % 3 {
            0 => packing.pack_owned(rest, ReceiveMode::Cheaper)?,
            1 => packing.pack_safer(&rest, ReceiveMode::Cheaper)?,
            _ => {
                packing.pack_cheaper(&rest, ReceiveMode::Cheaper)?;
                return packing.end_packing();
            }
        }
        packing.end_packing()
    }
}

/// Checks messages, from whichever node they come.
#[derive(Debug)]
pub(crate) struct Receiver {
    checker: Checker,
    message: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            checker: Checker::default(),
            message: vec![0; LARGEST],
        }
    }

    /// Unpacks a message; its number, and its bytes.
    pub(crate) fn receive(&mut self, mut unpacking: Unpacking<'_>) -> io::Result<(u64, usize)> {
        let mut front = [0; SEQUENCE_BYTES];
        unpacking
            .unpack_express(&mut front)
            .map_err(io::Error::other)?;
        let number = sequence_of(&front).unwrap_or_default();
        let length = length_of(number);
        let rest = unpacking
            .unpack_owned(length - SEQUENCE_BYTES, ReceiveMode::Cheaper)
            .map_err(io::Error::other)?;
        unpacking.end_unpacking().map_err(io::Error::other)?;
        self.message[..SEQUENCE_BYTES].copy_from_slice(&front);
        self.message[SEQUENCE_BYTES..length].copy_from_slice(&rest);
        let right: Result<(), Mismatch> = self.checker.check(number, &self.message[..length]);
        right.map_err(io::Error::other)?;
        Ok((number, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_mixed_and_within_bounds() {
        let lengths: Vec<usize> = (0..10_000).map(length_of).collect();
        assert!(
            lengths
                .iter()
                .all(|length| (SEQUENCE_BYTES..=LARGEST).contains(length))
        );
        let small = lengths.iter().filter(|length| **length <= 64).count();
        assert!((3_500..4_800).contains(&small), "{small}");
        assert!(lengths.iter().any(|length| *length > 1 << 20));
    }
}
