//! Blocks of a long piece, by 256 bits at once. Unsafe island: calls what only some processors can.
//!
//! A processor multiplies without carry and takes the CRC of words by units of their own, which work at
//! the same time. So a block is four runs: one that is folded by multiplying, and three of which a CRC
//! is taken word by word; three, because each word waits three cycles for the one before it (P. Cawley,
//! *Faster CRC32-C on x86*, <https://www.corsix.org/content/fast-crc32c-4k>):
//!
//! ```text
//!   ├─────────── folded ───────────┤├── first ──┤├── second ──┤├── third ──┤
//! ```
//!
//! What comes of each is shifted by what lies behind it, and added. All of this is arithmetic with
//! polynomials over two elements, modulo that of CRC-32C; their coefficients lie in a register with the
//! highest power in the lowest bit (Intel, *Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction*, and *Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction*).

#![allow(unsafe_code)]

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m128i, __m256i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
    _mm_extract_epi64, _mm_set_epi64x, _mm_xor_si128, _mm256_castsi256_si128,
    _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_set_epi64x, _mm256_xor_si256,
};

use zerocopy::transmute;

use super::low;

/// The polynomial, without its highest power.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Vectors that are folded in one step: enough for the multiplications of one not to wait for another's.
const VECTORS: usize = 4;
/// Words of each of the three other runs in one step: on AMD's Zen 3 they take as long as the
/// multiplications do, 18 cycles.
const WORDS: usize = 6;
/// Bytes that a step folds,
const FOLDED_BYTES: usize = VECTORS * size_of::<__m256i>();
/// and those that it takes of each other run.
const WORD_BYTES: usize = WORDS * size_of::<u64>();

/// Steps of a long block: four of them, and little more, are 64 KiB.
const LONG: usize = 59;
/// Steps of a short one: of what a piece has left, less than this is for `crc-fast`.
const SHORT: usize = 7;

const _: () = assert!(Block::<SHORT>::BYTES <= super::LEAST_BYTES);

/// Goes on from `state` with the blocks that are in `piece`: the state then, and what is left of it.
/// Nothing where the processor cannot do this, or has 512 bits, which `crc-fast` uses.
#[inline]
pub(crate) fn update(state: u32, piece: &[u8]) -> Option<(u32, &[u8])> {
    if is_x86_feature_detected!("avx512vl") {
        return None;
    }
    update_if_possible(state, piece)
}

/// The same, wherever the processor can do it.
#[inline]
fn update_if_possible(state: u32, piece: &[u8]) -> Option<(u32, &[u8])> {
    let is_possible = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
        && is_x86_feature_detected!("vpclmulqdq");
    // SAFETY: the processor has each feature that the function enables, as it was just asked.
    is_possible.then(|| unsafe { take_all_blocks(state, piece) })
}

#[target_feature(enable = "avx2,pclmulqdq,sse4.2,vpclmulqdq")]
fn take_all_blocks(state: u32, piece: &[u8]) -> (u32, &[u8]) {
    let (state, rest) = take_blocks::<LONG>(state, piece);
    take_blocks::<SHORT>(state, rest)
}

/// Takes blocks of `STEPS` steps off `piece`.
#[target_feature(enable = "avx2,pclmulqdq,sse4.2,vpclmulqdq")]
fn take_blocks<const STEPS: usize>(mut state: u32, mut piece: &[u8]) -> (u32, &[u8]) {
    while let Some((block, rest)) = Block::<STEPS>::split_from(piece) {
        state = block.update(state);
        piece = rest;
    }
    (state, piece)
}

/// The runs of one block, step by step.
struct Block<'a, const STEPS: usize> {
    /// A step more than the others have: it begins with one.
    folded: &'a [[u8; FOLDED_BYTES]],
    words: [&'a [[u8; WORD_BYTES]]; 3],
}

impl<'a, const STEPS: usize> Block<'a, STEPS> {
    /// Bytes of each run but the first.
    const RUN_BYTES: usize = STEPS * WORD_BYTES;
    const BYTES: usize = (STEPS + 1) * FOLDED_BYTES + 3 * Self::RUN_BYTES;

    /// The block that a piece begins with, and what is behind it.
    #[inline]
    fn split_from(piece: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (block, rest) = piece.split_at_checked(Self::BYTES)?;
        let (folded, words) = block.split_at((STEPS + 1) * FOLDED_BYTES);
        let (first, words) = words.split_at(Self::RUN_BYTES);
        let (second, third) = words.split_at(Self::RUN_BYTES);
        let block = Self {
            folded: folded.as_chunks().0,
            words: [first, second, third].map(|run| run.as_chunks().0),
        };
        Some((block, rest))
    }

    /// Goes on from `state` with the block.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq,sse4.2,vpclmulqdq")]
    fn update(&self, state: u32) -> u32 {
        let mut vectors: [__m256i; VECTORS] = transmute!(self.folded[0]);
        let mut sums = [0; 3];
        let [first, second, third] = self.words;
        let words = first.iter().zip(second).zip(third);
        for (folded, ((first, second), third)) in self.folded[1..].iter().zip(words) {
            let next: [__m256i; VECTORS] = transmute!(*folded);
            for (vector, next) in vectors.iter_mut().zip(next) {
                *vector = folded_onto(next, *vector, const { fold_by(FOLDED_BYTES) });
            }
            let words: [[u64; WORDS]; 3] = transmute!([*first, *second, *third]);
            for word in 0..WORDS {
                for (sum, run) in sums.iter_mut().zip(words) {
                    *sum = _mm_crc32_u64(*sum, run[word]);
                }
            }
        }
        let [first, second, third] = sums.map(low);
        let of_folded = shifted(sum_of(vectors), const { shift_by(3 * Self::RUN_BYTES) });
        let of_first = shifted(first, const { shift_by(2 * Self::RUN_BYTES) });
        let of_second = shifted(second, const { shift_by(Self::RUN_BYTES) });
        // Beside the others, so that this block need not wait for what comes of the one before.
        let of_state = shifted(state, const { shift_by(Self::BYTES) });
        let [folded_first, second_state] = [
            _mm_xor_si128(of_folded, of_first),
            _mm_xor_si128(of_second, of_state),
        ];
        reduced(_mm_xor_si128(folded_first, second_state)) ^ third
    }
}

