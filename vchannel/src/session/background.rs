//! The progress thread: it drives the links while no caller does.
//!
//! While callers come and go it only ticks, so that a call never has to wake it; when no
//! caller has come for a tick it drives; when callers wait for long (they drive) it parks.
//! While callers find messages without waiting for them, it makes one pass a tick at most: they
//! drive themselves when they have unpacked what is there, which costs less than what one
//! thread takes in being unpacked by another. While messages come so fast that each would be a system
//! call of its own, it flushes what gathers, and drives in between.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Inner;
use super::driver::Patience;
use super::wait::Goal;

/// How often the thread looks whether callers still drive.
const TICK: Duration = Duration::from_millis(1);

/// Ticks without a new call after which it parks, a caller being inside.
const TICKS_TO_PARK: u32 = 50;

/// How often it flushes while small messages gather.
const GATHER: Duration = Duration::from_micros(20);

/// Flushes between two times that it drives: nobody else may.
const GATHERS_PER_DRIVE: u32 = 8;

/// Flushes that find nothing after which gathering ends.
const EMPTY_GATHERS: u32 = 20;

pub(super) fn start(inner: Arc<Inner>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("madgate-progress".to_owned())
        .spawn(move || run(&inner))
}

fn run(inner: &Inner) {
    let mut quiet_ticks = 0;
    let mut last_waits = 0;
    let mut last_claimed = 0;
    while !inner.is_over.load(Ordering::SeqCst) {
        if inner.gathering.load(Ordering::SeqCst) {
            gather(inner);
            continue;
        }
        let (callers, waits, claimed) = {
            let core = inner.lock();
            (core.callers, core.waits, core.messages_claimed)
        };
        let nobody_drives = waits == last_waits;
        let is_quiet = nobody_drives && claimed == last_claimed;
        last_waits = waits;
        last_claimed = claimed;
        if callers == 0 {
            quiet_ticks = 0;
            if is_quiet {
                drive(inner);
            } else {
                if nobody_drives {
                    drive_once(inner);
                }
                thread::park_timeout(TICK);
            }
            continue;
        }
        quiet_ticks = if is_quiet { quiet_ticks + 1 } else { 0 };
        if quiet_ticks < TICKS_TO_PARK {
            thread::park_timeout(TICK);
            continue;
        }
        quiet_ticks = 0;
        park(inner);
    }
}

/// Sleeps until the last caller may have left, or there is something else to do.
fn park(inner: &Inner) {
    {
        let mut core = inner.lock();
        if core.callers == 0 {
            return;
        }
        core.background_parked = true;
    }
    // Both are set before the thread is unparked.
    if !inner.is_over.load(Ordering::SeqCst) && !inner.gathering.load(Ordering::SeqCst) {
        thread::park();
    }
    inner.lock().background_parked = false;
}

/// Drives until a caller comes.
fn drive(inner: &Inner) {
    let Some(mut driver) = inner.try_drive() else {
        thread::park_timeout(TICK);
        return;
    };
    inner.background_drives.store(true, Ordering::SeqCst);
    driver.begin_drive(false, inner.now());
    let claimed = inner.lock().messages_claimed;
    let goes_on = || {
        let core = inner.lock();
        core.callers == 0
            && core.messages_claimed == claimed
            && !inner.is_over.load(Ordering::SeqCst)
            && !inner.gathering.load(Ordering::SeqCst)
    };
    while goes_on() {
        inner.drive(
            &mut driver,
            Patience::Sleep(None),
            &mut Goal::new(None, &mut |_| false),
        );
    }
    drop(driver);
    inner.background_drives.store(false, Ordering::SeqCst);
    inner.pass_the_wheel();
}

/// One pass, unless a caller drives.
fn drive_once(inner: &Inner) {
    if let Some(mut driver) = inner.try_drive() {
        driver.begin_drive(false, inner.now());
        inner.drive(
            &mut driver,
            Patience::None,
            &mut Goal::new(None, &mut |_| false),
        );
        drop(driver);
        inner.pass_the_wheel();
    }
}

/// Flushes what gathers, until nothing does.
fn gather(inner: &Inner) {
    let mut empty = 0;
    let mut passes = 0_u32;
    while empty < EMPTY_GATHERS && !inner.is_over.load(Ordering::SeqCst) {
        passes = passes.wrapping_add(1);
        if passes.is_multiple_of(GATHERS_PER_DRIVE) {
            drive_once(inner);
        }
        if inner.flush_dirty_left() {
            empty = 0;
        } else {
            empty += 1;
        }
        thread::park_timeout(GATHER);
    }
    let mut core = inner.lock();
    for link in core.links.iter_mut().flatten() {
        link.is_gathering = false;
    }
    inner.gathering.store(false, Ordering::SeqCst);
    let dirty = !core.dirty.is_empty();
    drop(core);
    if dirty {
        inner.flush_dirty();
    }
}

impl Inner {
    /// Small messages come fast: the thread is to flush what gathers.
    pub(crate) fn start_gathering(&self) {
        if !self.gathering.swap(true, Ordering::SeqCst) {
            self.unpark_background();
            if self.background_drives.load(Ordering::SeqCst) {
                self.waker.wake();
            }
        }
    }

    /// The session is over.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.lock().is_closed = true;
        self.waker.wake();
        self.unpark_background();
        self.changed.notify_all();
    }

    /// The progress thread has something to do.
    pub(super) fn unpark_background(&self) {
        let thread = self
            .background_thread
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(thread) = &*thread {
            thread.unpark();
        }
    }
}
