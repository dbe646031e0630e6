//! What scenarios are made of.

pub(crate) mod cluster;
mod giants;
pub(crate) mod member;
pub(crate) mod node;
mod process;
mod rounds;
mod traffic;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

pub(crate) use cluster::{MIXED, Plan, Protocol, loopback};
pub(crate) use process::Process;
pub(crate) use rounds::{Counts, Rates, alternate, await_messages, bound, median};

/// What a test gives up after: never the measure of anything.
pub(crate) const LONG: Duration = Duration::from_secs(60);

static MACHINE: RwLock<()> = RwLock::new(());

/// The machine, for one scenario alone: one that compares rates, or takes all the memory it may.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    // One that failed has left nothing behind: its processes end with it.
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// The machine, for a scenario that measures nothing and mostly waits, beside others of its kind.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}
