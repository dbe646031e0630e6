//! SIGTERM and SIGINT, as events that a command waits for.

use std::thread;

use crossbeam_channel::{Receiver, bounded};
use signal_hook::consts::{SIGINT, SIGTERM};
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
        let mut signals = Signals::new([SIGTERM, SIGINT]).or_fail(what)?;
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

/// The exit code of a process that a signal has ended, as shells have it.
pub(crate) fn exit_code(signal: i32) -> i32 {
    128 + signal
}
