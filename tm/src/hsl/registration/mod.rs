//! A cache of registrations: memory that a card has been told of once need not be told of again
//! (the papers' translation cache; report 004, section II.2.7).
//!
//! ```text
//!   get(range) ── found ────────────────────────────────────────> lease, with its key
//!       │                                                            │ dropped:
//!       └─ not found: watch, register, keep (least recently used     │ may be used again,
//!          and not leased goes) ────────────────────────────────────>│ or is gone: deregister
//!                                                                    ▼
//!   munmap, mremap, madvise ── the kernel tells, and waits ──> watcher: what it names is gone
//! ```
//!
//! What a registration names are pages, not addresses. Where memory is unmapped, and other memory
//! mapped at its addresses, an old registration would have the card read and write pages that
//! nobody sees any more. So every page that is kept is watched by the kernel (`monitor`), and
//! what happens to it is known before it is used the next time:
//!
//! - Who unmaps waits until the event is read, and whoever reads it has the lock of the books
//!   until it is written there. So a thread that unmaps and maps again finds what it did.
//! - Another thread may be given the same addresses before the first one's event is even there.
//!   The kernel tells whether such a change is under way, and every look asks.
//! - A registration that is being used while its memory goes away stays until its last lease is
//!   dropped, and is found no more. The card keeps its pages.
//!
//! Memory belongs to who passes it, for as long as the call takes: to empty it (`madvise`) at the
//! same time in another thread is a mistake that cannot be mended here. Nor is it seen when the
//! file that memory maps is cut or punched through a descriptor.
//!
//! While the books are locked nothing is allocated or freed: an allocator that gives pages back
//! would wait for an event to be read that only a holder of the lock can read.
//!
//! Where the system does not let a process watch its memory, nothing is kept:
//! [`why_off`](RegistrationCache::why_off) says why, and every use is a registration of its own.

mod books;
mod monitor;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use books::{Books, Leased, Removed, Room};
use monitor::Monitor;

/// How often a look waits for a change of some watched memory to be over, before it registers
/// for this once.
const LOOKS_MOST: usize = 64;

/// What makes memory known to a card.
pub trait Registrar: fmt::Debug + Send + Sync {
    /// What stands for a registration: a handle, not the thing itself.
    type Key: Copy + fmt::Debug + Send + 'static;

    /// Makes memory at these addresses known, which the caller of
    /// [`get`](RegistrationCache::get) has mapped.
    ///
    /// # Errors
    /// When the card, or the system, refuses.
    fn register(&self, memory: Range<usize>) -> io::Result<Self::Key>;

    /// Undoes it. No use of the key is under way.
    fn deregister(&self, key: Self::Key);
}

/// How much is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationLimits {
    /// Registrations: 1 to 4096; what is outside of that is taken as the nearest. Default: 256.
    pub entries: usize,
    /// Bytes of the pages of all of them. Default: 1 GiB.
    pub bytes: usize,
}

/// Registrations that can be kept at most.
const ENTRIES_MAX: usize = 4096;

impl Default for RegistrationLimits {
    fn default() -> Self {
        Self {
            entries: 256,
            bytes: 1 << 30,
        }
    }
}

/// What a cache has done; the counters only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RegistrationCounters {
    /// Uses that found a registration.
    pub hits: u64,
    /// Uses that made one, which was kept.
    pub misses: u64,
    /// Uses that made one for themselves: there was no room, or memory that cannot be watched.
    pub unkept: u64,
    /// Registrations that went for others.
    pub evicted: u64,
    /// Registrations whose memory went.
    pub invalidated: u64,
}

/// A bounded cache of registrations, safe where memory goes away. See the [module](self).
///
/// One for each process: memory can be watched once, and what another one watches is not kept.
pub struct RegistrationCache<R: Registrar> {
    registrar: R,
    shared: Arc<Shared<R::Key>>,
    watcher: Result<Watcher, String>,
}

/// What the cache shares with the thread that watches.
#[derive(Debug)]
struct Shared<K> {
    books: Mutex<Books<K>>,
    /// Whether something is to be deregistered.
    any_gone: AtomicBool,
}

impl<K: Copy> Shared<K> {
    fn books(&self) -> MutexGuard<'_, Books<K>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what has happened to watched memory.
    fn take_events(&self, books: &mut Books<K>, monitor: &Monitor) -> io::Result<()> {
        monitor.take_events(|gone| {
            if books.invalidate(&gone) {
                self.any_gone.store(true, Ordering::Relaxed);
            }
        })
    }
}

