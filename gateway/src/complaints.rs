//! Warnings that somebody else can cause: one at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use madgate_gtm::Time;

/// Between two warnings at least.
const QUIET: Duration = Duration::from_secs(1);

/// Lets one warning in a while through, and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    /// When the next one may come.
    next: AtomicU64,
    withheld: AtomicU64,
}

impl Complaints {
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
    fn one_warning_in_a_while() {
        let complaints = Complaints::default();
        let second = 1_000_000_000;
        assert_eq!(complaints.may_warn(Time(5)), Some(0));
        assert_eq!(complaints.may_warn(Time(6)), None);
        assert_eq!(complaints.may_warn(Time(second)), None);
        assert_eq!(complaints.may_warn(Time(second + 5)), Some(2));
        assert_eq!(complaints.may_warn(Time(second + 6)), None);
    }
}
