//! What a bench finds, as a line for people and as JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use madgate_vchannel::cluster::{format_duration, format_size};
use serde::Serialize;

use super::Direction;
use super::chart::Chart;
use crate::failure::Failure;
use crate::files::wire::count;
use crate::output::{escaped, print};
use crate::service::seen::{Seen, SeenPipeline};
use crate::units::{bandwidth, counted, float, frequency, three_digits};

/// A direction that carried less than this share of what the busiest one of its gateway did is not
/// told to people: only credit went there.
const IDLE_SHARE: f64 = 1e-3;

/// One result: what was measured, between whom, what the gateways on the way did meanwhile, and
/// why it may not be trusted.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) bench: &'static str,
    pub(super) from: String,
    pub(super) to: String,
    /// For how long it was to be measured.
    pub(super) time_s: f64,
    /// Whether people are told, too.
    #[serde(skip)]
    pub(super) says_time: bool,
    #[serde(flatten)]
    pub(super) figures: Figures,
    pub(super) gateways: Vec<Seen>,
    pub(super) doubts: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Figures {
    Latency(Latency),
    OneWay(OneWay),
    Throughput(Throughput),
    Many(Many),
}

/// Times, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Percentiles {
    pub(super) min_us: f64,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
}

/// Half round trips.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) message_bytes: usize,
    pub(super) round_trips: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load: Option<LoadFigures>,
    #[serde(flatten)]
    pub(super) times: Percentiles,
}

/// A load beside half round trips.
#[derive(Debug, Serialize)]
pub(super) struct LoadFigures {
    /// Where it goes.
    pub(super) to: String,
    pub(super) channel: String,
    pub(super) message_bytes: usize,
    /// What it reaches alone, how much of that it was to be, and what it reached beside the others.
    pub(super) alone_mb_per_s: f64,
    pub(super) percent: u32,
    pub(super) mb_per_s: f64,
}

/// One message at a time, in one direction.
#[derive(Debug, Serialize)]
pub(super) struct OneWay {
    pub(super) message_bytes: usize,
    pub(super) messages: u64,
    /// What the empty answer takes, which is left out.
    pub(super) answer_us: f64,
    /// Of a message that takes as long as half of them do.
    pub(super) mb_per_s: f64,
    #[serde(flatten)]
    pub(super) times: Percentiles,
}

/// What went through, message after message.
#[derive(Debug, Serialize)]
pub(super) struct Throughput {
    pub(super) message_bytes: usize,
    pub(super) direction: Direction,
    pub(super) messages: u64,
    pub(super) seconds: f64,
    pub(super) mb_per_s: f64,
    pub(super) messages_per_s: f64,
    pub(super) there_mb_per_s: f64,
    pub(super) back_mb_per_s: f64,
}

/// What went through in many flows at once.
#[derive(Debug, Serialize)]
pub(super) struct Many {
    pub(super) message_bytes: usize,
    pub(super) messages: u64,
    pub(super) seconds: f64,
    pub(super) mb_per_s: f64,
    pub(super) messages_per_s: f64,
    /// What the flow that had least got, over what all would have got had they had the same.
    pub(super) least_of_fair_share: f64,
    pub(super) flows: Vec<Flow>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub(super) struct Flow {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) mb_per_s: f64,
}

impl LoadFigures {
    fn text(&self) -> String {
        format!(
            " beside a load of {} % of {} ({}, {} messages to {} over {})",
            self.percent,
            bandwidth(self.alone_mb_per_s),
            bandwidth(self.mb_per_s),
            format_size(count(self.message_bytes)),
            self.to,
            self.channel,
        )
    }
}

impl Percentiles {
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        let us = |nanos: u64| float(nanos) / 1000.0;
        let at = |part: f64| us(histogram.value_at_quantile(part));
        Self {
            min_us: us(histogram.min()),
            mean_us: histogram.mean() / 1000.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(histogram.max()),
        }
    }

    fn text(&self) -> String {
        format!(
            "min {:.1} us, p50 {:.1}, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}",
            self.min_us, self.p50_us, self.p90_us, self.p99_us, self.p999_us, self.max_us
        )
    }
}

impl Finding {
    /// Prints it, as one line of JSON or as lines for people.
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        let text = if json {
            serde_json::to_string(self)?
        } else {
            self.text()
        };
        print(&format!("{text}\n"))
    }

    fn text(&self) -> String {
        let size = format_size(count(self.figures.message_bytes()));
        let arrow = match &self.figures {
            Figures::Throughput(one) => one.direction.arrow(),
            _ => "->",
        };
        let mut text = format!("{} {arrow} {}  {size:>8}  ", self.from, self.to);
        if self.says_time {
            let time = Duration::from_secs_f64(self.time_s);
            text += &format!("in {}: ", format_duration(time));
        }
        text += &self.figures.text();
        for seen in &self.gateways {
            let busiest = seen.pipelines.iter().map(|way| way.measured_mb_per_s);
            let least = busiest.fold(0.0, f64::max) * IDLE_SHARE;
            for way in &seen.pipelines {
                if way.measured_mb_per_s >= least {
                    text += &format!("\n  {}: {}", seen.gateway, way.text());
                }
            }
        }
        text
    }
}

