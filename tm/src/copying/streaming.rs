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
    // SAFETY: `head` is at most the length (the caller's promise).
    unsafe { copy(from, to, head) };
    let (from, to) = (from.wrapping_add(head), to.wrapping_add(head));
    // SAFETY: so many lines are left behind the head, where `to` is aligned to a line; if that is
    // not within the length, there are none.
    unsafe { stream_lines(from, to, lines) };
    let (from, to) = (from.wrapping_add(middle), to.wrapping_add(middle));
    // SAFETY: this is the rest of both.
    unsafe { copy(from, to, length - head - middle) };
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

#[cfg(test)]
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};
    use std::thread;

    use super::*;

    const BYTES: usize = 64 << 10;
    const ROUNDS: u8 = 250;

    /// What one side writes and the other reads, at any time.
    #[repr(align(64))]
    struct Shared([AtomicU8; BYTES]);

    /// Looks, as a call of the system would do what the fence does; but not for ever, where both share a
    /// processor.
    fn wait_for(word: &AtomicU8, value: u8) {
        let mut looks = 0_u32;
        while word.load(Ordering::Acquire) != value {
            looks += 1;
            if looks.is_multiple_of(1 << 14) {
                thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    /// Without the fence lines are old ones where the compiler optimises (`--release`), some in each
    /// round; otherwise the reader comes too late to see them.
    #[test]
    fn who_is_told_of_what_was_streamed_finds_it() {
        let shared = Box::new(Shared([const { AtomicU8::new(0) }; BYTES]));
        let (told, read) = (AtomicU8::new(0), AtomicU8::new(0));
        thread::scope(|scope| {
            let (shared, told, read) = (&*shared, &told, &read);
            let reader = scope.spawn(move || {
                let mut stale = 0;
                for round in 1..=ROUNDS {
                    wait_for(told, round);
                    // What was written last is the first to be missed.
                    let lines = shared.0.iter().rev().step_by(LINE_BYTES);
                    stale += lines
                        .filter(|byte| byte.load(Ordering::Relaxed) != round)
                        .count();
                    read.store(round, Ordering::Release);
                }
                stale
            });
            for round in 1..=ROUNDS {
                let from = vec![round; BYTES];
                let to = shared.0.as_ptr().cast::<u8>().cast_mut();
                // SAFETY: both have so many bytes, and atomics may be written by who only shares
                // them. The reader reads none before it is told.
                unsafe { stream(from.as_ptr(), to, BYTES) };
                told.store(round, Ordering::Release);
                wait_for(read, round);
            }
            assert_eq!(reader.join().unwrap(), 0, "lines were stale");
        });
    }
}
