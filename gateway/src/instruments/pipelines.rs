//! What passes from each network to each other, and how long it stays.

use std::time::Duration;

use hdrhistogram::Histogram;
use madgate_bmm::Copies;
use madgate_gtm::Time;
use madgate_gtm::transit::Way;

use super::StageTimes;
use crate::counters::{NetworkCounters, ratio, subtract};

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

/// Since when a frame, or a run of them, is here, and what has become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stay {
    pub(crate) arrival: Arrival,
    /// Into slots, and out of those that it came in.
    pub(crate) copied: Copies,
    /// Because it had to wait.
    pub(crate) parked: Copies,
    /// Whether its payload came through a pipe.
    pub(crate) is_spliced: bool,
}

impl Stay {
    /// It has just come.
    pub(crate) fn since(arrival: Arrival) -> Self {
        Self {
            arrival,
            copied: Copies::default(),
            parked: Copies::default(),
            is_spliced: false,
        }
    }

    /// It was copied because it had to wait, if any bytes were: out of a pipe, where it was in one.
    pub(crate) fn note_parked(&mut self, bytes: usize) {
        if bytes > 0 {
            self.is_spliced = false;
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            self.parked.add(Copies::one(bytes));
        }
    }
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
    /// Times that the payload of one of them was copied on its way,
    /// as in [`Counters::copies`](crate::Counters::copies).
    pub copies: u64,
    /// Bytes of those.
    pub copied_bytes: u64,
    /// Those whose payload has passed from socket to socket without being read.
    pub spliced_frames: u64,
    /// Times that one was copied because it had to wait. What is moved before a frame is whole
    /// belongs to no pipeline: only [`Counters::parked_copies`](crate::Counters::parked_copies)
    /// has it.
    pub parked_copies: u64,
    /// Bytes of those.
    pub parked_bytes: u64,
    /// Bytes that wait in flows' queues now.
    pub queued_bytes: u64,
    /// Flows whose sources have used up what they were promised, now.
    pub parked_flows: u32,
    /// As in [`Counters::parked_ahead`](crate::Counters::parked_ahead).
    pub parked_ahead: Duration,
    /// As in [`Counters::parked_memory`](crate::Counters::parked_memory).
    pub parked_memory: Duration,
    /// What was done for it: its part, by bytes, of what the two networks' threads have spent
    /// between two looks at the counters. Who receives from its network waits for all pipelines
    /// that begin there at once.
    pub times: StageTimes,
}

impl PipelineCounters {
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut period = self.clone();
        period.hop = self.hop.since(&before.hop);
        period.parked_ahead = self.parked_ahead.saturating_sub(before.parked_ahead);
        period.parked_memory = self.parked_memory.saturating_sub(before.parked_memory);
        period.times = self.times.since(&before.times);
        subtract([
            (&mut period.frames, before.frames),
            (&mut period.bytes, before.bytes),
            (&mut period.pieces, before.pieces),
            (&mut period.copies, before.copies),
            (&mut period.copied_bytes, before.copied_bytes),
            (&mut period.spliced_frames, before.spliced_frames),
            (&mut period.parked_copies, before.parked_copies),
            (&mut period.parked_bytes, before.parked_bytes),
        ]);
        period
    }

    /// Copies per data frame that left; frames that had to wait not counted.
    #[must_use]
    pub fn copies_per_frame(&self) -> f64 {
        ratio(self.copies, self.frames)
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
    /// What each network's threads had spent when it was last [divided](Self::divide).
    divided: Vec<Undivided>,
}

/// What is spent on one network, for all pipelines that it is part of.
#[derive(Debug, Clone, Copy, Default)]
struct Undivided {
    /// Where they begin.
    near: StageTimes,
    /// Where they end.
    far: StageTimes,
}

#[derive(Debug, Clone, Default)]
struct Pipeline {
    frames: u64,
    bytes: u64,
    pieces: u64,
    hop: HopLatency,
    copied: Copies,
    parked: Copies,
    spliced_frames: u64,
    times: StageTimes,
    /// Those of its bytes that times have been divided by.
    bytes_before: u64,
}

impl Pipeline {
    /// Bytes that times are to be divided by.
    const fn bytes_since(&self) -> u64 {
        self.bytes - self.bytes_before
    }

    /// What there is to say, but for between which networks it is.
    fn counters(&self, way: &Way) -> PipelineCounters {
        PipelineCounters {
            frames: self.frames,
            bytes: self.bytes,
            pieces: self.pieces,
            hop: self.hop.clone(),
            copies: self.copied.times,
            copied_bytes: self.copied.bytes,
            spliced_frames: self.spliced_frames,
            parked_copies: self.parked.times,
            parked_bytes: self.parked.bytes,
            queued_bytes: way.queued_bytes,
            parked_flows: way.parked_flows,
            parked_ahead: Duration::from_nanos(way.parked_ahead_ns),
            parked_memory: Duration::from_nanos(way.parked_memory_ns),
            times: self.times,
            ..PipelineCounters::default()
        }
    }
}

