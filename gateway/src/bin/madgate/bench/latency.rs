//! How long messages take: ping-pong, one way, and with a load beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::finding::{Latency, LoadFigures, OneWay, Percentiles};
use super::partner::Partner;
use super::{Plan, burst_of};
use crate::failure::{Context, Failure};
use crate::files::wire::count;
use crate::service::order::{Answer, Order};
use crate::service::pattern::{Check, Messages};
use crate::service::under_way::{self, UnderWay};
use crate::units::{float, mb_per_s, per_second};

/// The longest time that the histogram tells apart.
const MAX_NS: u64 = 3_600_000_000_000;
/// Digits of a time that are kept.
const DIGITS: u8 = 3;
/// How long the load may run before what is measured beside it counts: until queues are full.
const FILL: Duration = Duration::from_millis(100);
/// A load has no more under way than goes through in this time: queues are full, and it ends soon when it
/// is to.
const LOAD_UNDER_WAY: Duration = Duration::from_millis(250);

/// Half round trips of messages that are sent back.
pub(super) fn pingpong(partner: Partner<'_>, size: usize, plan: &Plan) -> Result<Latency, Failure> {
    let histogram = trips(partner, size, plan, Order::Echo, |time| time / 2)?;
    Ok(Latency {
        message_bytes: size,
        round_trips: histogram.len(),
        load: None,
        times: Percentiles::of(&histogram),
    })
}

/// What an empty answer takes: half a round trip of empty messages.
pub(super) fn answer(partner: Partner<'_>, plan: &Plan) -> Result<Duration, Failure> {
    let trips = trips(partner, 0, plan, Order::Echo, |time| time / 2)?;
    Ok(Duration::from_nanos(trips.value_at_quantile(0.5)))
}

/// The time that messages take in one direction: that of a message and an empty answer, less
/// that of the [`answer`] (paper 003, 3.1).
pub(super) fn one_way(
    partner: Partner<'_>,
    size: usize,
    answer: Duration,
    plan: &Plan,
) -> Result<OneWay, Failure> {
    let message_bytes = count(size);
    let histogram = trips(partner, size, plan, Order::Take { message_bytes }, |time| {
        time.saturating_sub(answer)
    })?;
    let times = Percentiles::of(&histogram);
    let median = Duration::from_nanos(histogram.value_at_quantile(0.5));
    Ok(OneWay {
        message_bytes: size,
        messages: histogram.len(),
        answer_us: answer.as_secs_f64() * 1e6,
        mb_per_s: mb_per_s(message_bytes, median.max(Duration::from_nanos(1))),
        times,
    })
}

/// Sends messages one at a time, each of which is answered, and notes what `noted` makes of the
/// time until then.
fn trips(
    partner: Partner<'_>,
    size: usize,
    plan: &Plan,
    order: Order,
    noted: impl Fn(Duration) -> Duration,
) -> Result<Histogram<u64>, Failure> {
    let tag = partner.order(order)?;
    // Three digits are enough; it grows to what it needs, within the limit.
    let mut histogram = Histogram::<u64>::new_with_bounds(1, MAX_NS, DIGITS)
        .or_fail(|| "cannot make a histogram".into())?;
    let messages = Messages::new(size);
    let check = Check::new();
    let is_echo = order == Order::Echo;
    let mut back = vec![0; if is_echo { size } else { 0 }];
    let started = Instant::now();
    let mut sequence = 0;
    loop {
        let begun = Instant::now();
        let before = begun - started;
        if before >= plan.warm_up + plan.time && !histogram.is_empty() {
            break;
        }
        partner.payload(&messages, sequence)?;
        partner.payload_back(&mut back)?;
        let took = noted(begun.elapsed());
        if is_echo && !check.matches(sequence, &back) {
            return Err(Failure::new(format!(
                "message {sequence} came back damaged"
            )));
        }
        if before >= plan.warm_up {
            histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
        sequence += 1;
    }
    match partner.stop(tag)? {
        Answer::Report(report) if report.wrong == 0 && report.arrived == sequence => Ok(histogram),
        Answer::Report(report) => Err(Failure::new(format!(
            "{sequence} messages sent, {} arrived, {} of them damaged",
            report.arrived, report.wrong
        ))),
        _ => Err(partner.nonsense()),
    }
}

/// A load beside small messages: messages to a node, as another flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    pub(super) partner: Partner<'a>,
    pub(super) message_bytes: usize,
}

