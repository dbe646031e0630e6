//! What a flow's source does in time: probes, closing when idle, retries, giving up.

use std::time::Duration;

use super::{
    Failure, IDLE_CLOSE, LINK_RETRY_FIRST, OPENING_RETRY_FIRST, OPENING_RETRY_MOST, Outgoing,
    PROBE_FIRST, PROBE_MOST, SILENT_TIMES, State,
};
use crate::time::Time;
use crate::wire::{Kind, Refusal};

/// Who looks later than this, and half of [`Settings::give_up_after`](super::Settings::give_up_after), has not
/// run: others look within some tens of milliseconds.
const AWAY_LEAST: Duration = Duration::from_millis(250);

impl<D: Clone> Outgoing<D> {
    /// When [`handle_timeout`](Self::handle_timeout) has something to do, or
    /// [`poll_transmit`](Self::poll_transmit) something to repeat.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let stuck = self.give_up_at();
        let own = match self.state {
            State::Failed(_) => return None,
            State::Closed { at } if self.is_unfinished() => {
                // Without a link there is nothing to do but to note since when.
                (self.link_is_up || self.stuck_since.is_none()).then_some(at)
            }
            State::Closed { .. } => None,
            State::Opening { retry_at } => Some(retry_at),
            State::Open if self.is_unfinished() => Some(self.last_progress + self.probe_wait()),
            State::Open => Some(self.last_progress + IDLE_CLOSE),
        };
        match (stuck, own) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Does what is due: probes, closes an idle flow, fails one that nobody carries.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.state != State::Open {
            self.note_stuck(now);
        } else if self.silent_since.is_some() && self.was_away(now) {
            // What was answered meanwhile has not been taken in yet.
            self.silent_since = Some(now);
        }
        if self.give_up_at().is_some_and(|at| now >= at) && !matches!(self.state, State::Failed(_))
        {
            let last = self.last_refusal;
            self.state = State::Failed(match self.state {
                State::Open => Failure::Silent,
                _ => Failure::Unreachable { last },
            });
            return;
        }
        if self.state != State::Open {
            return;
        }
        if self.is_unfinished() {
            if now >= self.last_progress + self.probe_wait() {
                self.control = Some(Kind::Probe);
                self.probes += 1;
                self.last_progress = now;
                self.silent_since.get_or_insert(now);
            }
        } else if now >= self.last_progress + IDLE_CLOSE {
            self.control = Some(Kind::Close);
            self.state = State::Closed { at: now };
        }
    }

    /// When the flow fails, if nothing changes until then.
    fn give_up_at(&self) -> Option<Time> {
        let limit = self.settings.give_up_after;
        match self.state {
            State::Open => self.silent_since.map(|since| since + limit * SILENT_TIMES),
            _ => self.stuck_since.map(|since| since + limit),
        }
    }

    /// Whether nobody has looked for so long after a probe was due that this process must have stood still.
    fn was_away(&self, now: Time) -> bool {
        let due = self.last_progress + self.probe_wait();
        now.since(due) > AWAY_LEAST.max(self.settings.give_up_after / 2)
    }

    pub(super) fn close_until_retry(&mut self, now: Time) {
        self.attempts = self.attempts.saturating_add(1);
        let first = match self.last_refusal {
            Some(Refusal::LinkDown) => LINK_RETRY_FIRST,
            _ => OPENING_RETRY_FIRST / 4,
        };
        let wait = backoff(first, OPENING_RETRY_MOST, self.attempts);
        let at = now + self.spread(wait);
        self.state = State::Closed { at };
        if self.last_refusal != Some(Refusal::NoRoom) {
            self.note_stuck(now);
        }
    }

    /// Nobody carries the flow now, if anything of it is to be carried.
    pub(super) fn note_stuck(&mut self, now: Time) {
        if self.is_unfinished() {
            self.stuck_since.get_or_insert(now);
        }
    }

    fn probe_wait(&self) -> Duration {
        backoff(
            PROBE_FIRST.max(2 * self.usual_wait),
            PROBE_MOST,
            self.probes,
        )
    }

    /// Between half of `wait` and all of it, so that many flows do not retry at once.
    pub(super) fn spread(&mut self, wait: Duration) -> Duration {
        let half = wait / 2;
        let part = u32::try_from(self.next_random() >> 32).unwrap_or(0) % 1024;
        half + half * part / 1024
    }

    /// SplitMix64.
    pub(super) fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// `first`, doubled with every attempt, up to `most`.
pub(super) fn backoff(first: Duration, most: Duration, attempts: u32) -> Duration {
    (first * 2u32.pow(attempts.min(10))).min(most)
}
