//! Where things are in the memory of one side of a lane, and within which limits.
//!
//! ```text
//!      0  control: the armed words of this side's two halves
//!  4,096  publish ring: this side's slots, in the order in which they were committed
//! 12,288  return ring: the other side's slots, as they are given back
//! 20,480  this side's slots
//! ```
//!
//! The places are the same for every lane; of a ring, as many entries are used as there
//! are slots, rounded up to a power of two.

use crate::lane::LaneClass;
use crate::local::loans::Row;
use crate::protocol::ShmTuning;

/// Slots of one side at most.
pub(super) const SLOTS_MAX: u32 = 1024;
/// Bytes of one slot at most: the largest frame of any protocol, and its header.
pub(super) const SLOT_BYTES_MAX: u32 = (16 << 20) + (4 << 10);
/// Memory of one side at most.
pub(super) const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// The armed word of the half that receives. Words that different parties write or read
/// have cache lines of their own, two each, because lines are fetched in pairs.
pub(super) const RECEIVER_ARMED_AT: usize = 128;
/// The armed word of the half that sends.
pub(super) const SENDER_ARMED_AT: usize = 256;
/// The publish ring.
pub(super) const PUBLISH_AT: usize = 4096;
/// The return ring.
pub(super) const RETURN_AT: usize = PUBLISH_AT + RING_BYTES;
/// The slots.
pub(super) const SLOTS_AT: usize = RETURN_AT + RING_BYTES;

const WORD_BYTES: usize = 8;
const RING_BYTES: usize = SLOTS_MAX as usize * WORD_BYTES;
/// Slots begin at multiples of this.
const SLOT_ALIGN: usize = 128;

const _: () = assert!(SLOTS_MAX.is_power_of_two());
const _: () = assert!(SLOTS_AT == 20_480 && SLOTS_AT.is_multiple_of(SLOT_ALIGN));
const _: () = assert!(SENDER_ARMED_AT + WORD_BYTES <= PUBLISH_AT);
// Numbers of this module fit in both kinds of integer.
const _: () = assert!(size_of::<usize>() >= 8);

/// The slots of one side: how many, and how large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    slots: u32,
    slot_bytes: u32,
}

impl Geometry {
    /// A geometry within the limits, or what is wrong with it.
    pub(super) fn new(slots: u64, slot_bytes: u64) -> Result<Self, &'static str> {
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let slot_bytes = u32::try_from(slot_bytes).unwrap_or(u32::MAX);
        if slots == 0 || slots > SLOTS_MAX {
            return Err("the number of slots is not from 1 to 1024");
        }
        if slot_bytes == 0 || slot_bytes > SLOT_BYTES_MAX {
            return Err("the size of a slot is not from 1 byte to 16 MiB and 4 KiB");
        }
        let geometry = Self { slots, slot_bytes };
        if geometry.memory_bytes() as u64 > MEMORY_BYTES_MAX {
            return Err("the slots take more than 1 GiB");
        }
        Ok(geometry)
    }

    /// What each side makes: the slots that it is tuned for. Those of a side that never sends
    /// are never touched, and take no memory.
    pub(super) fn tuned(tuning: &ShmTuning, class: LaneClass) -> Result<Self, &'static str> {
        let (slots, slot_bytes) = match class {
            LaneClass::Bulk => (tuning.bulk_slots, tuning.bulk_slot_bytes),
            LaneClass::Urgent => (tuning.urgent_slots, tuning.urgent_slot_bytes),
        };
        Self::new(slots as u64, slot_bytes as u64)
    }

    pub(super) fn slots(self) -> u32 {
        self.slots
    }

    pub(super) fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    /// Entries of a ring that these slots travel through.
    pub(super) fn ring_entries(self) -> usize {
        self.slots.next_power_of_two() as usize
    }

    /// Where the slots lie.
    pub(super) fn row(self) -> Row {
        Row {
            at: SLOTS_AT,
            slots: self.slots,
            slot_bytes: self.slot_bytes,
            stride: self.stride(),
        }
    }

    /// All of the side's memory.
    pub(super) fn memory_bytes(self) -> usize {
        self.row().end()
    }

    fn stride(self) -> usize {
        (self.slot_bytes as usize).next_multiple_of(SLOT_ALIGN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold() {
        assert!(Geometry::new(0, 1).is_err());
        assert!(Geometry::new(1, 0).is_err());
        assert!(Geometry::new(1025, 1).is_err());
        assert!(Geometry::new(1, u64::MAX).is_err());
        assert!(Geometry::new(1024, 16 << 20).is_err(), "16 GiB");
        assert!(Geometry::new(1, u64::from(SLOT_BYTES_MAX)).is_ok());
    }

    #[test]
    fn slots_do_not_overlap_and_end_with_the_memory() {
        let geometry = Geometry::new(3, 130).unwrap();
        let row = geometry.row();
        assert_eq!(row.slot_at(0), SLOTS_AT);
        assert_eq!(row.slot_at(1) - row.slot_at(0), 256);
        assert_eq!(row.slot_at(3), geometry.memory_bytes());
        assert_eq!(geometry.ring_entries(), 4);
    }

    #[test]
    fn the_defaults_are_within_the_limits() {
        let tuning = ShmTuning::default();
        for class in [LaneClass::Bulk, LaneClass::Urgent] {
            assert!(Geometry::tuned(&tuning, class).is_ok());
        }
    }
}
