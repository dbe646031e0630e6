//! Copies that fetch the lines that they are about to write. Unsafe island: it copies between pointers.

#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::asm;

use super::{PART_BYTES, copy, copy_part};

/// Bytes of a line of memory.
const LINE_BYTES: usize = 64;

/// How far ahead of what is written lines are fetched.
const AHEAD_BYTES: usize = 1024;

const _: () = assert!(PART_BYTES.is_multiple_of(LINE_BYTES));

/// Whether processors of this kind know how. Those that are older than these instructions may not even ignore
/// the other.
#[cfg(target_arch = "x86_64")]
fn can_fetch() -> bool {
    is_x86_feature_detected!("avx2")
}

/// As above.
#[cfg(not(target_arch = "x86_64"))]
fn can_fetch() -> bool {
    false
}

/// As [`copy`], to lines that another processor read last, and may have still. A store takes such a line from
/// it, and one after the other they take as long as all of the copy: so they are asked for ahead of that.
///
/// # Safety
/// As [`copy`].
pub(super) unsafe fn copy_fetching(from: *const u8, to: *mut u8, length: usize) {
    let (mut from, mut to, mut rest) = (from, to, length);
    while rest > AHEAD_BYTES + PART_BYTES && can_fetch() {
        for line in (0..PART_BYTES).step_by(LINE_BYTES) {
            fetch_for_writing(to.wrapping_add(AHEAD_BYTES + line));
        }
        // SAFETY: more than a part is left of both (the caller's promise).
        unsafe { copy_part(from, to) };
        (from, to) = (from.wrapping_add(PART_BYTES), to.wrapping_add(PART_BYTES));
        rest -= PART_BYTES;
    }
    // SAFETY: this is the rest of both (as above).
    unsafe { copy(from, to, rest) };
}

/// Asks for the line at an address, to be written soon. Where [there is a way](can_fetch).
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn fetch_for_writing(at: *mut u8) {
    // SAFETY: it is a hint, which changes neither memory nor registers, and is ignored where the address
    // is none. Processors with AVX2 know it.
    unsafe { asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags)) };
}

/// As above: there is no such hint here.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn fetch_for_writing(_: *mut u8) {}
