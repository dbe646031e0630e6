//! Waiting on many descriptors at once: one [`Poller`] per thread, over `epoll`.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

/// How many descriptors one [`Poller::wait`] reports at most; the rest waits for the next.
pub const EVENTS_PER_WAIT: usize = 256;

/// The token that the poller keeps for its own wake-ups.
const WAKE_TOKEN: u64 = u64::MAX;

/// What to wait for on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Interest {
    /// Something to read, or the end.
    Readable,
    /// Room to write.
    Writable,
    /// Either.
    Both,
    /// Nothing for now. A connection that ends meanwhile is reported once.
    #[default]
    None,
}

impl Interest {
    /// Both interests at once.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, one) | (one, Self::None) => one,
            (Self::Readable, Self::Readable) => Self::Readable,
            (Self::Writable, Self::Writable) => Self::Writable,
            _ => Self::Both,
        }
    }

    fn flags(self) -> EventFlags {
        match self {
            Self::Readable => EventFlags::IN | EventFlags::RDHUP,
            Self::Writable => EventFlags::OUT,
            Self::Both => EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT,
            // The kernel always adds HUP and ERR: reported each time, they would keep the
            // poller spinning.
            Self::None => EventFlags::ONESHOT,
        }
    }
}

/// A descriptor that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The token that it was added with.
    pub token: u64,
    /// Reading gives bytes, the end, or an error.
    pub readable: bool,
    /// Writing takes bytes, or gives an error.
    pub writable: bool,
    /// The peer closed or the connection broke; there may still be bytes to read.
    pub closed: bool,
}

impl From<Event> for Ready {
    fn from(event: Event) -> Self {
        let flags = event.flags;
        let ended = EventFlags::HUP | EventFlags::ERR;
        Self {
            token: event.data.u64(),
            readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP | ended),
            writable: flags.intersects(EventFlags::OUT | ended),
            closed: flags.intersects(EventFlags::RDHUP | ended),
        }
    }
}

/// Waits on descriptors, level-triggered: what is still ready is reported again.
///
/// - **Set up**: [`add`](Self::add), [`modify`](Self::modify), [`remove`](Self::remove). A
///   descriptor must be removed before it is closed, and can be in a poller once.
/// - **Wait**: [`wait`](Self::wait), then look at one's own queues *after* it, because a
///   [`Waker`] only says that there is something to look at.
/// - **In another one**: it is readable itself while something in it is ready
///   ([`waits_elsewhere`](Self::waits_elsewhere)).
pub struct Poller {
    waker: Waker,
    ready: Vec<Ready>,
}

impl Poller {
    /// A poller with nothing in it.
    ///
    /// # Errors
    /// When the process may not open more descriptors (it takes two).
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(
            &epoll,
            &bell,
            EventData::new_u64(WAKE_TOKEN),
            EventFlags::IN,
        )?;
        Ok(Self {
            waker: Waker {
                shared: Arc::new(WakeState {
                    epoll,
                    bell,
                    state: AtomicU8::new(AWAKE),
                }),
            },
            ready: Vec::with_capacity(EVENTS_PER_WAIT),
        })
    }

    /// Begins to wait on `source`, which reports as `token` (any number but `u64::MAX`).
    ///
    /// # Errors
    /// When it is in this poller already, cannot be waited on, or the system's limits are
    /// reached.
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        check(token)?;
        Ok(epoll::add(
            &self.waker.shared.epoll,
            source,
            EventData::new_u64(token),
            interest.flags(),
        )?)
    }

    /// Changes token and interest of `source`.
    ///
    /// # Errors
    /// When it is not in this poller.
    pub fn modify(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        check(token)?;
        Ok(epoll::modify(
            &self.waker.shared.epoll,
            source,
            EventData::new_u64(token),
            interest.flags(),
        )?)
    }

    /// Stops waiting on `source`.
    ///
    /// # Errors
    /// When it is not in this poller.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.waker.shared.epoll, source)?)
    }

    /// Waits until something is ready, somebody wakes this poller, or `timeout` passes
    /// (`None`: without limit; zero: only look). An empty answer is any of the last two, or
    /// a signal.
    ///
    /// # Errors
    /// When the system fails; not for a single descriptor.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<&[Ready]> {
        self.ready.clear();
        let state = &self.waker.shared.state;
        let may_sleep = timeout != Some(Duration::ZERO);
        // A wake-up that came while nobody slept is consumed here: look, but do not sleep.
        let sleeps = may_sleep
            && state
                .compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        let timeout = if sleeps {
            timeout
        } else {
            Some(Duration::ZERO)
        };
        let timeout = timeout.map(timespec).transpose()?;
        // On the stack: an event may hold a pointer, which would keep the poller on its thread.
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_PER_WAIT];
        let epoll = &self.waker.shared.epoll;
        let waited = epoll::wait(epoll, &mut events[..], timeout.as_ref());
        // A swap, not a store: what was queued before a wake-up that this consumes must be
        // visible to the caller, who looks at its queues next.
        state.swap(AWAKE, Ordering::SeqCst);
        let events = match waited {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(&[]),
            Err(error) => return Err(error.into()),
        };
        for event in events.iter() {
            if event.data.u64() == WAKE_TOKEN {
                self.waker.shared.silence();
            } else {
                self.ready.push(Ready::from(*event));
            }
        }
        Ok(&self.ready)
    }

    /// Says that who waits on this one waits on another one now, which this one is in: a [`Waker`] makes
    /// it readable. The next [`wait`](Self::wait) ends that, whichever thread it is of. Returns whether
    /// it is so: not after a wake-up that nobody has looked at, which comes first.
    #[must_use]
    pub fn waits_elsewhere(&self) -> bool {
        let state = &self.waker.shared.state;
        let said = state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        said != Err(TOLD)
    }

    /// A handle that other threads wake this poller with.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.shared.epoll.as_fd()
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("ready", &self.ready)
            .finish_non_exhaustive()
    }
}

