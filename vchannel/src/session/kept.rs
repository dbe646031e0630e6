//! Parts of blocks that wait where they have arrived: in slots of the lane.
//!
//! A slot that waits here cannot be filled again meanwhile, so that only some of a lane's may: the
//! others keep going round, whatever the application does with these.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
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
