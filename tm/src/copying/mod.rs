//! Copies of bytes between memories, without what slows them down on some processors. Unsafe
//! island: it copies between pointers.

#![allow(unsafe_code)]

mod fetching;
mod streaming;
mod unit_writer;

pub use unit_writer::Stores;
pub(crate) use unit_writer::UnitWriter;

use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

/// Units up to this size are copied word by word to where the other side will read them.
const WORDS_BYTES: usize = 128;

/// What is longer is copied in parts of this size.
const PART_BYTES: usize = 512;

/// Copies `from` to `to`: as `copy_nonoverlapping`, in parts of [`PART_BYTES`].
///
/// What the C library does for a copy of more than about 2 KiB, on processors that say that they are
/// good at it, is one instruction (`rep movsb`). On some of them (AMD Zen 4) that is much slower where
/// source and target are 1 to 15 bytes apart in their pages, and where another processor has what is
/// written. So short a copy is not done in that way.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `length` bytes, and they do not overlap.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    let (mut from, mut to, mut rest) = (from, to, length);
    while rest > PART_BYTES {
        // SAFETY: as many bytes are left of both (the caller's promise).
        unsafe { copy_part(from, to) };
        (from, to) = (from.wrapping_add(PART_BYTES), to.wrapping_add(PART_BYTES));
        rest -= PART_BYTES;
    }
    // SAFETY: this is the rest of both (as above).
    unsafe { ptr::copy_nonoverlapping(from, to, rest) };
}

/// Copies one part. Not inlined: the compiler would put the parts together again.
///
/// # Safety
/// As [`copy`], of [`PART_BYTES`].
#[inline(never)]
unsafe fn copy_part(from: *const u8, to: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe { ptr::copy_nonoverlapping(from, to, PART_BYTES) };
}

/// Copies a unit to where the other side will read it.
///
/// A small one has just been written, in words. A copy that reads more than a word at once would
/// wait until those have left the processor's store buffer, which takes as long as all of the
/// copy; words are handed over from there.
///
/// # Safety
/// `from` is valid for reads and `to` for writes, `to` is as long, and they do not overlap. Nobody
/// else in this process accesses `to` meanwhile.
#[inline(always)]
pub(crate) unsafe fn copy_unit(from: NonNull<[u8]>, to: NonNull<[u8]>) {
    debug_assert_eq!(from.len(), to.len());
    let length = from.len();
    let (from, to) = (from.cast::<u8>(), to.cast::<u8>());
    let mut copied = 0;
    // Miri has no model of memory that is accessed with words that are atomic and with other bytes.
    if cfg!(not(miri)) && length <= WORDS_BYTES && to.cast::<AtomicU64>().is_aligned() {
        let words = length / size_of::<u64>();
        // SAFETY: as many words are within `to`, which is aligned for them, and nobody else in this
        // process accesses them now (the caller's promises): they are atomic for another reason. What
        // another process does is outside of this program's memory model.
        let places = unsafe { slice::from_raw_parts(to.cast::<AtomicU64>().as_ptr(), words) };
        for (place, word) in places.iter().zip(0..) {
            let word = from.cast::<u64>().as_ptr().wrapping_add(word);
            // SAFETY: it is within `from`, and may lie anywhere.
            let word = unsafe { word.read_unaligned() };
            // Atomic, which keeps the compiler from making one wide copy of all of them.
            place.store(word, Ordering::Relaxed);
        }
        copied = words * size_of::<u64>();
    }
    if copied < length {
        let (from, to) = (from.as_ptr(), to.as_ptr());
        let (from, to) = (from.wrapping_add(copied), to.wrapping_add(copied));
        // SAFETY: this is the rest of both (the caller's promise).
        unsafe { copy(from, to, length - copied) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// A multiple of a line of memory, so that places are what they are called.
    #[repr(align(64))]
    struct Memory([u8; 4096]);

    #[test]
    fn units_of_all_lengths_and_places_are_copied() {
        let bytes: Vec<u8> = (1..=251).cycle().take(4096).collect();
        let lengths = [
            0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 200, 511, 512, 513, 1024, 1030, 3000,
        ];
        let places = [(67, 8), (0, 0), (64, 1), (72, 3)];
        // Under miri each byte takes long.
        let tried = if cfg!(miri) { 1 } else { places.len() };
        for (at, start) in places.into_iter().take(tried) {
            for length in lengths {
                let unit = &bytes[start..start + length];
                let copied = |copy: fn(NonNull<[u8]>, NonNull<[u8]>)| {
                    let mut memory = Memory([0; 4096]);
                    copy(
                        NonNull::from(unit),
                        NonNull::from(&mut memory.0[at..at + length]),
                    );
                    assert_eq!(&memory.0[at..at + length], unit, "{length} bytes at {at}");
                    let mut rest = memory.0[..at].iter().chain(&memory.0[at + length..]);
                    assert!(rest.all(|byte| *byte == 0), "{length} bytes at {at}");
                };
                // SAFETY: both are slices of one length, and the target is nobody else's.
                copied(|from, to| unsafe { copy_unit(from, to) });
                copied(|from, to| {
                    let (from, to, length) = (from.cast(), to.cast(), from.len());
                    // SAFETY: as above.
                    unsafe { copy(from.as_ptr(), to.as_ptr(), length) };
                });
            }
        }
    }
}
