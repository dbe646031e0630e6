//! Reception by interrupts: a thread that the card wakes, and that takes in what the list of
//! received messages says, so that the layers above only look at a flag. So did the first
//! implementation over this primitive (paper 000, section 3.1), whose interrupt handler was the
//! kernel's.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::descriptor::{PutError, Received};
use super::device::Receiving;
use crate::poller::{Poller, Waker};

/// The descriptor's token.
const CARD: u64 = 0;

/// A handler thread and what it has taken in.
#[derive(Debug)]
pub(super) struct Handler {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Whether it is worth to look.
    any: AtomicBool,
    stop: AtomicBool,
    /// The other side is gone, and nothing is taken in any more.
    ended: AtomicBool,
    interrupts: AtomicU64,
    /// As many entries as the list has at most: the other side's credit ends there, since a
    /// list is read on only when there is room here.
    taken: Mutex<VecDeque<Result<Received, PutError>>>,
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, VecDeque<Result<Received, PutError>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entries that the handler keeps at most.
const TAKEN_MOST: usize = 4096;

impl Handler {
    /// Starts a thread that owns `receiving` from now on.
    pub(super) fn spawn<R: Receiving + 'static>(receiving: R) -> io::Result<Self> {
        let poller = Poller::new()?;
        let waker = poller.waker();
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new()
            .name("madgate-hsl".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || handle(&shared, poller, receiving)
            })?;
        Ok(Self {
            shared,
            waker,
            thread: Some(thread),
        })
    }

    /// The next entry that was taken in.
    pub(super) fn next_received(&mut self) -> Result<Option<Received>, PutError> {
        if !self.shared.any.load(Ordering::Acquire) {
            // What was taken in before the end was marked before it.
            let has_ended = self.shared.ended.load(Ordering::Acquire);
            return if has_ended && !self.shared.any.load(Ordering::Acquire) {
                Err(PutError::Closed)
            } else {
                Ok(None)
            };
        }
        let mut taken = self.shared.taken();
        let next = taken.pop_front();
        if taken.is_empty() {
            self.shared.any.store(false, Ordering::Relaxed);
        }
        next.transpose()
    }

    /// How often the thread was woken by the card.
    pub(super) fn interrupts(&self) -> u64 {
        self.shared.interrupts.load(Ordering::Relaxed)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn handle<R: Receiving>(shared: &Shared, poller: Poller, receiving: R) {
    let (descriptor, interest) = receiving.descriptor();
    if poller.add(descriptor, CARD, interest).is_ok() {
        take_interrupts(shared, poller, receiving);
    }
    shared.ended.store(true, Ordering::Release);
}

fn take_interrupts<R: Receiving>(shared: &Shared, mut poller: Poller, mut receiving: R) {
    while !shared.stop.load(Ordering::Acquire) {
        let is_full = take_in(shared, &mut receiving);
        if is_full {
            // Whoever looks at the flags has not kept up; there is nothing to wait for.
            std::thread::yield_now();
            continue;
        }
        if !receiving.arm() {
            continue;
        }
        let woken = poller.wait(None).is_ok_and(|ready| !ready.is_empty());
        receiving.disarm();
        if woken {
            shared.interrupts.fetch_add(1, Ordering::Relaxed);
            if !receiving.acknowledge() {
                // What came before the end is still there.
                take_in(shared, &mut receiving);
                return;
            }
        }
    }
}

/// Takes in what the list has; whether more did not fit.
fn take_in<R: Receiving>(shared: &Shared, receiving: &mut R) -> bool {
    loop {
        let mut taken = shared.taken();
        if taken.len() >= TAKEN_MOST {
            return true;
        }
        let Some(next) = receiving.next_received().transpose() else {
            return false;
        };
        taken.push_back(next);
        shared.any.store(true, Ordering::Release);
    }
}