impl Load<'_> {
    /// What it reaches alone, in bytes per second.
    pub(super) fn alone(&self, plan: &Plan) -> Result<f64, Failure> {
        if let Some(before) = plan.before() {
            self.alone_for(before.time)?;
        }
        self.alone_for(plan.time)
    }

    fn alone_for(&self, time: Duration) -> Result<f64, Failure> {
        let stop = AtomicBool::new(false);
        let (tag, started) = (self.begin()?, Instant::now());
        let sent = thread::scope(|scope| {
            let sending = scope.spawn(|| self.send(None, &stop));
            thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            join(sending)
        })?;
        self.partner.stop_counting(tag, sent)?;
        Ok(per_second(
            sent * count(self.message_bytes),
            started.elapsed(),
        ))
    }

    /// Half round trips of messages to `partner` while this part of `full` bytes per second
    /// goes beside them.
    pub(super) fn beside(
        &self,
        partner: Partner<'_>,
        size: usize,
        (percent, full): (u32, f64),
        plan: &Plan,
    ) -> Result<Latency, Failure> {
        let stop = AtomicBool::new(false);
        let rate = (percent < 100).then(|| full * f64::from(percent) / 100.0);
        // Whoever listens on the channel would miss the answer to the order of another.
        let tag = if percent > 0 {
            Some(self.begin()?)
        } else {
            None
        };
        let started = Instant::now();
        let (found, sent) = thread::scope(|scope| -> Result<_, Failure> {
            let sending = tag.map(|_| scope.spawn(|| self.send(rate, &stop)));
            if sending.is_some() {
                thread::sleep(FILL);
            }
            let found = pingpong(partner, size, plan);
            stop.store(true, Ordering::Relaxed);
            let sent = sending.map_or(Ok(0), join)?;
            Ok((found?, sent))
        })?;
        if let Some(tag) = tag {
            self.partner.stop_counting(tag, sent)?;
        }
        let bytes = sent * count(self.message_bytes);
        Ok(Latency {
            load: Some(LoadFigures {
                to: self.partner.name().to_owned(),
                channel: self.partner.channel.name().to_owned(),
                message_bytes: self.message_bytes,
                alone_mb_per_s: full / 1e6,
                percent,
                mb_per_s: mb_per_s(bytes, started.elapsed()),
            }),
            ..found
        })
    }

    fn begin(&self) -> Result<u64, Failure> {
        self.partner.order(Order::Sink {
            message_bytes: count(self.message_bytes),
        })
    }

    /// Sends at `rate` bytes per second, or as fast as it goes, until it is to stop.
    fn send(&self, rate: Option<f64>, stop: &AtomicBool) -> Result<u64, Failure> {
        let messages = Messages::new(self.message_bytes);
        let burst = burst_of(self.message_bytes);
        let started = Instant::now();
        let weight = under_way::weight(burst, self.message_bytes);
        let mut under_way = UnderWay::within(LOAD_UNDER_WAY, weight, started);
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            if let Some(rate) = rate {
                let due = float(sent * count(self.message_bytes)) / rate.max(1.0);
                let early = due - started.elapsed().as_secs_f64();
                if early > 0.0 {
                    thread::sleep(Duration::from_secs_f64(early.min(FILL.as_secs_f64())));
                    continue;
                }
            }
            for _ in 1..burst {
                self.partner.payload(&messages, sent)?;
                sent += 1;
            }
            let now = Instant::now();
            let mark = if under_way.wants_mark(weight, now) {
                Some(self.partner.payload_tracked(&messages, sent)?)
            } else {
                self.partner.payload(&messages, sent)?;
                None
            };
            sent += 1;
            under_way.note(&self.partner, weight, mark, now)?;
        }
        Ok(sent)
    }
}

/// Waits for a thread.
pub(super) fn join<T>(
    thread: thread::ScopedJoinHandle<'_, Result<T, Failure>>,
) -> Result<T, Failure> {
    let ended = thread.join();
    ended.unwrap_or_else(|_| Err(Failure::new("a thread of the bench has panicked")))
}