/// Refuses the token that a poller keeps for itself.
fn check(token: u64) -> io::Result<()> {
    if token == WAKE_TOKEN {
        let what = "the token is reserved";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(())
}

fn timespec(duration: Duration) -> io::Result<Timespec> {
    Timespec::try_from(duration)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the time-out is too long"))
}

/// Nobody waits, nothing has been said.
const AWAKE: u8 = 0;
/// The poller sleeps, or is about to.
const ASLEEP: u8 = 1;
/// It has been told to look since it last waited.
const TOLD: u8 = 2;

/// Wakes a [`Poller`] from another thread: after [`wake`](Self::wake), the wait that goes
/// on, or else the next one, ends at once. Only waking a sleeper costs a system call, and
/// only the first of several wake-ups.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<WakeState>,
}

#[derive(Debug)]
struct WakeState {
    epoll: OwnedFd,
    bell: OwnedFd,
    state: AtomicU8,
}

impl Waker {
    /// Makes the poller look.
    pub fn wake(&self) {
        // SeqCst orders what the caller queued before this against the poller's own look
        // at its queues, after it set its state.
        if self.shared.state.swap(TOLD, Ordering::SeqCst) == ASLEEP {
            // A full counter rings too, so that a failure means nothing.
            let _ = rustix::io::write(&self.shared.bell, &1_u64.to_ne_bytes());
        }
    }

    /// As [`Poller::add`] with no interest: what the poller is woken [once](Self::wake_once_for) for when it
    /// is told so.
    ///
    /// # Errors
    /// As there.
    pub fn add(&self, source: impl AsFd) -> io::Result<()> {
        let (epoll, nothing) = (&self.shared.epoll, Interest::None.flags());
        let token = EventData::new_u64(WAKE_TOKEN);
        Ok(epoll::add(epoll, source, token, nothing)?)
    }

    /// As [`Poller::remove`].
    ///
    /// # Errors
    /// As there.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.shared.epoll, source)?)
    }

    /// Has the poller report `source`, which is in it, with `token` (any number but `u64::MAX`) as soon as
    /// there is something to read, and then no longer, until it is told so again.
    ///
    /// # Errors
    /// When it is not in the poller, or the token is that number.
    pub fn wake_once_for(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        check(token)?;
        let (epoll, once) = (&self.shared.epoll, EventFlags::IN | EventFlags::ONESHOT);
        let token = EventData::new_u64(token);
        Ok(epoll::modify(epoll, source, token, once)?)
    }
}

impl WakeState {
    fn silence(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const NOW: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn interest_selects_what_is_reported() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(&far, 7, Interest::Readable).unwrap();
        assert_eq!(poller.wait(NOW).unwrap(), []);

        near.write_all(b"x").unwrap();
        let ready = Ready {
            token: 7,
            readable: true,
            writable: false,
            closed: false,
        };
        assert_eq!(poller.wait(None).unwrap(), [ready]);
        assert_eq!(poller.wait(None).unwrap(), [ready], "level-triggered");

        poller.modify(&far, 8, Interest::Both).unwrap();
        assert_eq!(
            poller.wait(None).unwrap(),
            [Ready {
                token: 8,
                writable: true,
                ..ready
            }]
        );

        (&far).read_exact(&mut [0]).unwrap();
        poller.modify(&far, 8, Interest::Writable).unwrap();
        let writable = Ready {
            token: 8,
            readable: false,
            writable: true,
            closed: false,
        };
        assert_eq!(poller.wait(None).unwrap(), [writable]);

        poller.remove(&far).unwrap();
        assert_eq!(poller.wait(NOW).unwrap(), []);
        assert!(poller.remove(&far).is_err());
    }

