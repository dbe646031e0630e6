//! Slots that may be filled, and which of them is filled next.

use std::collections::VecDeque;

/// Which of several free slots is used first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// The one that was used last, while the caches of this side still know it: where the other side does
    /// not read it.
    Newest,
    /// Each in its turn. Small ones, so that the other side knows which comes next, and has fetched it
    /// when it is told, where that takes as long as all the rest; large ones in its memory, so that its
    /// caches have let go of them meanwhile: to store where another processor has just read costs more
    /// than to store anywhere else.
    InTurn,
    /// The same of the first so many, and of the others while none of those is free: large slots that are
    /// touched again and again are no more memory than caches hold, and small frames may still fill many.
    FewInTurn(u32),
}

/// So many slots at least are used as a rule: with very few, each would be filled again when it has just been
/// read.
const USUAL_LEAST: u32 = 16;

impl Reuse {
    /// In turn, a quarter of `count` slots as a rule, but 16 at least.
    pub(crate) fn quarter_in_turn(count: u32) -> Self {
        Self::FewInTurn(count.div_ceil(4).max(USUAL_LEAST).min(count))
    }
}

/// Numbers of slots, each of them once.
#[derive(Debug)]
pub(crate) struct FreeSlots {
    /// Those that are used as a rule.
    slots: VecDeque<u32>,
    /// Those that are used while none of the others is free.
    spare: VecDeque<u32>,
    reuse: Reuse,
}

impl FreeSlots {
    /// None of `count` slots yet.
    pub(crate) fn none_of(count: u32, reuse: Reuse) -> Self {
        let usual = match reuse {
            Reuse::FewInTurn(few) => few.min(count),
            _ => count,
        };
        Self {
            slots: VecDeque::with_capacity(usual as usize),
            spare: VecDeque::with_capacity((count - usual) as usize),
            reuse,
        }
    }

    /// All of `count` slots, from the first on.
    pub(crate) fn all_of(count: u32, reuse: Reuse) -> Self {
        let mut free = Self::none_of(count, reuse);
        match reuse {
            Reuse::Newest => (0..count).rev().for_each(|slot| free.put(slot)),
            _ => (0..count).for_each(|slot| free.put(slot)),
        }
        free
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() + self.spare.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.spare.is_empty()
    }

    /// Whether there is none of those that are used as a rule.
    pub(crate) fn is_short(&self) -> bool {
        self.slots.is_empty()
    }

    /// The one that is used next.
    pub(crate) fn next(&self) -> Option<u32> {
        let next = match self.reuse {
            Reuse::Newest => self.slots.back(),
            _ => self.slots.front().or(self.spare.front()),
        };
        next.copied()
    }

    /// Takes that one.
    pub(crate) fn take(&mut self) -> Option<u32> {
        match self.reuse {
            Reuse::Newest => self.slots.pop_back(),
            _ => self.slots.pop_front().or_else(|| self.spare.pop_front()),
        }
    }

    /// A slot is free again.
    pub(crate) fn put(&mut self, slot: u32) {
        self.place_of(slot).push_back(slot);
    }

    /// A slot that was taken has not been used: it is the next again.
    pub(crate) fn put_unused(&mut self, slot: u32) {
        match self.reuse {
            Reuse::Newest => self.slots.push_back(slot),
            _ => self.place_of(slot).push_front(slot),
        }
    }

    fn place_of(&mut self, slot: u32) -> &mut VecDeque<u32> {
        match self.reuse {
            Reuse::FewInTurn(few) if slot >= few => &mut self.spare,
            _ => &mut self.slots,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn others_are_used_while_none_of_the_usual_ones_is_free() {
        for (count, usual) in [(8, 2), (5, 2)] {
            let reuse = Reuse::FewInTurn(usual);
            let mut free = FreeSlots::all_of(count, reuse);
            assert_eq!(free.len(), count as usize);
            for slot in 0..count {
                assert_eq!(free.is_short(), slot >= usual);
                assert_eq!((free.next(), free.take()), (Some(slot), Some(slot)));
            }
            assert!(
                free.is_empty() && free.is_short() && FreeSlots::none_of(count, reuse).is_empty()
            );
            for slot in [3, 1, 0] {
                free.put(slot);
            }
            // Whichever comes back first.
            assert!(!free.is_short());
            assert_eq!((free.take(), free.take()), (Some(1), Some(0)));
            assert!(free.is_short() && !free.is_empty());
            free.put_unused(1);
            assert_eq!(
                (free.take(), free.take(), free.take()),
                (Some(1), Some(3), None)
            );
            free.put(3);
            free.put_unused(2);
            assert_eq!((free.take(), free.take()), (Some(2), Some(3)));
        }
    }

    #[test]
    fn a_quarter_is_used_as_a_rule_unless_that_is_too_few() {
        for (count, usual) in [
            (2, 2),
            (16, 16),
            (17, 16),
            (63, 16),
            (64, 16),
            (65, 17),
            (1024, 256),
        ] {
            assert_eq!(Reuse::quarter_in_turn(count), Reuse::FewInTurn(usual));
        }
    }

    #[test]
    fn slots_are_used_in_the_order_that_was_asked_for() {
        for (reuse, first, after) in [
            (Reuse::Newest, [0, 1, 2], [1, 0, 2, 3]),
            (Reuse::InTurn, [0, 1, 2], [3, 2, 0, 1]),
        ] {
            let mut free = FreeSlots::all_of(4, reuse);
            let taken: Vec<_> = (0..3).filter_map(|_| free.take()).collect();
            assert_eq!(taken, first);
            for slot in [2, 0, 1] {
                free.put(slot);
            }
            assert_eq!(free.len(), 4);
            for slot in after {
                assert_eq!((free.next(), free.take()), (Some(slot), Some(slot)));
            }
            assert!(free.is_empty() && FreeSlots::none_of(4, reuse).is_empty());
            free.put(2);
            free.put_unused(3);
            assert_eq!((free.take(), free.take()), (Some(3), Some(2)));
        }
    }
}
