//! Parts of blocks that wait where they have arrived: in slots of the lane.
//!
//! A slot that waits here cannot be filled again meanwhile, so that only some of a lane's may: the
//! others keep going round, whatever the application does with these.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use madgate_tm::{ReceivedSlot, Shape};

/// Of the slots of a lane, one in so many may wait.
const SLOTS_PER_KEPT: usize = 4;

/// The slots of one lane that wait.
#[derive(Debug)]
pub(crate) struct KeptSlots {
    count: Arc<AtomicUsize>,
    most: usize,
}

impl KeptSlots {
    /// Those of a lane of this shape; none of a lane without slots.
    pub(crate) fn of(shape: Shape) -> Self {
        let most = match shape {
            Shape::Static { slots, .. } => slots / SLOTS_PER_KEPT,
            Shape::Dynamic { .. } => 0,
        };
        Self {
            count: Arc::new(AtomicUsize::new(0)),
            most,
        }
    }

    /// Whether one more may wait. The lane's receiver alone adds to them, so that it still may
    /// when it [does](Self::keep).
    pub(crate) fn has_room(&self) -> bool {
        self.count.load(Ordering::Relaxed) < self.most
    }

    /// These bytes of a slot wait.
    pub(crate) fn keep(&self, slot: ReceivedSlot, range: Range<usize>) -> KeptSlot {
        self.count.fetch_add(1, Ordering::Relaxed);
        KeptSlot {
            slot,
            range,
            _mark: Mark(Arc::clone(&self.count)),
        }
    }
}

/// Bytes in a slot, which goes back when this is dropped.
#[derive(Debug)]
pub(crate) struct KeptSlot {
    slot: ReceivedSlot,
    range: Range<usize>,
    _mark: Mark,
}

impl KeptSlot {
    /// The slot, which does not wait after all.
    pub(crate) fn into_slot(self) -> ReceivedSlot {
        self.slot
    }
}

/// One of those that are counted.
#[derive(Debug)]
struct Mark(Arc<AtomicUsize>);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that are where they have arrived, or were put when they did.
#[derive(Debug)]
pub(crate) enum Contents {
    /// In memory of this process alone.
    Shared(Bytes),
    /// In a slot.
    Slot(KeptSlot),
}

impl Contents {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Shared(bytes) => bytes.len(),
            Self::Slot(kept) => kept.range.len(),
        }
    }

    /// Copies the bytes at `offset`.
    ///
    /// # Panics
    /// When there are not so many.
    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        match self {
            Self::Shared(bytes) => into.copy_from_slice(&bytes[offset..offset + into.len()]),
            Self::Slot(kept) => {
                assert!(offset + into.len() <= kept.range.len());
                kept.slot.copy_out(kept.range.start + offset, into);
            }
        }
    }
}

impl Contents {
    /// What is in a slot is put into memory of this process.
    pub(crate) fn copy_kept(&mut self) {
        if let Self::Slot(kept) = self {
            let mut copy = vec![0; kept.range.len()];
            self.copy_out(0, &mut copy);
            *self = Self::Shared(copy.into());
        }
    }
}

/// Copies up to this size are joined with those next to them.
const JOINED_MOST: usize = 4 << 10;

/// The parts of a block, in order. Small ones that are copies anyway become one: a block that came in
/// crumbs takes no more memory than its bytes.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: Vec<Contents>,
    /// Copies behind those.
    copied: BytesMut,
}

impl Parts {
    pub(crate) fn push(&mut self, contents: Contents) {
        match contents {
            Contents::Shared(bytes) if bytes.len() <= JOINED_MOST => {
                self.copied.extend_from_slice(&bytes);
            }
            large => {
                self.cut();
                self.parts.push(large);
            }
        }
    }

    /// Appends `length` bytes that `copy` writes.
    pub(crate) fn push_copied(&mut self, length: usize, copy: impl FnOnce(&mut [u8])) {
        let start = self.copied.len();
        self.copied.resize(start + length, 0);
        copy(&mut self.copied[start..]);
    }

    pub(crate) fn into_vec(mut self) -> Vec<Contents> {
        self.cut();
        self.parts
    }

    fn cut(&mut self) {
        if !self.copied.is_empty() {
            let joined = std::mem::take(&mut self.copied).freeze();
            self.parts.push(Contents::Shared(joined));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> ReceivedSlot {
        ReceivedSlot::detached((0..10).collect())
    }

    #[test]
    fn a_quarter_of_the_slots_may_wait() {
        let kept = KeptSlots::of(Shape::Static {
            slot_bytes: 10,
            slots: 9,
        });
        let one = kept.keep(slot(), 0..10);
        assert!(kept.has_room());
        let other = kept.keep(slot(), 0..10);
        assert!(!kept.has_room());
        drop(one);
        assert!(kept.has_room());
        drop(other);
        assert!(!KeptSlots::of(Shape::Dynamic { gather_limit: 9 }).has_room());
    }

    #[test]
    fn copies_are_joined_and_slots_are_not() {
        let kept = KeptSlots::of(Shape::Static {
            slot_bytes: 10,
            slots: 9,
        });
        let mut parts = Parts::default();
        for byte in 0..100 {
            parts.push(Contents::Shared(Bytes::from(vec![byte])));
            parts.push_copied(1, |into| into.fill(byte));
        }
        parts.push(Contents::Slot(kept.keep(slot(), 0..10)));
        parts.push(Contents::Shared(vec![1; JOINED_MOST + 1].into()));
        parts.push_copied(2, |into| into.fill(7));
        let lengths: Vec<_> = parts.into_vec().iter().map(Contents::len).collect();
        assert_eq!(lengths, [200, 10, JOINED_MOST + 1, 2]);
    }

    #[test]
    fn a_slot_goes_back_when_what_was_in_it_is_copied() {
        let kept = KeptSlots::of(Shape::Static {
            slot_bytes: 10,
            slots: 4,
        });
        let mut contents = Contents::Slot(kept.keep(slot(), 3..9));
        assert!(!kept.has_room());
        contents.copy_kept();
        assert!(kept.has_room());
        let mut copy = [0; 6];
        contents.copy_out(0, &mut copy);
        assert_eq!(copy, [3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn bytes_are_those_of_the_range() {
        let kept = KeptSlots::of(Shape::Static {
            slot_bytes: 10,
            slots: 9,
        });
        for contents in [
            Contents::Slot(kept.keep(slot(), 3..9)),
            Contents::Shared(Bytes::from_static(&[3, 4, 5, 6, 7, 8])),
        ] {
            assert_eq!(contents.len(), 6);
            let mut some = [0; 2];
            contents.copy_out(4, &mut some);
            assert_eq!(some, [7, 8]);
        }
    }
}
