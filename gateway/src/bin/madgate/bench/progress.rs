//! What a long measurement says while it runs.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Direction;
use crate::output::print;
use crate::units::{float, rate};

/// Says at every interval what has gone through since the last time.
#[derive(Debug)]
pub(super) struct Progress {
    /// `None`: nothing is said.
    interval: Option<Duration>,
    is_json: bool,
    /// What is measured: the bytes of a message, and which way they go.
    of: (usize, Direction),
    started: Cell<Instant>,
    said: Cell<Instant>,
    bytes: Cell<u64>,
}

impl Progress {
    pub(super) fn every(
        interval: Option<Duration>,
        is_json: bool,
        message_bytes: usize,
        direction: Direction,
    ) -> Self {
        let started = Instant::now();
        Self {
            interval,
            is_json,
            of: (message_bytes, direction),
            started: Cell::new(started),
            said: Cell::new(started),
            bytes: Cell::new(0),
        }
    }

    pub(super) fn none() -> Self {
        Self::every(None, false, 0, Direction::There)
    }

    /// What counts begins now, which is what this returns.
    pub(super) fn begin(&self) -> Instant {
        let now = Instant::now();
        self.started.set(now);
        self.said.set(now);
        self.bytes.set(0);
        now
    }

    /// So many bytes more have gone through.
    pub(super) fn note(&self, bytes: u64) {
        let Some(interval) = self.interval else {
            return;
        };
        self.bytes.set(self.bytes.get() + bytes);
        let between = self.said.get().elapsed();
        if between >= interval {
            // Whoever does not take it gets the result no less.
            let _ = print(&self.line(between));
            self.said.set(Instant::now());
            self.bytes.set(0);
        }
    }

    fn line(&self, between: Duration) -> String {
        let at_s = self.started.get().elapsed().as_secs_f64();
        if self.is_json {
            let mb_per_s = float(self.bytes.get()) / between.as_secs_f64() / 1e6;
            let (message_bytes, direction) = self.of;
            let line = json!({
                "progress": true,
                "message_bytes": message_bytes,
                "direction": direction,
                "at_s": at_s,
                "mb_per_s": mb_per_s,
            });
            format!("{line}\n")
        } else {
            format!("  at {at_s:.1} s: {}\n", rate(self.bytes.get(), between))
        }
    }
}
