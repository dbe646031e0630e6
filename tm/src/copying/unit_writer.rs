//! Copies units to where another processor reads them, in the way that is faster. Unsafe island: it
//! copies between pointers.
//!
//! ```text
//!   through the caches                      past the caches
//!   the writer fetches each line from       the writer sends lines to memory,
//!   the reader's cache, and the reader      and the reader fetches them from
//!   fetches it back                         there, many at a time
//! ```
//!
//! Within a part of a chip that shares a cache the first is two to three times faster. Between two
//! parts or sockets a line takes so long that it comes to a fifth of the second. Which of these two
//! processors are is nothing that a process could know, and on a virtual machine it changes: so it is
//! measured, by copies that are to be made anyway. (One whose source takes long to read is slow as
//! well. It is not held up by the way past the caches: its reader waits for the source, too.)

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::fetching::copy_fetching;
use super::streaming::stream;
use super::{copy, copy_unit};

/// How units of shared memory are stored where the other side reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Stores {
    /// Large ones past the caches while the processors of both sides pass lines of memory to each
    /// other slowly.
    #[default]
    Adaptive,
    /// Through the caches. Lines are asked for ahead of writing them, where the processor knows how.
    Cached,
    /// Through the caches, and each line as it is written.
    Plain,
    /// Large ones past the caches (non-temporal stores).
    Streaming,
}

impl Stores {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Adaptive, Self::Cached, Self::Plain, Self::Streaming];

    /// Its name in a cluster file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Cached => "cached",
            Self::Plain => "plain",
            Self::Streaming => "streaming",
        }
    }
}

/// Units from this size on are large: a look at the clock before and after is little for them.
pub(crate) const LARGE_BYTES: usize = 16 << 10;

/// Large copies before the first that is timed: to touch memory for the first time takes longer than
/// any copy, and slots are used in turn, but for those that are used while others are with the peer. (These
/// may be timed: what comes of it is over with the next trial.)
const UNTIMED_FIRST: u32 = 100;

/// Of so many large copies through the caches one is timed. No power of two, as numbers of slots are:
/// it is another slot each time.
const COPIES_PER_LOOK: u32 = 7;

/// When so many in a row were slow, others go past the caches.
const SLOW_IN_A_ROW: u32 = 4;

/// What is slow: a copy to lines that a processor nearby had last is five times as fast, and one past the
/// caches can be read at three times that.
const SLOW_BYTES_PER_US: u128 = 4000;

/// What is not: a single copy through the caches that is so fast shows that lines pass fast again.
const FAST_BYTES_PER_US: u128 = 5000;

const _: () = assert!(SLOW_BYTES_PER_US < FAST_BYTES_PER_US);

/// Copies past the caches until some are made through them, to see whether that is still slow: so many
/// at first, as what was slow may have been something else,
const PAST_FIRST: u32 = 16;
/// and twice as many each time, up to this.
const PAST_MOST: u32 = 256;

/// How many are made then: the first has lines to fetch that nobody has.
const TRIALS: u32 = 4;

/// Copies units, and knows how.
#[derive(Debug)]
pub(crate) struct UnitWriter {
    stores: Stores,
    /// Whether large copies go past the caches now.
    streams: bool,
    /// Large copies: through the caches since they go there, or since the last trial.
    copies: u32,
    /// How many go past the caches before the next trial.
    past: u32,
    /// Timed copies in a row that were slow.
    slow: u32,
}

impl UnitWriter {
    pub(crate) const fn new(stores: Stores) -> Self {
        // Elsewhere there is one way only.
        let stores = if cfg!(target_arch = "x86_64") {
            stores
        } else {
            Stores::Cached
        };
        Self {
            stores,
            streams: matches!(stores, Stores::Streaming),
            copies: 0,
            past: PAST_FIRST,
            slow: 0,
        }
    }

    /// Copies a unit: as [`copy_unit`], in the way that is faster.
    ///
    /// # Safety
    /// As [`copy_unit`].
    #[inline(always)]
    pub(crate) unsafe fn copy(&mut self, from: NonNull<[u8]>, to: NonNull<[u8]>) {
        if from.len() < LARGE_BYTES {
            // SAFETY: as the caller promises.
            return unsafe { copy_unit(from, to) };
        }
        // SAFETY: as the caller promises.
        unsafe { self.copy_large(from, to) };
    }

    /// # Safety
    /// As [`copy_unit`].
    #[inline(never)]
    unsafe fn copy_large(&mut self, from: NonNull<[u8]>, to: NonNull<[u8]>) {
        let length = from.len();
        debug_assert_eq!(length, to.len());
        let (from, to) = (from.cast::<u8>(), to.cast::<u8>());
        if self.next_goes_past() {
            // SAFETY: as the caller promises.
            return unsafe { stream(from.as_ptr(), to.as_ptr(), length) };
        }
        if self.stores == Stores::Plain {
            // SAFETY: as the caller promises.
            return unsafe { copy(from.as_ptr(), to.as_ptr(), length) };
        }
        let begun = self.is_timed().then(Instant::now);
        // SAFETY: as the caller promises.
        unsafe { copy_fetching(from.as_ptr(), to.as_ptr(), length) };
        if let Some(begun) = begun {
            self.note(length, begun.elapsed());
        }
    }

    /// Counts the next large copy. Returns whether it goes past the caches.
    fn next_goes_past(&mut self) -> bool {
        self.copies = self.copies.wrapping_add(1);
        self.streams && (self.stores == Stores::Streaming || self.copies <= self.past)
    }

