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
//! | the progress thread, parked | the [`ticker`](super::ticker), which [`wait`](Inner::wait) sees to when the last caller leaves | nobody has called for a tick, or messages are claimed without waiting |
//! | | [`start_gathering`](Inner::start_gathering) | messages are left for it to send |
//!
//! Against lost wake-ups each sleeper says first that it will sleep, and then looks once more
//! whether it should. What it looks at is behind the core's lock, and so is every change: a
//! change that came before that look is seen by it, and one that comes after finds the sleeper's
//! flag set. `has_changed` stands for a change by another thread that came while a driving caller
//! was in a pass, so that it need not look again in every pass; what it takes in itself, it looks
//! at in the same lock ([`goal`](super::goal)).

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::Inner;
use super::core::Core;
use super::driver::{Driver, Patience};
use super::goal::{Goal, Seek, Sought, Waiting};
use super::input::Straight;
use super::ticker;
use crate::cluster::WaitPolicy;

/// How long a caller that does not drive sleeps before it looks again whether somebody
/// does. Nothing relies on it: whoever stops driving wakes a caller, unless its thread died
/// at it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Inner {
    /// As [`wait_for`](Self::wait_for), until `ready` finds what it looks for.
    pub(crate) fn wait<R>(
        &self,
        deadline: Option<Instant>,
        straight: Option<&mut Straight<'_>>,
        ready: impl FnMut(&mut Core) -> Option<R>,
    ) -> Option<R> {
        self.wait_for(|| deadline, straight, ready)
    }

    /// Waits until what is `sought` is found, driving the links meanwhile; `None` after `deadline`,
    /// for which nobody is asked where it is found at once. A payload for the block that `straight`
    /// names goes straight there, unless the settings say otherwise; when that block is full the wait
    /// ends too, with `None`.
    pub(crate) fn wait_for<S: Sought>(
        &self,
        deadline: impl FnOnce() -> Option<Instant>,
        mut straight: Option<&mut Straight<'_>>,
        mut sought: S,
    ) -> Option<S::Found> {
        straight = straight.filter(|_| self.goes_straight);
        let mut driver = {
            let mut core = self.lock();
            let found = sought.look(&mut core);
            if found.is_some() {
                return found;
            }
            core.callers += 1;
            core.waits = core.waits.wrapping_add(1);
            // With everything locked, so that nothing can have changed since that look.
            let mut driver = self.try_drive();
            if let Some(driver) = &mut driver {
                driver.begin_drive(true, || self.now());
                self.note_look(driver, &core);
            }
            driver
        };
        let deadline = deadline();
        let mut waiting = Waiting::new(sought);
        loop {
            let begun = driver.take();
            let is_new = begun.is_none();
            if let Some(mut driver) = begun.or_else(|| self.try_drive()) {
                driver.serves_block = straight.is_some();
                let mut goal = Goal::new(straight.as_deref_mut(), &mut waiting);
                if is_new {
                    driver.begin_drive(true, || self.now());
                    // Since the last look another driver may have taken in what is waited for. It
                    // looked for its own goal only.
                    self.look_again(&mut driver, &mut goal);
                }
                self.drive_until(&mut driver, deadline, &mut goal);
                if straight.is_some() {
                    driver.abandon_straight();
                }
                drop(driver);
                self.pass_the_wheel();
                break;
            }
            if self.wait_for_driver(deadline, &mut waiting) {
                // A driver that left may have woken this thread to take over.
                if self.try_drive().is_some() {
                    self.pass_the_wheel();
                }
                break;
            }
        }
        if waiting.found.is_none() {
            waiting.is_unwatched = self.lock().leave();
        }
        if waiting.is_unwatched {
            ticker::watch(self);
        }
        waiting.found
    }

    /// Drives until `goal` is reached, its block is full, or the deadline passes.
    fn drive_until(&self, driver: &mut Driver, deadline: Option<Instant>, goal: &mut Goal<'_, '_>) {
        let mut quiet = Quiet::new(self.wait_policy);
        while !goal.is_reached {
            let patience = quiet.patience(deadline, driver);
            if self.drive(driver, patience, goal) {
                quiet.end(driver);
            }
            if goal.is_over() {
                return;
            }
            let has_changed = self.has_changed.load(Ordering::Relaxed);
            if has_changed || patience != Patience::None || driver.has_looked() {
                self.look_again(driver, goal);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return;
            }
        }
    }

    /// Looks whether others have changed what is waited for.
    fn look_again(&self, driver: &mut Driver, goal: &mut Goal<'_, '_>) {
        let mut core = self.lock();
        goal.look(&mut core);
        self.note_look(driver, &core);
    }

    /// A caller that drives has looked for what it waits for.
    fn note_look(&self, driver: &mut Driver, core: &Core) {
        self.has_changed.store(false, Ordering::Relaxed);
        driver.has_chores = core.has_chores();
    }

    /// Sleeps while somebody else drives. Returns whether the wait is over; else it is time to
    /// look again who drives.
    fn wait_for_driver(&self, deadline: Option<Instant>, seek: &mut dyn Seek) -> bool {
        let mut core = self.lock();
        if seek.look(&mut core) {
            return true;
        }
        self.waiters.fetch_add(1, Ordering::Relaxed);
        // SYNC POINT C: pairs with the fence in `pass_the_wheel`. Between the first look and
        // counting ourselves the driver may have left.
        fence(Ordering::SeqCst);
        if self.try_drive().is_some() {
            self.waiters.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if self.background_drives.load(Ordering::SeqCst) {
            self.waker.wake();
        } else {
            // What was pushed since the driver fell asleep has to be sent.
            self.wake_sleeping_driver();
        }
        let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let sleep = rest.map_or(LOOK_AGAIN, |rest| rest.min(LOOK_AGAIN));
        self.changed.wait_for(&mut core, sleep);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        seek.look(&mut core) || deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    pub(super) fn try_drive(&self) -> Option<MutexGuard<'_, Driver>> {
        let mut driver = self.driver.try_lock()?;
        // Whoever drove before has panicked while it unpacked a block.
        if driver.serves_block {
            driver.abandon_straight();
        }
        Some(driver)
    }

    /// The driver leaves: somebody who waits takes over.
    pub(super) fn pass_the_wheel(&self) {
        // SYNC POINT C: pairs with the fence in `wait_for_driver`. Either that one is counted
        // here, or it finds that nobody drives.
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) > 0 {
            // It holds the lock from counting itself until it sleeps.
            let _core = self.lock();
            self.changed.notify_one();
        }
    }

    /// Something changed that callers may wait for, whether they drive or not.
    pub(crate) fn wake_waiters(&self, core: &Core) {
        if core.callers > 0 {
            self.has_changed.store(true, Ordering::Relaxed);
            self.wake_others();
            if self.caller_sleeps.load(Ordering::Relaxed) {
                self.waker.wake();
            }
        }
    }

    /// As [`wake_waiters`](Self::wake_waiters), for the driver, with everything locked: it looks
    /// for what it waits for itself.
    pub(super) fn wake_others(&self) {
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
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
    /// How long it had lasted at the last look at the clock.
    lasted: Duration,
    /// Whether it outlasted what it was worth to look for.
    has_slept: bool,
    passes: u32,
}

