//! The costs of a pipeline, as a gateway's counters tell them.

use std::fmt;
use std::time::Duration;

use super::{Cost, Pipeline, Stage, float, per_second};
use crate::{Counters, NetworkCounters, PipelineCounters};

/// A pipeline that works for more than this part of the time limits what passes.
const BUSY: f64 = 0.8;

/// A flow that has no credit for more than this part of the time is limited by that.
const PARKED: f64 = 0.2;

/// Frames that stay for longer than this, and than two packets take to pass, wait for what they leave
/// by.
const QUEUED: Duration = Duration::from_millis(1);

/// What decides how much passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// A stage of this gateway.
    Stage(Stage),
    /// The network that frames leave by takes less than there is.
    NetworkAhead,
    /// What leaves may not be faster, by the cluster file.
    Rate,
    /// The destination, or a gateway before it, does not promise more.
    CreditAhead,
    /// This gateway has no memory to promise.
    Memory,
    /// No more comes: the source, or the network that frames come by.
    Source,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stage(stage) => write!(f, "{stage} at the gateway"),
            Self::NetworkAhead => f.write_str("the network that frames leave by"),
            Self::Rate => f.write_str("a rate that the cluster file sets"),
            Self::CreditAhead => f.write_str("credit of the destination"),
            Self::Memory => f.write_str("memory of the gateway"),
            Self::Source => f.write_str("the source, or the network that frames come by"),
        }
    }
}

/// What a pipeline did in a period, in packets: what one receiving call brought.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Observation {
    /// Bytes of a packet, on average.
    pub packet_bytes: usize,
    /// What its packets cost.
    pub pipeline: Pipeline,
    /// How much later than one packet the next one came.
    pub period: Duration,
    /// What decided that.
    pub limit: Limit,
}

impl Observation {
    /// What passed from one network to another in `period` ([`Counters::since`]); `None` if that
    /// was nothing. Where several pipelines share a network, each has its part of what was done
    /// there, by bytes.
    #[must_use]
    pub fn of(period: &Counters, from: &str, to: &str) -> Option<Self> {
        let mut ways = period.pipelines.iter();
        let way = ways.find(|way| way.from == from && way.to == to)?;
        let network = |name: &str| period.networks.iter().find(|one| one.name == name);
        let (near, far) = (network(from)?, network(to)?);
        let in_part = share(way, period, |other| other.from == way.from);
        let out_part = share(way, period, |other| other.to == way.to);
        let packets = float_of(near.receives) * in_part;
        if packets <= 0.0 {
            return None;
        }
        let each = |time: Duration, part: f64| time.mul_f64(part / packets);
        let packet_bytes = whole(float_of(way.bytes) / packets);
        let receive = each(near.receiver.receiving, in_part);
        let send = each(far.sending, out_part);
        let switch =
            each(near.receiver.handing_over, in_part) + each(far.sender.handing_over, out_part);
        let overlap = far.sender.sending.as_secs_f64() / far.sending.as_secs_f64().max(1e-9);
        let pipeline = Pipeline {
            receive: Cost::fit(&[(packet_bytes, receive)])?,
            send: Cost::fit(&[(packet_bytes, send)])?,
            switch,
            overlap: overlap.clamp(0.0, 1.0),
        };
        Some(Self {
            packet_bytes,
            pipeline,
            period: period.uptime.mul_f64(1.0 / packets),
            limit: limit(period, &pipeline, packet_bytes, packets, (way, far)),
        })
    }

    /// Bytes per second that passed.
    #[must_use]
    pub fn measured(&self) -> f64 {
        per_second(self.packet_bytes, self.period)
    }

    /// Bytes per second that could have, had the gateway never waited.
    #[must_use]
    pub fn predicted(&self) -> f64 {
        self.pipeline.bandwidth(self.packet_bytes)
    }
}

/// The part that `way` has of the bytes of all that are `alike`.
fn share(
    way: &PipelineCounters,
    period: &Counters,
    alike: impl Fn(&&PipelineCounters) -> bool,
) -> f64 {
    let all: u64 = period
        .pipelines
        .iter()
        .filter(alike)
        .map(|one| one.bytes)
        .sum();
    float_of(way.bytes) / float_of(all.max(1))
}

fn limit(
    period: &Counters,
    pipeline: &Pipeline,
    packet_bytes: usize,
    packets: f64,
    (way, far): (&PipelineCounters, &NetworkCounters),
) -> Limit {
    let all = period.uptime.as_secs_f64().max(1e-9);
    let busy = pipeline.period(packet_bytes).as_secs_f64() * packets / all;
    let blocked = float_of(far.blocked) / float_of(far.sends.max(1));
    let each = period.uptime.mul_f64(1.0 / packets);
    let hop = way.hop.quantile(0.5);
    let waits = hop > QUEUED.max(each * 2);
    if busy > BUSY {
        Limit::Stage(pipeline.slowest(packet_bytes))
    } else if hop > QUEUED && far.held_back > 0 {
        // However few there are: a low rate lets few through.
        Limit::Rate
    } else if waits && far.blocked > 0 {
        Limit::NetworkAhead
    } else if way.parked_memory.as_secs_f64() > PARKED * all {
        Limit::Memory
    } else if way.parked_ahead.as_secs_f64() > PARKED * all {
        Limit::CreditAhead
    } else if blocked > 1.0 - BUSY {
        Limit::NetworkAhead
    } else {
        Limit::Source
    }
}

