//! Stores past the caches, where processors have them. Unsafe island: it copies between pointers, with
//! instructions that are ordered by themselves.

#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

use super::copy;

/// Bytes of a line of memory, of which all or nothing is written past the caches.
const LINE_BYTES: usize = 64;

/// As [`copy`], but what is written goes to memory, and no cache has it afterwards. Where there is no
/// way to do so, it is the same.
///
/// # Safety
/// As [`copy`].
pub(super) unsafe fn stream(from: *const u8, to: *mut u8, length: usize) {
    let head = to.align_offset(LINE_BYTES).min(length);
    let lines = (length - head) / LINE_BYTES;
    let middle = lines * LINE_BYTES;
    // SAFETY: all three are parts of both, one after the other (the caller's promise); the second
    // begins where `to` is aligned to a line, or is empty.
    unsafe {
        copy(from, to, head);
    }
    let (from, to) = (from.wrapping_add(head), to.wrapping_add(head));
    // SAFETY: as above.
    unsafe {
        stream_lines(from, to, lines);
    }
    let (from, to) = (from.wrapping_add(middle), to.wrapping_add(middle));
    // SAFETY: as above.
    unsafe {
        copy(from, to, length - head - middle);
    }
}

/// Streams whole lines.
///
/// # Safety
/// As [`copy`], of as many lines; `to` is aligned to one.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream_lines(from: *const u8, to: *mut u8, lines: usize) {
    const VECTOR_BYTES: usize = size_of::<__m128i>();
    for at in (0..lines * LINE_BYTES).step_by(VECTOR_BYTES) {
        // SAFETY: as many bytes are left of `from`, which may lie anywhere.
        let vector = unsafe { _mm_loadu_si128(from.wrapping_add(at).cast()) };
        // SAFETY: as many bytes are left of `to`, which is aligned to lines, and so to vectors. Nobody
        // reads them before the fence below, as only this thread may access them now.
        unsafe { _mm_stream_si128(to.wrapping_add(at).cast(), vector) };
    }
    // Such stores keep no order, even with a store that releases: whoever is told of them after this
    // finds them.
    // SAFETY: a fence touches no memory, and every processor of this kind has it.
    unsafe { _mm_sfence() };
}

/// As above, through the caches: these processors have no such stores, or nobody knows of them here.
///
/// # Safety
/// As [`copy`], of as many lines.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn stream_lines(from: *const u8, to: *mut u8, lines: usize) {
    // SAFETY: as the caller promises.
    unsafe { copy(from, to, lines * LINE_BYTES) };
}
