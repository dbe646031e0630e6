//! How much goes through: message after message in one direction or in both, and between many
//! nodes at once.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use madgate_vchannel::Delivery;

use super::finding::{Flow, Many, Throughput};
use super::latency::join;
use super::partner::{Partner, all_arrived};
use super::progress::Progress;
use super::{Direction, Plan, burst_of};
use crate::failure::Failure;
use crate::files::wire::count;
use crate::service::order::{Order, Report};
use crate::service::pattern::Messages;
use crate::service::under_way::{self, UnderWay};
use crate::units::{float, mb_per_s, per_second};

/// No more of a stream is under way than goes through in this part of the time that it is measured.
const UNDER_WAY_PART: u32 = 4;

/// Streams in the directions that are asked for; what came before it counts is over.
pub(super) fn stream(
    partner: Partner<'_>,
    size: usize,
    direction: Direction,
    plan: &Plan,
    progress: &Progress,
) -> Result<Throughput, Failure> {
    let run = |time, progress: &Progress| match direction {
        Direction::There => there(partner, size, time, progress),
        Direction::Back | Direction::Both => back(partner, size, direction, time, progress),
    };
    if !plan.warm_up.is_zero() {
        run(plan.warm_up, &Progress::default())?;
    }
    let [there, back] = run(plan.time, progress)?;
    let rate = |gone: Gone| mb_per_s(gone.messages * count(size), gone.took);
    let [there_mb_per_s, back_mb_per_s] = [there, back].map(rate);
    let per_s = [there, back].map(|gone| per_second(gone.messages, gone.took));
    Ok(Throughput {
        message_bytes: size,
        direction,
        messages: there.messages + back.messages,
        seconds: there.took.max(back.took).as_secs_f64(),
        mb_per_s: there_mb_per_s + back_mb_per_s,
        messages_per_s: per_s.iter().sum(),
        there_mb_per_s,
        back_mb_per_s,
    })
}

/// What has gone through in one direction, until all of it was there. One may be through long before the
/// other.
#[derive(Debug, Clone, Copy)]
struct Gone {
    messages: u64,
    took: Duration,
}

impl Gone {
    /// Nothing, as nothing was to go.
    const fn nothing(took: Duration) -> Self {
        Self { messages: 0, took }
    }
}

/// Streams there for a while; the time counts until the other end has checked everything.
fn there(
    partner: Partner<'_>,
    size: usize,
    time: Duration,
    progress: &Progress,
) -> Result<[Gone; 2], Failure> {
    let message_bytes = count(size);
    let messages = Messages::new(size);
    let tag = partner.order(Order::Sink { message_bytes })?;
    let started = progress.begin();
    let sent = send_for(partner, &messages, started, time, progress)?;
    let messages = sent.messages;
    let stop = partner.send_stop(tag)?;
    sent.settle(partner, size, progress)?;
    partner.counted(tag, &stop, messages)?;
    let took = started.elapsed();
    Ok([Gone { messages, took }, Gone::nothing(took)])
}

/// Streams back for a while, or in both directions; the time of each counts until everything is there.
fn back(
    partner: Partner<'_>,
    size: usize,
    direction: Direction,
    time: Duration,
    progress: &Progress,
) -> Result<[Gone; 2], Failure> {
    let message_bytes = count(size);
    let is_both = direction == Direction::Both;
    let messages = Messages::new(size);
    let tag = partner.order(if is_both {
        Order::Both { message_bytes }
    } else {
        Order::Source { message_bytes }
    })?;
    let started = progress.begin();
    let (there, (received, report)) = thread::scope(|scope| -> Result<_, Failure> {
        let sending = scope.spawn(|| {
            if !is_both {
                thread::sleep(time);
                partner.send_stop(tag)?;
                return Ok(Gone::nothing(time));
            }
            let sent = send_for(partner, &messages, started, time, progress)?;
            let messages = sent.messages;
            // Behind everything else.
            let stop = partner.send_stop(tag)?;
            sent.settle(partner, size, progress)?;
            if !partner.arrives(&stop)? {
                return Err(partner.silence());
            }
            let took = started.elapsed();
            Ok(Gone { messages, took })
        });
        let taken = partner.take_stream(tag, size, || progress.note(message_bytes));
        Ok((join(sending)?, taken?))
    })?;
    let back = Gone {
        messages: received,
        took: started.elapsed(),
    };
    let Report { arrived, wrong, .. } = report;
    all_arrived(there.messages, arrived, wrong)?;
    Ok([there, back])
}

