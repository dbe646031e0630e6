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
//! measured, by copies that are to be made anyway.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::copy_unit;
use super::streaming::stream;

/// How units of shared memory are stored where the other side reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Stores {
    /// Large ones past the caches while the processors of both sides pass lines of memory to each
    /// other slowly.
    #[default]
    Adaptive,
    /// Through the caches.
    Cached,
    /// Large ones past the caches (non-temporal stores).
    Streaming,
}

impl Stores {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Adaptive, Self::Cached, Self::Streaming];

    /// Its name in a cluster file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Cached => "cached",
            Self::Streaming => "streaming",
        }
    }
}

/// Units from this size on are large: a look at the clock before and after is little for them.
pub(crate) const LARGE_BYTES: usize = 16 << 10;

/// Of so many large copies through the caches one is timed.
const COPIES_PER_LOOK: u32 = 8;

/// When so many in a row were slow, others go past the caches.
const SLOW_IN_A_ROW: u32 = 4;

/// What is slow: a copy to lines that a processor nearby had last is five times as fast, and one past the
/// caches can be read at three times that.
const SLOW_BYTES_PER_US: u128 = 4000;

/// What is not: a single copy through the caches that is so fast shows that lines pass fast again.
const FAST_BYTES_PER_US: u128 = 8000;

/// Copies past the caches until some are made through them, to see whether that is still slow.
const COPIES_PER_TRIAL: u32 = 256;

/// How many are made then: the first has lines to fetch that nobody has.
const TRIALS: u32 = 4;

/// Copies units, and knows how.
#[derive(Debug)]
pub(crate) struct UnitWriter {
    stores: Stores,
    /// Whether large copies go past the caches now.
    streams: bool,
    /// Large copies since that was decided.
    copies: u32,
    /// Timed copies in a row that were slow.
    slow: u32,
}

impl UnitWriter {
    pub(crate) const fn new(stores: Stores) -> Self {
        Self {
            stores,
            streams: matches!(stores, Stores::Streaming),
            copies: 0,
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
        if self.goes_past() {
            debug_assert_eq!(length, to.len());
            let (from, to) = (from.cast::<u8>(), to.cast::<u8>());
            // SAFETY: as the caller promises.
            return unsafe { stream(from.as_ptr(), to.as_ptr(), length) };
        }
        let begun = self.is_timed().then(Instant::now);
        // SAFETY: as the caller promises.
        unsafe { copy_unit(from, to) };
        if let Some(begun) = begun {
            self.note(length, begun.elapsed());
        }
    }

    /// Whether the next large copy goes past the caches.
    fn goes_past(&mut self) -> bool {
        self.copies = self.copies.wrapping_add(1);
        let is_trial = || self.copies % COPIES_PER_TRIAL < TRIALS;
        self.streams && (self.stores == Stores::Streaming || !is_trial())
    }

    /// Whether a copy that goes through them is timed.
    fn is_timed(&self) -> bool {
        let is_due = || self.streams || self.copies.is_multiple_of(COPIES_PER_LOOK);
        self.stores == Stores::Adaptive && is_due()
    }

    /// A copy through the caches has taken so long.
    fn note(&mut self, length: usize, took: Duration) {
        let is_faster = |bytes_per_us: u128| length as u128 * 1000 > bytes_per_us * took.as_nanos();
        if self.streams {
            if is_faster(FAST_BYTES_PER_US) {
                self.change(false);
            }
        } else if is_faster(SLOW_BYTES_PER_US) {
            self.slow = 0;
        } else {
            self.slow += 1;
            if self.slow == SLOW_IN_A_ROW {
                self.change(true);
            }
        }
    }

    fn change(&mut self, streams: bool) {
        self.streams = streams;
        // The next copies are no trial.
        self.copies = TRIALS;
        self.slow = 0;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_micros(30);
    const FAST: Duration = Duration::from_micros(3);
    const BYTES: usize = 64 << 10;

    /// The next large copy, which takes so long if it goes through the caches. Whether it went past
    /// them.
    fn copy(writer: &mut UnitWriter, took: Duration) -> bool {
        let goes_past = writer.goes_past();
        if !goes_past && writer.is_timed() {
            writer.note(BYTES, took);
        }
        goes_past
    }

    fn go_past(writer: &mut UnitWriter, copies: u32, took: Duration) -> usize {
        (0..copies).filter(|_| copy(writer, took)).count()
    }

    #[test]
    fn copies_go_past_the_caches_while_lines_pass_slowly() {
        let mut writer = UnitWriter::new(Stores::Adaptive);
        assert_eq!(go_past(&mut writer, 1000, FAST), 0);
        // Others took the processor, now and then.
        for _ in 0..100 {
            let slow = COPIES_PER_LOOK * (SLOW_IN_A_ROW - 1);
            assert_eq!(go_past(&mut writer, slow, SLOW), 0);
            assert_eq!(go_past(&mut writer, COPIES_PER_LOOK, FAST), 0);
        }
        assert_eq!(
            go_past(&mut writer, COPIES_PER_LOOK * SLOW_IN_A_ROW, SLOW),
            0
        );
        // From then on nearly all do.
        let past = go_past(&mut writer, 10 * COPIES_PER_TRIAL, SLOW);
        assert_eq!(u32::try_from(past), Ok(10 * (COPIES_PER_TRIAL - TRIALS)));
        // Until one that does not is fast.
        let past = go_past(&mut writer, COPIES_PER_TRIAL, FAST);
        assert!(past < COPIES_PER_TRIAL as usize);
        assert_eq!(go_past(&mut writer, 1000, FAST), 0);
    }

    #[test]
    fn who_is_told_how_does_not_ask() {
        let mut cached = UnitWriter::new(Stores::Cached);
        assert_eq!(go_past(&mut cached, 1000, SLOW), 0);
        let mut streaming = UnitWriter::new(Stores::Streaming);
        assert_eq!(go_past(&mut streaming, 1000, FAST), 1000);
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
