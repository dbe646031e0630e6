//! Where things are in the memory that a side makes for the other one to write, and within which
//! limits.
//!
//! ```text
//!         0  control: for each half an armed word, and how far its list has been read
//!     4,096  list of received messages of the half that receives
//!   528,384  list of received messages of the half that sends
//! 1,052,672  registered memory: control slots, then the buffers for rendezvous
//! ```
//!
//! The places are the same for every lane; of a list, as many entries are used as can be on
//! their way. Memory is only taken from the system when it is first touched.

use std::ops::Range;

use super::HslTuning;
use super::host::{ListPlace, Mode};
use super::put::ENTRY_WORDS;
use crate::lane::LaneClass;
use crate::local::loans::Row;

/// Control slots of one side at most, and buffers.
pub(super) const SLOTS_MAX: u32 = 1024;
/// Bytes of one buffer at most: the largest frame of any protocol, and its header.
pub(super) const SLOT_BYTES_MAX: u32 = (16 << 20) + (4 << 10);
/// Memory of one side at most.
pub(super) const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Requests that wait for their answers at once at most.
pub(super) const REQUESTS_MAX: u32 = 64;

/// Entries of a list at most: each control slot, buffer and request can be on its way once, and
/// as many entries again may have been read without its being told.
const ENTRIES_MAX: usize = (2 * SLOTS_MAX as usize + REQUESTS_MAX as usize).next_power_of_two() * 2;
const LIST_BYTES: usize = ENTRIES_MAX * ENTRY_WORDS * 8;

// Words that different parties write or read have cache lines of their own, two each, because
// lines are fetched in pairs.
const RECEIVER_ARMED_AT: usize = 128;
const RECEIVER_HEAD_AT: usize = 256;
const SENDER_ARMED_AT: usize = 384;
const SENDER_HEAD_AT: usize = 512;
const RECEIVER_LIST_AT: usize = 4096;
const SENDER_LIST_AT: usize = RECEIVER_LIST_AT + LIST_BYTES;
/// Where registered memory begins.
pub(super) const REGISTERED_AT: usize = SENDER_LIST_AT + LIST_BYTES;
/// Slots and buffers begin at multiples of this.
const SLOT_ALIGN: usize = 128;

const _: () = assert!(REGISTERED_AT == 1_052_672 && REGISTERED_AT.is_multiple_of(SLOT_ALIGN));
const _: () = assert!(SENDER_HEAD_AT + 8 <= RECEIVER_LIST_AT);
// Numbers of this module fit in both kinds of integer.
const _: () = assert!(size_of::<usize>() >= 8);

/// What one side receives with, and how it wants to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    slots: u32,
    slot_bytes: u32,
    control_bytes: u32,
    pub(super) mode: Mode,
}

impl Geometry {
    /// A geometry within the limits, or what is wrong with it.
    pub(super) fn new(
        slots: u64,
        slot_bytes: u64,
        control_bytes: u64,
        mode: Mode,
    ) -> Result<Self, &'static str> {
        let word = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let geometry = Self {
            slots: word(slots),
            slot_bytes: word(slot_bytes),
            control_bytes: word(control_bytes),
            mode,
        };
        if geometry.slots == 0 || geometry.slots > SLOTS_MAX {
            return Err("the number of slots is not from 1 to 1024");
        }
        if geometry.slot_bytes == 0 || geometry.slot_bytes > SLOT_BYTES_MAX {
            return Err("the size of a slot is not from 1 byte to 16 MiB and 4 KiB");
        }
        if geometry.control_bytes == 0 || geometry.control_bytes > geometry.slot_bytes {
            return Err("control messages are larger than the largest message");
        }
        if geometry.memory_bytes() as u64 > MEMORY_BYTES_MAX {
            return Err("the slots take more than 1 GiB");
        }
        Ok(geometry)
    }

    /// What each side makes: what it is tuned for.
    pub(super) fn tuned(tuning: &HslTuning, class: LaneClass) -> Result<Self, &'static str> {
        let (slots, slot_bytes) = match class {
            LaneClass::Bulk => (tuning.bulk_slots, tuning.bulk_slot_bytes),
            LaneClass::Urgent => (tuning.urgent_slots, tuning.urgent_slot_bytes),
        };
        let control_bytes = tuning.threshold_bytes.min(slot_bytes);
        Self::new(
            slots as u64,
            slot_bytes as u64,
            control_bytes as u64,
            tuning.mode,
        )
    }

    /// Messages that can be on their way.
    pub(super) fn slots(self) -> u32 {
        self.slots
    }

    /// Bytes of the largest message.
    pub(super) fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    /// Bytes of the largest control message.
    pub(super) fn control_bytes(self) -> u32 {
        self.control_bytes
    }

    /// Whether there are messages that do not fit in a control slot.
    pub(super) fn has_rendezvous(self) -> bool {
        self.slot_bytes > self.control_bytes
    }

    /// Where the control slots lie.
    pub(super) fn control_row(self) -> Row {
        row(REGISTERED_AT, self.slots, self.control_bytes)
    }

    /// Where the buffers for rendezvous lie; there may be none.
    pub(super) fn buffer_row(self) -> Row {
        let slots = if self.has_rendezvous() { self.slots } else { 0 };
        row(self.control_row().end(), slots, self.slot_bytes)
    }

    /// Where messages lie, at the other side, before they are put, if it does not write them in place.
    pub(super) fn send_row(self) -> Row {
        row(0, self.slots, self.slot_bytes)
    }

    /// All of the side's memory.
    pub(super) fn memory_bytes(self) -> usize {
        self.buffer_row().end()
    }

    /// The list of the half that receives, at the side whose geometry this is.
    pub(super) fn receiver_list(self) -> ListPlace {
        // The slots, which the half lends that reads the list.
        receiver_place(self.entries(), REGISTERED_AT..self.memory_bytes())
    }

    /// The list of the half that sends, at the other side: it is told what this one has room
    /// for, and answers have no data.
    pub(super) fn sender_list(self) -> ListPlace {
        ListPlace {
            armed_at: SENDER_ARMED_AT,
            head_at: SENDER_HEAD_AT,
            at: SENDER_LIST_AT,
            entries: self.entries(),
            carries: 0..0,
        }
    }

    fn entries(self) -> usize {
        let on_their_way = self.slots + self.buffer_row().slots + REQUESTS_MAX;
        on_their_way.next_power_of_two() as usize * 2
    }
}

