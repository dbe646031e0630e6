//! What travels through a lane's rings.
//!
//! ```text
//!   63     62 ......... 32   31 .......... 0
//!  phase       slot              length
//! ```

/// What an entry says: this slot, with so many bytes in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Number of the slot; at most [`SLOT_MAX`].
    pub(super) slot: u32,
    /// Bytes in it (zero where a slot is only given back).
    pub(super) length: u32,
}

/// The largest number that an entry has room for.
const SLOT_MAX: u32 = u32::MAX >> 1;

impl Entry {
    pub(super) fn to_words(self) -> [u64; 1] {
        debug_assert!(self.slot <= SLOT_MAX);
        [u64::from(self.slot & SLOT_MAX) << 32 | u64::from(self.length)]
    }

    pub(super) fn from_words([word]: [u64; 1]) -> Self {
        let bytes = word.to_le_bytes();
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let slot = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) & SLOT_MAX;
        Self { slot, length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_what_the_picture_says() {
        let entry = Entry { slot: 3, length: 9 };
        assert_eq!(entry.to_words(), [3 << 32 | 9]);
        let largest = Entry {
            slot: SLOT_MAX,
            length: u32::MAX,
        };
        assert_eq!(largest.to_words(), [u64::MAX >> 1]);
        for entry in [entry, largest] {
            assert_eq!(Entry::from_words(entry.to_words()), entry);
        }
    }
}
