//! `madgate bench`: measures the way to another node.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use madgate_vchannel::cluster::{format_size, parse_duration, parse_size};
use madgate_vchannel::{Channel, NodeId, ReceiveMode, Unpacking};
use serde::Serialize;

use crate::failure::{Context, Failure};
use crate::files::wire::count;
use crate::node::{channel_to, find, join, leave, read_cluster};
use crate::output::print;
use crate::service::meter::{Answer, MAX_MESSAGE_BYTES, Order};
use crate::service::pattern::{Check, Messages};
use crate::service::talk::{self, Incoming};
use crate::units::{counted, grouped, mb_per_s, per_second};

/// The longest measurement.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
/// What is measured before it counts.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long the other end may say nothing. A node that cannot be reached is noticed sooner.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// How soon an order is repeated that is not answered.
const REPEAT_AFTER: Duration = Duration::from_millis(250);
/// How often the clock is read while small messages are streamed.
const CLOCK_EVERY_BYTES: usize = 64 << 10;
/// The most messages between two looks at the clock.
const CLOCK_EVERY_MESSAGES: usize = 256;
/// Larger messages are given away, so that several are in flight; smaller ones are copied.
const COPY_BYTES: usize = 4 << 10;
/// The longest half round trip that the histogram tells apart.
const MAX_HALF_RTT_NS: u64 = 60_000_000_000;

/// Measures the way to another node, which has to run `madgate serve` or `madgate gateway`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The cluster file.
    cluster: PathBuf,
    /// The node that this process is.
    #[arg(long, value_name = "NAME")]
    node: String,
    /// The node at the other end.
    #[arg(long, value_name = "NAME")]
    to: String,
    /// The channel; without it, the first that both nodes are in.
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// What is measured.
    kind: Kind,
    /// Sizes of messages; by default 8B for pingpong and 1MiB for stream.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = message_size)]
    size: Vec<usize>,
    /// How long each size is measured.
    #[arg(long, default_value = "2s", value_parser = time)]
    time: Duration,
    /// One JSON object per size and line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Half round trips: a message goes there and comes back.
    Pingpong,
    /// Bandwidth and messages per second: message after message goes there, where each is
    /// unpacked and checked.
    Stream,
}

fn message_size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).ok_or("expected a size such as 8B, 64KiB or 1MiB")?;
    let limit = format_size(count(MAX_MESSAGE_BYTES));
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= MAX_MESSAGE_BYTES)
        .ok_or_else(|| format!("a message has at most {limit} here"))
}

fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).ok_or("expected a time such as 500ms, 2s or 1min")?;
    if time.is_zero() || time > MAX_TIME {
        return Err("expected more than nothing, and a day at most".into());
    }
    Ok(time)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (cluster, own) = read_cluster(&arguments.cluster, &arguments.node)?;
    let to = find(&cluster, &arguments.to)?;
    if to == own {
        return Err(Failure::new(format!(
            "{} is this node itself",
            arguments.to
        )));
    }
    let session = join(&cluster, &arguments.node)?;
    let channel = channel_to(&session, to, arguments.channel.as_deref())?;
    let bench = Bench {
        channel: &channel,
        to,
        names: [&arguments.node, &arguments.to],
    };
    let sizes = match (arguments.size.as_slice(), arguments.kind) {
        ([], Kind::Pingpong) => &[8],
        ([], Kind::Stream) => &[1 << 20],
        (sizes, _) => sizes,
    };
    for size in sizes {
        match arguments.kind {
            Kind::Pingpong => bench
                .pingpong(*size, arguments.time)?
                .print(arguments.json)?,
            Kind::Stream => bench.stream(*size, arguments.time)?.print(arguments.json)?,
        }
    }
    leave(session, channel);
    Ok(ExitCode::SUCCESS)
}

/// Half round trips, in microseconds.
#[derive(Debug, Serialize)]
struct HalfRoundTrips<'a> {
    bench: &'static str,
    from: &'a str,
    to: &'a str,
    message_bytes: usize,
    round_trips: u64,
    min_us: f64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

/// What went through in one direction.
#[derive(Debug, Serialize)]
struct Throughput<'a> {
    bench: &'static str,
    from: &'a str,
    to: &'a str,
    message_bytes: usize,
    messages: u64,
    seconds: f64,
    mb_per_s: f64,
    messages_per_s: f64,
}