/// What was sent, as far as it is not known to have arrived.
struct Sent {
    messages: u64,
    under_way: UnderWay<Delivery>,
}

impl Sent {
    /// Waits until all of it has arrived.
    fn settle(self, partner: Partner<'_>, size: usize, progress: &Progress) -> Result<(), Failure> {
        let seen = |weight| progress.note(bytes_of(weight, size));
        self.under_way.settle(&partner, seen)
    }
}

/// The bytes of messages of this size that have such a weight.
fn bytes_of(weight: u64, size: usize) -> u64 {
    weight / under_way::weight(1, size) * count(size)
}

/// Sends until `time` after `started`, some at least; what of it is seen to arrive, `progress` is told of.
fn send_for(
    partner: Partner<'_>,
    messages: &Messages,
    started: Instant,
    time: Duration,
    progress: &Progress,
) -> Result<Sent, Failure> {
    let size = messages.size();
    let burst = burst_of(size);
    let weight = under_way::weight(burst, size);
    let mut now = Instant::now();
    let mut under_way = UnderWay::within(time / UNDER_WAY_PART, weight, now);
    let mut sent = 0;
    loop {
        for _ in 1..burst {
            partner.payload(messages, sent)?;
            sent += 1;
        }
        let mark = if under_way.wants_mark(weight, now) {
            Some(partner.payload_tracked(messages, sent)?)
        } else {
            partner.payload(messages, sent)?;
            None
        };
        sent += 1;
        let arrived = under_way.note(&partner, weight, mark, now)?;
        progress.note(bytes_of(arrived, size));
        now = Instant::now();
        if now - started >= time {
            return Ok(Sent {
                messages: sent,
                under_way,
            });
        }
    }
}

/// Many flows at once, each from a node of its own or not, all of them with messages of `size`.
pub(super) fn many(flows: &[Partner<'_>], size: usize, time: Duration) -> Result<Many, Failure> {
    let message_bytes = count(size);
    let messages = &Messages::new(size);
    // Nobody listens while the messages go, so that flows of one node may share a channel.
    let tags: Vec<u64> = flows
        .iter()
        .map(|flow| flow.order(Order::Sink { message_bytes }))
        .collect::<Result<_, _>>()?;
    let start = Barrier::new(flows.len());
    let (sent, started) = thread::scope(|scope| -> Result<_, Failure> {
        let started = Instant::now();
        let threads: Vec<_> = flows
            .iter()
            .map(|flow| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let progress = Progress::default();
                    send_for(*flow, messages, Instant::now(), time, &progress)
                })
            })
            .collect();
        let sent = threads.into_iter().map(join);
        let sent = sent.map(|sent| Ok(sent?.messages));
        Ok((sent.collect::<Result<Vec<_>, Failure>>()?, started))
    })?;
    for ((flow, tag), sent) in flows.iter().zip(tags).zip(&sent) {
        flow.stop_counting(tag, *sent)?;
    }
    let took = started.elapsed();
    let messages: u64 = sent.iter().sum();
    let fair = float(messages) / float(count(flows.len()).max(1));
    let least = sent.iter().min().copied().unwrap_or(0);
    let of_flow = |(flow, sent): (&Partner<'_>, &u64)| {
        let own = flow.channel.session();
        Flow {
            from: own.cluster().node_name(own.node()).to_owned(),
            to: flow.name().to_owned(),
            mb_per_s: mb_per_s(sent * message_bytes, took),
        }
    };
    Ok(Many {
        message_bytes: size,
        messages,
        seconds: took.as_secs_f64(),
        mb_per_s: mb_per_s(messages * message_bytes, took),
        messages_per_s: per_second(messages, took),
        least_of_fair_share: float(least) / fair.max(1.0),
        flows: flows.iter().zip(&sent).map(of_flow).collect(),
    })
}