/// The list of a half that receives, of which so many entries are used, and where data may go
/// that travels in them.
pub(super) fn receiver_place(entries: usize, carries: Range<usize>) -> ListPlace {
    debug_assert!(entries <= ENTRIES_MAX);
    ListPlace {
        armed_at: RECEIVER_ARMED_AT,
        head_at: RECEIVER_HEAD_AT,
        at: RECEIVER_LIST_AT,
        entries,
        carries: carries.start as u64..carries.end as u64,
    }
}

/// Slots of `slot_bytes`, one after the other; a place each, even if they hold nothing.
pub(super) fn row(at: usize, slots: u32, slot_bytes: u32) -> Row {
    Row {
        at,
        slots,
        slot_bytes,
        stride: (slot_bytes as usize).max(1).next_multiple_of(SLOT_ALIGN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(slots: u64, slot_bytes: u64, control_bytes: u64) -> Result<Geometry, &'static str> {
        Geometry::new(slots, slot_bytes, control_bytes, Mode::Polling)
    }

    #[test]
    fn limits_hold() {
        assert!(geometry(0, 1, 1).is_err());
        assert!(geometry(1, 0, 0).is_err());
        assert!(geometry(1, 1, 2).is_err());
        assert!(geometry(1025, 1, 1).is_err());
        assert!(geometry(1, u64::MAX, 1).is_err());
        assert!(geometry(1024, 16 << 20, 1).is_err(), "16 GiB");
        assert!(geometry(1, u64::from(SLOT_BYTES_MAX), 1).is_ok());
    }

    #[test]
    fn lists_are_large_enough() {
        let largest = geometry(1024, 2, 1).unwrap();
        assert_eq!(largest.receiver_list().entries, ENTRIES_MAX);
        assert_eq!(geometry(64, 2, 2).unwrap().sender_list().entries, 256);
    }

    #[test]
    fn rows_do_not_overlap_and_end_with_the_memory() {
        let geometry = geometry(3, 500, 130).unwrap();
        let (control, buffers) = (geometry.control_row(), geometry.buffer_row());
        assert_eq!(control.at, REGISTERED_AT);
        assert_eq!(control.end(), REGISTERED_AT + 3 * 256);
        assert_eq!(buffers.at, control.end());
        assert_eq!(geometry.memory_bytes(), buffers.at + 3 * 512);
    }

    #[test]
    fn small_messages_need_no_rendezvous() {
        let geometry = geometry(3, 100, 100).unwrap();
        assert!(!geometry.has_rendezvous());
        assert_eq!(geometry.memory_bytes(), geometry.control_row().end());
    }

    #[test]
    fn the_defaults_are_within_the_limits() {
        let tuning = HslTuning::default();
        let urgent = Geometry::tuned(&tuning, LaneClass::Urgent).unwrap();
        assert!(!urgent.has_rendezvous());
        let bulk = Geometry::tuned(&tuning, LaneClass::Bulk).unwrap();
        assert!(bulk.has_rendezvous());
    }
}