/// Prints a result.
trait Print: Serialize {
    fn text(&self) -> String;

    fn print(&self, json: bool) -> Result<(), Failure> {
        let line = if json {
            serde_json::to_string(self)?
        } else {
            self.text()
        };
        print(&format!("{line}\n"))
    }
}

impl Print for HalfRoundTrips<'_> {
    fn text(&self) -> String {
        let size = format_size(count(self.message_bytes));
        format!(
            "{} -> {}  {size:>8}  half round trip: min {:.1} us, p50 {:.1}, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1} ({})",
            self.from,
            self.to,
            self.min_us,
            self.p50_us,
            self.p90_us,
            self.p99_us,
            self.p999_us,
            self.max_us,
            counted(self.round_trips, "round trip"),
        )
    }
}

impl Print for Throughput<'_> {
    fn text(&self) -> String {
        let size = format_size(count(self.message_bytes));
        let bandwidth = if self.mb_per_s >= 1000.0 {
            format!("{:.2} GB/s", self.mb_per_s / 1000.0)
        } else {
            format!("{:.1} MB/s", self.mb_per_s)
        };
        let per_second = whole(self.messages_per_s);
        format!(
            "{} -> {}  {size:>8}  {bandwidth}, {} messages/s ({}, all as sent)",
            self.from,
            self.to,
            grouped(per_second),
            counted(self.messages, "message"),
        )
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate that is printed; the conversion saturates"
)]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

struct Bench<'a> {
    channel: &'a Channel,
    to: NodeId,
    names: [&'a str; 2],
}

