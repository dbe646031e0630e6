//! Slots that go back from any thread, through one door: whoever finds it open takes along what
//! the others have laid down, and nobody waits. Who has several lays all of them down first.
//!
//! ```text
//!  who gives back                    who is at the door
//!  lay down, mark                    publish what is laid down
//!  full fence                        leave the door
//!  door closed: leave it there       full fence
//!                                    anything marked? again
//! ```
//!
//! Whichever fence comes first, either who gives back finds the door open, or who leaves it
//! finds the mark.

use super::message::GROUP;
use crate::local::sync::{AtomicU64, Mutex, Ordering, TryLockError, fence};

/// Slots of two kinds that are to go back, and what they go back through.
#[derive(Debug)]
pub(super) struct Pending<T> {
    /// A bit for each slot, in groups: control slots, and buffers.
    words: Box<[[AtomicU64; 2]]>,
    /// A bit for each group in which something is laid down.
    marked: AtomicU64,
    door: Mutex<T>,
}

/// Which kind a slot is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A control slot.
    Control,
    /// A buffer for rendezvous.
    Buffer,
}

/// Groups at most.
const GROUPS_MAX: u32 = 64;

impl<T> Pending<T> {
    /// Nothing of `slots` slots of each kind yet.
    pub(super) fn new(slots: u32, door: T) -> Self {
        let groups = slots.div_ceil(GROUP);
        assert!(groups <= GROUPS_MAX);
        Self {
            words: (0..groups)
                .map(|_| [AtomicU64::new(0), AtomicU64::new(0)])
                .collect(),
            marked: AtomicU64::new(0),
            door: Mutex::new(door),
        }
    }

    /// Lays slot `slot` down: it goes back when somebody next passes the door.
    pub(super) fn lay_down(&self, place: Place, slot: u32) {
        let kind = match place {
            Place::Control => 0,
            Place::Buffer => 1,
        };
        let group = slot / GROUP;
        let words = &self.words[group as usize];
        // Release: what this thread read from the slot, it has read.
        words[kind].fetch_or(1 << (slot % GROUP), Ordering::Release);
        self.marked.fetch_or(1 << group, Ordering::Release);
    }

    /// What has been laid down goes back: `publish` is called with each group and the bits of
    /// both kinds, here, or by whoever is at the door.
    pub(super) fn pass(&self, mut publish: impl FnMut(&mut T, u32, [u64; 2])) {
        // SYNC POINT D: before a failed `try_lock`, against the look at the marks below.
        fence(Ordering::SeqCst);
        while let Some(mut door) = try_lock(&self.door) {
            self.publish_all(&mut door, &mut publish);
            drop(door);
            // SYNC POINT D: after unlocking, against the failed `try_lock` after a mark.
            fence(Ordering::SeqCst);
            if self.marked.load(Ordering::Relaxed) == 0 {
                break;
            }
        }
    }

    fn publish_all(&self, door: &mut T, publish: &mut impl FnMut(&mut T, u32, [u64; 2])) {
        let mut marked = self.marked.swap(0, Ordering::Acquire);
        while marked != 0 {
            let group = marked.trailing_zeros();
            marked &= marked - 1;
            let words = &self.words[group as usize];
            let taken = [
                words[0].swap(0, Ordering::Acquire),
                words[1].swap(0, Ordering::Acquire),
            ];
            if taken != [0, 0] {
                publish(door, group, taken);
            }
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
impl<T: Copy> Pending<T> {
    /// What has been published, when nobody is at the door.
    pub(super) fn published(&self) -> T {
        *self.door.lock().unwrap()
    }
}

/// `None` when somebody has it.
#[cfg(not(loom))]
fn try_lock<T>(door: &Mutex<T>) -> Option<std::sync::MutexGuard<'_, T>> {
    match door.try_lock() {
        Ok(door) => Some(door),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(loom)]
fn try_lock<T>(door: &Mutex<T>) -> Option<loom::sync::MutexGuard<'_, T>> {
    match door.try_lock() {
        Ok(door) => Some(door),
        Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => None,
    }
}
