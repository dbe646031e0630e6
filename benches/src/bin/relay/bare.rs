//! The least that a relay can do: one thread that reads what is there and writes it on.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use clap::Args;
use madgate_benches::children::{Place, any_loopback, say, stage_plain};
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Point, Process, Stage, Timing};
use rustix::event::{PollFd, PollFlags, poll};

/// Bytes that one read takes at most.
const BUFFER_BYTES: usize = 256 * 1024;

const RELAY: &str = "bare-relay";

/// The bare relay, between ends that wait so.
#[derive(Debug)]
pub(crate) struct Bare(pub(crate) Wait);

impl Contestant for Bare {
    fn name(&self) -> &'static str {
        "bare"
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        stage_plain(point, timing, self.0, &Place::Tcp(any_loopback()), |sink| {
            let Place::Tcp(sink) = sink else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let relay = Process::again(RELAY, [RELAY, &sink.to_string()])?;
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
}

impl BareArguments {
    /// Relays one connection until either side closes.
    pub(crate) fn run(self) -> io::Result<()> {
        let listener = TcpListener::bind(any_loopback())?;
        say(&format!("at {}", Place::Tcp(listener.local_addr()?)))?;
        let (mut near, _) = listener.accept()?;
        let mut far = TcpStream::connect(self.to)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;

        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let mut sockets = [
                PollFd::new(&near, PollFlags::IN),
                PollFd::new(&far, PollFlags::IN),
            ];
            match poll(&mut sockets, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            let [near_ready, far_ready] = sockets.map(|socket| !socket.revents().is_empty());
            if near_ready && !pass(&mut near, &mut far, &mut buffer)?
                || far_ready && !pass(&mut far, &mut near, &mut buffer)?
            {
                return Ok(());
            }
        }
    }
}

/// Passes on what one read gives; `false` when the sender has closed.
fn pass(from: &mut TcpStream, to: &mut TcpStream, buffer: &mut [u8]) -> io::Result<bool> {
    let read = from.read(buffer)?;
    to.write_all(&buffer[..read])?;
    Ok(read > 0)
}
