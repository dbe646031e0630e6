//! Where things are in the memory that one side of a port makes, and what both sides tell each
//! other about it.
//!
//! ```text
//!         0  control and list, as in a lane's
//! 1,052,672  control slots, where the other side puts short messages
//!            answers, a list of segments for each request of this side's
//!            buffers, for messages that nothing has been posted for
//!            staging, where this side's short messages and answers are put from
//!            the arena
//! ```
//!
//! | bytes of the greeting | |
//! |---|---|
//! | 8–9 | control slots |
//! | 10–11 | buffers |
//! | 12–15 | bytes of a control slot |
//! | 16–19 | bytes of a buffer |
//! | 20 | how it is told: 0 polling, 1 interrupt, 2 adaptive |
//! | 21–23 | its process, where its unregistered memory may be written, else 0 |
//! | 24–31 | bytes of the arena |
//!
//! A segment of an answer:
//!
//! | bytes | |
//! |---|---|
//! | 0–7 | where it begins; with the highest bit, in memory outside of the arena |
//! | 8–11 | bytes of it |
//! | 12–15 | reserved, zero |
//! | 16–23 | what the card there calls memory outside of the arena, where it does: the key, |
//! | 24–31 | and the address |

use std::num::NonZeroU32;

use super::PortTuning;
use crate::hsl::greeting::{mode_code, mode_of};
use crate::hsl::host::{ListPlace, Mode};
use crate::hsl::layout::{MEMORY_BYTES_MAX, REGISTERED_AT, REQUESTS_MAX, receiver_place, row};
use crate::hsl::message::GROUP;
use crate::local::greeting::{Dialect, TERMS_BYTES};
use crate::local::loans::Row;
use crate::local::memory::FETCHED_BYTES;

/// What greetings begin with.
pub(super) const DIALECT: Dialect = Dialect {
    magic: *b"MGRP",
    version: 3,
};

/// Control slots of one side at most, and buffers: one group.
const SLOTS_MAX: u32 = GROUP;
/// Segments of an answer at most; a message whose memory has more takes several answers.
pub(super) const SEGMENTS_MAX: usize = 32;
/// Bytes of a segment in an answer.
pub(super) const SEGMENT_BYTES: usize = 32;
/// Entries of a list: short messages, credit, and three for each request.
const ENTRIES: usize = (2 * SLOTS_MAX + 3 * REQUESTS_MAX).next_power_of_two() as usize * 2;

/// What one side receives with, and how it wants to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hsl) struct Geometry {
    slots: u32,
    buffers: u32,
    control_bytes: u32,
    buffer_bytes: u32,
    arena_bytes: u64,
    pub(in crate::hsl) mode: Mode,
    /// The process whose unregistered memory may be written too, if it may.
    pub(in crate::hsl) foreign: Option<NonZeroU32>,
}

