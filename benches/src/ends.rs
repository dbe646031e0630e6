//! The two ends of a measurement: what a source does, what a sink does, and what they report.
//!
//! The loops are the same for every contestant. What differs is how one message gets from
//! one end to the other, a [`MessageEnd`].

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::pattern::{Checker, Pattern, SEQUENCE_BYTES, sequence_of};

/// The sequence number of the message that ends a stream.
const LAST: u64 = u64::MAX;

/// Bytes between two looks at the clock.
const CLOCK_BYTES: usize = 64 * 1024;

/// Most messages between two looks at the clock.
const CLOCK_MESSAGES: usize = 1024;

/// The longest round trip that is told from a longer one.
const LONGEST_ROUND_TRIP_NS: u64 = 10_000_000_000;

/// Least time between two looks at the clock in a ping-pong, of which a look is a hundredth: round trips
/// that are shorter are timed some at a time.
const LEAST_BETWEEN_LOOKS: Duration = Duration::from_nanos(2500);

/// Most round trips that are timed together.
const MOST_TOGETHER: u32 = 64;

/// One end that sends and receives messages, each on its own.
pub trait MessageEnd {
    /// Sends one message. It may wait for others to leave with it, until [`flush`].
    ///
    /// The borrow is exclusive so that an end may hand the message on in any of the ways
    /// that its API has; none changes the bytes.
    ///
    /// [`flush`]: MessageEnd::flush
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    fn send(&mut self, message: &mut [u8]) -> io::Result<()>;

    /// Sends what waits.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    fn flush(&mut self) -> io::Result<()>;

    /// Receives the next message, which must be as long as `message`.
    ///
    /// # Errors
    ///
    /// If the connection is lost, or the message has another length.
    fn receive(&mut self, message: &mut [u8]) -> io::Result<()>;
}

/// What the sink of a stream saw.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Messages that arrived after the warm-up.
    pub messages: u64,
    /// The time in which they did.
    pub seconds: f64,
    /// Bytes of all messages, those of the warm-up too.
    pub total_bytes: u64,
}

/// What the source of a ping-pong saw.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PingReport {
    /// Half of the median round trip. Those that are so short that a look at the clock would count
    /// are timed some at a time, and count as their mean.
    pub half_rtt_us: f64,
    /// Half of the round trip that 99 of 100 stay below; of means, where those are what is timed.
    pub half_rtt_p99_us: f64,
    /// Round trips measured.
    pub round_trips: u64,
}

/// Sends messages of `message_bytes` for `time`, and one more that says that it is the last.
///
/// # Errors
///
/// What the end fails with.
pub fn run_source(
    end: &mut impl MessageEnd,
    message_bytes: usize,
    time: Duration,
) -> io::Result<()> {
    let mut pattern = Pattern::new(message_bytes);
    let started = Instant::now();
    let mut sequence = 0;
    while started.elapsed() < time {
        for _ in 0..messages_per_look(message_bytes) {
            end.send(pattern.message(sequence, message_bytes))?;
            sequence += 1;
        }
    }
    end.send(pattern.message(LAST, message_bytes))?;
    end.flush()
}

/// Receives and checks messages until the last one, and counts those after the first
/// `warm_up`. Of those that it does not read, it checks the numbers.
///
/// # Errors
///
/// What the end fails with, or a message that is not what was sent.
pub fn run_sink(
    end: &mut impl MessageEnd,
    message_bytes: usize,
    warm_up: Duration,
    reads: bool,
) -> io::Result<StreamReport> {
    let checker = Checker::default();
    let mut message = vec![0; message_bytes];
    let mut count = Count::default();
    let mut measured_from = None;
    let mut first = None;
    loop {
        for _ in 0..messages_per_look(message_bytes) {
            end.receive(&mut message)?;
            if sequence_of(&message) == Some(LAST) {
                checker.check(LAST, &message).map_err(io::Error::other)?;
                return count.report(measured_from, message_bytes);
            }
            let checked = if reads {
                &message
            } else {
                &message[..SEQUENCE_BYTES]
            };
            checker
                .check(count.arrived, checked)
                .map_err(io::Error::other)?;
            count.arrived += 1;
        }
        if measured_from.is_none() {
            let now = Instant::now();
            if now - *first.get_or_insert(now) >= warm_up {
                measured_from = Some(now);
                count.warm_up = count.arrived;
            }
        }
    }
}

#[derive(Debug, Default)]
struct Count {
    arrived: u64,
    warm_up: u64,
}

