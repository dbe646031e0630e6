//! How many bytes are in the slots that the other side has, and how many may be: what is filled ahead of who
//! reads it stays in caches if it is little.

use super::loans::Row;
use crate::lane::LEAST_AHEAD;

/// The bytes in slots that the other side has.
#[derive(Debug)]
pub(super) struct Filled {
    /// In each slot; none in one that it does not have.
    lengths: Box<[u32]>,
    /// In all of them.
    bytes: usize,
    /// With so many no further slot is to be filled.
    most: usize,
}

impl Filled {
    /// None yet, and without a limit.
    pub(super) fn none_of(row: Row) -> Self {
        Self {
            lengths: vec![0; row.slots as usize].into_boxed_slice(),
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
    pub(super) fn is_enough(&self) -> bool {
        self.bytes >= self.most
    }

    /// The other side has `slot`, with so many bytes in it.
    pub(super) fn add(&mut self, slot: u32, length: u32) {
        self.lengths[slot as usize] = length;
        self.bytes += length as usize;
    }

    /// It does not have `slot` any longer.
    pub(super) fn remove(&mut self, slot: u32) {
        self.bytes -= std::mem::take(&mut self.lengths[slot as usize]) as usize;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn it_is_enough_with_so_many_bytes_and_no_fewer_than_some_slots_hold() {
        for (slots, limit, fills) in [(20, 0, 8), (5, 0, 5), (20, 91, 10), (20, usize::MAX, 20)] {
            let row = Row {
                at: 0,
                slots,
                slot_bytes: 10,
                stride: 16,
            };
            let mut filled = Filled::none_of(row).limited(limit, row);
            let mut count = 0;
            while count < slots && !filled.is_enough() {
                filled.add(count, 10);
                count += 1;
            }
            assert_eq!(count, fills, "{limit} of {slots}");
            if count == slots {
                continue;
            }
            // Who had one without bytes in it had none of them.
            filled.remove(count);
            assert!(filled.is_enough());
            filled.remove(1);
            assert!(!filled.is_enough());
            filled.remove(1);
            filled.add(1, 9);
            assert_eq!(filled.is_enough(), limit == 91);
        }
    }
}