impl Quiet {
    pub(super) fn new(policy: WaitPolicy) -> Self {
        Self {
            policy,
            since: None,
            lasted: Duration::ZERO,
            has_slept: false,
            passes: 0,
        }
    }

    /// Something has come.
    fn end(&mut self, driver: &mut Driver) {
        if let Some(since) = self.since {
            let lasted = if self.has_slept {
                since.elapsed()
            } else {
                self.lasted
            };
            driver.spin.note(lasted);
        }
        *self = Self::new(self.policy);
    }

    fn patience(&mut self, deadline: Option<Instant>, driver: &mut Driver) -> Patience {
        let spin = match self.policy {
            WaitPolicy::Spin => Some(Duration::MAX),
            WaitPolicy::Adaptive { .. } if !driver.crowd.is_here() => Some(driver.spin.limit()),
            WaitPolicy::Sleep | WaitPolicy::Adaptive { .. } => {
                // How long it would have been worth to look, nobody knows then.
                self.since = None;
                None
            }
        };
        self.passes += 1;
        let per_yield = driver.passes_per_yield();
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
            self.lasted = now - since;
            if self.lasted < spin {
                if self.passes > per_yield {
                    driver.crowd.yield_now();
                }
                return Patience::None;
            }
            self.has_slept = true;
        }
        let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        Patience::Sleep(rest)
    }
}

