//! What the engine has done and does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use madgate_bmm::Copies;

use crate::instruments::{PipelineCounters, StageTimes};

/// What a gateway has carried and carries. Counters grow for as long as it runs; the rest
/// says how things are now.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Since when it runs.
    pub uptime: Duration,
    /// Data frames that left.
    pub frames: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Times that the payload of a frame was copied on its way:
    /// into a static buffer, or out of one.
    pub copies: u64,
    /// Bytes of them.
    pub copied_bytes: u64,
    /// Data frames that left whose payload passed from socket to socket without being read.
    pub spliced_frames: u64,
    /// Times that a frame was copied because it had to wait and others needed the memory
    /// that it was in.
    pub parked_copies: u64,
    /// Bytes of them.
    pub parked_bytes: u64,
    /// Flows that were admitted.
    pub flows_opened: u64,
    /// Openings that were refused for want of memory.
    pub refused: u64,
    /// Data frames dropped because they belonged to no opening in force; their sources send
    /// them again.
    pub stale: u64,
    /// Control frames dropped because as many waited for a link already as may; who misses
    /// them asks again.
    pub control_dropped: u64,
    /// Frames dropped because their checksum was wrong.
    pub corrupt: u64,
    /// Links closed because their peer did what it must not.
    pub misbehaved: u64,
    /// Flows that are admitted now.
    pub flows: u32,
    /// Flows that can be admitted at once.
    pub flow_limit: u32,
    /// Links that are up now.
    pub links: usize,
    /// Bytes that wait in flows' queues now.
    pub queued_bytes: u64,
    /// The most bytes that have waited there at once.
    pub queued_peak_bytes: u64,
    /// Bytes of flows that are kept here now, or may yet come before more is promised.
    pub promised_bytes: u64,
    /// Flows whose sources have used up what they were promised, now.
    pub parked_flows: u32,
    /// How long flows were parked like that because a hop ahead, in the end their destination,
    /// had not promised more. Times of flows add up, those of flows that are parked now included.
    pub parked_ahead: Duration,
    /// How long they were because this gateway had no memory to promise.
    pub parked_memory: Duration,
    /// Per network of this gateway, in the order of the cluster file.
    pub networks: Vec<NetworkCounters>,
    /// Per pair of networks that something has passed between, or waits between.
    pub pipelines: Vec<PipelineCounters>,
}

impl Counters {
    /// Copies per data frame that left; frames that had to wait not counted.
    #[must_use]
    pub fn copies_per_frame(&self) -> f64 {
        ratio(self.copies, self.frames)
    }
}

impl Counters {
    /// What has happened since `before`, which is of the same gateway: totals are those of the
    /// time between, `uptime` is how long that was, and the rest is as it is now.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut period = self.clone();
        period.uptime = self.uptime.saturating_sub(before.uptime);
        period.parked_ahead = self.parked_ahead.saturating_sub(before.parked_ahead);
        period.parked_memory = self.parked_memory.saturating_sub(before.parked_memory);
        subtract([
            (&mut period.frames, before.frames),
            (&mut period.bytes, before.bytes),
            (&mut period.copies, before.copies),
            (&mut period.copied_bytes, before.copied_bytes),
            (&mut period.spliced_frames, before.spliced_frames),
            (&mut period.parked_copies, before.parked_copies),
            (&mut period.parked_bytes, before.parked_bytes),
            (&mut period.flows_opened, before.flows_opened),
            (&mut period.refused, before.refused),
            (&mut period.stale, before.stale),
            (&mut period.control_dropped, before.control_dropped),
            (&mut period.corrupt, before.corrupt),
            (&mut period.misbehaved, before.misbehaved),
        ]);
        for network in &mut period.networks {
            let mut known = before.networks.iter();
            if let Some(before) = known.find(|one| one.name == network.name) {
                *network = network.since(before);
            }
        }
        for pipeline in &mut period.pipelines {
            let mut known = before.pipelines.iter();
            let is_same =
                |one: &&PipelineCounters| (&one.from, &one.to) == (&pipeline.from, &pipeline.to);
            if let Some(before) = known.find(is_same) {
                *pipeline = pipeline.since(before);
            }
        }
        period
    }
}

/// One count over another; 0 where there is nothing to count.
#[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
pub(crate) fn ratio(part: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        part as f64 / all as f64
    }
}

/// Takes from each total what it was before.
pub(crate) fn subtract<'a>(totals: impl IntoIterator<Item = (&'a mut u64, u64)>) {
    for (total, before) in totals {
        *total = total.saturating_sub(before);
    }
}

