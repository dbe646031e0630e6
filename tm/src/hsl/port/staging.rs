//! Slots of this side's memory that control messages with data are put from. A card that sends
//! later than it is told keeps one until it has sent it.

use crate::hsl::put::Address;
use crate::local::loans::Row;
use crate::local::memory::SharedBytes;

#[derive(Debug)]
pub(super) struct Staging {
    bytes: SharedBytes,
    row: Row,
    /// Slots that no card has; the last one was used last, and is used first, while the caches
    /// still know it.
    free: Vec<u32>,
}

impl Staging {
    pub(super) fn new(bytes: SharedBytes, row: Row) -> Self {
        Self {
            bytes,
            row,
            free: (0..row.slots).rev().collect(),
        }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Where the slot begins that is used next, to be filled; the memory that it is in.
    pub(super) fn next(&self) -> Option<(usize, &SharedBytes)> {
        let slot = *self.free.last()?;
        Some((self.row.slot_at(slot), &self.bytes))
    }

    /// The next slot is the card's.
    pub(super) fn pass(&mut self) {
        self.free.pop();
    }

    /// The card has sent what begins at `at`.
    pub(super) fn take_back(&mut self, at: Address) {
        let slot = self.row.slot_of(at.0);
        self.free.extend(slot);
    }
}
