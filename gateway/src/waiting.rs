//! How the engine's threads wait.

use std::time::Duration;

use madgate_gtm::Time;
use madgate_tm::{AdaptiveSpin, Crowd};
use madgate_vchannel::cluster::{GatewaySettings, Handover, WaitPolicy};

/// Passes over shared memory, which cost next to nothing, between two times that a spinning
/// thread lets others run.
const PASSES_PER_YIELD: u32 = 32;

/// The same where others share its processor.
const SHARED_PASSES_PER_YIELD: u32 = 4;

/// Passes over hot lanes that find nothing, between two looks at all descriptors and the clock.
const PASSES_PER_LOOK: u32 = 16;

/// The same where others share the processor, which have it between them.
const SHARED_PASSES_PER_LOOK: u32 = 4;

/// As so many passes counts one that has found something, which takes longer: others have their turn
/// in between.
const BUSY_PASS: u32 = 4;

/// Whether one receiver may look after the networks of others. Threads with processors of their
/// own keep to them.
pub(crate) const fn has_lookout(settings: &GatewaySettings) -> bool {
    settings.lookout && settings.pin.is_empty()
}

/// Whether receivers stand in for each other. Not for threads that are told where to run: that is what they
/// would get around.
pub(crate) const fn has_deputies(settings: &GatewaySettings) -> bool {
    settings.deputies && settings.pin.is_empty()
}

/// How many threads of an engine between so many networks never sleep, while little comes: all of
/// them where that is how they wait, and else those of networks of which `deaf` never tell.
pub(crate) fn sleepless(settings: &GatewaySettings, networks: usize, deaf: usize) -> usize {
    let spins = settings.wait == WaitPolicy::Spin;
    let looking = if spins { networks } else { deaf };
    // Those that leave their network to the lookout sleep.
    let receivers = if has_lookout(settings) {
        looking.min(1)
    } else {
        looking
    };
    // A sender sleeps while receivers send by themselves, and otherwise expects the next batch.
    let senders = match settings.handover {
        Handover::Thread if spins => networks,
        _ => 0,
    };
    receivers + senders
}

/// When a thread that looks at hot lanes in each pass looks at everything else.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// What the passes since then count.
    passes: u32,
}

impl Rounds {
    /// A pass over hot lanes has ended, with `progress` or without.
    pub(crate) fn note(&mut self, progress: bool) {
        let counted = if progress { BUSY_PASS } else { 1 };
        self.passes = self.passes.saturating_add(counted);
    }

    /// Whether it is time for the rest, after so many passes that find nothing.
    pub(crate) const fn is_due(&self, passes_per_look: u32) -> bool {
        self.passes >= passes_per_look
    }

    /// The rest has its turn now.
    pub(crate) const fn begin(&mut self) {
        self.passes = 0;
    }
}

/// How long a thread goes on looking where something happened last.
#[derive(Debug)]
pub(crate) struct Waiting {
    policy: WaitPolicy,
    crowd: Crowd,
}

impl Waiting {
    pub(crate) fn new(policy: WaitPolicy) -> Self {
        Self {
            policy,
            crowd: Crowd::default(),
        }
    }

    /// For how long it is worth to look for what comes by one lane, as far as that is known yet.
    pub(crate) fn new_spin(&self) -> AdaptiveSpin {
        AdaptiveSpin::new(self.policy.longest_spin())
    }

    /// Whether it is worth to look again at something that was active at `active`.
    pub(crate) fn is_worth_it(&self, active: Time, now: Time) -> bool {
        self.is_within(self.policy.longest_spin(), active, now)
    }

    /// The same of a lane that is worth to be looked at for as long as `spin` says.
    pub(crate) fn is_worth_its_spin(&self, spin: &AdaptiveSpin, active: Time, now: Time) -> bool {
        self.is_within(spin.limit(), active, now)
    }

    fn is_within(&self, limit: Duration, active: Time, now: Time) -> bool {
        self.policy == WaitPolicy::Spin || (now.since(active) < limit && !self.crowd.is_here())
    }

    /// Whether it does not look again without having been told, at least now.
    pub(crate) fn sleeps_at_once(&self) -> bool {
        let spin = self.policy.longest_spin();
        spin.is_zero() || (self.policy != WaitPolicy::Spin && self.crowd.is_here())
    }

    /// Passes over hot lanes that find nothing, between two looks at everything else.
    pub(crate) const fn passes_per_look(&self) -> u32 {
        if self.crowd.is_shared() {
            SHARED_PASSES_PER_LOOK
        } else {
            PASSES_PER_LOOK
        }
    }

    /// How often others are let run.
    const fn passes_per_yield(&self, costs_system_calls: bool) -> u32 {
        if costs_system_calls {
            1
        } else if self.crowd.is_shared() {
            SHARED_PASSES_PER_YIELD
        } else {
            PASSES_PER_YIELD
        }
    }