    /// Whether a copy that goes through them is timed.
    fn is_timed(&self) -> bool {
        let is_due = || self.copies > UNTIMED_FIRST && self.copies.is_multiple_of(COPIES_PER_LOOK);
        self.stores == Stores::Adaptive && (self.streams || is_due())
    }

    /// A copy through the caches has taken so long.
    fn note(&mut self, length: usize, took: Duration) {
        let is_faster = |bytes_per_us: u128| length as u128 * 1000 > bytes_per_us * took.as_nanos();
        if self.streams {
            if is_faster(FAST_BYTES_PER_US) {
                self.streams = false;
                self.copies = UNTIMED_FIRST;
                self.past = PAST_FIRST;
            } else if self.copies >= self.past + TRIALS {
                self.copies = 0;
                self.past = (self.past * 2).min(PAST_MOST);
            }
        } else if is_faster(SLOW_BYTES_PER_US) {
            self.slow = 0;
        } else {
            self.slow += 1;
            if self.slow == SLOW_IN_A_ROW {
                self.streams = true;
                self.copies = 0;
                self.slow = 0;
            }
        }
    }
}

#[cfg(test)]
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod tests {
    use super::*;

    /// How long a copy takes that moves so many bytes in a microsecond.
    fn at(bytes_per_us: u64) -> Duration {
        Duration::from_nanos(BYTES as u64 * 1000 / bytes_per_us)
    }

    const BYTES: usize = 64 << 10;
    /// Just on either side of what is slow, and of what is not.
    const SLOW: u64 = 3900;
    const NOT_SLOW: u64 = 4100;
    const NOT_FAST: u64 = 4900;
    const FAST: u64 = 5100;

    /// The next large copy, which is so fast if it goes through the caches. Whether it went past
    /// them.
    fn copy(writer: &mut UnitWriter, bytes_per_us: u64) -> bool {
        let goes_past = writer.next_goes_past();
        if !goes_past && writer.is_timed() {
            writer.note(BYTES, at(bytes_per_us));
        }
        goes_past
    }

    /// How many of these go past.
    fn past(writer: &mut UnitWriter, copies: u32, bytes_per_us: u64) -> u32 {
        let goes_past = |_: &u32| copy(writer, bytes_per_us);
        u32::try_from((0..copies).filter(goes_past).count()).unwrap()
    }

    /// One that has touched all of its memory, as fast as this.
    fn begun(bytes_per_us: u64) -> UnitWriter {
        let mut writer = UnitWriter::new(Stores::Adaptive);
        assert_eq!(past(&mut writer, UNTIMED_FIRST, bytes_per_us), 0);
        writer
    }

    const LOOKS: u32 = COPIES_PER_LOOK * SLOW_IN_A_ROW;

    #[test]
    fn memory_that_is_touched_for_the_first_time_says_nothing() {
        let mut writer = begun(SLOW);
        assert_eq!(past(&mut writer, 1000, NOT_SLOW), 0);
    }

    #[test]
    fn copies_go_past_the_caches_while_lines_pass_slowly() {
        let mut writer = begun(NOT_SLOW);
        // Others took the processor, now and then.
        for _ in 0..100 {
            assert_eq!(past(&mut writer, LOOKS - COPIES_PER_LOOK, SLOW), 0);
            assert_eq!(past(&mut writer, COPIES_PER_LOOK, NOT_SLOW), 0);
        }
        assert!(past(&mut writer, LOOKS + COPIES_PER_LOOK, SLOW) < 2 * COPIES_PER_LOOK);
        assert!(writer.streams);
        // From then on nearly all do.
        let all = 10 * (PAST_MOST + TRIALS);
        let few = past(&mut writer, all, NOT_FAST);
        assert!((all - 20 * TRIALS..all).contains(&few), "{few} of {all}");
        // Until one that does not is fast.
        assert!(past(&mut writer, PAST_MOST + TRIALS, FAST) <= PAST_MOST);
        assert_eq!(past(&mut writer, 1000, NOT_SLOW), 0);
    }

    #[test]
    fn what_was_slow_for_another_reason_is_tried_again_soon() {
        let mut writer = begun(NOT_SLOW);
        while !copy(&mut writer, SLOW) {}
        assert_eq!(past(&mut writer, 1000, FAST), PAST_FIRST - 1);
    }

    #[test]
    fn who_is_told_how_does_not_ask() {
        for stores in [Stores::Cached, Stores::Plain] {
            let mut cached = UnitWriter::new(stores);
            assert_eq!(past(&mut cached, 1000, SLOW), 0);
        }
        let mut streaming = UnitWriter::new(Stores::Streaming);
        assert_eq!(past(&mut streaming, 1000, FAST), 1000);
    }

    #[test]
    fn a_copy_is_the_same_in_all_ways() {
        let bytes: Vec<u8> = (0..=250).cycle().take(LARGE_BYTES + 400).collect();
        for stores in Stores::ALL {
            let mut writer = UnitWriter::new(stores);
            // Under miri each byte takes long.
            let starts = if cfg!(miri) {
                &[1][..]
            } else {
                &[0, 1, 48, 63]
            };
            for &start in starts {
                for length in [LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 65] {
                    let unit = &bytes[start..start + length];
                    let mut target = vec![0; length + 200];
                    let to = NonNull::from(&mut target[start + 7..start + 7 + length]);
                    // SAFETY: both are slices of one length, and the target is nobody else's.
                    unsafe { writer.copy(NonNull::from(unit), to) };
                    assert_eq!(&target[start + 7..][..length], unit, "{stores:?}");
                    let rest = target[..start + 7]
                        .iter()
                        .chain(&target[start + 7 + length..]);
                    assert!(rest.copied().all(|byte| byte == 0), "{stores:?}");
                }
            }
        }
    }
}
