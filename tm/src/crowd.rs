//! Whether a thread that waits by looking again has its processor for itself.

use std::thread;
use std::time::{Duration, Instant};

/// A yield that takes longer than this went to another thread: one that nobody takes is over sooner.
const SHARED_YIELD: Duration = Duration::from_micros(3);

/// A yield that takes longer than this went to a thread that computes: one that waits as well
/// is through in a few microseconds.
const LONG_YIELD: Duration = Duration::from_micros(100);

/// A yield that takes longer than this went to a thread that computes for its whole time slice, and
/// will take the next one too: it is not offered more often than need be.
const SLICE_YIELD: Duration = Duration::from_millis(1);

/// So many long ones in a row count: one alone may be an interrupt, or the machine below this one.
const LONG_YIELDS: u32 = 2;

/// How long it is taken for granted that such a thread goes on, at first: a machine that pauses for
/// a moment looks like one, and nothing is gained by sleeping after that.
const REMEMBERED_FIRST: Duration = Duration::from_millis(1);

/// The same of one that was still there each time: twice as long as before, up to this. Looking
/// whether it still is costs a time slice.
const REMEMBERED_MOST: Duration = Duration::from_millis(100);

/// By how much less the next one is remembered, after one that was gone.
const FORGOTTEN: u32 = 4;

/// What a waiting thread knows about others on its processor.
///
/// To look again and to yield in between is the fastest way to wait where at most others that
/// wait want the processor. Where one does, each look keeps it from what it has to do, which may
/// be just what is waited for: it is better to yield after fewer. Where one computes, each yield
/// costs its whole time slice, some milliseconds; who sleeps in the kernel instead is woken ahead
/// of it (but while it is [scheduled in batches](crate::Scheduling)).
///
/// ```
/// use madgate_tm::Crowd;
///
/// let mut crowd = Crowd::default();
/// while !crowd.is_here() {
///     // Look whether something has arrived; if not:
///     crowd.yield_now();
/// #   break;
/// }
/// // It is better to sleep.
/// ```
#[derive(Debug)]
pub struct Crowd {
    until: Option<Instant>,
    /// For how long the next one that is noticed is.
    remembered: Duration,
    /// Long yields in a row, as far as they are counted.
    long_yields: u32,
    is_shared: bool,
}

impl Default for Crowd {
    fn default() -> Self {
        Self {
            until: None,
            remembered: REMEMBERED_FIRST,
            long_yields: 0,
            is_shared: false,
        }
    }
}

impl Crowd {
    /// Lets other threads run, and notes how long they took.
    pub fn yield_now(&mut self) {
        let before = Instant::now();
        thread::yield_now();
        self.note(before, Instant::now());
    }

    /// Whether the last yield went to another thread, which gave the processor back before its
    /// time slice was over.
    #[inline]
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether somebody computes on this processor, or did a moment ago.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// As a yield does that takes so long, for tests of those who wait.
    #[cfg(any(test, feature = "conformance"))]
    pub fn note_yield(&mut self, took: Duration) {
        let now = Instant::now();
        self.note(now, now + took);
    }

    fn note(&mut self, before: Instant, after: Instant) {
        let took = after.duration_since(before);
        self.is_shared = took > SHARED_YIELD && took <= SLICE_YIELD;
        if took <= LONG_YIELD {
            self.long_yields = 0;
            if self.until.is_some_and(|until| after >= until) {
                self.until = None;
                self.remembered = (self.remembered / FORGOTTEN).max(REMEMBERED_FIRST);
            }
            return;
        }
        self.long_yields = LONG_YIELDS.min(self.long_yields + 1);
        if self.long_yields == LONG_YIELDS {
            self.until = Some(after + self.remembered);
            self.remembered = (self.remembered * 2).min(REMEMBERED_MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_a_yield_shares_the_processor_unless_it_takes_all_of_its_slice() {
        let mut crowd = Crowd::default();
        let mut shares = |took| {
            crowd.note_yield(took);
            crowd.is_shared()
        };
        let more = Duration::from_nanos(1);
        for (took, is_shared) in [
            (SLICE_YIELD + more, false),
            (SHARED_YIELD + more, true),
            (SLICE_YIELD, true),
            (SHARED_YIELD, false),
            (Duration::ZERO, false),
        ] {
            assert_eq!(shares(took), is_shared, "{took:?}");
        }
        assert!(!crowd.is_here());
    }

    #[test]
    fn only_long_yields_in_a_row_count_and_only_for_a_while() {
        let start = Instant::now();
        let (short, long) = (LONG_YIELD, 2 * LONG_YIELD);
        let mut crowd = Crowd::default();
        for took in [short, long, short, long] {
            crowd.note(start, start + took);
            assert!(crowd.until.is_none());
        }
        crowd.note(start, start + long);
        let until = start + long + REMEMBERED_FIRST;
        assert_eq!(crowd.until, Some(until));
        // After that time one more is enough.
        crowd.note(until, until + long);
        let until = until + long + 2 * REMEMBERED_FIRST;
        assert_eq!(crowd.until, Some(until));
        // Short ones change nothing until the time is over.
        crowd.note(start, start + short);
        assert_eq!(crowd.until, Some(until));
        crowd.note(until, until + short);
        assert!(crowd.until.is_none());
        assert!(!crowd.is_here());
    }

    #[test]
    fn who_stays_is_remembered_for_longer_and_who_was_gone_for_less_the_next_time() {
        let mut now = Instant::now();
        let mut crowd = Crowd::default();
        // For how long the one is remembered that is noticed next.
        let notice = |crowd: &mut Crowd, now: &mut Instant, yields| {
            for _ in 0..yields {
                crowd.note(*now, *now + 2 * LONG_YIELD);
                *now += 2 * LONG_YIELD;
            }
            let until = crowd.until.expect("it is noticed");
            let remembered = until - *now;
            *now = until;
            remembered
        };
        assert_eq!(notice(&mut crowd, &mut now, LONG_YIELDS), REMEMBERED_FIRST);
        let stays: Vec<_> = (0..8).map(|_| notice(&mut crowd, &mut now, 1)).collect();
        let doubled = (1..7).map(|times| REMEMBERED_FIRST * (1 << times));
        assert_eq!(stays[..6], doubled.collect::<Vec<_>>());
        assert_eq!(stays[6..], [REMEMBERED_MOST; 2]);

        // It has left.
        crowd.note(now, now + LONG_YIELD);
        assert!(crowd.until.is_none());
        let next = notice(&mut crowd, &mut now, LONG_YIELDS);
        assert_eq!(next, REMEMBERED_MOST / FORGOTTEN);
        for _ in 0..8 {
            crowd.note(now, now + LONG_YIELD);
            now += LONG_YIELD;
            notice(&mut crowd, &mut now, LONG_YIELDS);
        }
        crowd.note(now, now + LONG_YIELD);
        assert_eq!(notice(&mut crowd, &mut now, LONG_YIELDS), REMEMBERED_FIRST);
    }
}
