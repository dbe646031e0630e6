//! What it takes to wake somebody who sleeps: a byte into a Unix socket, and a look at what is
//! ready. A port does the same, and puts a message before it.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use madgate_benches::children::say;
use madgate_benches::cores::{self, Kept};
use madgate_benches::process::{PATIENCE, Process, die_with_parent};
use madgate_benches::samples::Samples;
use madgate_tm::{Interest, Poller};

use crate::exchange::CONNECTED;

/// The process that is woken, and wakes.
#[derive(Debug, Args)]
pub(crate) struct Sleeper {
    /// Where the other end listens.
    #[arg(long)]
    socket: PathBuf,
    /// How often.
    #[arg(long)]
    rounds: usize,
}

impl Sleeper {
    pub(crate) fn run(&self) -> io::Result<()> {
        die_with_parent()?;
        let _kept = cores::two().map(|cores| Kept::on(cores[1])).transpose()?;
        let mut end = End::new(UnixStream::connect(&self.socket)?)?;
        say(CONNECTED)?;
        for _ in 0..self.rounds {
            end.sleep()?;
            end.ring()?;
        }
        Ok(())
    }
}

/// Half of a round trip between two processes that sleep, in microseconds; the median.
pub(crate) fn bare(rounds: usize) -> io::Result<f64> {
    let folder = madgate_benches::scratch::folder()?;
    let socket = folder.path().join("bell");
    let listener = UnixListener::bind(&socket)?;
    let arguments = [
        "sleeper".to_owned(),
        format!("--socket={}", socket.display()),
        format!("--rounds={rounds}"),
    ];
    let sleeper = Process::again("sleeper", arguments)?;
    let _kept = cores::two().map(|cores| Kept::on(cores[0])).transpose()?;
    sleeper.word(CONNECTED)?;
    let mut end = End::new(listener.accept()?.0)?;
    let mut halves = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let rung = Instant::now();
        end.ring()?;
        end.sleep()?;
        halves.push(rung.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    sleeper.finish()?;
    let median = Samples::of(halves).median();
    median.ok_or_else(|| io::Error::other("nothing was measured"))
}

/// One end of the socket.
struct End {
    socket: UnixStream,
    poller: Poller,
}

impl End {
    fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let poller = Poller::new()?;
        poller.add(&socket, 0, Interest::Readable)?;
        Ok(Self { socket, poller })
    }

    fn ring(&mut self) -> io::Result<()> {
        self.socket.write_all(&[1])
    }

    fn sleep(&mut self) -> io::Result<()> {
        let mut rung = [0; 64];
        loop {
            self.poller.wait(Some(PATIENCE))?;
            match self.socket.read(&mut rung) {
                Ok(0) => return Err(io::Error::other("the other end has gone")),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
