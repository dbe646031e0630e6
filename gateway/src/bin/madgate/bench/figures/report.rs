//! The figures, with what the model makes of them.

use std::fmt::Write as _;
use std::time::Duration;

use madgate_gateway::model::{Cost, Pipeline, Stage};
use madgate_vchannel::cluster::format_size;
use serde::Serialize;
use serde_json::Value;

use super::super::chart::Chart;
use crate::failure::Failure;
use crate::files::wire::count;
use crate::units::{bandwidth, float, mb_per_s};

/// Which way messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Direction {
    TcpToShm,
    ShmToTcp,
}

impl Direction {
    pub(super) const fn ends(self) -> (&'static str, &'static str) {
        match self {
            Self::TcpToShm => ("t", "s"),
            Self::ShmToTcp => ("s", "t"),
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::TcpToShm => "Figure 6: from TCP to shared memory",
            Self::ShmToTcp => "Figure 7: from shared memory to TCP",
        }
    }
}

/// What packets take over one network, by size.
#[derive(Debug, Clone)]
pub(super) struct Direct {
    /// Of one that is alone.
    alone: Vec<(usize, Duration)>,
    /// In a stream: how much later than one the next one is through.
    streamed: Vec<(usize, Duration)>,
}

impl Direct {
    pub(super) fn read(alone: &[Value], streamed: &[Value]) -> Result<Self, Failure> {
        let alone = alone
            .iter()
            .map(|one| Some((size_of(one)?, micros(one["p50_us"].as_f64()?))));
        let streamed = streamed
            .iter()
            .map(|one| Some((size_of(one)?, micros(1e6 / one["messages_per_s"].as_f64()?))));
        let (alone, streamed): (Option<_>, Option<_>) = (alone.collect(), streamed.collect());
        match (alone, streamed) {
            (Some(alone), Some(streamed)) => Ok(Self { alone, streamed }),
            _ => Err(unreadable()),
        }
    }
}

/// What a packet of this size costs, of those that were measured.
fn cost(measured: &[(usize, Duration)], packet_bytes: usize) -> Result<Cost, Failure> {
    let of_size = measured.iter().filter(|(bytes, _)| *bytes == packet_bytes);
    Cost::fit(&of_size.copied().collect::<Vec<_>>()).ok_or_else(unreadable)
}

/// One message size in one packet size.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Point {
    pub(super) direction: Direction,
    pub(super) packet_bytes: usize,
    pub(super) message_bytes: usize,
    pub(super) one_way_us: f64,
    pub(super) mb_per_s: f64,
    /// What the model expects of a message that is alone there.
    pub(super) predicted_mb_per_s: f64,
    /// What the gateway says that the switch to a packet costs.
    pub(super) switch_us: f64,
    /// What the gateway says that frames stayed there.
    pub(super) hop_p50_us: f64,
    /// What takes longest for a packet: one of the two networks, or the switch between them.
    pub(super) limited_by: &'static str,
    /// Why it may not be trusted.
    pub(super) doubts: Vec<String>,
}

impl Point {
    /// Reads one line of `bench`, and predicts the same.
    pub(super) fn read(
        packet_bytes: usize,
        found: &Value,
        figure: &Figure,
    ) -> Result<Self, Failure> {
        let number = |value: &Value| value.as_f64().ok_or_else(unreadable);
        let message_bytes = size_of(found).ok_or_else(unreadable)?;
        let seen = &found["gateways"][0]["pipelines"];
        let (network, _) = figure.networks();
        let way = seen.as_array().into_iter().flatten();
        let way = way.into_iter().find(|way| way["from"] == network);
        let way = way.ok_or_else(|| unseen(found))?;
        // The gateway counts in what one receiving call brought.
        let received = number(&way["packet_bytes"])?.max(1.0);
        let packet = float(count(packet_bytes.min(message_bytes)));
        let switch_us = number(&way["switch_us"])? * packet / received;
        let switch = micros(switch_us);
        let predicted = figure.predict(message_bytes, packet_bytes, switch)?;
        let doubts = found["doubts"].as_array().into_iter().flatten();
        let doubts = doubts.filter_map(Value::as_str).map(str::to_owned);
        Ok(Self {
            direction: figure.direction,
            packet_bytes,
            message_bytes,
            one_way_us: number(&found["p50_us"])?,
            mb_per_s: number(&found["mb_per_s"])?,
            predicted_mb_per_s: mb_per_s(count(message_bytes), predicted),
            switch_us,
            hop_p50_us: number(&way["hop_p50_us"])?,
            limited_by: figure.limit(packet_bytes, switch)?,
            doubts: doubts.collect(),
        })
    }
}

