//! A thread that looks after cards when nobody else does.
//!
//! Most providers do nothing unless somebody calls them: what has been posted goes on only while
//! its completions are asked for. Whoever posts may never call again, and whoever sleeps does not
//! call at all. So there is one thread in a process that calls, now and then, for the cards that
//! need it: those with something under way, those whose owner sleeps where the provider has
//! nothing to wait for, and those that are about to end. While there is none, it sleeps. A process
//! does not exit before those have ended: what a provider has made for an endpoint that is not
//! closed may stay on the host for ever.

use std::mem;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::Connection;
use super::control::Bell;
use super::library;

/// How long it pauses when it has just been asked to look,
const PAUSE_LEAST: Duration = Duration::from_micros(50);
/// and at most: each look doubles it.
const PAUSE_MOST: Duration = Duration::from_millis(1);

/// An exit waits so long at most for cards that are about to end.
const EXIT_MOST: Duration = Duration::from_secs(1);

/// What a card says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// Look again.
    Waiting,
    /// It does not need anybody any more.
    Done,
}

/// Who looks after connections: a thread, or a test.
#[derive(Debug)]
pub(super) struct Attendant {
    bell: Bell,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    connections: Vec<Arc<Connection>>,
    /// Whether the thread sleeps until it is rung for.
    sleeps: bool,
    /// Whether somebody has just begun to sleep who depends on it.
    is_urgent: bool,
}

impl Attendant {
    /// One that nobody runs yet.
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            bell: Bell::new()?,
            asked: Mutex::default(),
        })
    }

    /// Looks after a connection, until that says that it is done.
    pub(super) fn look_after(&self, connection: Arc<Connection>) {
        let mut asked = self.asked();
        asked.connections.push(connection);
        if asked.sleeps {
            asked.sleeps = false;
            self.bell.ring();
        }
    }

    /// Looks again soon.
    pub(super) fn hurry(&self) {
        self.asked().is_urgent = true;
        self.bell.ring();
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut connections: Vec<Arc<Connection>> = Vec::new();
        let mut pause = PAUSE_LEAST;
        loop {
            if self.look(&mut connections) {
                pause = PAUSE_LEAST;
            }
            pause = (2 * pause).min(PAUSE_MOST);
            // A list that has become empty is found so above, before anybody has to ring.
            let sleeps = self.asked().sleeps;
            self.sleep((!sleeps).then_some(pause));
        }
    }

    /// Looks once after all connections that need it; whether any has just asked for it.
    pub(super) fn look(&self, connections: &mut Vec<Arc<Connection>>) -> bool {
        let is_asked = {
            let mut asked = self.asked();
            let is_asked = mem::take(&mut asked.is_urgent) || !asked.connections.is_empty();
            connections.append(&mut asked.connections);
            asked.sleeps = connections.is_empty();
            is_asked
        };
        connections.retain(|connection| connection.attend() == Care::Waiting);
        is_asked
    }

    fn sleep(&self, pause: Option<Duration>) {
        let pause = pause.map(|pause| Timespec {
            tv_sec: 0,
            tv_nsec: pause.subsec_nanos().into(),
        });
        let mut sources = [PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)];
        // Interrupted or not, it looks again.
        let _ = poll(&mut sources, pause.as_ref());
        self.bell.silence();
    }
}

/// Cards that are about to end.
static ENDS: AtomicUsize = AtomicUsize::new(0);

/// A card that is about to end; goes when it has.
#[derive(Debug)]
pub(super) struct End(());

impl End {
    pub(super) fn begin() -> Self {
        ENDS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        ENDS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The process is about to exit: waits until the cards have ended that are about to.
extern "C" fn let_end() {
    let started = Instant::now();
    while ENDS.load(Ordering::Relaxed) > 0 && started.elapsed() < EXIT_MOST {
        thread::sleep(PAUSE_MOST);
    }
}

/// That of this process; its thread is started where it has not been.
pub(super) fn start() -> std::io::Result<Arc<Attendant>> {
    static STARTED: Mutex<Option<Arc<Attendant>>> = Mutex::new(None);
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(attendant) = &*started {
        return Ok(Arc::clone(attendant));
    }
    let attendant = Arc::new(Attendant::new()?);
    thread::Builder::new()
        .name("madgate-fabric".to_owned())
        .spawn({
            let attendant = Arc::clone(&attendant);
            move || attendant.run()
        })?;
    library::at_exit(let_end);
    *started = Some(Arc::clone(&attendant));
    Ok(attendant)
}
