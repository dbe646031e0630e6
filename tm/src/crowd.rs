//! Whether a thread that waits by looking again has its processor for itself.

use std::thread;
use std::time::{Duration, Instant};

/// A yield that takes longer than this went to a thread that computes: one that waits as well
/// is through in a few microseconds.
const LONG_YIELD: Duration = Duration::from_micros(100);

/// How long it is taken for granted that such a thread goes on.
const REMEMBERED: Duration = Duration::from_millis(100);

/// What a waiting thread knows about others on its processor.
///
/// To look again and to yield in between is the fastest way to wait where at most others that
/// wait want the processor. Where one computes, each yield costs its whole time slice, some
/// milliseconds; who sleeps in the kernel instead is woken ahead of it.
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
#[derive(Debug, Default)]
pub struct Crowd {
    until: Option<Instant>,
}

impl Crowd {
    /// Lets other threads run, and notes how long they took.
    pub fn yield_now(&mut self) {
        let before = Instant::now();
        thread::yield_now();
        self.note(before, Instant::now());
    }

    /// Whether somebody computes on this processor, or did a moment ago.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    fn note(&mut self, before: Instant, after: Instant) {
        if after.duration_since(before) > LONG_YIELD {
            self.until = Some(after + REMEMBERED);
        } else if self.until.is_some_and(|until| after >= until) {
            self.until = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_yields_count_and_only_for_a_while() {
        let start = Instant::now();
        let mut crowd = Crowd::default();
        crowd.note(start, start + LONG_YIELD);
        assert!(crowd.until.is_none());
        let end = start + 2 * LONG_YIELD;
        crowd.note(start, end);
        assert_eq!(crowd.until, Some(end + REMEMBERED));
        // Short ones in between change nothing until the time is over.
        crowd.note(end, end + LONG_YIELD);
        assert_eq!(crowd.until, Some(end + REMEMBERED));
        crowd.note(end + REMEMBERED, end + REMEMBERED + LONG_YIELD);
        assert!(crowd.until.is_none());
        assert!(!crowd.is_here());
    }
}
