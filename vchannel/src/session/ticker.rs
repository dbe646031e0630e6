//! Who looks whether callers still drive: one thread for all sessions of a process.
//!
//! While callers come and go, a session's progress thread has nothing to do, but has to take over
//! when they stop. A call cannot tell it so without a wake-up of its own; so somebody looks every
//! now and then. If each progress thread did, a process of many nodes would do little else than
//! wake up to look.
//!
//! ```text
//!   progress thread                         ticker
//!   watch ──> sleeps                        looks every tick
//!     ^            <── drive ───────────────  nobody has called since the last one
//!     │            <── one pass ────────────  messages are claimed, and nobody waits
//!     └── drives        ·                     callers wait for long: they drive; it forgets
//!                       ·                     the session until the last of them leaves
//! ```

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{io, mem, thread};

use parking_lot::{Condvar, Mutex};

use super::Inner;

/// How often it looks.
const TICK: Duration = Duration::from_millis(1);

/// The same while the callers of all sessions come all the time: each look takes a processor from somebody.
const LONG_TICK: Duration = Duration::from_millis(4);

/// They do when they have driven between so many looks, one after the other.
const STEADY_LOOKS: u32 = 4;

/// Ticks without a new call, with a caller inside, after which a session is forgotten.
const TICKS_TO_FORGET: u32 = 50;

/// The same where nothing has come since it was forgotten last: its caller only looks now and then
/// whether it is to end, say.
const TICKS_TO_FORGET_AGAIN: u32 = 4;

/// What a progress thread is to do.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing: callers drive.
    #[default]
    Rest,
    /// One pass.
    Pass,
    /// To drive until a caller comes.
    Drive,
}

/// The sessions that are looked at. Held for a whole tick, and locked before anything else.
static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

/// Those that are looked at from the next tick on. Held for a moment.
static COMING: Mutex<Coming> = Mutex::new(Coming {
    sessions: Vec::new(),
    is_running: false,
    is_waiting: false,
});
/// There is one.
static CAME: Condvar = Condvar::new();

struct Coming {
    sessions: Vec<Watched>,
    is_running: bool,
    /// Whether the thread sleeps until one comes.
    is_waiting: bool,
}

/// Starts the thread, where it has not been. It stays.
pub(super) fn start() -> io::Result<()> {
    let mut coming = COMING.lock();
    if !coming.is_running {
        thread::Builder::new()
            .name("madgate-ticker".to_owned())
            .spawn(run)?;
        coming.is_running = true;
    }
    Ok(())
}

/// Looks at `inner` from the next tick on, if it does not yet.
pub(super) fn watch(inner: &Inner) {
    if !inner.is_watched.swap(true, Ordering::SeqCst) {
        let watched = Watched::new(inner);
        let mut coming = COMING.lock();
        coming.sessions.push(watched);
        if mem::take(&mut coming.is_waiting) {
            CAME.notify_one();
        }
    }
}

/// Looks at `inner` no longer, and has let go of it when this returns.
pub(super) fn forget(inner: &Inner) {
    let is_other = |watched: &Watched| !std::ptr::eq(watched.inner.as_ptr(), inner);
    let mut watched = WATCHED.lock();
    watched.retain(is_other);
    COMING.lock().sessions.retain(is_other);
}

fn run() {
    let mut is_empty = true;
    let mut tick = TICK;
    loop {
        let mut coming = COMING.lock();
        while is_empty && coming.sessions.is_empty() {
            coming.is_waiting = true;
            CAME.wait(&mut coming);
        }
        drop(coming);
        thread::sleep(tick);
        let mut watched = WATCHED.lock();
        watched.retain_mut(Watched::look);
        // These are looked at when a whole tick has passed.
        watched.append(&mut COMING.lock().sessions);
        is_empty = watched.is_empty();
        tick = next_tick(&watched);
    }
}

/// How long to wait before these are looked at.
fn next_tick(watched: &[Watched]) -> Duration {
    if !watched.is_empty() && watched.iter().all(Watched::is_steady) {
        LONG_TICK
    } else {
        TICK
    }
}

/// A session whose progress thread rests, and how it was at the last tick.
struct Watched {
    inner: Weak<Inner>,
    /// Looks in a row before each of which callers have driven.
    steady_looks: u32,
    quiet_ticks: u32,
    waits: u64,
    claimed: u64,
}

impl Watched {
    fn new(inner: &Inner) -> Self {
        let core = inner.lock();
        Self {
            inner: Weak::clone(&inner.this),
            steady_looks: 0,
            quiet_ticks: 0,
            waits: core.waits,
            claimed: core.messages_claimed,
        }
    }

    /// Whether it is soon enough to look again after some ticks. Once its callers stop, it is looked at twice
    /// before the progress thread takes over.
    const fn is_steady(&self) -> bool {
        self.steady_looks >= STEADY_LOOKS
    }

    /// Returns whether it is to be looked at again.
    fn look(&mut self) -> bool {
        let Some(inner) = self.inner.upgrade() else {
            return false;
        };
        // Whoever has it may not run for a while: the others are not to wait for that.
        let Some(mut core) = inner.core.try_lock() else {
            return true;
        };
        let nobody_drives = core.waits == self.waits;
        let is_quiet = nobody_drives && core.messages_claimed == self.claimed;
        (self.waits, self.claimed) = (core.waits, core.messages_claimed);
        self.steady_looks = if nobody_drives {
            0
        } else {
            self.steady_looks.saturating_add(1)
        };
        if core.callers > 0 {
            self.quiet_ticks = if is_quiet { self.quiet_ticks + 1 } else { 0 };
            let ticks = match core.claimed_when_forgotten {
                Some(claimed) if claimed == self.claimed => TICKS_TO_FORGET_AGAIN,
                _ => TICKS_TO_FORGET,
            };
            if self.quiet_ticks < ticks {
                return true;
            }
            core.is_forgotten = true;
            core.claimed_when_forgotten = Some(self.claimed);
            inner.is_watched.store(false, Ordering::SeqCst);
            return false;
        }
        self.quiet_ticks = 0;
        let order = match (is_quiet, nobody_drives) {
            (true, _) => Order::Drive,
            (false, true) => Order::Pass,
            (false, false) => return true,
        };
        core.order = order;
        drop(core);
        if order == Order::Drive {
            inner.is_watched.store(false, Ordering::SeqCst);
        }
        inner.unpark_background();
        order == Order::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_long_only_while_callers_of_all_sessions_come_all_the_time() {
        let after = |looks: &[u32]| {
            let watched = looks.iter().map(|&steady_looks| Watched {
                inner: Weak::new(),
                steady_looks,
                quiet_ticks: 0,
                waits: 0,
                claimed: 0,
            });
            next_tick(&watched.collect::<Vec<_>>())
        };
        assert_eq!(after(&[STEADY_LOOKS]), LONG_TICK);
        assert_eq!(after(&[STEADY_LOOKS, u32::MAX]), LONG_TICK);
        assert_eq!(after(&[]), TICK);
        assert_eq!(after(&[STEADY_LOOKS - 1]), TICK);
        assert_eq!(after(&[STEADY_LOOKS, 0]), TICK);
    }
}
