//! The least that a relay can do: one thread that reads what is there and writes it on, by ordinary
//! calls or by `io_uring`. It sleeps while there is nothing, or looks again and again, as its ends do
//! then.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use clap::{Args, ValueEnum};
use madgate_benches::children::{Place, any_loopback, say, stage_plain};
use madgate_benches::waiting::{ADAPTIVE_SPIN, Wait};
use madgate_benches::{Contestant, Point, Process, Stage, Timing};
use rustix::event::{PollFd, PollFlags, poll};

use crate::uring;

/// Bytes that one read takes at most.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;

const RELAY: &str = "bare-relay";

/// By which calls a relay reads and writes.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Calls {
    /// One for each read and each write.
    Ordinary,
    /// What is read into one of two buffers is written while the next is read.
    Uring,
}

impl Calls {
    const fn name(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::Uring => "uring",
        }
    }
}

/// The bare relay.
#[derive(Debug)]
pub(crate) enum Bare {
    /// It sleeps; its ends wait so.
    Asleep(Calls, Wait),
    /// It looks for [`ADAPTIVE_SPIN`] before it sleeps, and
    /// so do its ends: as madgate does by default.
    Looking(Calls),
}

impl Contestant for Bare {
    fn name(&self) -> &'static str {
        match self {
            Self::Asleep(Calls::Ordinary, _) => "bare",
            Self::Looking(Calls::Ordinary) => "bare-looking",
            Self::Asleep(Calls::Uring, _) => "uring",
            Self::Looking(Calls::Uring) => "uring-looking",
        }
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let (calls, ends, relay) = match self {
            Self::Asleep(calls, ends) => (calls, *ends, Wait::Sleep),
            Self::Looking(calls) => (calls, Wait::Adaptive, Wait::Adaptive),
        };
        stage_plain(point, timing, ends, &Place::Tcp(any_loopback()), |sink| {
            let Place::Tcp(sink) = sink else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let to = sink.to_string();
            let relay = Process::again(RELAY, [RELAY, &to, relay.name(), calls.name()])?;
            let at = relay.word("at ")?.parse().map_err(io::Error::other)?;
            Ok((Some(relay), at))
        })
    }
}

/// What the process of the bare relay must know.
#[derive(Debug, Args)]
pub(crate) struct BareArguments {
    /// Where to pass on to.
    to: SocketAddr,
    /// How to wait.
    #[arg(value_enum)]
    wait: Wait,
    /// By which calls.
    #[arg(value_enum)]
    calls: Calls,
}

impl BareArguments {
    /// Relays one connection until either side closes.
    pub(crate) fn run(self) -> io::Result<()> {
        let listener = TcpListener::bind(any_loopback())?;
        say(&format!("at {}", Place::Tcp(listener.local_addr()?)))?;
        let (near, _) = listener.accept()?;
        let far = TcpStream::connect(self.to)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let mut patience = Patience::new(self.wait);
        match self.calls {
            Calls::Ordinary => {
                near.set_nonblocking(self.wait != Wait::Sleep)?;
                far.set_nonblocking(self.wait != Wait::Sleep)?;
                relay(&near, &far, &mut patience)
            }
            Calls::Uring => uring::relay(&near, &far, &mut patience),
        }
    }
}

/// Whether a relay looks again or sleeps.
pub(crate) struct Patience {
    wait: Wait,
    /// When something was passed on last.
    since: Instant,
}

impl Patience {
    fn new(wait: Wait) -> Self {
        Self {
            wait,
            since: Instant::now(),
        }
    }

    /// Whether it never looks before it sleeps.
    pub(crate) fn is_none(&self) -> bool {
        self.wait == Wait::Sleep
    }

    /// Whether it looks now.
    pub(crate) fn looks(&self) -> bool {
        match self.wait {
            Wait::Sleep => false,
            Wait::Adaptive => self.since.elapsed() < ADAPTIVE_SPIN,
            Wait::Spin => true,
        }
    }

    /// It has looked, or slept if it does not look. Lets others run where nothing was passed on.
    pub(crate) fn note(&mut self, looks: bool, has_passed: bool) {
        if has_passed || !looks {
            self.since = Instant::now();
        } else {
            thread::yield_now();
        }
    }
}

/// Relays by ordinary calls.
fn relay(near: &TcpStream, far: &TcpStream, patience: &mut Patience) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let looks = patience.looks();
        let [near_ready, far_ready] = match looks {
            true => [true; 2],
            false => sleep(near, far)?,
        };
        let mut has_passed = false;
        for (is_ready, from, to) in [(near_ready, near, far), (far_ready, far, near)] {
            match is_ready.then(|| pass(from, to, &mut buffer)) {
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                Some(Ok(0)) => return Ok(()),
                Some(passed) => has_passed |= passed? > 0,
                None => {}
            }
        }
        patience.note(looks, has_passed);
    }
}

/// Sleeps until something is there; which of both has something.
fn sleep(near: &TcpStream, far: &TcpStream) -> io::Result<[bool; 2]> {
    let mut sockets = [near, far].map(|socket| PollFd::new(socket, PollFlags::IN));
    match poll(&mut sockets, None) {
        Err(rustix::io::Errno::INTR) => {}
        polled => polled.map(drop)?,
    }
    Ok(sockets.map(|socket| !socket.revents().is_empty()))
}

/// Passes on what one read gives: so many bytes, none when the sender has closed.
fn pass(mut from: &TcpStream, mut to: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let read = from.read(buffer)?;
    let mut rest = &buffer[..read];
    while !rest.is_empty() {
        // Asleep while the socket takes no more.
        let written = Wait::Sleep.until(&mut to, PollFlags::OUT, |to| to.write(rest))?;
        rest = &rest[written..];
    }
    Ok(read)
}
