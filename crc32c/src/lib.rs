//! CRC-32C (Castagnoli), as fast as the processor takes it.
//!
//! Both ends of a message that crosses gateways take a checksum of every byte of it, so that it pays for
//! each twice. `crc-fast` takes it, by the widest instructions that it knows the processor to have. For
//! CRC-32C it knows none between those of 128 bits and those of AVX-512: a processor that multiplies
//! 256 bits without carry and has no AVX-512 is left at half of what it can do. For long pieces there,
//! and only there, the module `wide` has a way of its own, over blocks whose length the compiler knows; the
//! rest of each piece is left to `crc-fast` again.
//!
//! ```text
//!   piece    ████████████████ ████████████████ ██ ██ ██ ░░░░░
//!             long blocks: wide          short: wide    rest: crc-fast
//! ```
//!
//! What is handed from one to the next is the state: the checksum so far, before its bits are
//! flipped for the last time.

#![deny(unsafe_code)]

use crc_fast::{CrcAlgorithm, Digest};

#[cfg(target_arch = "x86_64")]
mod wide;

/// CRC-32C of one piece.
#[must_use]
#[inline]
pub fn of(bytes: &[u8]) -> u32 {
    if bytes.len() < LEAST_BYTES {
        return crc_fast::crc32_iscsi(bytes);
    }
    let mut sum = Crc32c::new();
    sum.update_long(bytes);
    sum.finish()
}

/// Shorter pieces are left to `crc-fast` without asking what the processor has.
const LEAST_BYTES: usize = 2 << 10;

/// CRC-32C of what comes in pieces, wherever they are cut.
#[derive(Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// Of nothing yet.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Goes on with the next piece.
    #[inline]
    pub fn update(&mut self, piece: &[u8]) {
        if piece.len() < LEAST_BYTES {
            self.0.update(piece);
        } else {
            self.update_long(piece);
        }
    }

    /// The checksum of all pieces.
    #[must_use]
    #[inline]
    pub fn finish(self) -> u32 {
        low(self.0.finalize())
    }

    #[inline(never)]
    fn update_long(&mut self, piece: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        if let Some((state, rest)) = wide::update(low(self.0.get_state()), piece) {
            self.0 = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state.into());
            self.0.update(rest);
            return;
        }
        self.0.update(piece);
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// What a processor and the library say as 64 bits.
#[inline]
fn low(sum: u64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "CRC-32C has 32 bits, and the upper half is zero"
    )]
    let low = sum as u32;
    low
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Bit after bit, as it is defined.
    pub(crate) fn defined(bytes: &[u8]) -> u32 {
        let mut state = u32::MAX;
        for byte in bytes {
            state ^= u32::from(*byte);
            for _ in 0..8 {
                state = (state >> 1) ^ ((state & 1) * 0x82f6_3b78);
            }
        }
        !state
    }

    /// Bytes that do not repeat within a block.
    pub(crate) fn bytes(count: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn known_checksums_are_found() {
        // RFC 3720, B.4, and the check value of the algorithm's catalogue.
        assert_eq!(of(b"123456789"), 0xe306_9283);
        assert_eq!(of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(of(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(of(&ascending), 0x46dd_794e);
        assert_eq!(of(&[]), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow")]
    fn short_and_long_pieces_are_right() {
        let all = bytes(70_000, 1);
        for length in (LEAST_BYTES - 40..LEAST_BYTES + 41).chain([16 << 10, 64 << 10]) {
            let piece = &all[length % 61..][..length];
            assert_eq!(of(piece), defined(piece), "{length}");
        }
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "too slow")]
        fn where_pieces_are_cut_makes_no_difference(
            seed: u64,
            lengths in vec(prop_oneof![0..100_usize, 1_900..2_300_usize, 0..40_000_usize], 0..6),
        ) {
            let all = bytes(lengths.iter().sum(), seed);
            let (mut sum, mut rest) = (Crc32c::new(), all.as_slice());
            for length in lengths {
                let (piece, behind) = rest.split_at(length);
                sum.update(piece);
                rest = behind;
            }
            prop_assert_eq!(sum.finish(), defined(&all));
            prop_assert_eq!(of(&all), defined(&all));
        }
    }
}
