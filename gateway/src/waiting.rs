//! How the engine's threads wait.

use std::time::Duration;

use madgate_gtm::Time;
use madgate_tm::Crowd;
use madgate_vchannel::cluster::WaitPolicy;

/// Passes over shared memory, which cost next to nothing, between two times that a spinning
/// thread lets others run.
const PASSES_PER_YIELD: u32 = 32;

/// Passes between two looks at the clock while nothing happens.
pub(crate) const PASSES_PER_LOOK: u32 = 4;

/// How long a thread goes on looking where something happened last.
#[derive(Debug)]
pub(crate) struct Waiting {
    spin: Option<Duration>,
    crowd: Crowd,
}

impl Waiting {
    pub(crate) fn new(policy: WaitPolicy) -> Self {
        let spin = match policy {
            WaitPolicy::Sleep => Some(Duration::ZERO),
            WaitPolicy::Adaptive { spin } => Some(spin),
            WaitPolicy::Spin => None,
        };
        Self {
            spin,
            crowd: Crowd::default(),
        }
    }

    /// Whether it is worth to look again at something that was active at `active`.
    pub(crate) fn is_worth_it(&self, active: Time, now: Time) -> bool {
        self.spin
            .is_none_or(|spin| now.since(active) < spin && !self.crowd.is_here())
    }

    /// Whether it does not look again without having been told, at least now.
    pub(crate) fn sleeps_at_once(&self) -> bool {
        self.spin == Some(Duration::ZERO) || (self.spin.is_some() && self.crowd.is_here())
    }

    /// Ends a pass that found nothing: lets others run, each time or now and then. Threads
    /// that spin without it, on fewer processors than they are, are a thousand times slower.
    pub(crate) fn pause(&mut self, passes: u32, costs_system_calls: bool) {
        if costs_system_calls || passes.is_multiple_of(PASSES_PER_YIELD) {
            self.crowd.yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
