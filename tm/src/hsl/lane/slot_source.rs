//! Where the slots are that a lane lends, and the buffers that large messages go to.
//!
//! A card that is a thread of this process stores in memory that both sides map. So can others: where
//! it is mapped here, the buffers of the other side are lent themselves, and what is received from a
//! socket into one of them is there when it is committed.

use crate::hsl::grants::{Grants, places};
use crate::local::loans::{Loans, Row};

/// Slots to fill, and the buffers of the other side, if it has any.
///
/// A buffer is written by one at a time in this process: by whom it is lent to, or by the card, for which
/// it is [taken](Self::take_buffer), so that it is lent to nobody.
#[derive(Debug)]
pub(crate) enum SlotSource {
    /// Slots of this side's memory, from which the card sends what is committed.
    Here {
        /// The slots.
        slots: Loans,
        /// The buffers that may be written.
        buffers: Option<Grants>,
    },
    /// The buffers themselves.
    There(Loans),
}

impl SlotSource {
    /// Slots of this side's, beside as many buffers of the other side's (there may be none).
    pub(crate) fn here(slots: Loans, buffers: u32) -> Self {
        let buffers = (buffers > 0).then(|| Grants::new(buffers));
        Self::Here { slots, buffers }
    }

    /// The slots that are lent.
    pub(super) fn loans(&self) -> &Loans {
        match self {
            Self::Here { slots, .. } => slots,
            Self::There(buffers) => buffers,
        }
    }

    pub(super) fn loans_mut(&mut self) -> &mut Loans {
        match self {
            Self::Here { slots, .. } => slots,
            Self::There(buffers) => buffers,
        }
    }

    pub(super) fn row(&self) -> Row {
        self.loans().row()
    }

    /// Whether a slot can be lent for which there will be a place whatever is put in it, with so many
    /// control slots free.
    pub(super) fn is_any(&self, control: usize) -> bool {
        let loans = self.loans();
        let lent = loans.lent();
        loans.has_free()
            && lent < control
            && match self {
                Self::Here { buffers, .. } => buffers.as_ref().is_none_or(|all| lent < all.len()),
                // Those that are lent are none of the free ones.
                Self::There(_) => true,
            }
    }

    /// Whether there are buffers.
    pub(super) fn has_buffers(&self) -> bool {
        !matches!(self, Self::Here { buffers: None, .. })
    }

    /// Takes a buffer to write `length` bytes.
    pub(super) fn take_buffer(&mut self, length: u32) -> Option<u32> {
        match self {
            Self::Here { buffers, .. } => buffers.as_mut()?.take(),
            Self::There(buffers) => buffers.pass(length),
        }
    }

    /// The buffers of `group` whose bits are set may be written, or what is wrong with that, and then
    /// none of them.
    pub(super) fn grant(&mut self, group: u32, mask: u64) -> Result<(), &'static str> {
        let buffers = match self {
            Self::Here { buffers: None, .. } => return Ok(()),
            Self::Here {
                buffers: Some(buffers),
                ..
            } => return buffers.grant(group, mask),
            Self::There(buffers) => buffers,
        };
        let granted = || places(group, mask, buffers.row().slots);
        if !granted()?.all(|buffer| buffers.is_with_peer(buffer)) {
            return Err("it was free already, or is being filled");
        }
        granted()?.for_each(|buffer| {
            buffers.take_back(buffer);
        });
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::hsl::layout::row;
    use crate::local::free::Reuse;
    use crate::local::memory::Mapping;

    fn there(count: u32) -> SlotSource {
        let row = row(0, count, 100);
        let memory = Mapping::for_card(row.end()).unwrap();
        SlotSource::There(Loans::granted(memory, row, Reuse::InTurn))
    }

    fn here(count: u32) -> SlotSource {
        let row = row(0, count, 100);
        let memory = Mapping::private(row.end()).unwrap();
        SlotSource::here(Loans::new(memory, row, Reuse::Newest), count)
    }

    #[test]
    fn what_is_lent_has_a_control_slot_and_a_buffer_to_come() {
        // There, the first buffer is the slot that is lent.
        for (mut lending, buffer) in [(here(3), 0), (there(3), 1)] {
            assert!(!lending.is_any(9), "nothing is granted");
            lending.grant(0, 0b011).unwrap();
            assert!(lending.is_any(1) && !lending.is_any(0));
            let lent = lending.loans_mut().lend();
            assert!(lending.is_any(2) && !lending.is_any(1));
            assert_eq!(lending.take_buffer(100), Some(buffer));
            assert!(
                !lending.is_any(9),
                "the other buffer is the one of what is lent"
            );
            drop(lent);
            lending.loans_mut().collect_unused();
            assert!(lending.is_any(1));
        }
    }

    #[test]
    fn a_buffer_that_is_lent_cannot_be_granted() {
        let mut lending = there(70);
        lending.grant(1, 0b100).unwrap();
        let lent = lending.loans_mut().lend().unwrap();
        assert!(lending.grant(1, 0b100).is_err());
        let (slot, _) = lending.loans_mut().commit(lent, 100).unwrap();
        assert_eq!(slot, 66);
        lending.grant(1, 0b100).unwrap();
        for (group, mask) in [(1, 0b100), (1, 1 << 6), (2, 1), (u32::MAX, 1)] {
            assert!(lending.grant(group, mask).is_err(), "{group} {mask:b}");
            assert!(here(70).grant(2, 1).is_err());
        }
        assert!(lending.grant(9, 0).is_ok());
    }
}
