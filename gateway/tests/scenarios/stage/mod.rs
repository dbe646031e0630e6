//! What scenarios are made of.

pub(crate) mod cluster;
mod giants;
pub(crate) mod member;
pub(crate) mod node;
mod process;
mod rounds;
mod traffic;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use cluster::{MIXED, Plan, Protocol, loopback};
pub(crate) use process::Process;
pub(crate) use rounds::{Counts, Rates, alternate, await_messages, bound, median};

/// What a test gives up after: never the measure of anything.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The machine, for one scenario alone.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    // One that failed has left nothing behind: its processes end with it.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}
