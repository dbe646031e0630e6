//! What starts processes and makes folders ends in time, and leaves nothing behind, whatever
//! happens.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};

use crate::child::Family;
use crate::failure::{Context, Failure};
use crate::output::say;
use crate::signals::{Endings, exit_code};

/// How long a failure waits for a signal that may be its cause. Who interrupts a terminal ends the
/// children too, and their end may be seen a moment before the signal is.
const SIGNAL_DELAY: Duration = Duration::from_millis(500);

/// How often a folder is removed that something appears in meanwhile.
const REMOVE_TRIES: usize = 16;

/// Watches the clock and the signals until it is dropped.
#[derive(Debug)]
pub(crate) struct Deadline {
    ends_at: Instant,
    /// Told of a success; disconnects at the end.
    over: Option<Sender<()>>,
    watcher: Option<JoinHandle<()>>,
}

impl Deadline {
    /// From now on: kill `family` and remove `folders` when it takes longer than `limit`, or on a
    /// signal. `what` says what it is.
    pub(crate) fn start(
        family: Family,
        folders: Vec<PathBuf>,
        limit: Duration,
        what: &'static str,
    ) -> Result<Self, Failure> {
        let endings = Endings::listen()?;
        let ends_at = Instant::now() + limit;
        let (over, is_over) = bounded(1);
        let watcher = thread::Builder::new()
            .name("madgate-deadline".into())
            .spawn(move || {
                let code = wait(&endings, &is_over, limit, what);
                if let Some(code) = code {
                    clean_up(&family, &folders);
                    std::process::exit(code);
                }
            })
            .or_fail(|| "cannot start a thread".into())?;
        Ok(Self {
            ends_at,
            over: Some(over),
            watcher: Some(watcher),
        })
    }

    /// Ends the watch with what came out. Does not return where a signal or the clock has been
    /// faster: then this process ends as that says, whatever else has failed by it.
    pub(crate) fn end<T>(self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        if outcome.is_ok()
            && let Some(over) = &self.over
        {
            // Nobody listens where the watch has ended by itself.
            let _ = over.send(());
        }
        outcome
    }

    /// How much time is left.
    pub(crate) fn left(&self) -> Duration {
        self.ends_at.saturating_duration_since(Instant::now())
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.over = None;
        if let Some(watcher) = self.watcher.take() {
            // One that has panicked ends nothing.
            let _ = watcher.join();
        }
    }
}

/// Waits for the end; with which code the process has to end, if it has to.
fn wait(endings: &Endings, is_over: &Receiver<()>, limit: Duration, what: &str) -> Option<i32> {
    select! {
        recv(endings.signals()) -> signal => Some(signal.map_or(1, exit_code)),
        recv(is_over) -> success => {
            let delay = if success.is_ok() { Duration::ZERO } else { SIGNAL_DELAY };
            endings.signals().recv_timeout(delay).ok().map(exit_code)
        }
        default(limit) => {
            let limit = limit.as_secs();
            say(&format!("madgate: {what} did not end within {limit} s"));
            Some(1)
        }
    }
}

fn clean_up(family: &Family, folders: &[PathBuf]) {
    family.kill();
    for folder in folders {
        remove(folder);
    }
}

/// Removes a folder that this process itself may still write into, or remove.
fn remove(folder: &Path) {
    for _ in 0..REMOVE_TRIES {
        let removed = fs::remove_dir_all(folder);
        // It may not be there yet, or not any more.
        if removed.is_ok() || !folder.exists() {
            return;
        }
    }
    say(&format!("madgate: cannot remove {}", folder.display()));
}
