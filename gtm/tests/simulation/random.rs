//! Seeded randomness: the same seed gives the same run.

use std::ops::Range;
use std::time::Duration;

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn within(&mut self, range: Range<usize>) -> usize {
        let span = u64::try_from(range.len()).unwrap();
        range.start + usize::try_from(self.next() % span).unwrap()
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.within(0..from.len())]
    }

    /// True `permille` times in a thousand.
    pub(crate) fn chance(&mut self, permille: usize) -> bool {
        self.within(0..1000) < permille
    }

    pub(crate) fn duration_us(&mut self, range: Range<usize>) -> Duration {
        Duration::from_micros(u64::try_from(self.within(range)).unwrap())
    }
}
