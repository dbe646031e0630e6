//! Ends a bench in which nothing moves any more: a message waits for a node that is stopped for as
//! long as it takes, and a person who measures does not.

use std::process;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use madgate_vchannel::Session;
use madgate_vchannel::cluster::format_duration;

use crate::failure::{Context, Failure};
use crate::motion::Motion;

/// Looks in the time after which nothing moves any more.
const LOOKS: u32 = 16;

/// Looks until it is dropped.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// None only while it is dropped.
    watching: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Watchdog {
    /// Ends this process when nothing of any of `sessions` has moved for `silence`.
    pub(super) fn start(sessions: Vec<Session>, silence: Duration) -> Result<Self, Failure> {
        let (ends, end) = bounded::<()>(0);
        let watching = thread::Builder::new()
            .name("madgate-watchdog".into())
            .spawn(move || watch(&sessions, silence, &end))
            .or_fail(|| "cannot start a thread".into())?;
        Ok(Self {
            watching: Some((ends, watching)),
        })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some((ends, watching)) = self.watching.take() {
            drop(ends);
            // It holds sessions, which end when nobody does.
            let _ = watching.join();
        }
    }
}

fn watch(sessions: &[Session], silence: Duration, end: &Receiver<()>) {
    let mut motions: Vec<_> = sessions
        .iter()
        .map(|session| Motion::from(session.progress()))
        .collect();
    let mut since = Instant::now();
    while end.recv_timeout(silence / LOOKS) == Err(RecvTimeoutError::Timeout) {
        let mut has_moved = false;
        for (motion, session) in motions.iter_mut().zip(sessions) {
            has_moved |= motion.has_moved(session.progress());
        }
        if has_moved {
            since = Instant::now();
        } else if since.elapsed() >= silence {
            eprintln!(
                "madgate: nothing has moved for {}: the other node or a gateway on the way is \
                 stopped, or a network is cut; look at their logs",
                format_duration(silence)
            );
            process::exit(1);
        }
    }
}