    /// Ends a pass that found nothing: lets others run, each time or now and then. Threads
    /// that spin without it, on fewer processors than they are, are a thousand times slower.
    pub(crate) fn pause(&mut self, passes: u32, costs_system_calls: bool) {
        if passes.is_multiple_of(self.passes_per_yield(costs_system_calls)) {
            self.crowd.yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use madgate_vchannel::cluster::DEFAULT_SPIN;

    use super::*;

    #[test]
    fn others_have_their_turn_the_sooner_the_more_there_is_to_do() {
        let passes = |progress: &[bool]| {
            let mut rounds = Rounds::default();
            let mut progress = progress.iter().cycle();
            // Of two rounds, of which one is like the other.
            let [first, second] = [(); 2].map(|()| {
                rounds.begin();
                let mut passes = 0;
                while passes < 100 && !rounds.is_due(PASSES_PER_LOOK) {
                    rounds.note(*progress.next().unwrap());
                    passes += 1;
                }
                passes
            });
            assert_eq!(first, second);
            first
        };
        assert_eq!(passes(&[true]), 4);
        assert_eq!(passes(&[false]), 16);
        assert_eq!(passes(&[true, false, false, false, false]), 10);
    }

    #[test]
    fn who_shares_the_processor_gives_it_up_after_few_passes_and_looks_at_the_rest_sooner() {
        let spin = DEFAULT_SPIN;
        let mut waiting = Waiting::new(WaitPolicy::Adaptive { spin });
        let counts = |waiting: &Waiting| {
            let per_yield = [false, true].map(|costs| waiting.passes_per_yield(costs));
            (per_yield, waiting.passes_per_look())
        };
        assert_eq!(counts(&waiting), ([32, 1], 16));
        waiting.crowd.note_yield(Duration::from_micros(50));
        assert_eq!(counts(&waiting), ([4, 1], 4));
        // The other one computes: it would keep the processor for long each time.
        waiting.crowd.note_yield(Duration::from_millis(3));
        assert_eq!(counts(&waiting), ([32, 1], 16));
    }

    #[test]
    fn a_lane_by_which_things_come_late_is_not_looked_at_for_long() {
        let (now, late) = (Time(1 << 40), 10 * DEFAULT_SPIN);
        let soon = Time(now.0 - 1000);
        for (policy, at_first, at_last) in [
            (WaitPolicy::Sleep, false, false),
            (WaitPolicy::default(), true, false),
            (WaitPolicy::Spin, true, true),
        ] {
            let waiting = Waiting::new(policy);
            let mut spin = waiting.new_spin();
            let is_worth_it = |spin: &_| waiting.is_worth_its_spin(spin, soon, now);
            assert_eq!(is_worth_it(&spin), at_first, "{policy:?}");
            (0..100).for_each(|_| spin.note(late));
            assert_eq!(is_worth_it(&spin), at_last, "{policy:?}");
            // Whatever comes by others.
            assert_eq!(waiting.is_worth_it(soon, now), at_first, "{policy:?}");
            assert!(!waiting.is_worth_it(Time(0), now) || policy == WaitPolicy::Spin);
        }
    }

    #[test]
    fn who_is_pinned_is_not_stood_in_for() {
        let settings = GatewaySettings::default();
        assert!(has_deputies(&settings) && has_lookout(&settings));
        let pin = vec![0];
        let pinned = GatewaySettings { pin, ..settings };
        assert!(!has_deputies(&pinned) && !has_lookout(&pinned));
    }

    #[test]
    fn only_threads_that_spin_never_sleep() {
        let settings = GatewaySettings {
            handover: Handover::Thread,
            lookout: false,
            ..GatewaySettings::default()
        };
        let spin = DEFAULT_SPIN;
        for wait in [WaitPolicy::Sleep, WaitPolicy::Adaptive { spin }] {
            let settings = GatewaySettings {
                wait,
                ..settings.clone()
            };
            assert_eq!(sleepless(&settings, 3, 0), 0, "{wait:?}");
            // Of two networks nobody is told that something has come.
            assert_eq!(sleepless(&settings, 3, 2), 2, "{wait:?}");
            let settings = GatewaySettings {
                lookout: true,
                ..settings
            };
            assert_eq!(sleepless(&settings, 3, 2), 1, "{wait:?}");
        }
    }

    #[test]
    fn settings_decide_how_many_threads_spin() {
        use Handover::{Inline, Thread};
        for (handover, lookout, pin, threads) in [
            // One receiver looks after all networks, and sends by itself.
            (Inline, true, vec![], 1),
            (Inline, false, vec![], 3),
            // Who has a processor of its own leaves its network to nobody.
            (Inline, true, vec![0, 1], 3),
            // Each sender looks for what is handed over.
            (Thread, true, vec![], 1 + 3),
            (Thread, false, vec![], 3 + 3),
            (Thread, true, vec![0], 3 + 3),
        ] {
            let settings = GatewaySettings {
                wait: WaitPolicy::Spin,
                handover,
                lookout,
                pin,
                ..GatewaySettings::default()
            };
            assert_eq!(sleepless(&settings, 3, 0), threads, "{settings:?}");
        }
    }
}
