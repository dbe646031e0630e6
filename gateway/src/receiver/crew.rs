//! The receivers of a gateway, one thread each, and the lookout among them.
//!
//! Threads that look again and again for what may arrive take turns on the processors with
//! those that they wait for. While little comes, one of them is enough: the first that begins
//! to look so becomes the *lookout*, and others leave their networks to it and sleep. A network
//! goes back to its own thread as soon as it has much to do, or nothing for so long that its
//! thread may sleep until the kernel tells.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};

use madgate_tm::Scheduling;

use super::{Look, Receiver};
use crate::engine::Engine;

/// No thread is the lookout.
const NOBODY: usize = usize::MAX;

/// All receivers of a gateway.
#[derive(Debug)]
pub(crate) struct Crew {
    posts: Box<[Post]>,
    /// Which thread is the lookout.
    lookout: AtomicUsize,
    /// Whether there may be one.
    has_lookout: bool,
}

/// One network's receiver.
#[derive(Debug)]
struct Post {
    /// Locked by whoever looks after it, for as long as that is one thread.
    receiver: Mutex<Receiver>,
    /// Whether its own thread has left it to the lookout.
    is_left: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Crew {
    /// Receivers that are looked after by the threads that [`run`](Self::run) them; with
    /// `has_lookout`, by one for others now and then.
    pub(crate) fn new(receivers: Vec<Receiver>, has_lookout: bool) -> Self {
        let post = |receiver| Post {
            receiver: Mutex::new(receiver),
            is_left: AtomicBool::new(false),
            thread: OnceLock::new(),
        };
        Self {
            posts: receivers.into_iter().map(post).collect(),
            lookout: AtomicUsize::new(NOBODY),
            has_lookout,
        }
    }

    /// Receives for one network until the engine stops.
    pub(crate) fn run(&self, index: usize, engine: &Engine) {
        let post = &self.posts[index];
        // Each thread comes here once.
        let _ = post.thread.set(thread::current());
        let _watch = Watch { crew: self, index };
        let mut scheduling = Scheduling::of_this_thread();
        let mut receiver = post.lock();
        while !engine.is_stopping() {
            scheduling.set_batch(receiver.has_much());
            match receiver.look() {
                Look::Progress => {
                    if receiver.is_loaded() {
                        self.step_down(index);
                    } else {
                        self.look_after_others(index);
                    }
                }
                Look::Nothing => {
                    if self.look_after_others(index) {
                        continue;
                    }
                    if receiver.is_at_ease() {
                        if self.leave(index) {
                            receiver.note_leave();
                            drop(receiver);
                            // What it has to do when it is woken is not to wait.
                            scheduling.set_batch(false);
                            post.wait();
                            receiver = post.lock();
                            continue;
                        }
                        self.volunteer(index);
                    }
                    receiver.give_way();
                }
                Look::Idle(limit) => {
                    self.step_down(index);
                    receiver.sleep(limit);
                }
            }
        }
    }

    // ---- what its own thread does ---------------------------------------------------------

    /// Leaves a network to the lookout, if there is another one. Whether it was taken.
    fn leave(&self, index: usize) -> bool {
        let is_there = || ![NOBODY, index].contains(&self.lookout.load(Ordering::Relaxed));
        if !is_there() {
            return false;
        }
        let post = &self.posts[index];
        post.is_left.store(true, Ordering::Relaxed);
        // SYNC POINT A: pairs with the fence in `step_down`. Either the lookout is seen to be
        // gone here, or it sees what was left to it.
        fence(Ordering::SeqCst);
        if !is_there() {
            post.is_left.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    // ---- what the lookout does ------------------------------------------------------------

    /// Becomes the lookout, if there is none.
    fn volunteer(&self, index: usize) {
        if self.has_lookout && self.lookout.load(Ordering::Relaxed) == NOBODY {
            // Somebody else may have been faster.
            let _ =
                self.lookout
                    .compare_exchange(NOBODY, index, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The lookout looks at what was left to it. Whether anything was received.
    fn look_after_others(&self, index: usize) -> bool {
        if self.lookout.load(Ordering::Relaxed) != index {
            return false;
        }
        let mut progress = false;
        for post in &self.posts {
            if !post.is_left.load(Ordering::Relaxed) {
                continue;
            }
            // Its thread may be about to let go of it, or have changed its mind: then it sleeps
            // with it, and must not be waited for.
            let Some(mut receiver) = post.try_lock() else {
                continue;
            };
            if !post.is_left.load(Ordering::Relaxed) {
                continue;
            }
            let goes_back = match receiver.look() {
                Look::Progress => {
                    progress = true;
                    receiver.is_loaded()
                }
                Look::Nothing => false,
                Look::Idle(_) => true,
            };
            drop(receiver);
            if goes_back {
                post.give_back();
            }
        }
        progress
    }

    /// The lookout is none any longer: what was left to it goes back.
    fn step_down(&self, index: usize) {
        if self.lookout.load(Ordering::Relaxed) != index {
            return;
        }
        self.lookout.store(NOBODY, Ordering::Relaxed);
        // SYNC POINT A: pairs with the fence in `leave`.
        fence(Ordering::SeqCst);
        for post in &self.posts {
            if post.is_left.load(Ordering::Relaxed) {
                post.give_back();
            }
        }
    }
}

/// A thread that receives. However it ends, nobody is left behind with a lookout that is gone.
#[derive(Debug)]
struct Watch<'a> {
    crew: &'a Crew,
    index: usize,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.crew.step_down(self.index);
    }
}

impl Post {
    fn lock(&self) -> MutexGuard<'_, Receiver> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Receiver>> {
        match self.receiver.try_lock() {
            Ok(receiver) => Some(receiver),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Its own thread sleeps until it is given back.
    fn wait(&self) {
        while self.is_left.load(Ordering::Acquire) {
            thread::park();
        }
    }

    fn give_back(&self) {
        self.is_left.store(false, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
