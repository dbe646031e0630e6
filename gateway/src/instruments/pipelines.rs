//! What passes from each network to each other, and how long it stays.

use std::time::Duration;

use hdrhistogram::Histogram;
use madgate_gtm::Time;

use crate::counters::subtract;

/// The shortest stay that is told apart from none.
const SHORTEST_NS: u64 = 64;
/// The longest that is told apart from a longer one.
const LONGEST_NS: u64 = 60_000_000_000;
/// Digits of a stay that are kept: it is known to a hundredth.
const DIGITS: u8 = 2;

/// Where and when a frame came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Place of the network in the engine.
    pub(crate) network: usize,
    pub(crate) at: Time,
}

/// The way from one network to another through this gateway.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct PipelineCounters {
    /// The network that frames come from.
    pub from: String,
    /// The network that they leave by.
    pub to: String,
    /// Data frames that left.
    pub frames: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Pieces that they left in: a large frame, or a run of small ones of one flow.
    pub pieces: u64,
    /// How long they stayed.
    pub hop: HopLatency,
}

impl PipelineCounters {
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut period = self.clone();
        period.hop = self.hop.since(&before.hop);
        subtract([
            (&mut period.frames, before.frames),
            (&mut period.bytes, before.bytes),
            (&mut period.pieces, before.pieces),
        ]);
        period
    }
}

/// How long frames have stayed in this gateway: from the end of the call that received them
/// to the end of the one that sent them.
#[derive(Debug, Clone, PartialEq)]
pub struct HopLatency(Option<Histogram<u64>>);

impl HopLatency {
    const fn none() -> Self {
        Self(None)
    }

    pub(crate) fn record(&mut self, stay: Duration, frames: u64) {
        if self.0.is_none() {
            // Its bounds are constants that it accepts.
            self.0 = Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS).ok();
        }
        if let Some(histogram) = &mut self.0 {
            let nanos = u64::try_from(stay.as_nanos()).unwrap_or(u64::MAX);
            histogram.saturating_record_n(nanos, frames);
        }
    }

    /// Frames that were noted.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// The stay that this part of the frames (0.5: half of them) did not exceed; nothing where
    /// there were none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Duration {
        let nanos = self.0.as_ref().map(|stays| stays.value_at_quantile(part));
        Duration::from_nanos(nanos.unwrap_or(0))
    }

    /// The longest stay.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.0.as_ref().map_or(0, Histogram::max))
    }

    /// Those that were noted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        if let (Some(now), Some(before)) = (&mut since.0, &before.0) {
            // Of the same gateway it has no more anywhere, and the same bounds.
            let _ = now.subtract(before);
        }
        since
    }
}

impl Default for HopLatency {
    fn default() -> Self {
        Self::none()
    }
}

/// All pipelines of a gateway. What nothing passes takes no memory.
#[derive(Debug)]
pub(crate) struct Pipelines {
    networks: usize,
    /// By network that frames come from, then by network that they leave by.
    by_pair: Vec<Pipeline>,
}

#[derive(Debug, Clone, Default)]
struct Pipeline {
    frames: u64,
    bytes: u64,
    pieces: u64,
    hop: HopLatency,
}

impl Pipelines {
    pub(crate) fn new(networks: usize) -> Self {
        Self {
            networks,
            by_pair: vec![Pipeline::default(); networks * networks],
        }
    }

    /// Frames that came by `arrival` have left by network `to`.
    pub(crate) fn note(
        &mut self,
        arrival: Arrival,
        to: usize,
        left: Time,
        frames: u32,
        bytes: usize,
    ) {
        let Some(pipeline) = self.by_pair.get_mut(arrival.network * self.networks + to) else {
            return;
        };
        pipeline.frames += u64::from(frames);
        pipeline.bytes += u64::try_from(bytes).unwrap_or(0);
        pipeline.pieces += 1;
        pipeline.hop.record(left.since(arrival.at), frames.into());
    }

    /// Data frames that have left by network `to`.
    pub(crate) fn frames_to(&self, to: usize) -> u64 {
        let of_network = self.by_pair.iter().skip(to).step_by(self.networks.max(1));
        of_network.map(|pipeline| pipeline.frames).sum()
    }

    /// Those that something has passed through, networks having these names.
    pub(crate) fn counters(&self, names: &[&str]) -> Vec<PipelineCounters> {
        let mut counters = Vec::new();
        for (from, row) in names.iter().zip(self.by_pair.chunks(self.networks.max(1))) {
            for (to, pipeline) in names.iter().zip(row) {
                if pipeline.frames > 0 {
                    counters.push(PipelineCounters {
                        from: (*from).to_owned(),
                        to: (*to).to_owned(),
                        frames: pipeline.frames,
                        bytes: pipeline.bytes,
                        pieces: pipeline.pieces,
                        hop: pipeline.hop.clone(),
                    });
                }
            }
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_are_kept_by_pair_of_networks() {
        let mut pipelines = Pipelines::new(3);
        let arrival = Arrival {
            network: 1,
            at: Time(1_000_000),
        };
        pipelines.note(arrival, 2, Time(1_010_000), 9, 900);
        pipelines.note(arrival, 2, Time(1_100_000), 1, 200);
        // Clocks of threads may differ by what a look takes.
        pipelines.note(arrival, 0, Time(999_999), 1, 50);
        // Of no network of this gateway.
        pipelines.note(
            Arrival {
                network: 3,
                ..arrival
            },
            0,
            Time(0),
            1,
            1,
        );

        let counters = pipelines.counters(&["a", "b", "c"]);
        let ways: Vec<_> = counters.iter().map(|one| (&*one.from, &*one.to)).collect();
        assert_eq!(ways, [("b", "a"), ("b", "c")]);
        let far = &counters[1];
        assert_eq!((far.frames, far.bytes, far.pieces), (10, 1100, 2));
        assert_eq!(far.hop.frames(), 10);
        let near = |stay: Duration, micros: u64| stay.as_micros().abs_diff(micros.into()) <= 1;
        assert!(near(far.hop.quantile(0.5), 10), "{far:?}");
        assert!(near(far.hop.longest(), 100), "{far:?}");
        assert_eq!((pipelines.frames_to(2), pipelines.frames_to(1)), (10, 0));

        let before = counters[1].hop.clone();
        pipelines.note(arrival, 2, Time(1_001_000), 5, 5);
        let since = pipelines.counters(&["a", "b", "c"])[1].hop.since(&before);
        assert_eq!(since.frames(), 5);
        assert!(near(since.quantile(1.0), 1), "{since:?}");
        assert_eq!(HopLatency::default().quantile(0.5), Duration::ZERO);
    }
}
