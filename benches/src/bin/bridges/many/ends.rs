//! The processes of many nodes: all senders in one, all receivers in another.

use std::fmt;
use std::io::{self, BufRead};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use madgate_benches::Timing;
use madgate_benches::children::{EndArguments, patiently, say};
use madgate_benches::ends::{MessageEnd, run_sink, run_source};
use madgate_benches::madgate::{CLOSE_WITHIN, MadgateEnd};
use madgate_benches::plain::PlainEnd;
use madgate_benches::process::raise_descriptors;
use madgate_benches::waiting::Wait;
use madgate_vchannel::{Cluster, Session};
use serde::{Deserialize, Serialize};

/// What the processes must know.
#[derive(Debug, Args)]
pub(crate) struct EndsArguments {
    /// Where they meet.
    at: Meeting,
    /// How many flows there are.
    flows: usize,
    #[command(flatten)]
    end: EndArguments,
}

/// Where senders and receivers meet.
#[derive(Debug, Clone)]
pub(crate) enum Meeting {
    /// In the cluster of this file.
    Cluster(PathBuf),
    /// Over bare connections: the receivers listen there, or the senders connect.
    Tcp(SocketAddr),
}

impl fmt::Display for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(path) => write!(f, "cluster:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl FromStr for Meeting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("cluster", path)) => Ok(Self::Cluster(path.into())),
            Some(("tcp", address)) => address
                .parse()
                .map(Self::Tcp)
                .map_err(|error| format!("{address}: {error}")),
            _ => Err(format!("{text}: expected cluster:PATH or tcp:ADDRESS:PORT")),
        }
    }
}

/// How long flows send: for as long again as the warm-up takes, so that none ends while they are counted.
pub(crate) fn sending_time(timing: Timing) -> Duration {
    timing.warm_up * 2 + timing.time
}

/// What the receivers have counted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Over so long.
    pub(crate) seconds: f64,
    /// Messages of each flow that arrived in it.
    pub(crate) messages: Vec<u64>,
}

impl EndsArguments {
    /// The life of all senders.
    pub(crate) fn sources(&self) -> io::Result<()> {
        raise_descriptors()?;
        let ends = match &self.at {
            Meeting::Cluster(path) => self.open(path, 'a', 'b')?,
            Meeting::Tcp(address) => {
                let connect = |_| {
                    let socket = patiently(|| TcpStream::connect(address))?;
                    FlowEnd::over(socket)
                };
                (0..self.flows).map(connect).collect::<io::Result<_>>()?
            }
        };
        let time = sending_time(Timing {
            warm_up: self.end.warm_up(),
            time: self.end.time(),
        });
        let meeting = Barrier::new(ends.len() + 1);
        thread::scope(|scope| {
            for mut end in ends {
                let meeting = &meeting;
                scope.spawn(move || {
                    give_up(end.hello().and_then(|()| end.await_hello()));
                    meeting.wait();
                    meeting.wait();
                    give_up(run_source(&mut end, self.end.message_bytes(), time));
                    give_up(end.close());
                });
            }
            meeting.wait();
            connected()?;
            meeting.wait();
            Ok(())
        })
    }