/// The polynomials in both halves of `vector`, each times the power that `factors` are of, plus `next`.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn folded_onto(next: __m256i, vector: __m256i, factors: [i64; 2]) -> __m256i {
    let [low, high] = factors;
    let factors = _mm256_set_epi64x(high, low, high, low);
    let low = _mm256_clmulepi64_epi128(vector, factors, 0x00);
    let high = _mm256_clmulepi64_epi128(vector, factors, 0x11);
    _mm256_xor_si256(_mm256_xor_si256(low, next), high)
}

/// The CRC of what is in `vectors`, one after the other, from a state of zero.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq,sse4.2,vpclmulqdq")]
fn sum_of(vectors: [__m256i; VECTORS]) -> u32 {
    let [mut all, others @ ..] = vectors;
    for next in others {
        all = folded_onto(next, all, const { fold_by(size_of::<__m256i>()) });
    }
    let first = _mm256_castsi256_si128(all);
    let second = _mm256_extracti128_si256(all, 1);
    let [low_factor, high_factor] = const { fold_by(size_of::<__m128i>()) };
    let factors = _mm_set_epi64x(high_factor, low_factor);
    let low_half = _mm_clmulepi64_si128(first, factors, 0x00);
    let high_half = _mm_clmulepi64_si128(first, factors, 0x11);
    let all = _mm_xor_si128(_mm_xor_si128(low_half, second), high_half);
    let before = _mm_crc32_u64(0, _mm_cvtsi128_si64(all).cast_unsigned());
    low(_mm_crc32_u64(
        before,
        _mm_extract_epi64(all, 1).cast_unsigned(),
    ))
}

/// A CRC times the power that `factor` is of, to be [reduced].
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn shifted(sum: u32, factor: i32) -> __m128i {
    let sum = _mm_cvtsi32_si128(sum.cast_signed());
    _mm_clmulepi64_si128(sum, _mm_cvtsi32_si128(factor), 0x00)
}

/// What is in the lower half of `product`, modulo the polynomial.
#[inline]
#[target_feature(enable = "sse4.2")]
fn reduced(product: __m128i) -> u32 {
    low(_mm_crc32_u64(0, _mm_cvtsi128_si64(product).cast_unsigned()))
}

/// x to the power of `exponent`, modulo the polynomial.
const fn power(mut exponent: usize) -> u32 {
    let mut power = 1 << 31;
    while exponent > 0 {
        let carry = power & 1;
        power = (power >> 1) ^ (carry * POLYNOMIAL);
        exponent -= 1;
    }
    power
}

/// What the lower and the upper half of 128 bits are multiplied by to shift them by so many bytes. The
/// lower half has 64 powers more. A product of two registers, as it lies in one of 128 bits, has one power
/// too many, and a factor that lies in the lower bits of its register 32.
const fn fold_by(bytes: usize) -> [i64; 2] {
    [
        power(8 * bytes + 64 - 1 - 32) as i64,
        power(8 * bytes - 1 - 32) as i64,
    ]
}

/// What a CRC is multiplied by to shift it by so many bytes: a product of two that lie in the lower bits
/// has one power too many, as it lies in 64, and to reduce it is to shift it by 32.
const fn shift_by(bytes: usize) -> i32 {
    power(8 * bytes - 1 - 32).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{bytes, defined};

    const LONG_BYTES: usize = Block::<LONG>::BYTES;
    const SHORT_BYTES: usize = Block::<SHORT>::BYTES;

    /// As [`update_if_possible`]; where it is not, no package helps, so that this says so in CI too.
    fn update_or_say(state: u32, piece: &[u8]) -> Option<(u32, &[u8])> {
        let updated = update_if_possible(state, piece);
        if updated.is_none() {
            eprintln!("skipped: this processor does not multiply 256 bits without carry");
        }
        updated
    }

    #[test]
    fn blocks_are_taken_wherever_the_processor_can() {
        let all = bytes(5 * LONG_BYTES, 1);
        let blocks = [
            SHORT_BYTES,
            LONG_BYTES,
            LONG_BYTES + SHORT_BYTES,
            4 * LONG_BYTES,
        ];
        for length in blocks.into_iter().flat_map(|block| block - 40..block + 41) {
            // Not aligned either.
            let piece = &all[length % 61..][..length];
            let Some((state, rest)) = update_or_say(!0, piece) else {
                return;
            };
            assert!(rest.len() < SHORT_BYTES);
            let (taken, behind) = piece.split_at(length - rest.len());
            assert_eq!((!state, rest), (defined(taken), behind), "{length}");
        }
    }

    #[test]
    fn blocks_go_on_from_any_state() {
        let all = bytes(LONG_BYTES + 2 * SHORT_BYTES, 2);
        for cut in [0, 1, 63, 2000] {
            let (before, blocks) = all.split_at(cut);
            let Some((state, rest)) = update_or_say(!defined(before), blocks) else {
                return;
            };
            assert_eq!(!state, defined(&all[..all.len() - rest.len()]), "{cut}");
        }
    }
}