/// All that was measured in one direction.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) direction: Direction,
    near: Direct,
    far: Direct,
    pub(super) points: Vec<Point>,
}

impl Figure {
    pub(super) const fn new(direction: Direction, near: Direct, far: Direct) -> Self {
        Self {
            direction,
            near,
            far,
            points: Vec::new(),
        }
    }

    const fn networks(&self) -> (&'static str, &'static str) {
        match self.direction {
            Direction::TcpToShm => ("tcp", "shm"),
            Direction::ShmToTcp => ("shm", "tcp"),
        }
    }

    /// How long a message takes: its first packet as one that is alone, and each one after that
    /// a period, as in a stream.
    fn predict(
        &self,
        message_bytes: usize,
        packet_bytes: usize,
        switch: Duration,
    ) -> Result<Duration, Failure> {
        // The first packet may be shorter than those that were measured.
        let line = |direct: &Direct| Cost::fit(&direct.alone).ok_or_else(unreadable);
        let alone = Pipeline::new(line(&self.near)?, line(&self.far)?, switch);
        let first_bytes = packet_bytes.min(message_bytes);
        let first = alone.message_time(first_bytes, first_bytes);
        let period = self.steady(packet_bytes, switch)?.period(packet_bytes);
        let after = float(count(message_bytes)) / float(count(packet_bytes)) - 1.0;
        Ok(first + period.mul_f64(after.max(0.0)))
    }

    /// The pipeline when it is full.
    fn steady(&self, packet_bytes: usize, switch: Duration) -> Result<Pipeline, Failure> {
        let near = cost(&self.near.streamed, packet_bytes)?;
        let far = cost(&self.far.streamed, packet_bytes)?;
        Ok(Pipeline::new(near, far, switch))
    }

    fn limit(&self, packet_bytes: usize, switch: Duration) -> Result<&'static str, Failure> {
        let (near, far) = self.networks();
        let steady = self.steady(packet_bytes, switch)?;
        Ok(match steady.slowest(packet_bytes) {
            Stage::Receiving => near,
            Stage::Sending => far,
            Stage::Switching => "the switch",
        })
    }

    /// How many of the figures may not be trusted, and why the first may not.
    pub(super) fn doubt(&self) -> Option<String> {
        let doubted = self.points.iter().filter(|one| !one.doubts.is_empty());
        let first = doubted.clone().next()?.doubts.first()?;
        let (doubted, all) = (doubted.count(), self.points.len());
        Some(format!(
            "{doubted} of {all} points of {}: {first}",
            self.direction.title()
        ))
    }

    /// One curve per packet size.
    pub(super) fn chart(&self) -> Chart {
        let mut chart = Chart {
            title: self.direction.title().to_owned(),
            measure: "MB/s".into(),
            ..Chart::default()
        };
        for point in &self.points {
            let name = format!("packets of {}", format_size(count(point.packet_bytes)));
            chart.add(&name, point.message_bytes, point.mb_per_s);
        }
        chart
    }

    /// The same as text: one line per packet size, measured over predicted.
    pub(super) fn table(&self) -> String {
        let mut packets: Vec<usize> = self.points.iter().map(|one| one.packet_bytes).collect();
        packets.dedup();
        let mut text = format!(
            "{}: measured / predicted, one message at a time\n\n{:>8} {:>22} {:>12}",
            self.direction.title(),
            "packets",
            "in, out, switch",
            "the first"
        );
        let of = |packet: usize| {
            self.points
                .iter()
                .filter(move |one| one.packet_bytes == packet)
        };
        for point in packets.first().into_iter().flat_map(|packet| of(*packet)) {
            let size = format_size(count(point.message_bytes));
            let _ = write!(text, " {size:>21}");
        }
        text.push('\n');
        for packet in packets {
            let last = of(packet).next_back();
            let switch = last.map_or(0.0, |point| point.switch_us);
            let us = |direct: &Direct| {
                let period = cost(&direct.streamed, packet).map(|cost| cost.of(packet));
                period.unwrap_or_default().as_secs_f64() * 1e6
            };
            let costs = format!("{:.1} {:.1} {switch:.1} us", us(&self.near), us(&self.far));
            // What the prediction begins with: one packet all the way, as it was measured alone.
            let first = self.predict(packet, packet, micros(switch));
            let first = first.map_or_else(
                |_| "-".to_owned(),
                |it| format!("{:.1} us", it.as_secs_f64() * 1e6),
            );
            let size = format_size(count(packet));
            let _ = write!(text, "{size:>8} {costs:>22} {first:>12}");
            for point in of(packet) {
                let measured = bandwidth(point.mb_per_s);
                let cell = format!("{measured} / {}", bandwidth(point.predicted_mb_per_s));
                let _ = write!(text, " {cell:>21}");
            }
            if let Some(point) = last {
                let _ = write!(text, "  limited by {}", point.limited_by);
            }
            text.push('\n');
        }
        text
    }
}

