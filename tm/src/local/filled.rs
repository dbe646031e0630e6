//! How many bytes are in the slots that the other side has, and how many may be: what is filled ahead of who
//! reads it stays in caches if it is little.

use super::loans::Row;
use crate::lane::LEAST_AHEAD;

/// The bytes in slots that the other side has.
#[derive(Debug)]
pub(super) struct Filled {
    bytes: usize,
    /// With so many no further slot is to be filled.
    most: usize,
}

impl Filled {
    /// None yet, and without a limit.
    pub(super) const fn new() -> Self {
        Self {
            bytes: 0,
            most: usize::MAX,
        }
    }

    /// The same with a limit, which is no less than [`LEAST_AHEAD`] slots of `row` hold, or all of them.
    pub(super) fn limited(self, bytes: usize, row: Row) -> Self {
        let least = LEAST_AHEAD.min(row.slots as usize) * row.slot_bytes as usize;
        let most = bytes.max(least);
        Self { most, ..self }
    }

    /// Whether no further slot is to be filled now.
    pub(super) const fn is_enough(&self) -> bool {
        self.bytes >= self.most
    }

    /// The other side has a slot with so many bytes.
    pub(super) const fn add(&mut self, length: u32) {
        self.bytes += length as usize;
    }

    /// It has it no longer.
    pub(super) const fn remove(&mut self, length: u32) {
        self.bytes -= length as usize;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn it_is_enough_with_so_many_bytes_and_no_fewer_than_some_slots_hold() {
        for (slots, limit, fills) in [(20, 0, 8), (5, 0, 5), (20, 91, 10), (20, 200, 20)] {
            let row = Row {
                at: 0,
                slots,
                slot_bytes: 10,
                stride: 16,
            };
            let mut filled = Filled::new().limited(limit, row);
            let mut count = 0;
            while !filled.is_enough() {
                filled.add(10);
                count += 1;
            }
            assert_eq!(count, fills, "{limit} of {slots}");
            filled.remove(10);
            assert!(!filled.is_enough());
            filled.add(9);
            assert_eq!(filled.is_enough(), limit == 91);
        }
    }
}