impl SeenPipeline {
    fn text(&self) -> String {
        let parked = self.parked_ahead_s + self.parked_memory_s;
        let mut text = format!(
            "{} -> {}: packets of {}: receive {:.1} us, send {:.1}, switch {:.1}: predicted {}, \
             measured {} there; limited by {}; hop p50 {:.1} us, p99 {:.1}; {:.2} copies a frame",
            self.from,
            self.to,
            crate::units::size(count(self.packet_bytes)),
            self.receive_us,
            self.send_us,
            self.switch_us,
            bandwidth(self.predicted_mb_per_s),
            bandwidth(self.measured_mb_per_s),
            escaped(&self.limit),
            self.hop_p50_us,
            self.hop_p99_us,
            self.copies_per_frame,
        );
        // One of before that was counted does not say.
        if self.frames_per_receive > 0.0 {
            text += &format!(", {:.1} frames a receive", self.frames_per_receive);
        }
        if parked > 0.0 {
            let ms = three_digits(parked * 1e3);
            text += &format!(", {ms} ms parked for credit");
        }
        text
    }
}

/// The part of an answer that a message has to take for its time to be more than noise.
const LEAST_OF_ANSWER: f64 = 0.1;

impl OneWay {
    /// Why its time may not be trusted: it is a difference, of which hardly anything is left.
    fn doubt(&self) -> Option<String> {
        (self.times.p50_us < LEAST_OF_ANSWER * self.answer_us).then(|| {
            format!(
                "a message and its empty answer took hardly longer than such an answer by itself ({:.1} us): \
                 what is left is noise; measure pingpong instead",
                self.answer_us
            )
        })
    }
}

impl Figures {
    /// Why what was found may not be trusted, where that shows in it.
    pub(super) fn doubt(&self) -> Option<String> {
        match self {
            Self::OneWay(found) => found.doubt(),
            Self::Latency(_) | Self::Throughput(_) | Self::Many(_) => None,
        }
    }

    /// Adds what was found to a chart: messages per second where these count, otherwise what
    /// each kind is about. What was measured `beside` the size is part of each curve's name.
    pub(super) fn chart(&self, by_messages: bool, beside: &str, chart: &mut Chart) {
        let bytes = self.message_bytes();
        let load = match self {
            Self::Latency(one) => one.load.as_ref(),
            _ => None,
        };
        let size = match load {
            Some(_) => format!(", {}", format_size(count(bytes))),
            None => String::new(),
        };
        let percent = load.map(|load| usize::try_from(load.percent).unwrap_or(usize::MAX));
        let at = percent.unwrap_or(bytes);
        let mut add = |name: &str, value| chart.add(&format!("{name}{size}{beside}"), at, value);
        match self {
            Self::Latency(one) => {
                for (name, value) in [
                    ("p50", one.times.p50_us),
                    ("p90", one.times.p90_us),
                    ("p99", one.times.p99_us),
                ] {
                    add(name, value);
                }
            }
            Self::OneWay(one) => add("one message at a time", one.mb_per_s),
            Self::Throughput(one) if by_messages => {
                add("messages", one.messages_per_s);
            }
            Self::Throughput(one) => {
                if one.direction == Direction::Both {
                    add("there", one.there_mb_per_s);
                    add("back", one.back_mb_per_s);
                }
                add("in all", one.mb_per_s);
            }
            Self::Many(one) => add("all flows", one.mb_per_s),
        }
    }

    pub(super) const fn message_bytes(&self) -> usize {
        match self {
            Self::Latency(one) => one.message_bytes,
            Self::OneWay(one) => one.message_bytes,
            Self::Throughput(one) => one.message_bytes,
            Self::Many(one) => one.message_bytes,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Latency(one) => {
                let beside = one
                    .load
                    .as_ref()
                    .map_or_else(String::new, LoadFigures::text);
                format!(
                    "half round trip{beside}: {} ({})",
                    one.times.text(),
                    counted(one.round_trips, "round trip"),
                )
            }
            Self::OneWay(one) => format!(
                "one way: {}, {} ({})",
                one.times.text(),
                bandwidth(one.mb_per_s),
                counted(one.messages, "message"),
            ),
            Self::Throughput(one) => {
                let ways = match one.direction {
                    Direction::Both => format!(
                        " ({} there, {} back)",
                        bandwidth(one.there_mb_per_s),
                        bandwidth(one.back_mb_per_s)
                    ),
                    Direction::There | Direction::Back => String::new(),
                };
                format!(
                    "{}{ways}, {} messages/s ({}, all as sent)",
                    bandwidth(one.mb_per_s),
                    frequency(one.messages_per_s),
                    counted(one.messages, "message"),
                )
            }
            Self::Many(one) => format!(
                "{}, {} messages/s in {}, the least of them {:.0} % of its fair share",
                bandwidth(one.mb_per_s),
                frequency(one.messages_per_s),
                counted(one.flows.len(), "flow"),
                100.0 * one.least_of_fair_share,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_which_nothing_is_left_is_doubted() {
        let found = |p50_us| {
            let times = Percentiles {
                min_us: 0.0,
                mean_us: p50_us,
                p50_us,
                p90_us: p50_us,
                p99_us: p50_us,
                p999_us: p50_us,
                max_us: p50_us,
            };
            Figures::OneWay(OneWay {
                message_bytes: 8,
                messages: 100,
                answer_us: 34.1,
                mb_per_s: 1.0,
                times,
            })
        };
        let doubt = found(0.0).doubt().unwrap();
        assert!(doubt.contains("(34.1 us)"), "{doubt}");
        assert_eq!(found(30.0).doubt(), None);
    }
}
