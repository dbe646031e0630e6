//! The least that a relay can do: one thread that reads what is there and writes it on. It sleeps
//! while there is nothing, or looks again and again, as its ends do then.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use clap::Args;
use madgate_benches::children::{Place, any_loopback, say, stage_plain};
use madgate_benches::waiting::{ADAPTIVE_SPIN, Wait};
use madgate_benches::{Contestant, Point, Process, Stage, Timing};
use rustix::event::{PollFd, PollFlags, poll};

/// Bytes that one read takes at most.
const BUFFER_BYTES: usize = 256 * 1024;

const RELAY: &str = "bare-relay";

/// The bare relay.
#[derive(Debug)]
pub(crate) enum Bare {
    /// It sleeps; its ends wait so.
    Asleep(Wait),
    /// It looks for [`ADAPTIVE_SPIN`] before it sleeps, and
    /// so do its ends: as madgate does by default.
    Looking,
}

impl Bare {
    /// How the ends wait, and the relay.
    fn waits(&self) -> [Wait; 2] {
        match self {
            Self::Asleep(ends) => [*ends, Wait::Sleep],
            Self::Looking => [Wait::Adaptive; 2],
        }
    }
}

impl Contestant for Bare {
    fn name(&self) -> &'static str {
        match self {
            Self::Asleep(_) => "bare",
            Self::Looking => "bare-looking",
        }
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let [ends, relay] = self.waits();
        stage_plain(point, timing, ends, &Place::Tcp(any_loopback()), |sink| {
            let Place::Tcp(sink) = sink else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let relay = Process::again(RELAY, [RELAY, &sink.to_string(), relay.name()])?;
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

        near.set_nonblocking(self.wait != Wait::Sleep)?;
        far.set_nonblocking(self.wait != Wait::Sleep)?;

        let mut buffer = vec![0; BUFFER_BYTES];
        let mut since = Instant::now();
        loop {
            let looks = match self.wait {
                Wait::Sleep => false,
                Wait::Adaptive => since.elapsed() < ADAPTIVE_SPIN,
                Wait::Spin => true,
            };
            let [near_ready, far_ready] = match looks {
                true => [true; 2],
                false => sleep(&near, &far)?,
            };
            let mut has_passed = false;
            for (is_ready, from, to) in [(near_ready, &near, &far), (far_ready, &far, &near)] {
                match is_ready.then(|| pass(from, to, &mut buffer)) {
                    Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Some(Ok(0)) => return Ok(()),
                    Some(passed) => has_passed |= passed? > 0,
                    None => {}
                }
            }
            if has_passed || !looks {
                since = Instant::now();
            } else {
                thread::yield_now();
            }
        }
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
