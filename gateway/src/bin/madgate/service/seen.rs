//! What a gateway has done while somebody measured, as it tells them.

use bytes::Bytes;
use madgate_gateway::model::Observation;
use madgate_gateway::{Counters, PipelineCounters};
use serde::{Deserialize, Serialize};

/// Pipelines that are told at most; a gateway has as many as pairs of networks.
const PIPELINES_MOST: usize = 1000;

/// What a gateway did in some time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Its name.
    pub(crate) gateway: String,
    pub(crate) seconds: f64,
    /// Whether it runs values that a tuner tries, and not those of its file.
    #[serde(default)]
    pub(crate) on_trial: bool,
    pub(crate) copies_per_frame: f64,
    /// Flows times the time that they had no credit, for want of promises ahead.
    pub(crate) parked_ahead_s: f64,
    /// The same for want of memory here.
    pub(crate) parked_memory_s: f64,
    pub(crate) pipelines: Vec<SeenPipeline>,
}

/// The same from one network to another, with what the model makes of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct SeenPipeline {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) frames: u64,
    pub(crate) copies_per_frame: f64,
    /// As in [`Seen`], of flows that take this way.
    pub(crate) parked_ahead_s: f64,
    pub(crate) parked_memory_s: f64,
    /// Times that the receiver of this way slept, and had to be woken.
    pub(crate) sleeps: u64,
    /// The same of its sender.
    pub(crate) sender_sleeps: u64,
    pub(crate) hop_p50_us: f64,
    pub(crate) hop_p99_us: f64,
    pub(crate) hop_max_us: f64,
    /// Of what one receiving call brought, on average.
    pub(crate) packet_bytes: usize,
    pub(crate) receive_us: f64,
    pub(crate) send_us: f64,
    pub(crate) switch_us: f64,
    /// Data frames that one receiving call on the network that it begins at brought, on average.
    #[serde(default)]
    pub(crate) frames_per_receive: f64,
    /// What waited in flows' queues at the end.
    #[serde(default)]
    pub(crate) queued_bytes: u64,
    /// What was done for it, in seconds of the threads of both networks: in calls that receive, between
    /// those and the ones that send, in those, and waiting.
    #[serde(default)]
    pub(crate) receiving_s: f64,
    #[serde(default)]
    pub(crate) handing_over_s: f64,
    #[serde(default)]
    pub(crate) sending_s: f64,
    #[serde(default)]
    pub(crate) waiting_s: f64,
    /// The part of receiving and sending that was done at the same time.
    pub(crate) overlap: f64,
    pub(crate) measured_mb_per_s: f64,
    /// What could have passed, had the gateway never waited.
    pub(crate) predicted_mb_per_s: f64,
    pub(crate) limit: String,
}

