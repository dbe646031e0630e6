//! The progress thread: it drives the links while no caller does.
//!
//! While callers come and go it rests, and the [`ticker`] looks, so that a call never has to wake
//! it; when no caller has come for a tick it drives; while callers wait for long (they drive) nobody
//! looks, until the last of them leaves. While callers find messages without waiting for them, it
//! makes one pass a tick at most: they drive themselves when they have unpacked what is there, which
//! costs less than what one thread takes in being unpacked by another. While messages come so fast
//! that each would be a system call of its own, it flushes what gathers, and drives in between.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, mem};

use super::Inner;
use super::driver::Patience;
use super::goal::{Goal, Nothing};
use super::ticker::{self, Order};

/// How often it flushes while messages gather.
const GATHER: Duration = Duration::from_micros(20);

/// Flushes between two times that it drives: nobody else may.
const GATHERS_PER_DRIVE: u32 = 8;

/// Flushes that find nothing after which gathering ends.
const EMPTY_GATHERS: u32 = 20;

pub(super) fn start(inner: Arc<Inner>) -> io::Result<JoinHandle<()>> {
    ticker::start()?;
    thread::Builder::new()
        .name("madgate-progress".to_owned())
        .spawn(move || run(&inner))
}

fn run(inner: &Arc<Inner>) {
    inner.background_thread.get_or_init(thread::current);
    while !inner.is_over.load(Ordering::SeqCst) {
        if inner.gathering.load(Ordering::SeqCst) {
            gather(inner);
            continue;
        }
        let order = mem::take(&mut inner.lock().order);
        match order {
            Order::Drive => drive(inner),
            Order::Pass => drive_once(inner),
            Order::Rest => rest(inner),
        }
    }
}

/// Sleeps until there is something to do.
fn rest(inner: &Arc<Inner>) {
    ticker::watch(inner);
    // Both are set before the thread is unparked.
    if !inner.is_over.load(Ordering::SeqCst) && !inner.gathering.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Drives until a caller comes.
fn drive(inner: &Inner) {
    let Some(mut driver) = inner.try_drive() else {
        return;
    };
    inner.background_drives.store(true, Ordering::SeqCst);
    driver.begin_drive(false, || inner.now());
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
            &mut Goal::new(None, &mut Nothing),
        );
    }
    drop(driver);
    inner.background_drives.store(false, Ordering::SeqCst);
    inner.pass_the_wheel();
}

/// One pass, unless a caller drives.
fn drive_once(inner: &Inner) {
    if let Some(mut driver) = inner.try_drive() {
        driver.begin_drive(false, || inner.now());
        inner.drive(
            &mut driver,
            Patience::None,
            &mut Goal::new(None, &mut Nothing),
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
    /// Short messages come fast: the thread is to flush what gathers.
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
        self.waker.wake();
        self.unpark_background();
        self.changed.notify_all();
    }

    /// The progress thread has something to do.
    pub(super) fn unpark_background(&self) {
        // Before it has begun there is nothing to wake it from.
        if let Some(thread) = self.background_thread.get() {
            thread.unpark();
        }
    }
}
