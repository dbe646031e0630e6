//! Warnings that somebody else can cause: a few at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use madgate_gtm::Time;

/// How long those that are too many wait.
const QUIET: Duration = Duration::from_secs(1);

/// Lets some warnings in a while through, and counts the others.
#[derive(Debug)]
pub(crate) struct Complaints {
    /// How many in a while.
    most: u64,
    /// When the next ones may come.
    next: AtomicU64,
    /// How many may come before.
    left: AtomicU64,
    withheld: AtomicU64,
}

impl Complaints {
    /// That many in a while, one at least.
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most,
            next: AtomicU64::new(0),
            left: AtomicU64::new(0),
            withheld: AtomicU64::new(0),
        }
    }

    /// Whether to warn now: then how many were withheld since the last time.
    pub(crate) fn may_warn(&self, now: Time) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        let later = (now + QUIET).0;
        let is_due = now.0 >= next
            && self
                .next
                .compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_due {
            self.left.store(self.most - 1, Ordering::Relaxed);
        }
        let one_less = |left: u64| left.checked_sub(1);
        let may_still = || {
            self.left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                .is_ok()
        };
        if is_due || may_still() {
            Some(self.withheld.swap(0, Ordering::Relaxed))
        } else {
            self.withheld.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_warnings_in_a_while() {
        let complaints = Complaints::new(2);
        let second = 1_000_000_000;
        let said = [5, 6, 7, 8, second + 5, second + 6, second + 7];
        let said = said.map(|at| complaints.may_warn(Time(at)));
        let expected = [Some(0), Some(0), None, None, Some(2), Some(0), None];
        assert_eq!(said, expected);
    }

    #[test]
    fn one_warning_in_a_while() {
        let complaints = Complaints::new(1);
        let second = 1_000_000_000;
        assert_eq!(complaints.may_warn(Time(5)), Some(0));
        assert_eq!(complaints.may_warn(Time(6)), None);
        assert_eq!(complaints.may_warn(Time(second)), None);
        assert_eq!(complaints.may_warn(Time(second + 5)), Some(2));
        assert_eq!(complaints.may_warn(Time(second + 6)), None);
    }
}
