//! Reception by interrupts: a thread that the card wakes, and that takes in what the list of
//! received messages says, so that the layers above only look at a flag. So did the first
//! implementation over this primitive (paper 000, section 3.1), whose interrupt handler was the
//! kernel's.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
    /// [`TAKEN_MOST`] entries at most: the other side's credit ends there, since a list is read
    /// on only when there is room here,
    taken: Mutex<VecDeque<Result<Received, PutError>>>,
    /// which is told here.
    room: Condvar,
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, VecDeque<Result<Received, PutError>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until there is room, or everything is over. A port that has failed looks no more,
    /// so that may be long.
    fn wait_for_room(&self) {
        let mut taken = self.taken();
        while taken.len() >= TAKEN_MOST && !self.stop.load(Ordering::Acquire) {
            taken = self
                .room
                .wait(taken)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stop(&self) {
        // With the lock: not between a look at the flag and going to sleep.
        let taken = self.taken();
        self.stop.store(true, Ordering::Release);
        drop(taken);
        self.room.notify_one();
    }
}

/// Entries that the handler keeps at most.
const TAKEN_MOST: usize = 4096;

impl Handler {
    /// Starts a thread that owns `receiving` from now on.
    pub(super) fn spawn<R: Receiving + 'static>(receiving: R) -> io::Result<Self> {
        let poller = Poller::new()?;
        let (descriptor, interest) = receiving.descriptor();
        poller.add(descriptor, CARD, interest)?;
        let waker = poller.waker();
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new()
            .name("madgate-hsl".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    take_interrupts(&shared, poller, receiving);
                    shared.ended.store(true, Ordering::Release);
                }
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
        let was_full = taken.len() >= TAKEN_MOST;
        let next = taken.pop_front();
        if taken.is_empty() {
            self.shared.any.store(false, Ordering::Relaxed);
        }
        drop(taken);
        if was_full {
            self.shared.room.notify_one();
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
        self.shared.stop();
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn take_interrupts<R: Receiving>(shared: &Shared, mut poller: Poller, mut receiving: R) {
    while !shared.stop.load(Ordering::Acquire) {
        let is_full = take_in(shared, &mut receiving);
        if is_full {
            // Whoever looks at the flags has not kept up.
            shared.wait_for_room();
            continue;
        }
        if !receiving.arm() {
            continue;
        }
        // What cannot be waited for has come to an end.
        let Ok(ready) = poller.wait(None) else {
            return;
        };
        let woken = !ready.is_empty();
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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::descriptor::{MessageId, NodeNumber};
    use super::*;
    use crate::local::arrivals::Lending;
    use crate::poller::Interest;
    use std::io::PipeReader;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::time::Instant;

    /// A list that never ends, and counts how often it is read.
    #[derive(Debug)]
    struct Endless {
        reads: Arc<AtomicU64>,
        thread: Arc<Mutex<Option<rustix::thread::Pid>>>,
        bell: PipeReader,
    }

    impl Receiving for Endless {
        fn keep_out_of(&mut self, _slots: Arc<dyn Lending>) {}

        fn next_received(&mut self) -> Result<Option<Received>, PutError> {
            *self.thread.lock().unwrap() = Some(rustix::thread::gettid());
            let read = self.reads.fetch_add(1, Ordering::Relaxed);
            Ok(Some(Received {
                source: NodeNumber(0),
                message: MessageId(u32::try_from(read).unwrap()),
                length: 0,
                words: [0; 2],
            }))
        }

        fn has_next(&mut self) -> bool {
            true
        }

        fn may_have_next(&self) -> bool {
            true
        }

        fn arm(&mut self) -> bool {
            false
        }

        fn disarm(&mut self) {}

        fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
            (self.bell.as_fd(), Interest::Readable)
        }

        fn acknowledge(&mut self) -> bool {
            true
        }

        fn is_peer_there(&mut self) -> bool {
            true
        }

        fn close(&mut self) {}
    }

    /// Waits until the thread sleeps, which one that spins never does.
    fn wait_until_it_sleeps(thread: &Mutex<Option<rustix::thread::Pid>>) {
        let begun = Instant::now();
        loop {
            let thread = *thread.lock().unwrap();
            if let Some(thread) = thread {
                let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
                let stat = std::fs::read_to_string(path).unwrap();
                if stat.rsplit_once(") ").unwrap().1.starts_with('S') {
                    return;
                }
            }
            assert!(
                begun.elapsed() < crate::conformance::SILENCE,
                "it never sleeps"
            );
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_handler_that_nobody_looks_at_sleeps_and_goes_on_where_it_was() {
        let (bell, _far) = std::io::pipe().unwrap();
        let reads = Arc::new(AtomicU64::new(0));
        let thread = Arc::new(Mutex::new(None));
        let list = Endless {
            reads: Arc::clone(&reads),
            thread: Arc::clone(&thread),
            bell,
        };
        let mut handler = Handler::spawn(list).unwrap();
        for taken in 0..3_u32 {
            let read = (TAKEN_MOST as u64) + u64::from(taken);
            while reads.load(Ordering::Relaxed) < read {
                std::thread::yield_now();
            }
            wait_until_it_sleeps(&thread);
            assert_eq!(reads.load(Ordering::Relaxed), read, "no more than fits");
            let received = handler.next_received().unwrap().unwrap();
            assert_eq!(received.message, MessageId(taken));
        }
        drop(handler);
    }
}