impl Geometry {
    /// What is wrong with it, if anything is.
    fn checked(self) -> Result<Self, &'static str> {
        if !(2..=SLOTS_MAX).contains(&self.slots) || self.buffers > SLOTS_MAX {
            return Err("there are 2 to 64 control slots, and up to 64 buffers");
        }
        if self.control_bytes == 0 {
            return Err("control messages have no bytes");
        }
        if self.buffers > 0 && self.buffer_bytes == 0 {
            return Err("buffers have no bytes");
        }
        let slots = u64::from(2 * self.slots) * u64::from(self.control_bytes);
        let buffers = u64::from(self.buffers) * u64::from(self.buffer_bytes);
        let sum = (slots + buffers).checked_add(self.arena_bytes);
        if sum.is_none_or(|sum| sum > MEMORY_BYTES_MAX) {
            return Err("slots, buffers and arena take more than 1 GiB");
        }
        Ok(self)
    }

    /// What a side makes: what it is tuned for.
    pub(in crate::hsl) fn tuned(tuning: &PortTuning) -> Result<Self, &'static str> {
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            slots: word(tuning.slots),
            buffers: word(tuning.buffers),
            control_bytes: word(tuning.threshold_bytes),
            buffer_bytes: word(tuning.buffer_bytes),
            arena_bytes: tuning.arena_bytes as u64,
            mode: tuning.mode,
            foreign: tuning
                .foreign
                .then(std::process::id)
                .and_then(NonZeroU32::new),
        }
        .checked()
    }

    pub(in crate::hsl) fn encode(self) -> [u8; TERMS_BYTES] {
        let mut bytes = [0; TERMS_BYTES];
        let half = |number: u32| u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes();
        bytes[0..2].copy_from_slice(&half(self.slots));
        bytes[2..4].copy_from_slice(&half(self.buffers));
        bytes[4..8].copy_from_slice(&self.control_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.buffer_bytes.to_le_bytes());
        bytes[12] = mode_code(self.mode);
        // The system's numbers of processes have 22 bits.
        let process = self.foreign.map_or(0, NonZeroU32::get);
        bytes[13..16].copy_from_slice(&process.to_le_bytes()[..3]);
        bytes[16..24].copy_from_slice(&self.arena_bytes.to_le_bytes());
        bytes
    }

    /// The geometry that was said, or what is wrong with it.
    pub(in crate::hsl) fn decode(bytes: &[u8; TERMS_BYTES]) -> Result<Self, String> {
        let [
            s0,
            s1,
            n0,
            n1,
            c0,
            c1,
            c2,
            c3,
            b0,
            b1,
            b2,
            b3,
            mode,
            p0,
            p1,
            p2,
            arena @ ..,
        ] = *bytes;
        let geometry = Self {
            slots: u16::from_le_bytes([s0, s1]).into(),
            buffers: u16::from_le_bytes([n0, n1]).into(),
            control_bytes: u32::from_le_bytes([c0, c1, c2, c3]),
            buffer_bytes: u32::from_le_bytes([b0, b1, b2, b3]),
            arena_bytes: u64::from_le_bytes(arena),
            mode: mode_of(mode)?,
            foreign: NonZeroU32::new(u32::from_le_bytes([p0, p1, p2, 0])),
        };
        Ok(geometry.checked()?)
    }

    pub(super) fn control_bytes(self) -> u32 {
        self.control_bytes
    }

    pub(super) fn control_row(self) -> Row {
        row(REGISTERED_AT, self.slots, self.control_bytes)
    }

    pub(super) fn staging_row(self) -> Row {
        let bytes = self.control_bytes.max(ANSWER_BYTES);
        row(self.buffer_row().end(), self.slots, bytes)
    }

    pub(super) fn answer_row(self) -> Row {
        row(self.control_row().end(), REQUESTS_MAX, ANSWER_BYTES)
    }

    pub(super) fn buffer_row(self) -> Row {
        row(self.answer_row().end(), self.buffers, self.buffer_bytes)
    }

    /// Where the arena begins, and how many bytes it has.
    pub(super) fn arena(self) -> (usize, usize) {
        // Less than the memory, which is bounded.
        let bytes = usize::try_from(self.arena_bytes).unwrap_or(0);
        (self.staging_row().end(), bytes)
    }

    /// All of the side's memory, in whole lines of it: more may be put behind.
    pub(in crate::hsl) fn memory_bytes(self) -> usize {
        let (at, bytes) = self.arena();
        (at + bytes).next_multiple_of(FETCHED_BYTES)
    }

    /// The list that the other side writes, where a card of this host does.
    pub(in crate::hsl) fn list(self) -> ListPlace {
        let carries = match self.mode {
            // What is lent is lent by the thread that reads the list, and it alone reads answers.
            // Cards may read staging, and anybody the arena.
            Mode::Polling | Mode::Adaptive => REGISTERED_AT..self.buffer_row().end(),
            // A handler thread reads it.
            Mode::Interrupt => 0..0,
        };
        receiver_place(ENTRIES, carries)
    }

    /// The same, where a card of libfabric's writes it: ports have those send from memory alone that
    /// is registered, which never travels in entries.
    pub(in crate::hsl) fn fabric_list() -> ListPlace {
        receiver_place(ENTRIES, 0..0)
    }
}

const ANSWER_BYTES: u32 = 1024;
const _: () = assert!(SEGMENTS_MAX * SEGMENT_BYTES == ANSWER_BYTES as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn geometry() -> Geometry {
        Geometry::tuned(&PortTuning::default()).unwrap()
    }

    #[test]
    fn golden_bytes() {
        let mut golden = *b"\x20\0\x04\0\0\x40\0\0\0\0\x10\0\x02\0\0\0________";
        golden[16..24].copy_from_slice(&(16_u64 << 20).to_le_bytes());
        assert_eq!(geometry().encode(), golden);
        assert_eq!(Geometry::decode(&golden), Ok(geometry()));
    }

    #[test]
    fn limits_hold() {
        for change in [
            |tuning: &mut PortTuning| tuning.slots = 1,
            |tuning: &mut PortTuning| tuning.slots = 65,
            |tuning: &mut PortTuning| tuning.buffers = 65,
            |tuning: &mut PortTuning| tuning.threshold_bytes = 0,
            |tuning: &mut PortTuning| tuning.buffer_bytes = 0,
            |tuning: &mut PortTuning| tuning.arena_bytes = usize::MAX,
            |tuning: &mut PortTuning| tuning.buffer_bytes = usize::MAX,
        ] {
            let mut tuning = PortTuning::default();
            change(&mut tuning);
            assert!(Geometry::tuned(&tuning).is_err(), "{tuning:?}");
        }
    }

    #[test]
    fn there_need_be_no_buffers_whatever_they_would_hold() {
        for buffer_bytes in [0, 1 << 20] {
            let tuning = PortTuning {
                buffers: 0,
                buffer_bytes,
                ..PortTuning::default()
            };
            let row = Geometry::tuned(&tuning).unwrap().buffer_row();
            assert_eq!(row.end(), row.at);
            assert_eq!(row.slots_in(&(row.at..row.at + 1)), 0..0);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes: [u8; TERMS_BYTES]) {
            if let Ok(geometry) = Geometry::decode(&bytes) {
                prop_assert!(geometry.memory_bytes() < 2 << 30);
                prop_assert_eq!(geometry.encode(), bytes);
            }
        }
    }
}
