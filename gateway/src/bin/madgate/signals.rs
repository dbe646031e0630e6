//! SIGTERM, SIGINT, SIGQUIT and SIGHUP, as events that a command waits for; and SIGXFSZ, which is none.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{fs, thread};

use crossbeam_channel::{Receiver, bounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::failure::{Context, Failure};

/// Signals that end a command cleanly; a second one ends it at once.
#[derive(Debug)]
pub(crate) struct Endings {
    signals: Receiver<i32>,
}

impl Endings {
    /// Takes the signals over from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let what = || "cannot listen to signals".to_owned();
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT]).or_fail(what)?;
        // Who is to outlive a terminal was started so (`nohup`).
        if !is_ignored(SIGHUP) {
            signals.add_signal(SIGHUP).or_fail(what)?;
        }
        let (sender, receiver) = bounded(1);
        thread::Builder::new()
            .name("madgate-signals".into())
            .spawn(move || {
                let mut signals = signals.forever();
                if let Some(first) = signals.next() {
                    // Nobody listens any more when the command is over already.
                    let _ = sender.send(first);
                }
                if let Some(second) = signals.next() {
                    std::process::exit(exit_code(second));
                }
            })
            .or_fail(what)?;
        Ok(Self { signals: receiver })
    }

    /// Where the first signal arrives.
    pub(crate) fn signals(&self) -> &Receiver<i32> {
        &self.signals
    }
}

/// A file that may grow no more (`RLIMIT_FSIZE`) is an error where it is written, and does not end
/// the process.
pub(crate) fn outlive_file_limits() -> Result<(), Failure> {
    let seen = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, seen)
        .map(drop)
        .or_fail(|| "cannot listen to signals".to_owned())
}

/// Whether this process was started with `signal` ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// The exit code of a process that a signal has ended, as shells have it.
pub(crate) fn exit_code(signal: i32) -> i32 {
    128 + signal
}