#[cfg(test)]
mod tests {
    use madgate_tm::Poller;

    use super::*;

    const LATE: Duration = Duration::from_millis(10);

    fn driver(policy: WaitPolicy) -> Driver {
        let (_, events) = crossbeam_channel::unbounded();
        Driver::new(Poller::new().unwrap(), events, policy.longest_spin())
    }

    /// One that has lasted so long, and was slept through or not.
    fn lasted(policy: WaitPolicy, lasted: Duration, has_slept: bool) -> Quiet {
        Quiet {
            since: Some(Instant::now().checked_sub(lasted).unwrap()),
            lasted: if has_slept { Duration::ZERO } else { lasted },
            has_slept,
            ..Quiet::new(policy)
        }
    }

    #[test]
    fn who_is_kept_waiting_each_time_sleeps_at_once_until_something_comes_soon() {
        let policy = WaitPolicy::default();
        let mut driver = driver(policy);
        let first = |driver: &mut Driver| Quiet::new(policy).patience(None, driver);
        for _ in 0..100 {
            assert!(!driver.crowd.is_here());
            assert_eq!(
                first(&mut driver) == Patience::None,
                !driver.spin.limit().is_zero()
            );
            lasted(policy, LATE, true).end(&mut driver);
        }
        assert_eq!(first(&mut driver), Patience::Sleep(None));
        lasted(policy, Duration::from_micros(20), false).end(&mut driver);
        assert_eq!(driver.spin.limit(), Duration::from_micros(80));
        assert_eq!(first(&mut driver), Patience::None);
    }

    #[test]
    fn who_sleeps_or_spins_always_goes_on_to() {
        for (policy, patience) in [
            (WaitPolicy::Sleep, Patience::Sleep(None)),
            (WaitPolicy::Spin, Patience::None),
        ] {
            let mut driver = driver(policy);
            for _ in 0..100 {
                let mut quiet = Quiet::new(policy);
                assert_eq!(quiet.patience(None, &mut driver), patience, "{policy:?}");
                lasted(policy, LATE, false).end(&mut driver);
            }
        }
    }

    #[test]
    fn who_sleeps_as_others_compute_learns_nothing() {
        let policy = WaitPolicy::default();
        let mut driver = driver(policy);
        let before = driver.spin.limit();
        let mut quiet = lasted(policy, LATE, false);
        for _ in 0..2 {
            driver.crowd.note_yield(LATE);
        }
        assert!(driver.crowd.is_here());
        assert_eq!(quiet.patience(None, &mut driver), Patience::Sleep(None));
        quiet.end(&mut driver);
        assert_eq!(driver.spin.limit(), before);
    }

    #[test]
    fn a_wait_that_has_been_slept_through_is_over_when_something_comes() {
        let policy = WaitPolicy::default();
        let mut driver = driver(policy);
        let mut quiet = lasted(policy, LATE, false);
        while quiet.patience(None, &mut driver) == Patience::None {}
        assert!(quiet.has_slept && quiet.since.is_some());
        quiet.end(&mut driver);
        assert!(!quiet.has_slept && quiet.since.is_none());
    }
}