    #[test]
    fn what_is_in_another_poller_is_told_of_there_once_for_each_time_that_somebody_asks() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut inner = Poller::new().unwrap();
        let mut outer = Poller::new().unwrap();
        let waker = outer.waker();
        inner.add(&far, 1, Interest::Readable).unwrap();
        assert!(waker.wake_once_for(&inner, 2).is_err(), "not in there");
        waker.add(&inner).unwrap();
        near.write_all(b"x").unwrap();
        assert_eq!(outer.wait(NOW).unwrap(), [], "nobody has asked");
        for _ in 0..2 {
            waker.wake_once_for(&inner, 2).unwrap();
            let ready = outer.wait(None).unwrap();
            assert_eq!((ready.len(), ready[0].token), (1, 2));
            assert_eq!(outer.wait(NOW).unwrap(), [], "once");
        }
        assert_eq!(
            inner.wait(NOW).unwrap().len(),
            1,
            "it is there all the time"
        );
        waker.wake_once_for(&inner, 2).unwrap();
        waker.remove(&inner).unwrap();
        assert_eq!(outer.wait(NOW).unwrap(), []);
        assert!(waker.remove(&inner).is_err());
    }

    #[test]
    fn who_waits_elsewhere_is_woken_there() {
        let mut inner = Poller::new().unwrap();
        let mut outer = Poller::new().unwrap();
        outer.add(&inner, 1, Interest::Readable).unwrap();
        let waker = inner.waker();
        // Told before: it is to look first.
        waker.wake();
        assert!(!inner.waits_elsewhere());
        assert_eq!(outer.wait(NOW).unwrap(), []);
        assert_eq!(inner.wait(None).unwrap(), []);

        for _ in 0..2 {
            assert!(inner.waits_elsewhere());
            assert!(inner.waits_elsewhere(), "still");
            waker.wake();
            assert_eq!(outer.wait(None).unwrap()[0].token, 1);
            assert!(!inner.waits_elsewhere(), "nobody has looked");
            assert_eq!(inner.wait(None).unwrap(), []);
            assert_eq!(outer.wait(NOW).unwrap(), []);
        }
        // Who has looked waits no longer, and is told without a system call.
        assert!(inner.waits_elsewhere());
        assert_eq!(inner.wait(NOW).unwrap(), []);
        waker.wake();
        assert_eq!(outer.wait(NOW).unwrap(), []);
    }

    #[test]
    fn an_end_without_interest_is_reported_once() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(&far, 1, Interest::None).unwrap();
        drop(near);
        assert!(poller.wait(None).unwrap()[0].closed);
        assert_eq!(poller.wait(NOW).unwrap(), []);
        poller.modify(&far, 1, Interest::Readable).unwrap();
        assert!(poller.wait(None).unwrap()[0].readable);
    }

    #[test]
    fn a_wake_up_is_not_lost_and_not_repeated() {
        let mut poller = Poller::new().unwrap();
        let waker = poller.waker();
        waker.wake();
        waker.wake();
        assert_eq!(poller.wait(None).unwrap(), [], "told before it slept");
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            assert_eq!(
                poller.wait(None).unwrap(),
                [],
                "told before or while it sleeps"
            );
        });
        assert_eq!(poller.wait(NOW).unwrap(), []);
    }

    #[test]
    fn wakers_and_queue_agree() {
        const ROUNDS: u32 = 10_000;
        let mut poller = Poller::new().unwrap();
        let (waker, (sender, receiver)) = (poller.waker(), std::sync::mpsc::channel());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    sender.send(round).unwrap();
                    waker.wake();
                }
            });
            let mut next = 0;
            while next < ROUNDS {
                poller.wait(None).unwrap();
                while let Ok(round) = receiver.try_recv() {
                    assert_eq!(round, next);
                    next += 1;
                }
            }
        });
    }

    #[test]
    fn the_reserved_token_is_refused() {
        let poller = Poller::new().unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        assert!(poller.add(&near, u64::MAX, Interest::Readable).is_err());
        poller.add(&near, 1, Interest::None).unwrap();
        assert!(poller.modify(&near, u64::MAX, Interest::Both).is_err());
        let waker = poller.waker();
        assert!(waker.wake_once_for(&near, u64::MAX).is_err());
        waker.wake_once_for(&near, 1).unwrap();
    }

    #[test]
    fn interests_add_up() {
        use Interest::{Both, None, Readable, Writable};
        assert_eq!(None.and(Readable), Readable);
        assert_eq!(Readable.and(Writable), Both);
        assert_eq!(Both.and(None), Both);
        assert_eq!(Writable.and(Writable), Writable);
    }
}
