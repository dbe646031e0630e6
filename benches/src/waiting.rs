//! How an end over a bare socket waits.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use madgate_vchannel::cluster::DEFAULT_SPIN;
use rustix::event::{PollFd, PollFlags, poll};

/// How long [`Wait::Adaptive`] tries before it sleeps: what madgate does by default.
pub const ADAPTIVE_SPIN: Duration = DEFAULT_SPIN;

/// What to do while a socket has nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wait {
    /// Sleep in the kernel at once, as an ordinary program does.
    Sleep,
    /// Try and yield for as long as `spin` of a cluster file says by default, then sleep.
    Adaptive,
    /// Try and yield, for ever.
    Spin,
}

impl Wait {
    /// The name that the command line knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Adaptive => "adaptive",
            Self::Spin => "spin",
        }
    }

    /// Does `attempt` until it says something else than [`io::ErrorKind::WouldBlock`];
    /// between attempts waits for `ready` on `socket`.
    ///
    /// # Errors
    ///
    /// What `attempt` ends with, or what waiting fails with.
    pub fn until<S: AsFd, T>(
        self,
        socket: &mut S,
        ready: PollFlags,
        mut attempt: impl FnMut(&mut S) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut since = None;
        loop {
            match attempt(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => return done,
            }
            let sleep = match self {
                Self::Sleep => true,
                Self::Spin => false,
                Self::Adaptive => since.get_or_insert_with(Instant::now).elapsed() >= ADAPTIVE_SPIN,
            };
            if sleep {
                match poll(&mut [PollFd::new(socket, ready)], None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            } else {
                std::thread::yield_now();
            }
        }
    }
}
