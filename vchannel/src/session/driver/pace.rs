//! How often who drives looks at what while it spins, and lets others run.

use super::{Driver, Patience};

/// Looks at lanes of shared memory in one pass, while spinning: what else there is to do in a
/// pass takes as long as a dozen of them, in which nothing that arrives would be seen.
const SLOT_LOOKS: u32 = 64;

/// The same on a processor that others [share](madgate_tm::Crowd::is_shared).
const SHARED_SLOT_LOOKS: u32 = 8;

/// Passes without anything between two times that a spinning thread lets others run. Three
/// threads that spin on two processors without it are a thousand times slower.
const PASSES_PER_YIELD: u32 = 1;

/// The same while shared memory is polled, where a pass costs next to nothing, and nobody else wants
/// the processor.
const SLOT_PASSES_PER_YIELD: u32 = 16;

/// Passes over slots in shared memory between two looks at descriptors, while spinning.
const SLOT_PASSES: u32 = 8;

/// The same where all lanes are of shared memory, and descriptors only tell of peers that are gone
/// and of new links.
const SLOT_PASSES_ALONE: u32 = 64;

/// [`SLOT_PASSES`] on a processor that others share, where a pass is short and ends in a yield.
const SHARED_SLOT_PASSES: u32 = 1;

/// [`SLOT_PASSES_ALONE`] there.
const SHARED_SLOT_PASSES_ALONE: u32 = 16;

/// Passes over the lanes that are followed between two looks at all descriptors, while spinning: one
/// system call instead of two.
pub(super) const HOT_PASSES: u32 = 8;

impl Driver {
    /// How often all descriptors are looked at while spinning: what is looked at in between
    /// costs less. Where something else came last than what is looked at then, each time.
    pub(super) fn passes_per_look(&self, wants_bulk: bool) -> u32 {
        if self.has_static_inputs() {
            return match (self.has_only_slots(), self.crowd.is_shared()) {
                (false, false) => SLOT_PASSES,
                (false, true) => SHARED_SLOT_PASSES,
                (true, false) => SLOT_PASSES_ALONE,
                (true, true) => SHARED_SLOT_PASSES_ALONE,
            };
        }
        let followed = if wants_bulk {
            self.straight.or(self.bulk.unwatched())
        } else {
            self.small.on_a_streak().or(self.bulk.unwatched())
        };
        followed.map_or(1, |_| HOT_PASSES)
    }

    /// How often others are let run while spinning.
    pub(in crate::session) const fn passes_per_yield(&self) -> u32 {
        if self.has_static_inputs() && !self.crowd.is_shared() {
            SLOT_PASSES_PER_YIELD
        } else {
            PASSES_PER_YIELD
        }
    }

    /// How often lanes of shared memory are looked at in one pass.
    pub(super) const fn slot_looks(&self, patience: Patience) -> u32 {
        match patience {
            Patience::None if self.crowd.is_shared() => SHARED_SLOT_LOOKS,
            Patience::None => SLOT_LOOKS,
            Patience::Sleep(_) => 1,
        }
    }
}
