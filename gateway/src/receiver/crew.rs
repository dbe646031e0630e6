//! The receivers of a gateway, one thread each, and how they look after each other's networks.
//!
//! Threads that look again and again for what may arrive take turns on the processors with
//! those that they wait for. While little comes, one of them is enough: the first that begins
//! to look so becomes the *lookout*, and others leave their networks to it and sleep. A network
//! goes back to its own thread as soon as it has much to do, or nothing for so long that its
//! thread may sleep until the kernel tells.
//!
//! While much comes, one may be too few ([`deputy`](super::deputy)).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::{io, iter};

use madgate_tm::Scheduling;
use madgate_vchannel::cluster::{EndpointSettings, GatewaySettings};

use super::deputy::{Berth, Much};
use super::{Look, Receiver};
use crate::engine::Engine;
use crate::waiting::{has_deputies, has_lookout};

/// No thread is the lookout.
const NOBODY: usize = usize::MAX;

/// All receivers of a gateway.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(super) posts: Box<[Post]>,
    /// Which thread is the lookout.
    lookout: AtomicUsize,
    /// Whether there may be one.
    has_lookout: bool,
    /// Whether a thread is scheduled in batches while much comes.
    is_batched: bool,
    /// How wide the windows are that destinations grant.
    pub(super) endpoints: EndpointSettings,
}

/// One network's receiver.
#[derive(Debug)]
pub(super) struct Post {
    /// Locked by whoever looks after it, for as long as that is one thread.
    receiver: Mutex<Receiver>,
    /// Whether its own thread has left it to the lookout.
    is_left: AtomicBool,
    thread: OnceLock<Thread>,
    /// Where its thread sleeps while much comes, if there are deputies.
    pub(super) berth: Option<Berth>,
    /// Whether its deputy may be asked to stand in.
    pub(super) has_deputy: AtomicBool,
    /// Whether much comes by it that threads have to copy.
    pub(super) comes_much: AtomicBool,
}

impl Crew {
    /// Receivers that are looked after by the threads that [`run`](Self::run) them; where the settings say
    /// so, by one for others now and then.
    ///
    /// # Errors
    /// When the process may not open more descriptors (deputies take two for each network).
    pub(crate) fn new(
        receivers: Vec<Receiver>,
        settings: &GatewaySettings,
        endpoints: EndpointSettings,
    ) -> io::Result<Self> {
        let berths = if has_deputies(settings) && receivers.len() > 1 {
            let berths = receivers.iter().map(|_| Berth::new().map(Some));
            berths.collect::<io::Result<_>>()?
        } else {
            Vec::new()
        };
        let berths = berths.into_iter().chain(iter::repeat_with(|| None));
        let post = |(receiver, berth)| Post {
            receiver: Mutex::new(receiver),
            is_left: AtomicBool::new(false),
            thread: OnceLock::new(),
            berth,
            has_deputy: AtomicBool::new(false),
            comes_much: AtomicBool::new(false),
        };
        Ok(Self {
            posts: receivers.into_iter().zip(berths).map(post).collect(),
            lookout: AtomicUsize::new(NOBODY),
            has_lookout: has_lookout(settings),
            is_batched: settings.sched_batch,
            endpoints,
        })
    }

    /// Receives for one network until the engine stops.
    pub(crate) fn run(&self, index: usize, engine: &Engine) {
        let post = &self.posts[index];
        // Each thread comes here once.
        let _ = post.thread.set(thread::current());
        let _watch = Watch { crew: self, index };
        let mut scheduling = Scheduling::of_this_thread();
        let mut receiver = post.lock();
        let mut much = Much::default();
        while !engine.is_stopping() {
            self.look_for_much(index, &mut receiver, &mut much);
            scheduling.set_batch(much.is_worked_on() && self.is_batched);
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
                            self.forget_much(index, &receiver, &mut much);
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
                    if much.has_berth()
                        && let Some(berth) = &post.berth
                        && let Some(limit) = receiver.sleeps_elsewhere(limit)
                    {
                        self.ask_deputy(index, &receiver, &much);
                        drop(receiver);
                        let is_asked = berth.sleep(limit);
                        receiver = post.lock();
                        receiver.wake();
                        if is_asked {
                            drop(receiver);
                            self.stand_in(index);
                            receiver = post.lock();
                        }
                        continue;
                    }
                    receiver.sleep(much.limit(limit));
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
        let post = &self.crew.posts[self.index];
        post.has_deputy.store(false, Ordering::Relaxed);
        post.comes_much.store(false, Ordering::Relaxed);
        self.crew.step_down(self.index);
    }
}

impl Post {
    fn lock(&self) -> MutexGuard<'_, Receiver> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Receiver>> {
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