fn size_of(found: &Value) -> Option<usize> {
    usize::try_from(found["message_bytes"].as_u64()?).ok()
}

fn micros(micros: f64) -> Duration {
    Duration::try_from_secs_f64(micros / 1e6).unwrap_or_default()
}

/// A result without what the gateway saw.
fn unseen(found: &Value) -> Failure {
    let doubts = found["doubts"].as_array().into_iter().flatten();
    let doubts: Vec<_> = doubts.filter_map(Value::as_str).collect();
    let why = match &doubts[..] {
        [] => "it has not answered in time".to_owned(),
        doubts => doubts.join("; "),
    };
    Failure::new(format!(
        "the gateway has not said what it did: {why}. Try again when this machine has less to do"
    ))
}

fn unreadable() -> Failure {
    Failure::new("a result of the bench lacks something; is it of this version?")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_model_predicts_stands_beside_what_was_measured() {
        let direct = |alone_us: f64, per_s: f64| {
            let alone = json!({ "message_bytes": 8192, "p50_us": alone_us });
            let streamed = json!({ "message_bytes": 8192, "messages_per_s": per_s });
            Direct::read(&[alone], &[streamed]).unwrap()
        };
        let (near, far) = (direct(100.0, 20_000.0), direct(150.0, 10_000.0));
        let mut figure = Figure::new(Direction::TcpToShm, near, far);
        let way = json!({
            "from": "tcp",
            "to": "shm",
            "packet_bytes": 4096,
            "switch_us": 25.0,
            "hop_p50_us": 9.0,
        });
        let found = json!({
            "message_bytes": 8192 * 5,
            "p50_us": 1200.0,
            "mb_per_s": 34.0,
            "gateways": [{ "pipelines": [way] }],
            "doubts": ["a storm"],
        });
        let point = Point::read(8192, &found, &figure).unwrap();
        // The first one through both, and four periods of the slower one, with their switches.
        let expected = 8192.0 * 5.0 / (100.0 + 50.0 + 150.0 + 4.0 * 150.0);
        assert!((point.predicted_mb_per_s - expected).abs() < 0.01);
        assert_eq!(point.limited_by, "shm");
        let dear = figure.limit(8192, Duration::from_micros(101)).unwrap();
        assert_eq!(dear, "the switch");
        figure.points.push(point);
        let table = figure.table();
        for words in [
            "40KiB",
            "34.0 MB/s / 45.5 MB/s",
            "50.0 100.0 50.0 us",
            "300.0 us",
            "by shm",
        ] {
            assert!(table.contains(words), "{table}");
        }
        assert_eq!(figure.chart().curves.len(), 1);
        let doubt = figure.doubt().unwrap();
        assert!(
            doubt.starts_with("1 of 1") && doubt.ends_with("a storm"),
            "{doubt}"
        );
        // Packets that were not measured directly, and lines of another kind.
        assert!(Point::read(4096, &found, &figure).is_err());
        assert!(Point::read(8192, &json!({}), &figure).is_err());
    }
}
