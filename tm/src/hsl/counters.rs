//! What the cards of this process have done: the papers count system calls, interrupts and
//! copies for each message (paper 000, table 2).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What all cards of this process have done since it started; the counters only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Entries of lists of messages to send that have been sent.
    pub puts: u64,
    /// Bytes that they wrote. What was received from sockets into the other side's memory is there
    /// already, and only told of.
    pub put_bytes: u64,
    /// Of those bytes, how many came from registered memory of this side's, a slot that had been
    /// filled or an arena; the others came from where the caller had them.
    pub registered_bytes: u64,
    /// Entries that were refused, because they named what is not registered.
    pub refused: u64,
    /// Notifications that were written to the other side's list.
    pub notifications: u64,
    /// System calls that woke or interrupted the other side.
    pub doorbells: u64,
    /// Times that a wake-up from the other side was taken in.
    pub interrupts: u64,
    /// Puts into memory outside of what is registered, each at the price of system calls.
    pub foreign_puts: u64,
    /// System calls of those.
    pub foreign_calls: u64,
}

/// Counters of one card, of which one thread at a time writes each.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Tally {
    pub(super) puts: Count,
    pub(super) put_bytes: Count,
    pub(super) registered_bytes: Count,
    pub(super) refused: Count,
    pub(super) notifications: Count,
    pub(super) doorbells: Count,
    pub(super) interrupts: Count,
    pub(super) foreign_puts: Count,
    pub(super) foreign_calls: Count,
}

/// A number that one thread writes and any may read.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Not one atomic step: there is one writer.
    pub(super) fn add(&self, more: u64) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.wrapping_add(more), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Cards that are there, and the sum of those that were.
static ALL: Mutex<All> = Mutex::new(All {
    tallies: Vec::new(),
    gone: Counters {
        puts: 0,
        put_bytes: 0,
        registered_bytes: 0,
        refused: 0,
        notifications: 0,
        doorbells: 0,
        interrupts: 0,
        foreign_puts: 0,
        foreign_calls: 0,
    },
});

#[derive(Debug)]
struct All {
    /// As many as there are cards.
    tallies: Vec<Weak<Tally>>,
    gone: Counters,
}

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    /// Counters of a new card.
    pub(super) fn new() -> Arc<Self> {
        let tally = Arc::new(Self::default());
        let mut all = all();
        all.tallies.retain(|other| other.strong_count() > 0);
        all.tallies.push(Arc::downgrade(&tally));
        tally
    }

    fn add_to(&self, sum: &mut Counters) {
        sum.puts += self.puts.now();
        sum.put_bytes += self.put_bytes.now();
        sum.registered_bytes += self.registered_bytes.now();
        sum.refused += self.refused.now();
        sum.notifications += self.notifications.now();
        sum.doorbells += self.doorbells.now();
        sum.interrupts += self.interrupts.now();
        sum.foreign_puts += self.foreign_puts.now();
        sum.foreign_calls += self.foreign_calls.now();
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.add_to(&mut all().gone);
    }
}

/// What the cards of this process have done so far.
#[must_use]
pub fn counters() -> Counters {
    // Those that end meanwhile wait for the lock in `drop`; they are kept alive here, and
    // dropped when it is free again.
    let (mut sum, tallies): (_, Vec<_>) = {
        let all = all();
        (
            all.gone,
            all.tallies.iter().filter_map(Weak::upgrade).collect(),
        )
    };
    for tally in &tallies {
        tally.add_to(&mut sum);
    }
    sum
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn cards_that_are_gone_still_count() {
        let before = counters();
        let tally = Tally::new();
        tally.foreign_puts.add(3);
        assert_eq!(counters().foreign_puts - before.foreign_puts, 3);
        drop(tally);
        assert_eq!(counters().foreign_puts - before.foreign_puts, 3);
    }
}
