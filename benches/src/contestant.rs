//! What takes part in a bench, and what is measured of it.

use std::io;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::cores;
use crate::ends::{PingReport, StreamReport};
use crate::pattern::SEQUENCE_BYTES;
use crate::process::Process;

/// What is done with messages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Measure {
    /// They go one way, as fast as they can.
    Stream,
    /// The same, but of those that arrive only the numbers are looked at: what other benches do,
    /// beside which it is measured.
    Unread,
    /// One goes there and comes back before the next leaves.
    PingPong,
}

impl Measure {
    /// The name that the command line knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Unread => "unread",
            Self::PingPong => "ping-pong",
        }
    }
}

/// One measurement: what is done, with messages of which size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// What is done.
    pub measure: Measure,
    /// Bytes in a message.
    pub message_bytes: usize,
}

impl Point {
    /// Messages of `message_bytes` one way.
    pub const fn stream(message_bytes: usize) -> Self {
        Self {
            measure: Measure::Stream,
            message_bytes,
        }
    }

    /// Messages of `message_bytes` there and back.
    pub const fn ping_pong(message_bytes: usize) -> Self {
        Self {
            measure: Measure::PingPong,
            message_bytes,
        }
    }
}

/// How long a measurement takes.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// What passes before anything is counted.
    pub warm_up: Duration,
    /// What is counted.
    pub time: Duration,
}

/// How often and how long a bench measures, on its command line.
#[derive(Debug, Clone, Args)]
pub struct RoundArguments {
    /// How often everything is measured; what counts is the median.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 0.5)]
    time: f64,
    /// One short round: shows that everything works, not how fast.
    #[arg(long, conflicts_with_all = ["rounds", "time"])]
    quick: bool,
    /// Only messages of these sizes, in bytes, 8 at least; also of such as are not measured without it.
    #[arg(long, value_delimiter = ',', num_args = 1.., value_parser = message_bytes)]
    sizes: Vec<usize>,
}

/// What was named on a command line, each once, in that order: figures are kept by name, and the rounds of
/// one name are compared one by one.
pub fn each_once<T: PartialEq>(named: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in named {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// A size of messages on the command line.
fn message_bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|error| format!("{error}"))?;
    if bytes < SEQUENCE_BYTES {
        return Err(format!("a message has {SEQUENCE_BYTES} bytes at least"));
    }
    Ok(bytes)
}

impl RoundArguments {
    /// Seconds for each measurement of a quick round.
    const QUICK_TIME: f64 = 0.2;

    /// The warm-up, as a part of the time that is counted.
    const WARM_UP: f64 = 0.25;

    /// What is to be measured: the `usual` points, or those of them that are of the sizes that were
    /// asked for, and streams of messages of the other sizes.
    pub fn points(&self, usual: &[Point]) -> Vec<Point> {
        if self.sizes.is_empty() {
            return usual.to_vec();
        }
        let mut points = Vec::new();
        for message_bytes in self.sizes_or(&[]) {
            let before = points.len();
            let is_asked = |point: &&Point| point.message_bytes == message_bytes;
            points.extend(usual.iter().filter(is_asked).copied());
            if points.len() == before {
                points.push(Point::stream(message_bytes));
            }
        }
        points
    }

    /// The sizes of messages that were asked for, or else the `usual` ones.
    pub fn sizes_or(&self, usual: &[usize]) -> Vec<usize> {
        let asked = if self.sizes.is_empty() {
            usual
        } else {
            &self.sizes
        };
        each_once(asked.iter().copied())
    }

    /// How many rounds.
    pub fn count(&self) -> u16 {
        if self.quick { 1 } else { self.rounds }
    }

