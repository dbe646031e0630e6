//! How a caller waits: it drives the links itself, if nobody else does.
//!
//! Who sleeps, and who wakes them:
//!
//! | who sleeps, where | is woken by | when |
//! |---|---|---|
//! | the driver, in the poller | the kernel | something arrives, or a lane takes more |
//! | | [`wake_sleeping_driver`](Inner::wake_sleeping_driver) | it has chores, or the first deadline: `driver_sleeps` says that it must be told |
//! | the driver, if it is a caller | [`wake_waiters`](Inner::wake_waiters) | anything changes that it may wait for: `caller_sleeps` |
//! | the driver, if it is the progress thread | a caller that comes, and wants to drive itself | `background_drives` |
//! | a caller that does not drive, on `changed` | [`wake_waiters`](Inner::wake_waiters) | anything changes that it may wait for |
//! | | [`pass_the_wheel`](Inner::pass_the_wheel) | the driver leaves: one of them takes over |
//! | the progress thread, parked | [`wake_background`](Inner::wake_background) | the last caller may have left |
//! | | [`start_gathering`](Inner::start_gathering) | small messages are left for it to send |
//!
//! Against lost wake-ups each sleeper says first that it will sleep, and then looks once more
//! whether it should. What it looks at is behind the core's lock, and so is every change: a
//! change that came before that look is seen by it, and one that comes after finds the sleeper's
//! flag set. `has_changed` stands for a change that came while a driving caller was in a pass, so
//! that it looks again without a lock in every pass.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::Inner;
use super::core::Core;
use super::driver::{Driver, Patience};
use super::input::Straight;
use crate::cluster::WaitPolicy;

/// How long a caller that does not drive sleeps before it looks again whether somebody
/// does. Nothing relies on it: whoever stops driving wakes a caller, unless its thread died
/// at it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Passes without anything between two times that a spinning thread lets others run. Three
/// threads that spin on two processors without it are a thousand times slower.
const PASSES_PER_YIELD: u32 = 1;

/// The same while shared memory is polled, where a pass costs next to nothing.
const SLOT_PASSES_PER_YIELD: u32 = 64;

impl Inner {
    /// Waits until `ready` finds what it looks for, driving the links meanwhile; `None`
    /// after `deadline`. A payload for the block that `straight` names goes straight there;
    /// when that block is full the wait ends too, with `None`.
    pub(crate) fn wait<R>(
        &self,
        deadline: Option<Instant>,
        mut straight: Option<&mut Straight<'_>>,
        mut ready: impl FnMut(&mut Core) -> Option<R>,
    ) -> Option<R> {
        if let Some(found) = ready(&mut self.lock()) {
            return Some(found);
        }
        self.inside.fetch_add(1, Ordering::SeqCst);
        self.activity.fetch_add(1, Ordering::Relaxed);
        let found = loop {
            if let Some(mut driver) = self.try_drive() {
                let found =
                    self.drive_until(&mut driver, deadline, straight.as_deref_mut(), &mut ready);
                if straight.is_some() {
                    driver.abandon_straight();
                }
                drop(driver);
                self.pass_the_wheel();
                break found;
            }
            if let Some(found) = self.wait_for_driver(deadline, &mut ready) {
                // A driver that left may have woken this thread to take over.
                if self.try_drive().is_some() {
                    self.pass_the_wheel();
                }
                break found;
            }
        };
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.wake_background();
        found
    }