impl Pipelines {
    pub(crate) fn new(networks: usize) -> Self {
        Self {
            networks,
            by_pair: vec![Pipeline::default(); networks * networks],
            divided: vec![Undivided::default(); networks],
        }
    }

    /// Divides what the threads of each network have spent since this was last done among the
    /// pipelines that something has passed through since then, by bytes. What was spent while
    /// nothing passed belongs to none.
    pub(crate) fn divide(&mut self, networks: &[NetworkCounters]) {
        for (at, (network, before)) in networks.iter().zip(&mut self.divided).enumerate() {
            let now = Undivided::of(network);
            let (near, far) = (now.near.since(&before.near), now.far.since(&before.far));
            *before = now;
            let begin_here = at * self.networks..(at + 1) * self.networks;
            share(self.by_pair[begin_here].iter_mut(), &near);
            let end_here = self.by_pair.iter_mut().skip(at).step_by(self.networks);
            share(end_here, &far);
        }
        for pipeline in &mut self.by_pair {
            pipeline.bytes_before = pipeline.bytes;
        }
    }

    /// Frames have left by network `to`.
    pub(crate) fn note(&mut self, stay: &Stay, to: usize, left: Time, frames: u32, bytes: usize) {
        let arrival = stay.arrival;
        let Some(pipeline) = self.by_pair.get_mut(arrival.network * self.networks + to) else {
            return;
        };
        pipeline.frames += u64::from(frames);
        pipeline.bytes += u64::try_from(bytes).unwrap_or(0);
        pipeline.pieces += 1;
        pipeline.copied.add(stay.copied);
        pipeline.parked.add(stay.parked);
        pipeline.spliced_frames += u64::from(stay.is_spliced);
        pipeline.hop.record(left.since(arrival.at), frames.into());
    }

    /// Data frames that have left by network `to`.
    pub(crate) fn frames_to(&self, to: usize) -> u64 {
        let of_network = self.by_pair.iter().skip(to).step_by(self.networks.max(1));
        of_network.map(|pipeline| pipeline.frames).sum()
    }

    /// Those that something has passed through or waits for, networks having these names; `way`
    /// says what waits from one to another.
    pub(crate) fn counters(
        &self,
        names: &[&str],
        way: impl Fn(usize, usize) -> Way,
    ) -> Vec<PipelineCounters> {
        let mut counters = Vec::new();
        for (place, pipeline) in self.by_pair.iter().enumerate() {
            let (from, to) = (place / self.networks, place % self.networks);
            let way = way(from, to);
            if pipeline.frames > 0 || way != Way::default() {
                counters.push(PipelineCounters {
                    from: names[from].to_owned(),
                    to: names[to].to_owned(),
                    ..pipeline.counters(&way)
                });
            }
        }
        counters
    }
}

impl Undivided {
    fn of(network: &NetworkCounters) -> Self {
        let (receiver, sender) = (&network.receiver, &network.sender);
        Self {
            // What it sends leaves by other networks.
            near: StageTimes {
                sending: Duration::ZERO,
                ..*receiver
            },
            far: StageTimes {
                sending: network.sending,
                handing_over: sender.handing_over,
                ..StageTimes::default()
            },
        }
    }
}

