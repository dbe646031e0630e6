//! Whether anything moves, for whoever would give up else: who measures, and who copies.

use std::time::{Duration, Instant};

use madgate_vchannel::Progress;

/// For how long it counts as moving that a gateway says that something waits there for its turn. With a
/// low rate the next fragment may take minutes; a node that is stopped behind such a rate is known as such
/// when its kernel takes no more, or after this.
const HELD_MOST: Duration = Duration::from_secs(300);

/// What somebody else sends and receives between the same ends, which is no sign of life: so many bytes
/// at most, so often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside {
    pub(crate) bytes: u64,
    pub(crate) every: Duration,
}

/// How far everything had come when somebody looked last.
#[derive(Debug)]
pub(crate) struct Motion {
    last: Progress,
    /// Bytes, both ways, when they had moved last,
    bytes: u64,
    /// and when that was.
    moved: Instant,
    beside: Option<Beside>,
}

impl Motion {
    /// As it is now.
    pub(crate) fn from(now: Progress) -> Self {
        Self {
            last: now,
            bytes: bytes(now),
            moved: Instant::now(),
            beside: None,
        }
    }

    /// As it is now, where others send something too.
    pub(crate) fn among_others(now: Progress, beside: Beside) -> Self {
        Self {
            beside: Some(beside),
            ..Self::from(now)
        }
    }

    /// Whether anything has moved since somebody looked last.
    pub(crate) fn has_moved(&mut self, now: Progress) -> bool {
        self.note(now, Instant::now())
    }

    fn note(&mut self, now: Progress, at: Instant) -> bool {
        let last = std::mem::replace(&mut self.last, now);
        let since = at.saturating_duration_since(self.moved);
        let of_others = self.beside.map_or(0, |beside| beside.within(since));
        // Fewer than before are of another process.
        if bytes(now) < self.bytes || bytes(now) - self.bytes > of_others {
            (self.bytes, self.moved) = (bytes(now), at);
            return true;
        }
        last.holdups != now.holdups && since < HELD_MOST
    }
}

impl Beside {
    /// The most that it comes to in so long.
    fn within(self, time: Duration) -> u64 {
        let times = time.as_millis() / self.every.as_millis().max(1) + 1;
        self.bytes
            .saturating_mul(u64::try_from(times).unwrap_or(u64::MAX))
    }
}

/// Both ways.
fn bytes(progress: Progress) -> u64 {
    progress.delivered_bytes + progress.received_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_for_ever_and_waiting_for_a_while() {
        let begun = Instant::now();
        let mut motion = Motion::from(Progress::default());
        motion.moved = begun;
        let progress = |delivered_bytes, holdups| Progress {
            delivered_bytes,
            received_bytes: 0,
            holdups,
        };
        for (seconds, now, moves) in [
            (1, progress(0, 0), false),
            (2, progress(7, 0), true),
            (200, progress(7, 1), true),
            (301, progress(7, 2), true),
            (303, progress(7, 3), false),
            (304, progress(8, 3), true),
            (305, progress(8, 3), false),
            (306, progress(8, 4), true),
        ] {
            let at = begun + Duration::from_secs(seconds);
            assert_eq!(motion.note(now, at), moves, "{seconds}");
        }
    }

    #[test]
    fn what_others_send_is_no_motion() {
        let begun = Instant::now();
        let beside = Beside {
            bytes: 100,
            every: Duration::from_secs(4),
        };
        let mut motion = Motion::among_others(Progress::default(), beside);
        motion.moved = begun;
        for (seconds, received_bytes, moves) in [
            (1, 100, false),
            (5, 200, false),
            (9, 300, false),
            (10, 301, true),
            // From there on.
            (11, 401, false),
            (12, 402, true),
        ] {
            let now = Progress {
                received_bytes,
                ..Progress::default()
            };
            let at = begun + Duration::from_secs(seconds);
            assert_eq!(motion.note(now, at), moves, "{seconds}");
        }
    }
}
