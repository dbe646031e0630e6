//! Waiting for bytes that are known to be coming.
//!
//! Frames say how long their block is, and its source may send what it was granted: so much
//! is certain to come, and soon. A lane that is not woken before a good part of it is there
//! costs fewer calls, and lets its sender work undisturbed. Nobody is delayed: a lane whose
//! bytes take longer than a moment is not waited for like that again for a while.

use std::time::Duration;

use crate::lane::LaneReceiver;

/// Bytes that are waited for at once, at most.
const GATHER_MOST: usize = 256 << 10;

/// Fewer are not worth it.
const GATHER_LEAST: usize = 64 << 10;

/// How long gathering may take.
const GATHER_TIME: Duration = Duration::from_micros(200);

/// Turns without gathering after it has taken too long.
const TURNS_OFF: u32 = 256;

/// How much one lane is waited for. Times count from any moment, the same for all calls.
#[derive(Debug)]
pub struct Gather {
    limit: usize,
    turns_off: u32,
    deadline: Option<Duration>,
}

impl Default for Gather {
    fn default() -> Self {
        Self::new()
    }
}

impl Gather {
    /// Off.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            limit: GATHER_MOST,
            turns_off: 0,
            deadline: None,
        }
    }

    /// Whether the lane wakes with the first byte.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.deadline.is_none()
    }

    /// When the lane is not to be waited for any longer.
    #[must_use]
    pub const fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Something came in time, and now `coming` bytes are certain to come.
    pub fn expect(&mut self, lane: &mut dyn LaneReceiver, coming: usize, now: Duration) {
        if self.deadline.is_some() {
            self.limit = (self.limit * 2).min(GATHER_MOST);
        }
        self.turns_off = self.turns_off.saturating_sub(1);
        let target = coming.min(self.limit);
        let is_worth_it = target >= GATHER_LEAST && self.turns_off == 0;
        if is_worth_it && lane.set_low_water(target).unwrap_or(false) {
            self.deadline = Some(now + GATHER_TIME);
        } else {
            self.stop(lane);
        }
    }

    /// It took too long.
    pub fn give_up(&mut self, lane: &mut dyn LaneReceiver) {
        self.stop(lane);
        self.limit /= 2;
        if self.limit < GATHER_LEAST {
            self.limit = GATHER_LEAST;
            self.turns_off = TURNS_OFF;
        }
    }

    /// The lane is to wake with the first byte.
    pub fn stop(&mut self, lane: &mut dyn LaneReceiver) {
        if self.deadline.take().is_some() {
            // A lane that has failed says so when it is received from.
            let _ = lane.set_low_water(1);
        }
    }
}
