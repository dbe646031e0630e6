//! What a pipeline can be expected to do.
//!
//! A gateway receives a packet, switches to it, and sends it. While one packet is sent the next
//! is received, so that in the steady state a packet passes in every *period* (paper 003, 3.2.2
//! and 3.3.1):
//!
//! ```text
//!   receive   ├─ 1 ─┤s├─ 2 ─┤ s├─ 3 ─┤ s         s: the switch
//!   send             s├── 1 ──┤s├── 2 ──┤        period = the slower of the two + s
//! ```
//!
//! [`Pipeline`] says what follows from the cost of the stages; [`Observation`] takes the costs
//! from the counters of a gateway that has worked for a while, and says which stage limits.
//!
//! ```
//! use std::time::Duration;
//! use madgate_gateway::model::{Cost, Pipeline};
//!
//! // Each stage needs 10 us for a packet and 1 ns for each byte; a switch takes 2 us.
//! let stage = Cost::new(Duration::from_micros(10), 1e9);
//! let pipeline = Pipeline::new(stage, stage, Duration::from_micros(2));
//! assert_eq!(pipeline.period(8000), Duration::from_micros(20));
//! assert_eq!(pipeline.bandwidth(8000), 8000.0 / 20e-6);
//! ```

mod observation;

use std::fmt;
use std::time::Duration;

pub use observation::{Limit, Observation};

/// What it costs to receive, or to send, one packet: something for each, and something for each
/// of its bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    fixed_s: f64,
    s_per_byte: f64,
}

/// A stage of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Packets are received.
    Receiving,
    /// Packets are sent.
    Sending,
    /// Packets go from the one to the other.
    Switching,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Receiving => "receiving",
            Self::Sending => "sending",
            Self::Switching => "switching",
        })
    }
}

/// A gateway that receives packets on one side and sends them on the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pipeline {
    /// What it costs to receive a packet.
    pub receive: Cost,
    /// What it costs to send one.
    pub send: Cost,
    /// What it costs to go from one buffer to the next.
    pub switch: Duration,
    /// The part of what could be done at the same time that is: 1 where two threads take turns
    /// with buffers, 0 where one thread does everything.
    pub overlap: f64,
}

impl Cost {
    /// `fixed` for each packet, and its bytes at this bandwidth, in bytes per second.
    #[must_use]
    pub fn new(fixed: Duration, bandwidth: f64) -> Self {
        Self {
            fixed_s: fixed.as_secs_f64(),
            s_per_byte: 1.0 / bandwidth,
        }
    }

    /// The line that lies closest to what packets of some sizes took (least squares), never
    /// negative; `None` of nothing. One size alone says nothing about what is fixed.
    #[must_use]
    pub fn fit(measured: &[(usize, Duration)]) -> Option<Self> {
        let points: Vec<(f64, f64)> = measured
            .iter()
            .map(|(bytes, time)| (float(*bytes), time.as_secs_f64()))
            .collect();
        if points.is_empty() {
            return None;
        }
        let count = float(points.len());
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let product: f64 = points
            .iter()
            .map(|(x, y)| (x - mean_x) * (y - mean_y))
            .sum();
        let slope = product / spread;
        let fixed = mean_y - slope * mean_x;
        // Without a spread, or with one that noise has turned over, the line starts at nothing.
        let (fixed_s, s_per_byte) = match slope.is_finite() && slope >= 0.0 && fixed >= 0.0 {
            true => (fixed, slope),
            false if mean_x > 0.0 => (0.0, mean_y / mean_x),
            false => (mean_y, 0.0),
        };
        Some(Self {
            fixed_s,
            s_per_byte,
        })
    }

    /// What a packet of so many bytes takes.
    #[must_use]
    pub fn of(&self, packet_bytes: usize) -> Duration {
        seconds(self.fixed_s + self.s_per_byte * float(packet_bytes))
    }
}

impl Pipeline {
    /// One whose stages overlap, as those of a double-buffered one do.
    #[must_use]
    pub const fn new(receive: Cost, send: Cost, switch: Duration) -> Self {
        Self {
            receive,
            send,
            switch,
            overlap: 1.0,
        }
    }

    /// How much later than one packet the next one is through.
    #[must_use]
    pub fn period(&self, packet_bytes: usize) -> Duration {
        let (receive, send) = (self.receive.of(packet_bytes), self.send.of(packet_bytes));
        let at_once = receive.min(send).mul_f64(self.overlap.clamp(0.0, 1.0));
        receive + send - at_once + self.switch
    }

    /// Bytes per second, in packets of this size.
    #[must_use]
    pub fn bandwidth(&self, packet_bytes: usize) -> f64 {
        per_second(packet_bytes, self.period(packet_bytes))
    }

    /// The stage that takes longest, and so decides.
    #[must_use]
    pub fn slowest(&self, packet_bytes: usize) -> Stage {
        let (receive, send) = (self.receive.of(packet_bytes), self.send.of(packet_bytes));
        if self.switch > receive.max(send) {
            Stage::Switching
        } else if receive > send {
            Stage::Receiving
        } else {
            Stage::Sending
        }
    }

    /// How long a message takes through the gateway that is alone there and cut into packets:
    /// the first has to be received before anything is sent, and the last to be sent after all.
    #[must_use]
    pub fn message_time(&self, message_bytes: usize, packet_bytes: usize) -> Duration {
        let packet_bytes = packet_bytes.clamp(1, message_bytes.max(1));
        let packets = message_bytes.div_ceil(packet_bytes).max(1);
        let last = message_bytes - (packets - 1) * packet_bytes;
        let first = if packets == 1 { last } else { packet_bytes };
        let between = self.period(packet_bytes).mul_f64(float(packets - 1));
        self.receive.of(first) + self.switch + between + self.send.of(last)
    }