    /// Drives until `ready` finds what it looks for, or the deadline passes.
    fn drive_until<R>(
        &self,
        driver: &mut Driver,
        deadline: Option<Instant>,
        mut straight: Option<&mut Straight<'_>>,
        ready: &mut impl FnMut(&mut Core) -> Option<R>,
    ) -> Option<R> {
        let mut quiet = Quiet::new(self.wait_policy);
        driver.begin_drive(true, self.now());
        // What this caller changed itself before it came is no reason not to sleep.
        if self.has_changed.load(Ordering::Relaxed) {
            let mut core = self.lock();
            self.has_changed.store(false, Ordering::Relaxed);
            if let Some(found) = ready(&mut core) {
                return Some(found);
            }
            driver.has_chores = core.has_chores();
        }
        loop {
            let patience = quiet.patience(deadline, driver);
            let busy = self.drive(driver, patience, straight.as_deref_mut());
            let has_changed = self.has_changed.load(Ordering::Relaxed);
            if has_changed {
                // Whoever changes something now holds the lock that is taken below.
                self.has_changed.store(false, Ordering::Relaxed);
            }
            if busy || has_changed || patience != Patience::None || driver.has_looked() {
                let mut core = self.lock();
                if let Some(found) = ready(&mut core) {
                    return Some(found);
                }
                driver.has_chores = core.has_chores();
            }
            if straight
                .as_ref()
                .is_some_and(|straight| straight.is_filled())
            {
                return None;
            }
            if busy {
                quiet.reset();
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
        }
    }

    /// Sleeps while somebody else drives. `None`: look again who drives.
    #[allow(clippy::option_option, reason = "found, timed out, or neither")]
    fn wait_for_driver<R>(
        &self,
        deadline: Option<Instant>,
        ready: &mut impl FnMut(&mut Core) -> Option<R>,
    ) -> Option<Option<R>> {
        let mut core = self.lock();
        if let Some(found) = ready(&mut core) {
            return Some(Some(found));
        }
        core.waiters += 1;
        // Between the first look and counting ourselves the driver may have left.
        if self.try_drive().is_some() {
            core.waiters -= 1;
            return None;
        }
        if self.background_drives.load(Ordering::SeqCst) {
            self.waker.wake();
        } else {
            // What was pushed since the driver fell asleep has to be sent.
            self.wake_sleeping_driver();
        }
        let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let sleep = rest.map_or(LOOK_AGAIN, |rest| rest.min(LOOK_AGAIN));
        let (mut core, _) = self
            .changed
            .wait_timeout(core, sleep)
            .unwrap_or_else(PoisonError::into_inner);
        core.waiters -= 1;
        if let Some(found) = ready(&mut core) {
            return Some(Some(found));
        }
        let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_late.then_some(None)
    }

    pub(super) fn try_drive(&self) -> Option<MutexGuard<'_, Driver>> {
        match self.driver.try_lock() {
            Ok(driver) => Some(driver),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The driver leaves: somebody who waits takes over.
    pub(super) fn pass_the_wheel(&self) {
        let core = self.lock();
        if core.waiters > 0 {
            self.changed.notify_one();
        }
    }

    /// Something changed that callers may wait for, whether they drive or not.
    pub(crate) fn wake_waiters(&self, core: &Core) {
        self.has_changed.store(true, Ordering::Relaxed);
        if core.waiters > 0 {
            self.changed.notify_all();
        }
        if self.caller_sleeps.load(Ordering::Relaxed) {
            self.waker.wake();
        }
    }

    /// A driver that sleeps is to look again.
    pub(crate) fn wake_sleeping_driver(&self) {
        if self.driver_sleeps.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// How long nothing has happened, and what the policy makes of it.
pub(super) struct Quiet {
    policy: WaitPolicy,
    since: Option<Instant>,
    passes: u32,
}

impl Quiet {
    pub(super) fn new(policy: WaitPolicy) -> Self {
        Self {
            policy,
            since: None,
            passes: 0,
        }
    }

    fn reset(&mut self) {
        self.since = None;
        self.passes = 0;
    }

    fn patience(&mut self, deadline: Option<Instant>, driver: &mut Driver) -> Patience {
        let spin = match self.policy {
            WaitPolicy::Spin => Some(Duration::MAX),
            WaitPolicy::Adaptive { spin } if !driver.crowd.is_here() => Some(spin),
            WaitPolicy::Sleep | WaitPolicy::Adaptive { .. } => None,
        };
        self.passes += 1;
        let per_yield = if driver.has_static_inputs() {
            SLOT_PASSES_PER_YIELD
        } else {
            PASSES_PER_YIELD
        };
        let looks_at_clock = self.passes.is_multiple_of(per_yield);
        if let Some(spin) = spin {
            if !looks_at_clock {
                if self.passes > 1 {
                    std::hint::spin_loop();
                }
                return Patience::None;
            }
            let now = Instant::now();
            let since = *self.since.get_or_insert(now);
            if now - since < spin {
                if self.passes > per_yield {
                    driver.crowd.yield_now();
                }
                return Patience::None;
            }
        }
        let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        Patience::Sleep(rest)
    }
}