impl<R: Registrar> RegistrationCache<R> {
    /// An empty one, and its watching thread.
    #[must_use]
    pub fn new(registrar: R, limits: &RegistrationLimits) -> Arc<Self> {
        let entries = limits.entries.clamp(1, ENTRIES_MAX);
        let shared = Arc::new(Shared {
            books: Mutex::new(Books::new(entries, limits.bytes)),
            any_gone: AtomicBool::new(false),
        });
        let watcher = Watcher::spawn(Arc::clone(&shared)).map_err(|error| {
            format!("this system does not let a process watch its memory (userfaultfd): {error}")
        });
        Arc::new(Self {
            registrar,
            shared,
            watcher,
        })
    }

    /// Why nothing is kept, if that is so.
    #[must_use]
    pub fn why_off(&self) -> Option<&str> {
        self.watcher.as_ref().err().map(String::as_str)
    }

    /// What makes registrations.
    pub(crate) fn registrar(&self) -> &R {
        &self.registrar
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> RegistrationCounters {
        self.shared.books().counters
    }

    /// A registration of these addresses, which the caller has mapped and keeps so meanwhile.
    ///
    /// # Errors
    /// What the registrar refuses.
    pub fn get(self: &Arc<Self>, memory: Range<usize>) -> io::Result<Lease<R>> {
        if self.shared.any_gone.load(Ordering::Relaxed) {
            self.sweep();
        }
        let kept = match (&self.watcher, books::pages_of(&memory)) {
            (Ok(watcher), Some(pages)) => self.get_kept(&watcher.monitor, &memory, pages)?,
            _ => None,
        };
        let cache = Arc::clone(self);
        if let Some(Leased { name, memory, key }) = kept {
            return Ok(Lease {
                cache,
                entry: Some(name),
                memory,
                key,
            });
        }
        self.shared.books().counters.unkept += 1;
        Ok(Lease {
            cache,
            entry: None,
            key: self.registrar.register(memory.clone())?,
            memory,
        })
    }

    /// A registration that is or will be kept, unless that cannot be.
    fn get_kept(
        &self,
        monitor: &Monitor,
        memory: &Range<usize>,
        pages: Range<usize>,
    ) -> io::Result<Option<Leased<R::Key>>> {
        match self.look(monitor, memory)? {
            Look::Found(leased) => return Ok(Some(leased)),
            Look::Changing => return Ok(None),
            Look::NotThere => {}
        }
        let Some(name) = self.reserve(monitor, memory, pages) else {
            return Ok(None);
        };
        // Watched from here on: what happens to it meanwhile is in the books.
        let memory = memory.clone();
        match self.registrar.register(memory.clone()) {
            Ok(key) => {
                self.shared.books().settle(name, key);
                Ok(Some(Leased { name, memory, key }))
            }
            Err(error) => {
                let mut books = self.shared.books();
                if let Some(removed) = books.abandon(name) {
                    unwatch(&books, monitor, &removed);
                }
                Err(error)
            }
        }
    }

    fn look(&self, monitor: &Monitor, memory: &Range<usize>) -> io::Result<Look<R::Key>> {
        for _ in 0..LOOKS_MOST {
            let mut books = self.shared.books();
            if !monitor.is_changing() {
                let found = books.find(memory);
                return Ok(found.map_or(Look::NotThere, Look::Found));
            }
            self.shared.take_events(&mut books, monitor)?;
            drop(books);
            // Who changes it has to be told that the event has been read, and to go on.
            std::thread::yield_now();
        }
        Ok(Look::Changing)
    }

    /// A place in the books for `memory`, whose pages are watched then.
    fn reserve(
        &self,
        monitor: &Monitor,
        memory: &Range<usize>,
        pages: Range<usize>,
    ) -> Option<u64> {
        // Each time round one entry less is there.
        loop {
            let mut books = self.shared.books();
            match books.make_room(pages.len()) {
                Room::None => return None,
                Room::Made(removed) => {
                    unwatch(&books, monitor, &removed);
                    drop(books);
                    self.deregister(&removed);
                }
                Room::There => {
                    monitor.watch(&pages).ok()?;
                    return Some(books.reserve(memory.clone(), pages));
                }
            }
        }
    }

    /// Deregisters what went away and is not used any more.
    fn sweep(&self) {
        self.shared.any_gone.store(false, Ordering::Relaxed);
        let Ok(watcher) = &self.watcher else {
            return;
        };
        loop {
            let removed = {
                let mut books = self.shared.books();
                let Some(removed) = books.take_gone() else {
                    return;
                };
                unwatch(&books, &watcher.monitor, &removed);
                removed
            };
            self.deregister(&removed);
        }
    }

    fn give_back(&self, entry: u64) {
        let Ok(watcher) = &self.watcher else {
            return;
        };
        let removed = {
            let mut books = self.shared.books();
            let Some(removed) = books.release(entry) else {
                return;
            };
            unwatch(&books, &watcher.monitor, &removed);
            removed
        };
        self.deregister(&removed);
    }

    fn deregister(&self, removed: &Removed<R::Key>) {
        if let Some(key) = removed.key {
            self.registrar.deregister(key);
        }
    }
}

/// What the books say.
enum Look<K> {
    Found(Leased<K>),
    NotThere,
    /// Something is being unmapped all the time.
    Changing,
}

/// Watches the pages of `removed` no more, but those that are still somebody's. With the books
/// locked: nobody may begin to rely on their being watched meanwhile.
fn unwatch<K: Copy>(books: &Books<K>, monitor: &Monitor, removed: &Removed<K>) {
    let mut rest = removed.pages.clone();
    while let Some(alone) = books.next_uncovered(&rest) {
        monitor.unwatch(&alone);
        rest.start = alone.end;
    }
}

impl<R: Registrar> Drop for RegistrationCache<R> {
    fn drop(&mut self) {
        // Nobody waits for events any more when the monitor is closed.
        self.watcher = Err(String::new());
        // There are no leases: each keeps the cache.
        loop {
            let removed = self.shared.books().take_any();
            match removed {
                Some(removed) => self.deregister(&removed),
                None => return,
            }
        }
    }
}

impl<R: Registrar> fmt::Debug for RegistrationCache<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrationCache")
            .field("registrar", &self.registrar)
            .field("counters", &self.counters())
            .field("why_off", &self.why_off())
            .finish_non_exhaustive()
    }
}