    /// Bytes per second of a message like that.
    #[must_use]
    pub fn message_bandwidth(&self, message_bytes: usize, packet_bytes: usize) -> f64 {
        per_second(
            message_bytes,
            self.message_time(message_bytes, packet_bytes),
        )
    }
}

fn per_second(bytes: usize, time: Duration) -> f64 {
    float(bytes) / time.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// What is too long for a duration is the longest there is.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "what is estimated has far fewer digits"
)]
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's units.
    const KB: usize = 1 << 10;
    const MB: f64 = 1_048_576.0;
    const SWITCH: Duration = Duration::from_micros(50);

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// A stage that takes so long for packets of this size.
    fn taking(time: Duration, packet_bytes: usize) -> Cost {
        Cost::fit(&[(packet_bytes, time)]).unwrap()
    }

    fn is_near(value: f64, expected: f64, part: f64) -> bool {
        (value - expected).abs() <= expected * part
    }

    /// Section 3.3.1: 58 MB/s over SCI and 47 over Myrinet, in packets of 8 KB, make a period of
    /// 166 us at least; with 50 us for each switch it is 215 us, and 36.5 MB/s are seen.
    #[test]
    fn from_sci_to_myrinet_in_small_packets() {
        let (sci, myrinet) = (
            Cost::new(Duration::ZERO, 58.0 * MB),
            Cost::new(Duration::ZERO, 47.0 * MB),
        );
        let ideal = Pipeline::new(sci, myrinet, Duration::ZERO);
        assert_eq!(ideal.period(8 * KB).as_micros(), 166);
        let real = Pipeline::new(sci, myrinet, SWITCH);
        assert_eq!(real.period(8 * KB).as_micros(), 216);
        assert!(is_near(real.bandwidth(8 * KB), 36.5 * MB, 0.02));
        assert_eq!(real.slowest(8 * KB), Stage::Sending);
        // One thread alone would have to do all of it in turn.
        let serial = Pipeline {
            overlap: 0.0,
            ..real
        };
        assert_eq!(serial.period(8 * KB).as_micros(), 166 + 134 + 50);
    }

    /// Section 3.4.1: sending 16 KB over SCI takes 410 us while Myrinet's card uses the bus, and
    /// 460 with the switch, where 250 were expected; no more than 36.5 MB/s are ever seen.
    #[test]
    fn from_myrinet_to_sci_where_the_bus_is_shared() {
        let receive = taking(micros(250), 16 * KB);
        let send = taking(micros(410), 16 * KB);
        let pipeline = Pipeline::new(receive, send, SWITCH);
        assert_eq!(pipeline.period(16 * KB), micros(460));
        assert_eq!(pipeline.slowest(16 * KB), Stage::Sending);
        let bandwidth = pipeline.bandwidth(16 * KB);
        assert!(bandwidth < 36.5 * MB && is_near(bandwidth, 34.0 * MB, 0.01));
        let undisturbed = Pipeline::new(receive, receive, SWITCH);
        assert_eq!(undisturbed.period(16 * KB), micros(300));
    }

    #[test]
    fn a_message_pays_for_its_first_packet_and_its_last() {
        let stage = Cost::new(micros(10), 1e9);
        let pipeline = Pipeline::new(stage, stage, micros(2));
        // One packet: there is nothing to overlap.
        assert_eq!(pipeline.message_time(8000, 8000), micros(18 + 2 + 18));
        assert_eq!(
            pipeline.message_time(500, 8000),
            pipeline.message_time(500, 500)
        );
        // Three, the last one shorter.
        let time = micros(18 + 2 + 20 + 20 + 12);
        assert_eq!(pipeline.message_time(18_000, 8000), time);
        assert_eq!(pipeline.message_time(0, 8000), micros(22));
        assert_eq!(pipeline.message_time(0, 0), micros(22));
        // Long ones come close to what the period allows, and never beyond.
        let long = pipeline.message_bandwidth(1 << 30, 8000);
        assert!(long < pipeline.bandwidth(8000) && is_near(long, 4e8, 0.001));
    }

    #[test]
    fn costs_are_fitted_to_what_was_measured() {
        let line = Cost::new(micros(7), 5e8);
        let measured = [4 * KB, 8 * KB, 64 * KB].map(|bytes| (bytes, line.of(bytes)));
        let fitted = Cost::fit(&measured).unwrap();
        assert!(is_near(
            fitted.of(128 * KB).as_secs_f64(),
            line.of(128 * KB).as_secs_f64(),
            1e-4
        ));
        assert!(is_near(fitted.of(0).as_secs_f64(), 7e-6, 0.01));
        assert_eq!(Cost::fit(&[]), None);
        // Neither a time that falls with the size nor one below nothing is believed.
        let falling = Cost::fit(&[(1000, micros(20)), (3000, micros(10))]).unwrap();
        assert_eq!(
            (falling.of(0), falling.of(2000)),
            (Duration::ZERO, micros(15))
        );
        let steep = Cost::fit(&[(1000, micros(1)), (2000, micros(9))]).unwrap();
        assert_eq!(steep.of(0), Duration::ZERO);
        let constant = Cost::fit(&[(0, micros(3)), (0, micros(5))]).unwrap();
        assert_eq!(constant.of(1 << 20), micros(4));
    }

    #[test]
    fn a_switch_can_be_the_slowest() {
        let stage = Cost::new(Duration::ZERO, 1e9);
        let pipeline = Pipeline::new(stage, stage, SWITCH);
        assert_eq!(pipeline.slowest(8), Stage::Switching);
        assert_eq!(pipeline.slowest(1 << 20), Stage::Sending);
        assert_eq!(Stage::Switching.to_string(), "switching");
    }
}