    /// The life of all receivers.
    pub(crate) fn sinks(&self) -> io::Result<()> {
        raise_descriptors()?;
        let ends = match &self.at {
            Meeting::Cluster(path) => {
                let ends = self.open(path, 'b', 'a')?;
                say("at their places")?;
                ends
            }
            Meeting::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                say(&format!("at {}", listener.local_addr()?))?;
                let accept = |_| FlowEnd::over(listener.accept()?.0);
                (0..self.flows).map(accept).collect::<io::Result<_>>()?
            }
        };
        let counts: Vec<Count> = ends.iter().map(|_| Count::default()).collect();
        let meeting = Barrier::new(ends.len() + 1);
        let counted = thread::scope(|scope| {
            for (mut end, count) in ends.into_iter().zip(&counts) {
                let meeting = &meeting;
                scope.spawn(move || {
                    give_up(end.await_hello().and_then(|()| end.hello()));
                    meeting.wait();
                    let mut counting = Counting {
                        end: &mut end,
                        count,
                    };
                    let bytes = self.end.message_bytes();
                    give_up(run_sink(&mut counting, bytes, Duration::ZERO, true).map(drop));
                    give_up(end.close());
                });
            }
            meeting.wait();
            connected()?;
            Ok::<_, io::Error>(self.count(&counts))
        })?;
        // All flows have ended, and everything that came was what was sent.
        say(&serde_json::to_string(&counted)?)
    }

    /// Counts what arrives in the time of the measurement.
    fn count(&self, counts: &[Count]) -> Counted {
        thread::sleep(self.end.warm_up());
        let (from, before) = (Instant::now(), look(counts));
        thread::sleep(self.end.time());
        let (seconds, after) = (from.elapsed().as_secs_f64(), look(counts));
        let messages = after.iter().zip(before).map(|(now, then)| now - then);
        Counted {
            seconds,
            messages: messages.collect(),
        }
    }

    /// The ends of all flows on one side of a cluster.
    fn open(&self, cluster: &Path, side: char, other: char) -> io::Result<Vec<FlowEnd>> {
        let cluster = Arc::new(Cluster::read(cluster).map_err(io::Error::other)?);
        let open = |at| {
            let (node, peer) = (format!("{side}{at}"), format!("{other}{at}"));
            MadgateEnd::open(&cluster, &node, &peer, self.end.message_bytes())
                .map(|(session, end)| FlowEnd::Madgate(end, session))
        };
        (0..self.flows).map(open).collect()
    }
}

/// One end of one flow.
#[derive(Debug)]
enum FlowEnd {
    /// With the session that it lives in.
    Madgate(MadgateEnd, Session),
    /// Over a bare connection. It sleeps while it waits, as ordinary programs do.
    Plain(PlainEnd<TcpStream>),
}

impl FlowEnd {
    fn over(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        PlainEnd::new(socket, Wait::Sleep).map(Self::Plain)
    }

    /// Makes sure that the way to the other end is there. A bare connection is.
    fn hello(&self) -> io::Result<()> {
        match self {
            Self::Madgate(end, _) => end.hello(),
            Self::Plain(_) => Ok(()),
        }
    }

    fn await_hello(&self) -> io::Result<()> {
        match self {
            Self::Madgate(end, _) => end.await_hello(),
            Self::Plain(_) => Ok(()),
        }
    }

    /// Leaves once everything is delivered.
    fn close(self) -> io::Result<()> {
        match self {
            Self::Madgate(end, session) => {
                drop(end);
                session.close(CLOSE_WITHIN).map_err(io::Error::other)
            }
            Self::Plain(_) => Ok(()),
        }
    }
}

impl MessageEnd for FlowEnd {
    #[inline]
    fn send(&mut self, message: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Madgate(end, _) => (&mut *end).send(message),
            Self::Plain(end) => end.send(message),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Madgate(end, _) => (&mut *end).flush(),
            Self::Plain(end) => end.flush(),
        }
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Madgate(end, _) => (&mut *end).receive(message),
            Self::Plain(end) => end.receive(message),
        }
    }
}

/// Messages that have arrived at one node; in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count(AtomicU64);

fn look(counts: &[Count]) -> Vec<u64> {
    let load = |Count(count): &Count| count.load(Ordering::Relaxed);
    counts.iter().map(load).collect()
}

/// An end that counts what it receives.
#[derive(Debug)]
struct Counting<'a> {
    end: &'a mut FlowEnd,
    count: &'a Count,
}

impl MessageEnd for Counting<'_> {
    fn send(&mut self, message: &mut [u8]) -> io::Result<()> {
        self.end.send(message)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end.flush()
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
        self.end.receive(message)?;
        // Nobody else writes it.
        let Count(count) = self.count;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok(())
    }
}

/// Tells the bench that all are there, and waits until it says so.
fn connected() -> io::Result<()> {
    say("connected")?;
    io::stdin().lock().read_line(&mut String::new()).map(drop)
}

/// The process ends with the first thing that goes wrong in any thread: the others wait for it.
fn give_up(result: io::Result<()>) {
    if let Err(error) = result {
        eprintln!("bridges: {error}");
        std::process::exit(1);
    }
}