/// Gives each of `pipelines` its part of `spent`, but all of the waiting, if anything has passed
/// through it.
fn share<'p>(pipelines: impl Iterator<Item = &'p mut Pipeline>, spent: &StageTimes) {
    let active: Vec<_> = pipelines
        .filter(|pipeline| pipeline.bytes_since() > 0)
        .collect();
    let all: u64 = active.iter().map(|pipeline| pipeline.bytes_since()).sum();
    for pipeline in active {
        let part = ratio(pipeline.bytes_since(), all);
        let times = &mut pipeline.times;
        times.receiving += spent.receiving.mul_f64(part);
        times.handing_over += spent.handing_over.mul_f64(part);
        times.sending += spent.sending.mul_f64(part);
        times.waiting += spent.waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each stage of the receiver and of the sender of a network took so long, and so did sending on
    /// it.
    fn spent(receiver_ms: u64, sender_ms: u64) -> NetworkCounters {
        let times = |ms| {
            let time = Duration::from_millis(ms);
            StageTimes {
                receiving: time,
                handing_over: time,
                sending: time,
                waiting: time,
            }
        };
        NetworkCounters {
            receiver: times(receiver_ms),
            sender: times(sender_ms),
            sending: Duration::from_millis(sender_ms),
            ..NetworkCounters::default()
        }
    }

    #[test]
    fn times_are_divided_by_what_has_passed_meanwhile() {
        let mut pipelines = Pipelines::new(3);
        let pass = |pipelines: &mut Pipelines, network, to, bytes| {
            let at = Time(1);
            pipelines.note(&Stay::since(Arrival { network, at }), to, at, 1, bytes);
        };
        let times = |pipelines: &Pipelines, from: &str, to: &str| {
            let counters = pipelines.counters(&["a", "b", "c"], nothing_waits);
            let mut ways = counters.into_iter();
            let way = ways.find(|way| way.from == from && way.to == to).unwrap();
            let ms = |time: Duration| time.as_millis();
            let StageTimes {
                receiving,
                handing_over,
                sending,
                waiting,
            } = way.times;
            [receiving, handing_over, sending, waiting].map(ms)
        };
        // Nothing has passed: it is nobody's.
        pipelines.divide(&[spent(5, 5), spent(5, 5), spent(5, 5)]);
        pass(&mut pipelines, 0, 1, 300);
        pass(&mut pipelines, 0, 2, 100);
        pass(&mut pipelines, 1, 2, 300);
        pipelines.divide(&[spent(85, 5), spent(25, 15), spent(5, 45)]);
        assert_eq!(times(&pipelines, "a", "b"), [60, 60 + 10, 10, 80]);
        assert_eq!(times(&pipelines, "a", "c"), [20, 20 + 10, 10, 80]);
        assert_eq!(times(&pipelines, "b", "c"), [20, 20 + 30, 30, 20]);
        // What passed before that has its part.
        pass(&mut pipelines, 0, 2, 1);
        pipelines.divide(&[spent(95, 5), spent(25, 15), spent(5, 45)]);
        assert_eq!(times(&pipelines, "a", "b"), [60, 70, 10, 80]);
        assert_eq!(times(&pipelines, "a", "c"), [30, 40, 10, 90]);
        let before = pipelines.counters(&["a", "b", "c"], nothing_waits)[1].clone();
        pass(&mut pipelines, 0, 2, 1);
        pipelines.divide(&[spent(96, 5), spent(25, 15), spent(5, 45)]);
        let after = pipelines.counters(&["a", "b", "c"], nothing_waits);
        let period = after[1].since(&before);
        assert_eq!(period.times.receiving.as_millis(), 1);
    }

    #[test]
    fn stays_are_kept_by_pair_of_networks() {
        let mut pipelines = Pipelines::new(3);
        let arrival = Arrival {
            network: 1,
            at: Time(1_000_000),
        };
        let stay = Stay::since(arrival);
        pipelines.note(&stay, 2, Time(1_010_000), 9, 900);
        pipelines.note(&stay, 2, Time(1_100_000), 1, 200);
        // Clocks of threads may differ by what a look takes.
        pipelines.note(&stay, 0, Time(999_999), 1, 50);
        // Of no network of this gateway.
        let network = 3;
        let foreign = Stay::since(Arrival { network, ..arrival });
        pipelines.note(&foreign, 0, Time(0), 1, 1);

        let counters = pipelines.counters(&["a", "b", "c"], nothing_waits);
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
        pipelines.note(&stay, 2, Time(1_001_000), 5, 5);
        let after = pipelines.counters(&["a", "b", "c"], nothing_waits);
        let since = after[1].hop.since(&before);
        assert_eq!(since.frames(), 5);
        assert!(near(since.quantile(1.0), 1), "{since:?}");
        assert_eq!(HopLatency::default().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn what_becomes_of_frames_is_kept_by_pair_of_networks() {
        let mut pipelines = Pipelines::new(2);
        let (network, at) = (0, Time(1));
        let mut stay = Stay::since(Arrival { network, at });
        pipelines.note(&stay, 1, at, 1, 100);
        stay.copied.add(Copies::one(700));
        stay.note_parked(30);
        // What is in memory of its own already is not copied.
        stay.note_parked(0);
        stay.is_spliced = true;
        pipelines.note(&stay, 1, at, 1, 100);
        let waits = |from, to| Way {
            parked_flows: u32::from((from, to) == (1, 0)),
            parked_memory_ns: if (from, to) == (0, 1) { 5000 } else { 0 },
            ..Way::default()
        };
        let counters = pipelines.counters(&["a", "b"], waits);
        let [there, back] = &counters[..] else {
            panic!("{counters:?}");
        };
        assert_eq!((&*there.from, &*back.from), ("a", "b"));
        assert_eq!((there.copies, there.copied_bytes), (1, 700));
        assert_eq!((there.parked_copies, there.parked_bytes), (1, 30));
        assert_eq!((there.spliced_frames, there.copies_per_frame()), (1, 0.5));
        assert_eq!(there.parked_memory, Duration::from_micros(5));
        assert_eq!((back.frames, back.parked_flows), (0, 1));

        pipelines.note(&stay, 1, at, 1, 100);
        let period = pipelines.counters(&["a", "b"], waits)[0].since(there);
        assert_eq!((period.copies, period.parked_bytes), (1, 30));
        assert_eq!(period.parked_memory, Duration::ZERO);
    }

    fn nothing_waits(_: usize, _: usize) -> Way {
        Way::default()
    }
}