/// What happened on one network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NetworkCounters {
    /// The network's name.
    pub name: String,
    /// Calls that received something.
    pub receives: u64,
    /// Bytes of it.
    pub received_bytes: u64,
    /// Data frames in it.
    pub received_frames: u64,
    /// Calls that sent something.
    pub sends: u64,
    /// Bytes of it.
    pub sent_bytes: u64,
    /// Data frames in it.
    pub sent_frames: u64,
    /// Time in calls that send on this network, whichever thread made them.
    pub sending: Duration,
    /// Times that a lane took less than there was.
    pub blocked: u64,
    /// Times that what was there for a lane had to wait for a rate.
    pub held_back: u64,
    /// Times that the receiver slept.
    pub sleeps: u64,
    /// Times that the receiver left the network to the lookout.
    pub leaves: u64,
    /// Turns that the thread of another network took instead of the receiver's own.
    pub stand_ins: u64,
    /// Times that the sender slept.
    pub sender_sleeps: u64,
    /// Times that a link was given to the sender's thread.
    pub handed_over: u64,
    /// Links that wait for it now.
    pub mailbox: usize,
    /// What the receiver spends its time on. What it sends itself leaves by other networks.
    pub receiver: StageTimes,
    /// What the sender spends its time on.
    pub sender: StageTimes,
}

impl NetworkCounters {
    /// Data frames that one call brought which received something, on average.
    #[must_use]
    pub fn frames_per_receive(&self) -> f64 {
        ratio(self.received_frames, self.receives)
    }

    fn since(&self, before: &Self) -> Self {
        let mut period = self.clone();
        period.sending = self.sending.saturating_sub(before.sending);
        period.receiver = self.receiver.since(&before.receiver);
        period.sender = self.sender.since(&before.sender);
        subtract([
            (&mut period.receives, before.receives),
            (&mut period.received_bytes, before.received_bytes),
            (&mut period.received_frames, before.received_frames),
            (&mut period.sends, before.sends),
            (&mut period.sent_bytes, before.sent_bytes),
            (&mut period.sent_frames, before.sent_frames),
            (&mut period.blocked, before.blocked),
            (&mut period.held_back, before.held_back),
            (&mut period.sleeps, before.sleeps),
            (&mut period.leaves, before.leaves),
            (&mut period.stand_ins, before.stand_ins),
            (&mut period.sender_sleeps, before.sender_sleeps),
            (&mut period.handed_over, before.handed_over),
        ]);
        period
    }
}

/// The counters that threads add to, batch by batch.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) copies: AtomicU64,
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) parked_copies: AtomicU64,
    pub(crate) parked_bytes: AtomicU64,
    pub(crate) corrupt: AtomicU64,
    pub(crate) misbehaved: AtomicU64,
}

impl Tally {
    pub(crate) fn note_copies(&self, copies: Copies) {
        add(&self.copies, copies.times);
        add(&self.copied_bytes, copies.bytes);
    }

    pub(crate) fn note_parked(&self, bytes: usize) {
        if bytes > 0 {
            add(&self.parked_copies, 1);
            add(&self.parked_bytes, u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }
}

/// The same for one network.
#[derive(Debug, Default)]
pub(crate) struct NetworkTally {
    pub(crate) received_frames: AtomicU64,
    pub(crate) sending_ns: AtomicU64,
    pub(crate) sender_sleeps: AtomicU64,
    pub(crate) handed_over: AtomicU64,
    pub(crate) receives: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) sends: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) blocked: AtomicU64,
    pub(crate) held_back: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) leaves: AtomicU64,
    pub(crate) stand_ins: AtomicU64,
}

impl NetworkTally {
    pub(crate) fn counters(&self) -> NetworkCounters {
        NetworkCounters {
            received_frames: read(&self.received_frames),
            sending: Duration::from_nanos(read(&self.sending_ns)),
            sender_sleeps: read(&self.sender_sleeps),
            handed_over: read(&self.handed_over),
            receives: read(&self.receives),
            received_bytes: read(&self.received_bytes),
            sends: read(&self.sends),
            sent_bytes: read(&self.sent_bytes),
            blocked: read(&self.blocked),
            held_back: read(&self.held_back),
            sleeps: read(&self.sleeps),
            leaves: read(&self.leaves),
            stand_ins: read(&self.stand_ins),
            ..NetworkCounters::default()
        }
    }
}

/// Counters are only read by people, so that no order is needed.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    if amount > 0 {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use madgate_gtm::{FlowKey, Header, Kind, Time};

    use crate::fixture::Fixture;

    #[test]
    fn control_frames_that_are_dropped_are_counted() {
        let fixture = Fixture::new();
        let (engine, link) = (&fixture.engine, fixture.link());
        let before = engine.counters();
        let flow = FlowKey {
            channel: 0,
            source: 0,
            destination: 2,
        };
        let mut shared = engine.lock();
        let transit = &mut shared.transit;
        // Each is answered, and the link takes no answers.
        while transit.counters().control_dropped < 3 {
            let probe = Header::new(Kind::Probe, flow, 1);
            transit.handle_control(link.transit, &probe, Time(0));
        }
        drop(shared);
        let counters = engine.counters();
        assert_eq!(counters.control_dropped, 3);
        assert_eq!(counters.since(&before).control_dropped, 3);
        assert_eq!(counters.since(&counters).control_dropped, 0);
    }
}
