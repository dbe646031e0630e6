//! What a long measurement says while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use serde_json::json;

use super::Direction;
use crate::failure::{Context, Failure};
use crate::output::print;
use crate::units::{mb_per_s, rate};

/// Counts what has arrived, of which a thread tells at every interval, whether anything moves or not.
#[derive(Debug, Default)]
pub(super) struct Progress {
    bytes: Arc<AtomicU64>,
    /// `None`: nothing is said.
    teller: Option<Teller>,
}

#[derive(Debug)]
struct Teller {
    /// When it begins to count is sent; it ends when nothing more can be.
    begin: Option<Sender<Instant>>,
    thread: Option<JoinHandle<()>>,
}

/// What is told at every interval.
#[derive(Debug)]
struct Story {
    interval: Duration,
    is_json: bool,
    message_bytes: usize,
    direction: Direction,
    bytes: Arc<AtomicU64>,
}

impl Progress {
    /// Tells at this interval, if there is one, of messages of so many bytes that go there, or both ways.
    pub(super) fn every(
        interval: Option<Duration>,
        is_json: bool,
        message_bytes: usize,
        direction: Direction,
    ) -> Result<Self, Failure> {
        let bytes = Arc::new(AtomicU64::new(0));
        let story = interval.map(|interval| Story {
            interval,
            is_json,
            message_bytes,
            direction,
            bytes: Arc::clone(&bytes),
        });
        let teller = story.map(Teller::start).transpose()?;
        Ok(Self { bytes, teller })
    }

    /// What counts begins now, which is what this returns.
    pub(super) fn begin(&self) -> Instant {
        let now = Instant::now();
        self.bytes.store(0, Ordering::Relaxed);
        if let Some(begin) = self.teller.as_ref().and_then(|it| it.begin.as_ref()) {
            // It lives for as long as this can be sent.
            let _ = begin.send(now);
        }
        now
    }

    /// So many bytes more have arrived.
    pub(super) fn note(&self, bytes: u64) {
        if self.teller.is_some() {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl Teller {
    fn start(story: Story) -> Result<Self, Failure> {
        let (begin, begun) = bounded(1);
        let thread = thread::Builder::new()
            .name("madgate-progress".into())
            .spawn(move || story.tell(&begun))
            .or_fail(|| "cannot start a thread".into())?;
        Ok(Self {
            begin: Some(begin),
            thread: Some(thread),
        })
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to say about how it went.
            let _ = thread.join();
        }
    }
}

impl Story {
    fn tell(&self, begun: &Receiver<Instant>) {
        let Ok(started) = begun.recv() else {
            return;
        };
        let mut said = started;
        while let Err(RecvTimeoutError::Timeout) = begun.recv_timeout(self.interval) {
            let now = Instant::now();
            let line = self.line(now - started, now - said);
            // Whoever does not take it gets the result no less.
            let _ = print(&line);
            said = now;
        }
    }

    fn line(&self, at: Duration, between: Duration) -> String {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        let at_s = at.as_secs_f64();
        if self.is_json {
            let line = json!({
                "progress": true,
                "message_bytes": self.message_bytes,
                "direction": self.direction,
                "at_s": at_s,
                "mb_per_s": mb_per_s(bytes, between),
            });
            format!("{line}\n")
        } else {
            format!("  at {at_s:.1} s: {}\n", rate(bytes, between))
        }
    }
}
