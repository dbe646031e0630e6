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
}

/// Numbers of slots, each of them once.
#[derive(Debug)]
pub(crate) struct FreeSlots {
    slots: VecDeque<u32>,
    reuse: Reuse,
}

impl FreeSlots {
    /// None of `count` slots yet.
    pub(crate) fn none_of(count: u32, reuse: Reuse) -> Self {
        let slots = VecDeque::with_capacity(count as usize);
        Self { slots, reuse }
    }

    /// All of `count` slots, from the first on.
    pub(crate) fn all_of(count: u32, reuse: Reuse) -> Self {
        let slots = match reuse {
            Reuse::Newest => (0..count).rev().collect(),
            Reuse::InTurn => (0..count).collect(),
        };
        Self { slots, reuse }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The one that is used next.
    pub(crate) fn next(&self) -> Option<u32> {
        let next = match self.reuse {
            Reuse::Newest => self.slots.back(),
            Reuse::InTurn => self.slots.front(),
        };
        next.copied()
    }

    /// Takes that one.
    pub(crate) fn take(&mut self) -> Option<u32> {
        match self.reuse {
            Reuse::Newest => self.slots.pop_back(),
            Reuse::InTurn => self.slots.pop_front(),
        }
    }

    /// A slot is free again.
    pub(crate) fn put(&mut self, slot: u32) {
        self.slots.push_back(slot);
    }

    /// A slot that was taken has not been used: it is the next again.
    pub(crate) fn put_unused(&mut self, slot: u32) {
        match self.reuse {
            Reuse::Newest => self.slots.push_back(slot),
            Reuse::InTurn => self.slots.push_front(slot),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

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
