//! Ends a bench in which nothing moves any more: a message waits for a node that is stopped for as
//! long as it takes, and a person who measures does not.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use madgate_vchannel::cluster::format_duration;

use crate::failure::{Context, Failure};
use crate::files::wire::count;

/// How much has moved, more or less: that of two threads which count at once one is not counted
/// matters to nobody, and a count that were exact would cost each message more.
static MOVED: AtomicU64 = AtomicU64::new(0);

/// A message of at least so many bytes per second is not one that stands still.
const SLOWEST_BYTES_PER_SECOND: u64 = 1_000_000;

/// Looks in the time after which nothing moves any more.
const LOOKS: u32 = 16;

/// A message has been sent, or has come.
#[inline]
pub(super) fn note_move() {
    MOVED.store(
        MOVED.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

/// Looks until it is dropped.
#[derive(Debug)]
pub(super) struct Watchdog {
    _ends: Sender<()>,
}

impl Watchdog {
    /// Ends this process when no message of up to `largest` bytes has moved for `silence`, and as
    /// long as one takes.
    pub(super) fn start(silence: Duration, largest: usize) -> Result<Self, Failure> {
        let limit = silence + Duration::from_secs(count(largest) / SLOWEST_BYTES_PER_SECOND);
        let (ends, end) = bounded::<()>(0);
        let look = move || {
            let mut last = (MOVED.load(Ordering::Relaxed), Instant::now());
            while end.recv_timeout(limit / LOOKS) == Err(RecvTimeoutError::Timeout) {
                let now = MOVED.load(Ordering::Relaxed);
                if now != last.0 {
                    last = (now, Instant::now());
                } else if last.1.elapsed() >= limit {
                    eprintln!(
                        "madgate: nothing has moved for {}: the other node or a gateway on the way \
                         is stopped, or a network is cut; look at their logs",
                        format_duration(limit)
                    );
                    process::exit(1);
                }
            }
        };
        thread::Builder::new()
            .name("madgate-watchdog".into())
            .spawn(look)
            .or_fail(|| "cannot start a thread".into())?;
        Ok(Self { _ends: ends })
    }
}
