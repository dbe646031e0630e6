//! The demo ends in time, and leaves nothing behind, whatever happens.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};

use crate::child::Family;
use crate::failure::{Context, Failure};
use crate::output::say;
use crate::signals::{Endings, exit_code};

/// How long the demo may take, with some seconds left to clean up within a minute.
pub(crate) const LIMIT: Duration = Duration::from_secs(55);

/// Watches the clock and the signals until it is dropped.
#[derive(Debug)]
pub(crate) struct Deadline {
    started: Instant,
    _over: Sender<()>,
}

impl Deadline {
    /// From now on: kill `family` and remove `folders` when it takes too long, or on a signal.
    pub(crate) fn start(family: Family, folders: Vec<PathBuf>) -> Result<Self, Failure> {
        let endings = Endings::listen()?;
        let started = Instant::now();
        let (over, is_over) = bounded(0);
        thread::Builder::new()
            .name("madgate-deadline".into())
            .spawn(move || watch(&endings, &is_over, &family, &folders))
            .or_fail(|| "cannot start a thread".into())?;
        Ok(Self {
            started,
            _over: over,
        })
    }

    /// How much time is left.
    pub(crate) fn left(&self) -> Duration {
        LIMIT.saturating_sub(self.started.elapsed())
    }
}

fn watch(endings: &Endings, is_over: &Receiver<()>, family: &Family, folders: &[PathBuf]) {
    let code = select! {
        recv(endings.signals()) -> signal => signal.map_or(1, exit_code),
        recv(is_over) -> over => match over {
            Ok(()) | Err(_) => return,
        },
        default(LIMIT) => {
            let limit = LIMIT.as_secs();
            say(&format!("madgate: the demo did not end within {limit} s"));
            1
        }
    };
    family.kill();
    for folder in folders {
        // It may not be there yet, or not any more.
        let _ = std::fs::remove_dir_all(folder);
    }
    std::process::exit(code);
}
