//! Whether anything moves, for whoever would give up else: who measures, and who copies.

use std::time::{Duration, Instant};

use madgate_vchannel::Progress;

/// For how long it counts as moving that a gateway says that something waits there for its turn. With a
/// low rate the next fragment may take minutes; a node that is stopped behind such a rate is known as such
/// when its kernel takes no more, or after this.
const HELD_MOST: Duration = Duration::from_secs(300);

/// How far everything had come when somebody looked last.
#[derive(Debug)]
pub(crate) struct Motion {
    last: Progress,
    /// When bytes had moved last.
    moved: Instant,
}

impl Motion {
    /// As it is now.
    pub(crate) fn from(now: Progress) -> Self {
        Self {
            last: now,
            moved: Instant::now(),
        }
    }

    /// Whether anything has moved since somebody looked last.
    pub(crate) fn has_moved(&mut self, now: Progress) -> bool {
        self.note(now, Instant::now())
    }

    fn note(&mut self, now: Progress, at: Instant) -> bool {
        let last = std::mem::replace(&mut self.last, now);
        let bytes = |progress: &Progress| (progress.delivered_bytes, progress.received_bytes);
        if bytes(&last) != bytes(&now) {
            self.moved = at;
            return true;
        }
        last.holdups != now.holdups && at.saturating_duration_since(self.moved) < HELD_MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_for_ever_and_waiting_for_a_while() {
        let begun = Instant::now();
        let mut motion = Motion {
            last: Progress::default(),
            moved: begun,
        };
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
}