impl<'a> Bench<'a> {
    fn pingpong(&self, size: usize, time: Duration) -> Result<HalfRoundTrips<'a>, Failure> {
        let tag = self.order(Order::Echo)?;
        // Three digits are enough; it grows to what it needs, within the limit.
        let mut histogram = Histogram::<u64>::new_with_bounds(1, MAX_HALF_RTT_NS, 3)
            .or_fail(|| "cannot make a histogram".into())?;
        let messages = Messages::new(size);
        let check = Check::new();
        let mut buffer = vec![0; size];
        let started = Instant::now();
        let mut sequence = 0;
        loop {
            let begun = Instant::now();
            let before = begun - started;
            if before >= WARM_UP + time && !histogram.is_empty() {
                break;
            }
            self.payload(&messages, sequence)?;
            unpack(self.payload_back()?, &mut buffer)?;
            let half = begun.elapsed() / 2;
            if !check.matches(sequence, &buffer) {
                return Err(Failure::new(format!(
                    "message {sequence} came back damaged"
                )));
            }
            if before >= WARM_UP {
                let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
                histogram.saturating_record(nanos);
            }
            sequence += 1;
        }
        self.stop(tag)?;
        let us = |nanos: u64| crate::units::float(nanos) / 1000.0;
        let [from, to] = self.names;
        Ok(HalfRoundTrips {
            bench: "pingpong",
            from,
            to,
            message_bytes: size,
            round_trips: histogram.len(),
            min_us: us(histogram.min()),
            mean_us: histogram.mean() / 1000.0,
            p50_us: us(histogram.value_at_quantile(0.5)),
            p90_us: us(histogram.value_at_quantile(0.9)),
            p99_us: us(histogram.value_at_quantile(0.99)),
            p999_us: us(histogram.value_at_quantile(0.999)),
            max_us: us(histogram.max()),
        })
    }

    fn stream(&self, size: usize, time: Duration) -> Result<Throughput<'a>, Failure> {
        self.stream_for(size, WARM_UP)?;
        let (messages, took) = self.stream_for(size, time)?;
        let [from, to] = self.names;
        Ok(Throughput {
            bench: "stream",
            from,
            to,
            message_bytes: size,
            messages,
            seconds: took.as_secs_f64(),
            mb_per_s: mb_per_s(messages * count(size), took),
            messages_per_s: per_second(messages, took),
        })
    }

    /// Streams for a while; the time counts until the other end has checked everything.
    fn stream_for(&self, size: usize, time: Duration) -> Result<(u64, Duration), Failure> {
        let tag = self.order(Order::Sink {
            message_bytes: count(size),
        })?;
        let messages = Messages::new(size);
        let burst = (CLOCK_EVERY_BYTES / size.max(1)).clamp(1, CLOCK_EVERY_MESSAGES);
        let started = Instant::now();
        let mut sequence = 0;
        while started.elapsed() < time {
            for _ in 0..burst {
                self.payload(&messages, sequence)?;
                sequence += 1;
            }
        }
        let (arrived, wrong) = self.stop(tag)?;
        let took = started.elapsed();
        if arrived != sequence || wrong > 0 {
            return Err(Failure::new(format!(
                "{} sent, {arrived} arrived, {wrong} of them damaged",
                counted(sequence, "message")
            )));
        }
        Ok((sequence, took))
    }

    fn payload(&self, messages: &Messages, sequence: u64) -> Result<(), Failure> {
        let mut packing = self.channel.begin_packing(self.to)?;
        if messages.size() <= COPY_BYTES {
            packing.pack_cheaper(messages.borrowed(sequence), ReceiveMode::Cheaper)?;
        } else {
            packing.pack_owned(messages.owned(sequence), ReceiveMode::Cheaper)?;
        }
        Ok(packing.end_packing()?)
    }

    /// Gives an order, and waits until it is obeyed.
    ///
    /// The first answer may be lost: the other end may not know yet that the process that
    /// was this node before is gone. So the order is repeated until an answer comes.
    fn order(&self, order: Order) -> Result<u64, Failure> {
        let tag = RandomState::new().build_hasher().finish();
        let deadline = Instant::now() + SILENCE_LIMIT;
        while Instant::now() < deadline {
            talk::send(self.channel, self.to, order.encode(tag))?;
            match self.answer(tag, REPEAT_AFTER)? {
                Some(Answer::Ready) => return Ok(tag),
                Some(Answer::Busy) => {
                    return Err(Failure::new(format!(
                        "{} answers as many benches as it can already",
                        self.names[1]
                    )));
                }
                Some(Answer::Report { .. }) | None => {}
            }
        }
        Err(self.silence())
    }

    fn stop(&self, tag: u64) -> Result<(u64, u64), Failure> {
        talk::send(self.channel, self.to, Order::Stop.encode(tag))?;
        loop {
            match self.answer(tag, SILENCE_LIMIT)? {
                Some(Answer::Report { messages, wrong }) => return Ok((messages, wrong)),
                // The answer to an order that was repeated for nothing.
                Some(Answer::Ready | Answer::Busy) => {}
                None => return Err(self.silence()),
            }
        }
    }

    /// The next answer to the bench `tag`, if one comes within `patience`.
    fn answer(&self, tag: u64, patience: Duration) -> Result<Option<Answer>, Failure> {
        let deadline = Instant::now() + patience;
        while let Some(mut unpacking) = self.next(deadline)? {
            if let Incoming::Service(head) = talk::read(&mut unpacking)?
                && head.tag == tag
            {
                let body = talk::body(unpacking, &head)?;
                if let Some(answer) = Answer::decode(&head, &body) {
                    return Ok(Some(answer));
                }
            }
        }
        Ok(None)
    }

    /// The next payload of the other end.
    fn payload_back(&self) -> Result<Unpacking<'_>, Failure> {
        let deadline = Instant::now() + SILENCE_LIMIT;
        while let Some(mut unpacking) = self.next(deadline)? {
            if let Incoming::Payload(_) = talk::read(&mut unpacking)? {
                return Ok(unpacking);
            }
        }
        Err(self.silence())
    }

    /// The next message of the other end, if one comes in time.
    fn next(&self, deadline: Instant) -> Result<Option<Unpacking<'_>>, Failure> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.channel.begin_unpacking_within(left)? {
                // Others may talk to this node too; they are not listened to.
                Some(unpacking) if unpacking.source() != self.to => {}
                unpacking => return Ok(unpacking),
            }
        }
    }

    fn silence(&self) -> Failure {
        Failure::new(format!(
            "{} has said nothing for {} s; it has to run `madgate serve` or `madgate gateway`",
            self.names[1],
            SILENCE_LIMIT.as_secs()
        ))
    }
}

/// Unpacks the one block of a message.
fn unpack<'a>(mut unpacking: Unpacking<'a>, into: &'a mut [u8]) -> Result<(), Failure> {
    unpacking.unpack_cheaper(into)?;
    Ok(unpacking.end_unpacking()?)
}
