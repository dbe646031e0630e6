//! What a thread of the engine spends its time on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use madgate_gtm::Time;

/// The time of one engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// What a thread does. The rest of its time it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Calls that receive.
    Receiving,
    /// Frames are found in what was received, go to the flow table, and to an outbox.
    HandingOver,
    /// Calls that send.
    Sending,
    /// None of these: it looks, lets others run, or sleeps.
    Waiting,
}

/// What a thread has spent its time on since it began, in nanoseconds. One thread at a time
/// adds to it, so that no addition needs to be atomic; anybody may read.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    receiving: AtomicU64,
    handing_over: AtomicU64,
    sending: AtomicU64,
}

/// What the thread of one role has spent its time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StageTimes {
    /// In calls that receive; nothing for a sender.
    pub receiving: Duration,
    /// Between receiving and sending: finding the frames in what was received, the flow table,
    /// filling outboxes, waking others.
    pub handing_over: Duration,
    /// In calls that send.
    pub sending: Duration,
    /// The rest: looking for something to do, letting others run, asleep.
    pub waiting: Duration,
}

impl StageTimes {
    /// Everything but waiting.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.receiving + self.handing_over + self.sending
    }

    /// What has been added since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            receiving: self.receiving.saturating_sub(before.receiving),
            handing_over: self.handing_over.saturating_sub(before.handing_over),
            sending: self.sending.saturating_sub(before.sending),
            waiting: self.waiting.saturating_sub(before.waiting),
        }
    }
}

impl Spent {
    /// What has been spent until `now`, as its clock has it.
    pub(crate) fn times(&self, now: Time) -> StageTimes {
        let read = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        let mut times = StageTimes {
            receiving: read(&self.receiving),
            handing_over: read(&self.handing_over),
            sending: read(&self.sending),
            waiting: Duration::ZERO,
        };
        times.waiting = now.since(Time(0)).saturating_sub(times.busy());
        times
    }

    fn add(&self, stage: Stage, nanos: u64) {
        let counter = match stage {
            Stage::Receiving => &self.receiving,
            Stage::HandingOver => &self.handing_over,
            Stage::Sending => &self.sending,
            Stage::Waiting => return,
        };
        let before = counter.load(Ordering::Relaxed);
        counter.store(before + nanos, Ordering::Relaxed);
    }
}

/// Divides the time of one thread, or of whoever stands in for it, into stages.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    clock: Clock,
    /// When the stage that runs began.
    since: Time,
    spent: Arc<Spent>,
}

impl Stopwatch {
    pub(crate) fn new(clock: Clock, spent: Arc<Spent>) -> Self {
        Self {
            since: clock.now(),
            clock,
            spent,
        }
    }

    /// What was done since the last look at the clock was `stage`. Returns what time it is, and
    /// how long that took.
    pub(crate) fn end(&mut self, stage: Stage) -> (Time, Duration) {
        let now = self.clock.now();
        let took = now.since(self.since);
        self.spent.add(stage, now.0.saturating_sub(self.since.0));
        self.since = now;
        (now, took)
    }

    /// What time it was when somebody last looked: a batch has one time.
    pub(crate) const fn time_of_batch(&self) -> Time {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_belongs_to_one_stage() {
        let clock = Clock::start();
        let spent = Arc::new(Spent::default());
        let mut watch = Stopwatch::new(clock, Arc::clone(&spent));
        let begun = watch.time_of_batch();
        let mut sum = Duration::ZERO;
        let stages = [
            Stage::Receiving,
            Stage::HandingOver,
            Stage::Sending,
            Stage::Waiting,
            Stage::Receiving,
        ];
        let mut took = Vec::new();
        for stage in stages {
            while clock.now() == watch.time_of_batch() {}
            let (now, lasted) = watch.end(stage);
            assert_eq!(now, watch.time_of_batch());
            assert!(!lasted.is_zero());
            sum += lasted;
            took.push(lasted);
        }
        let end = watch.time_of_batch();
        assert_eq!(end.since(begun), sum);
        let times = spent.times(end);
        assert_eq!(times.receiving, took[0] + took[4]);
        assert_eq!((times.handing_over, times.sending), (took[1], took[2]));
        assert_eq!(times.waiting + times.busy(), end.since(Time(0)));
        let none = times.since(&times);
        assert_eq!(none, StageTimes::default());
    }
}
