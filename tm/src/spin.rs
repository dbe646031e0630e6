//! For how long it pays to look again before sleeping.

use std::time::Duration;

/// One that comes within so many times the longest spin may have come within it, and been seen late: its
/// receiver slept, and had to be woken.
const CAUGHT_WITHIN: u64 = 2;

/// It pays to look for so many times as long as what was waited for took.
const MARGIN: u64 = 4;

/// After one that came too late, the next is looked for by so much less.
const SHRINKS_BY: u64 = 8;

/// A spin that is shorter is none.
const SHORTEST_NANOS: u64 = 1000;

/// How long a thread looks again and again for what it waits for, before it sleeps until it is told: as long
/// as that has caught something lately, and not at all while nothing comes so soon.
///
/// To look and be there costs less time than to sleep and be woken, but the processor all the while. Where
/// something comes every millisecond, a spin of a tenth of that is in vain each time, and takes a tenth of a
/// processor. So each wait says how long the next spin is to be, as hypervisors do it that poll before they
/// halt a processor.
///
/// ```
/// use std::time::Duration;
/// use madgate_tm::AdaptiveSpin;
///
/// let most = Duration::from_micros(100);
/// let mut spin = AdaptiveSpin::new(most);
/// assert_eq!(spin.limit(), most);
/// for _ in 0..100 {
///     spin.note(Duration::from_millis(1));
/// }
/// assert_eq!(spin.limit(), Duration::ZERO);
/// spin.note(Duration::from_micros(20));
/// assert_eq!(spin.limit(), Duration::from_micros(80));
/// ```
#[derive(Debug, Clone)]
pub struct AdaptiveSpin {
    most_nanos: u64,
    limit_nanos: u64,
}

impl AdaptiveSpin {
    /// One that takes `most` at most, and does at first.
    #[must_use]
    pub fn new(most: Duration) -> Self {
        let most_nanos = nanos(most);
        Self {
            most_nanos,
            limit_nanos: most_nanos,
        }
    }

    /// How long it is worth to look before sleeping.
    #[inline]
    #[must_use]
    pub const fn limit(&self) -> Duration {
        Duration::from_nanos(self.limit_nanos)
    }

    /// Something has come after a wait of this long, spinning or asleep.
    #[inline]
    pub fn note(&mut self, waited: Duration) {
        let waited = nanos(waited);
        if waited <= self.most_nanos.saturating_mul(CAUGHT_WITHIN) {
            let worth = waited.saturating_mul(MARGIN).min(self.most_nanos);
            self.limit_nanos = self.limit_nanos.max(worth);
        } else {
            let shorter = self.limit_nanos - self.limit_nanos / SHRINKS_BY;
            self.limit_nanos = if shorter < SHORTEST_NANOS { 0 } else { shorter };
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(100);
    const LATE: Duration = Duration::from_nanos(200_001);

    /// After so many waits that all were too long.
    fn after_late(waits: u32) -> AdaptiveSpin {
        let mut spin = AdaptiveSpin::new(MOST);
        (0..waits).for_each(|_| spin.note(LATE));
        spin
    }

    #[test]
    fn nobody_looks_for_what_always_comes_late() {
        assert!(after_late(10).limit() > MOST / 5);
        assert!(after_late(20).limit() < MOST / 10);
        assert_eq!(after_late(50).limit(), Duration::ZERO);
        assert_eq!(after_late(1000).limit(), Duration::ZERO);
    }

    #[test]
    fn what_may_have_come_in_time_is_looked_for_again() {
        for (waited, limit) in [(1, 4), (10, 40), (25, 100), (99, 100), (200, 100)] {
            let mut spin = after_late(1000);
            spin.note(Duration::from_micros(waited));
            assert_eq!(spin.limit(), Duration::from_micros(limit), "{waited} us");
        }
    }

    #[test]
    fn what_comes_at_once_makes_no_spin_shorter_nor_longer() {
        for waits in [0, 10, 1000] {
            let mut spin = after_late(waits);
            let before = spin.limit();
            (0..1000).for_each(|_| spin.note(Duration::ZERO));
            assert_eq!(spin.limit(), before, "after {waits}");
        }
    }

    /// Something comes soon, then late, and so on: each is looked for as long as the ones that come
    /// soon are worth.
    #[test]
    fn who_comes_soon_every_other_time_is_looked_for() {
        let mut spin = AdaptiveSpin::new(MOST);
        for _ in 0..1000 {
            spin.note(LATE);
            spin.note(Duration::from_micros(15));
            assert!(spin.limit() >= Duration::from_micros(60));
        }
        assert!(spin.limit() < Duration::from_micros(70));
    }

    #[test]
    fn without_an_end_or_without_a_spin_it_stays_so() {
        for most in [Duration::MAX, Duration::ZERO] {
            let mut spin = AdaptiveSpin::new(most);
            let before = spin.limit();
            for waited in [Duration::ZERO, MOST, LATE, Duration::MAX] {
                spin.note(waited);
                assert_eq!(spin.limit(), before, "{most:?}");
            }
        }
    }
}
