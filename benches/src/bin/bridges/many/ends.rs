//! The processes of many nodes: all senders in one, all receivers in another.

use std::io::{self, BufRead};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use madgate_benches::children::{EndArguments, say};
use madgate_benches::ends::{MessageEnd, run_sink, run_source};
use madgate_benches::madgate::{CLOSE_WITHIN, MadgateEnd};
use madgate_benches::process::raise_descriptors;
use madgate_vchannel::{Cluster, Session};
use serde::{Deserialize, Serialize};

/// What the processes must know.
#[derive(Debug, Args)]
pub(crate) struct EndsArguments {
    /// The cluster file.
    cluster: PathBuf,
    /// How many nodes there are on each side.
    flows: usize,
    #[command(flatten)]
    end: EndArguments,
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
        let ends = self.open('a', 'b')?;
        // Flows go on for as long again as the warm-up takes: none ends while they are counted.
        let time = self.end.warm_up() * 2 + self.end.time();
        let meeting = Barrier::new(ends.len() + 1);
        thread::scope(|scope| {
            for (session, mut end) in ends {
                let meeting = &meeting;
                scope.spawn(move || {
                    give_up(end.hello().and_then(|()| end.await_hello()));
                    meeting.wait();
                    meeting.wait();
                    give_up(run_source(&mut &mut end, self.end.message_bytes(), time));
                    drop(end);
                    give_up(session.close(CLOSE_WITHIN).map_err(io::Error::other));
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
        let ends = self.open('b', 'a')?;
        say("at their places")?;
        let counts: Vec<Count> = ends.iter().map(|_| Count::default()).collect();
        let meeting = Barrier::new(ends.len() + 1);
        let counted = thread::scope(|scope| {
            for ((session, mut end), count) in ends.into_iter().zip(&counts) {
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
                    drop(end);
                    give_up(session.close(CLOSE_WITHIN).map_err(io::Error::other));
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

    fn open(&self, side: char, other: char) -> io::Result<Vec<(Session, MadgateEnd)>> {
        raise_descriptors()?;
        let cluster = Arc::new(Cluster::read(&self.cluster).map_err(io::Error::other)?);
        let open = |at| {
            let (node, peer) = (format!("{side}{at}"), format!("{other}{at}"));
            MadgateEnd::open(&cluster, &node, &peer, self.end.message_bytes())
        };
        (0..self.flows).map(open).collect()
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
    end: &'a mut MadgateEnd,
    count: &'a Count,
}

impl MessageEnd for Counting<'_> {
    fn send(&mut self, message: &mut [u8]) -> io::Result<()> {
        (&mut *self.end).send(message)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&mut *self.end).flush()
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
        (&mut *self.end).receive(message)?;
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
