//! What is wrong with strangers, told without letting a flood of them fill the log.

use std::time::Instant;

use super::limits::COMPLAINT_PERIOD;

/// Failed handshakes of strangers since the last line about them.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    count: u64,
    first: String,
    quiet_until: Option<Instant>,
}

impl Complaints {
    /// One more. Only the first in a while is put into words.
    pub(super) fn add(&mut self, words: impl FnOnce() -> String, now: Instant) {
        self.count += 1;
        if self.count == 1 {
            self.first = words();
        }
        self.tell(now);
    }

    /// Tells what has gathered, when it is time again.
    pub(super) fn tell(&mut self, now: Instant) {
        if self.count == 0 || self.quiet_until.is_some_and(|until| now < until) {
            return;
        }
        match self.count {
            1 => tracing::warn!("{}", self.first),
            count => tracing::warn!("{}; and {} more failed", self.first, count - 1),
        }
        self.count = 0;
        self.quiet_until = Some(now + COMPLAINT_PERIOD);
    }

    /// When to tell.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.quiet_until.filter(|_| self.count > 0)
    }
}