    /// How long each measurement takes.
    ///
    /// # Errors
    ///
    /// If the time asked for is none.
    pub fn timing(&self) -> io::Result<Timing> {
        let time = if self.quick {
            Self::QUICK_TIME
        } else {
            self.time
        };
        if time <= 0.0 {
            let why = format!("--time {time}: nothing could be measured");
            return Err(io::Error::other(why));
        }
        let seconds = |value: f64| {
            Duration::try_from_secs_f64(value)
                .map_err(|error| io::Error::other(format!("--time {time}: {error}")))
        };
        Ok(Timing {
            warm_up: seconds(time * Self::WARM_UP)?,
            time: seconds(time)?,
        })
    }
}

/// Something that carries messages from a source to a sink.
pub trait Contestant {
    /// The name in tables and JSON.
    fn name(&self) -> &'static str;

    /// What this machine lacks to run it.
    fn missing(&self) -> Option<String> {
        None
    }

    /// Starts the processes for one measurement, and returns when both ends have said
    /// `connected` and the source waits for a line.
    ///
    /// Then the source of a stream, or of a ping-pong, does what [`run_source`] or
    /// [`run_ping`] does, the sink what [`run_sink`] or [`run_pong`] does, and the one that
    /// measured prints its [`Report`] as a line of JSON.
    ///
    /// [`run_source`]: crate::ends::run_source
    /// [`run_ping`]: crate::ends::run_ping
    /// [`run_sink`]: crate::ends::run_sink
    /// [`run_pong`]: crate::ends::run_pong
    ///
    /// # Errors
    ///
    /// If one of them cannot be started, or they do not find each other.
    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage>;
}

/// Which process has a processor for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// Who sends.
    Source,
    /// What stands between the ends.
    Relay,
}

/// The processes of one measurement; dropped, they are killed.
#[derive(Debug)]
pub struct Stage {
    /// Sends. It waits for [`Process::go`].
    pub source: Process,
    /// Receives.
    pub sink: Process,
    /// What stands between them, if anything does: its CPU time is measured.
    pub relay: Option<Process>,
    /// The files that they use, removed after them.
    pub files: Option<TempDir>,
}

impl Stage {
    /// Keeps the ends on a processor each, where there are two.
    ///
    /// # Errors
    ///
    /// If one of them has gone, or may not run there.
    pub fn keep_apart(&self) -> io::Result<()> {
        if let Some([source, sink]) = cores::two() {
            self.source.keep_on(source)?;
            self.sink.keep_on(sink)?;
        }
        Ok(())
    }

    /// Gives one process a processor for itself, and all others another one, where there are two.
    ///
    /// # Errors
    ///
    /// As [`keep_apart`](Self::keep_apart).
    pub fn keep_alone(&self, alone: Alone) -> io::Result<()> {
        let Some([one, other]) = cores::two() else {
            return Ok(());
        };
        let (source, relay) = match alone {
            Alone::Source => (one, other),
            Alone::Relay => (other, one),
        };
        self.source.keep_on(source)?;
        self.sink.keep_on(other)?;
        self.relay.iter().try_for_each(|it| it.keep_on(relay))
    }
}

/// What an end reports, as one line of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// From the sink of a stream.
    Stream(StreamReport),
    /// From the source of a ping-pong.
    Ping(PingReport),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_twice_is_measured_once() {
        assert_eq!(each_once([64, 1, 64, 4, 1]), [64, 1, 4]);
        let rounds = RoundArguments {
            rounds: 1,
            time: 1.0,
            quick: false,
            sizes: vec![8, 64, 8],
        };
        assert_eq!(rounds.sizes_or(&[1024]), [8, 64]);
        assert_eq!(rounds.points(&[Point::stream(64)]).len(), 2);
    }

    #[test]
    fn no_time_is_refused() {
        let timing = |time| {
            let rounds = RoundArguments {
                rounds: 1,
                time,
                quick: false,
                sizes: Vec::new(),
            };
            rounds.timing().map(|timing| timing.time)
        };
        assert_eq!(timing(0.5).unwrap(), Duration::from_millis(500));
        for time in [0.0, -1.0, f64::NAN] {
            assert!(timing(time).unwrap_err().to_string().contains("--time"));
        }
    }
}