fn float_of(count: u64) -> f64 {
    float(usize::try_from(count).unwrap_or(usize::MAX))
}

/// What is not negative and fits, rounded.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates"
)]
fn whole(value: f64) -> usize {
    value.round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StageTimes;

    const SECOND: Duration = Duration::from_secs(1);

    fn network(name: &str) -> NetworkCounters {
        NetworkCounters {
            name: name.into(),
            ..NetworkCounters::default()
        }
    }

    fn way(from: &str, to: &str, bytes: u64) -> PipelineCounters {
        PipelineCounters {
            from: from.into(),
            to: to.into(),
            bytes,
            ..PipelineCounters::default()
        }
    }

    /// 1000 packets of 50 kB in a second, half of the work done by the receiver alone.
    fn period() -> Counters {
        let receiver = StageTimes {
            receiving: SECOND.mul_f64(0.3),
            handing_over: SECOND.mul_f64(0.1),
            sending: SECOND.mul_f64(0.2),
            waiting: SECOND.mul_f64(0.4),
        };
        let sender = StageTimes {
            sending: SECOND.mul_f64(0.2),
            ..StageTimes::default()
        };
        let left = NetworkCounters {
            receives: 1000,
            receiver,
            ..network("left")
        };
        let right = NetworkCounters {
            sends: 1000,
            sending: SECOND.mul_f64(0.4),
            sender,
            ..network("right")
        };
        Counters {
            uptime: SECOND,
            networks: vec![left, right],
            pipelines: vec![way("left", "right", 50_000_000)],
            ..Counters::default()
        }
    }

    fn limit_of(period: &Counters) -> Limit {
        Observation::of(period, "left", "right").unwrap().limit
    }

    #[test]
    fn counters_tell_costs() {
        let observed = Observation::of(&period(), "left", "right").unwrap();
        let micros = Duration::from_micros;
        let Pipeline {
            receive,
            send,
            switch,
            overlap,
        } = observed.pipeline;
        assert_eq!(observed.packet_bytes, 50_000);
        assert_eq!(
            (receive.of(50_000), send.of(50_000)),
            (micros(300), micros(400))
        );
        assert_eq!((switch, observed.period), (micros(100), micros(1000)));
        assert!((overlap - 0.5).abs() < 1e-9);
        // 300 + 400, half of the 300 at the same time, and the switch.
        assert_eq!(observed.pipeline.period(50_000), micros(650));
        assert!((observed.measured() - 5e7).abs() < 1.0);
        assert!(observed.predicted() > observed.measured());
        assert_eq!(Observation::of(&period(), "right", "left"), None);
    }

    #[test]
    fn what_several_pipelines_do_is_divided() {
        let mut shared = period();
        shared.networks.push(network("third"));
        shared.pipelines.push(way("left", "third", 150_000_000));
        shared.pipelines.push(way("third", "right", 50_000_000));
        let observed = Observation::of(&shared, "left", "right").unwrap();
        // A quarter of what came, and half of what left.
        assert_eq!(observed.packet_bytes, 200_000);
        let (receive, send) = (observed.pipeline.receive, observed.pipeline.send);
        assert_eq!(receive.of(200_000), Duration::from_micros(300));
        assert_eq!(send.of(200_000), Duration::from_micros(800));
    }

    #[test]
    fn it_is_said_what_limits() {
        assert_eq!(limit_of(&period()), Limit::Source);
        let mut blocked = period();
        blocked.networks[1].blocked = 300;
        assert_eq!(limit_of(&blocked), Limit::NetworkAhead);
        // Few calls find the lane full, but frames wait for it; or for a rate.
        let mut queued = period();
        queued.networks[1].blocked = 80;
        assert_eq!(limit_of(&queued), Limit::Source);
        queued.pipelines[0].hop.record(SECOND / 20, 1000);
        assert_eq!(limit_of(&queued), Limit::NetworkAhead);
        queued.networks[1].held_back = 500;
        assert_eq!(limit_of(&queued), Limit::Rate);
        // Few large ones a second wait for a rate for less than comes between two of them.
        let mut few = period();
        few.networks[1].held_back = 2;
        few.pipelines[0].hop.record(SECOND / 20, 3);
        few.networks[0].receives = 3;
        assert_eq!(limit_of(&few), Limit::Rate);
        // Flows that go elsewhere do not limit this way.
        blocked.pipelines.push(way("right", "left", 50_000_000));
        blocked.pipelines[1].parked_ahead = SECOND / 2;
        assert_eq!(limit_of(&blocked), Limit::NetworkAhead);
        blocked.pipelines[0].parked_ahead = SECOND / 2;
        assert_eq!(limit_of(&blocked), Limit::CreditAhead);
        blocked.pipelines[0].parked_memory = SECOND / 2;
        assert_eq!(limit_of(&blocked), Limit::Memory);
        blocked.networks[0].receiver.receiving = SECOND.mul_f64(0.6);
        assert_eq!(limit_of(&blocked), Limit::Stage(Stage::Receiving));
        let words = [Limit::Memory, Limit::Stage(Stage::Sending)].map(|limit| limit.to_string());
        assert_eq!(words, ["memory of the gateway", "sending at the gateway"]);
    }
}