/// A registration that is being used. Dropped, it may be used again by others.
#[derive(Debug)]
pub struct Lease<R: Registrar> {
    cache: Arc<RegistrationCache<R>>,
    /// Which one it is, where it is kept.
    entry: Option<u64>,
    memory: Range<usize>,
    key: R::Key,
}

impl<R: Registrar> Lease<R> {
    /// What has made it.
    pub(crate) fn registrar(&self) -> &R {
        &self.cache.registrar
    }

    /// What stands for it.
    #[must_use]
    pub fn key(&self) -> R::Key {
        self.key
    }

    /// What is registered: the addresses that were asked for, or more.
    #[must_use]
    pub fn memory(&self) -> Range<usize> {
        self.memory.clone()
    }
}

impl<R: Registrar> Drop for Lease<R> {
    fn drop(&mut self) {
        match self.entry {
            Some(entry) => self.cache.give_back(entry),
            None => self.cache.registrar.deregister(self.key),
        }
    }
}

/// The thread that reads what happens to watched memory, so that who changes it can go on.
#[derive(Debug)]
struct Watcher {
    monitor: Arc<Monitor>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    fn spawn<K: Copy + Send + 'static>(shared: Arc<Shared<K>>) -> io::Result<Self> {
        let monitor = Arc::new(Monitor::new()?);
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let thread = std::thread::Builder::new()
            .name("madgate-pages".to_owned())
            .spawn({
                let (monitor, stop) = (Arc::clone(&monitor), Arc::clone(&stop));
                move || watch(&shared, &monitor, &stop)
            })?;
        Ok(Self {
            monitor,
            stop,
            thread: Some(thread),
        })
    }
}

/// Until it is stopped. Nothing here allocates or frees: that may change watched memory, and then
/// waits for this thread.
fn watch<K: Copy>(shared: &Shared<K>, monitor: &Monitor, stop: &OwnedFd) {
    loop {
        let mut ready = [
            PollFd::new(monitor, PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => std::thread::yield_now(),
        }
        if !ready[1].revents().is_empty() {
            return;
        }
        // The lock first: who waits for the event goes on when it is read.
        let mut books = shared.books();
        if shared.take_events(&mut books, monitor).is_err() {
            // What is not known any more may all be gone.
            books.invalidate(&(0..usize::MAX));
            shared.any_gone.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // A counter that is written once has room.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}