impl Seen {
    /// What happened in a period.
    pub(crate) fn in_period(period: &Counters, on_trial: bool) -> Self {
        let active = period.pipelines.iter().filter(|way| way.frames > 0);
        Self {
            gateway: String::new(),
            seconds: period.uptime.as_secs_f64(),
            on_trial,
            copies_per_frame: period.copies_per_frame(),
            parked_ahead_s: period.parked_ahead.as_secs_f64(),
            parked_memory_s: period.parked_memory.as_secs_f64(),
            pipelines: active
                .filter_map(|way| SeenPipeline::in_period(period, way))
                .take(PIPELINES_MOST)
                .collect(),
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        // Strings and numbers can be written. What is not a number would become null, which cannot
        // be read.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }
}

impl SeenPipeline {
    fn in_period(period: &Counters, way: &PipelineCounters) -> Option<Self> {
        let observed = Observation::of(period, &way.from, &way.to)?;
        let network = |name: &String| period.networks.iter().find(|one| &one.name == name);
        let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
        let packet = observed.packet_bytes;
        let from = network(&way.from)?;
        let (measured, predicted) = (observed.measured(), observed.predicted());
        // What took no time that could be measured has no rate, and JSON no word for that.
        if !measured.is_finite() || !predicted.is_finite() {
            return None;
        }
        Some(Self {
            from: way.from.clone(),
            to: way.to.clone(),
            frames: way.frames,
            copies_per_frame: way.copies_per_frame(),
            parked_ahead_s: way.parked_ahead.as_secs_f64(),
            parked_memory_s: way.parked_memory.as_secs_f64(),
            sleeps: from.sleeps,
            sender_sleeps: network(&way.to)?.sender_sleeps,
            hop_p50_us: us(way.hop.quantile(0.5)),
            hop_p99_us: us(way.hop.quantile(0.99)),
            hop_max_us: us(way.hop.longest()),
            packet_bytes: packet,
            receive_us: us(observed.pipeline.receive.of(packet)),
            send_us: us(observed.pipeline.send.of(packet)),
            switch_us: us(observed.pipeline.switch),
            frames_per_receive: from.frames_per_receive(),
            queued_bytes: way.queued_bytes,
            receiving_s: way.times.receiving.as_secs_f64(),
            handing_over_s: way.times.handing_over.as_secs_f64(),
            sending_s: way.times.sending.as_secs_f64(),
            waiting_s: way.times.waiting.as_secs_f64(),
            overlap: observed.pipeline.overlap,
            measured_mb_per_s: measured / 1e6,
            predicted_mb_per_s: predicted / 1e6,
            limit: observed.limit.to_string(),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use madgate_gateway::NetworkCounters;
    use proptest::collection::vec;
    use proptest::num::f64::{NORMAL, POSITIVE, SUBNORMAL, ZERO};
    use proptest::prelude::*;

    use super::*;

    /// What can be measured: neither negative nor without end.
    fn measured() -> impl Strategy<Value = f64> {
        POSITIVE | NORMAL | SUBNORMAL | ZERO
    }

    /// What a gateway may say, in any words.
    pub(in crate::service) fn any_seen() -> impl Strategy<Value = Seen> {
        let figures = [(); 4].map(|()| measured());
        let said = (any::<String>(), any::<bool>());
        (said, figures, vec(any_pipeline(), 0..4)).prop_map(
            |((gateway, on_trial), [seconds, copies, ahead, memory], pipelines)| Seen {
                gateway,
                seconds,
                on_trial,
                copies_per_frame: copies,
                parked_ahead_s: ahead,
                parked_memory_s: memory,
                pipelines,
            },
        )
    }

    fn any_pipeline() -> impl Strategy<Value = SeenPipeline> {
        let words = any::<[String; 3]>();
        let figures = [(); 17].map(|()| measured());
        (words, any::<[u64; 4]>(), any::<usize>(), figures).prop_map(
            |([from, to, limit], counts, packet_bytes, figures)| {
                let [frames, sleeps, sender_sleeps, queued_bytes] = counts;
                let [
                    copies,
                    ahead,
                    memory,
                    p50,
                    p99,
                    longest,
                    receive,
                    send,
                    switch,
                    overlap,
                    measured,
                    predicted,
                    frames_per_receive,
                    receiving_s,
                    handing_over_s,
                    sending_s,
                    waiting_s,
                ] = figures;
                SeenPipeline {
                    from,
                    to,
                    frames,
                    copies_per_frame: copies,
                    parked_ahead_s: ahead,
                    parked_memory_s: memory,
                    sleeps,
                    sender_sleeps,
                    hop_p50_us: p50,
                    hop_p99_us: p99,
                    hop_max_us: longest,
                    packet_bytes,
                    receive_us: receive,
                    send_us: send,
                    switch_us: switch,
                    frames_per_receive,
                    queued_bytes,
                    receiving_s,
                    handing_over_s,
                    sending_s,
                    waiting_s,
                    overlap,
                    measured_mb_per_s: measured,
                    predicted_mb_per_s: predicted,
                    limit,
                }
            },
        )
    }

    #[test]
    fn a_pipeline_that_took_no_time_does_not_spoil_the_rest() {
        let mut period = Counters::default();
        period.uptime = Duration::from_secs(1);
        for (name, receiving_us) in [("left", 1), ("right", 0), ("third", 0)] {
            let mut network = NetworkCounters::default();
            network.name = name.into();
            network.receives = 10;
            network.receiver.receiving = Duration::from_micros(receiving_us);
            period.networks.push(network);
        }
        for (from, to) in [("left", "right"), ("right", "third")] {
            let mut way = PipelineCounters::default();
            (way.from, way.to) = (from.into(), to.into());
            (way.frames, way.bytes) = (10, 1000);
            period.pipelines.push(way);
        }
        let seen = Seen::in_period(&period, false);
        assert_eq!(seen.pipelines.len(), 1);
        assert_eq!(seen.pipelines[0].from, "left");
        assert_eq!(Seen::decode(&seen.encode()), Some(seen));
    }

    proptest! {
        #[test]
        fn what_was_seen_survives_the_way(seen in any_seen()) {
            prop_assert_eq!(Seen::decode(&seen.encode()), Some(seen));
        }

        #[test]
        fn no_bytes_of_a_peer_are_too_strange(
            seen in any_seen(),
            place: prop::sample::Index,
            with in vec(any::<u8>(), 0..4),
        ) {
            let _ = Seen::decode(&with);
            // Nearly right: some bytes are others, or there are more or fewer.
            let mut body = seen.encode().to_vec();
            let at = place.index(body.len());
            body.splice(at..=at, with);
            if let Some(seen) = Seen::decode(&body) {
                prop_assert_eq!(Seen::decode(&seen.encode()), Some(seen));
            }
        }
    }
}