impl Count {
    fn report(&self, from: Option<Instant>, message_bytes: usize) -> io::Result<StreamReport> {
        let from = from.ok_or_else(|| {
            io::Error::other("the stream ended within its warm-up: measure for longer")
        })?;
        Ok(StreamReport {
            messages: self.arrived - self.warm_up,
            seconds: from.elapsed().as_secs_f64(),
            total_bytes: self.arrived * message_bytes as u64,
        })
    }
}

/// Sends a message and waits for it to come back, for `warm_up` and then for `time`, once at least.
///
/// # Errors
///
/// What the end fails with, or a message that is not what was sent.
pub fn run_ping(
    end: &mut impl MessageEnd,
    message_bytes: usize,
    warm_up: Duration,
    time: Duration,
) -> io::Result<PingReport> {
    let checker = Checker::default();
    let mut pattern = Pattern::new(message_bytes);
    let mut answer = vec![0; message_bytes];
    let mut round_trips =
        Histogram::<u64>::new_with_max(LONGEST_ROUND_TRIP_NS, 3).map_err(io::Error::other)?;
    let started = Instant::now();
    let mut sequence = 0;
    let mut together = 1;
    loop {
        let sent = Instant::now();
        if sent - started >= warm_up + time && !round_trips.is_empty() {
            break;
        }
        for _ in 0..together {
            end.send(pattern.message(sequence, message_bytes))?;
            end.flush()?;
            end.receive(&mut answer)?;
            checker.check(sequence, &answer).map_err(io::Error::other)?;
            sequence += 1;
        }
        let each = sent.elapsed() / together;
        if sent - started >= warm_up {
            let each = u64::try_from(each.as_nanos()).unwrap_or(u64::MAX);
            round_trips.saturating_record_n(each, u64::from(together));
        } else {
            // By the fastest: whatever is in the way now and then is not the end's.
            together = together.max(together_for(each));
        }
    }
    end.send(pattern.message(LAST, message_bytes))?;
    end.flush()?;
    let half_us = |quantile| Duration::from_nanos(round_trips.value_at_quantile(quantile)) / 2;
    Ok(PingReport {
        half_rtt_us: half_us(0.5).as_secs_f64() * 1e6,
        half_rtt_p99_us: half_us(0.99).as_secs_f64() * 1e6,
        round_trips: round_trips.len(),
    })
}

/// Sends every message back until the last one comes.
///
/// # Errors
///
/// What the end fails with, or a message that is not what was sent.
pub fn run_pong(end: &mut impl MessageEnd, message_bytes: usize) -> io::Result<()> {
    let checker = Checker::default();
    let mut message = vec![0; message_bytes];
    for sequence in 0.. {
        end.receive(&mut message)?;
        if sequence_of(&message) == Some(LAST) {
            break;
        }
        checker
            .check(sequence, &message)
            .map_err(io::Error::other)?;
        end.send(&mut message)?;
        end.flush()?;
    }
    Ok(())
}

/// How many round trips are timed together where each takes so long.
fn together_for(each: Duration) -> u32 {
    let several = LEAST_BETWEEN_LOOKS
        .as_nanos()
        .div_ceil(each.as_nanos().max(1));
    u32::try_from(several)
        .unwrap_or(MOST_TOGETHER)
        .min(MOST_TOGETHER)
}

fn messages_per_look(message_bytes: usize) -> usize {
    (CLOCK_BYTES / message_bytes.max(1)).clamp(1, CLOCK_MESSAGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end whose messages come back at once.
    #[derive(Default)]
    struct Echo(Vec<u8>);

    impl MessageEnd for Echo {
        fn send(&mut self, message: &mut [u8]) -> io::Result<()> {
            self.0 = message.to_vec();
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
            message.copy_from_slice(&self.0);
            Ok(())
        }
    }

    #[test]
    fn a_round_trip_is_measured_however_late_it_is() {
        let report = run_ping(&mut Echo::default(), 8, Duration::ZERO, Duration::ZERO).unwrap();
        assert!(report.round_trips > 0);
    }

    #[test]
    fn a_look_at_the_clock_is_a_small_part_of_what_is_timed() {
        for each in [0, 1, 100, 420, 2499] {
            let each = Duration::from_nanos(each);
            let together = together_for(each);
            let long_enough = each * together >= LEAST_BETWEEN_LOOKS;
            assert!(long_enough || together == MOST_TOGETHER, "{each:?}");
        }
        for each in [2500, 30_000, 5_000_000_000] {
            assert_eq!(together_for(Duration::from_nanos(each)), 1);
        }
    }
}
