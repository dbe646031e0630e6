//! Parts of blocks that wait where they have arrived: in slots of the lane.
//!
//! A slot that waits here cannot be filled again meanwhile, so that only some of a lane's may: the
//! others keep going round, whatever the application does with these. A gateway does not fill all of those
//! that are memory of their host (`ahead`): of what it fills at least, too, only some may wait.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use madgate_tm::{LEAST_AHEAD, ReceivedSlot, Shape};

/// Of the slots of a lane, one in so many may wait.
const SLOTS_PER_KEPT: usize = 4;

/// The slots of one lane that wait.
#[derive(Debug)]
pub(crate) struct KeptSlots {
    waiting: Arc<Waiting>,
    most: usize,
    most_bytes: usize,
}

/// How many slots wait, and how many bytes are in them.
#[derive(Debug, Default)]
struct Waiting {
    slots: AtomicUsize,
    bytes: AtomicUsize,
}

impl KeptSlots {
    /// Those of a lane of this shape, of which a gateway may fill no more than it
    /// [has to](madgate_tm::Stranger::limit_ahead); none of a lane without slots.
    pub(crate) fn of(shape: Shape, is_of_gateway: bool) -> Self {
        let (slots, slot_bytes) = match shape {
            Shape::Static { slots, slot_bytes } => (slots, slot_bytes),
            Shape::Dynamic { .. } => (0, 0),
        };
        let filled = match is_of_gateway {
            true => slots.min(LEAST_AHEAD),
            false => slots,
        };
        Self {
            waiting: Arc::default(),
            most: slots / SLOTS_PER_KEPT,
            most_bytes: filled * slot_bytes / SLOTS_PER_KEPT,
        }
    }

    /// Whether one more may wait, with so many bytes in it. The lane's receiver alone adds to them, so that
    /// it still may when it [does](Self::keep).
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let Waiting {
            slots,
            bytes: waiting,
        } = &*self.waiting;
        slots.load(Ordering::Relaxed) < self.most
            && waiting.load(Ordering::Relaxed) + bytes <= self.most_bytes
    }

    /// These bytes of a slot wait.
    pub(crate) fn keep(&self, slot: ReceivedSlot, range: Range<usize>) -> KeptSlot {
        let bytes = slot.len();
        self.waiting.slots.fetch_add(1, Ordering::Relaxed);
        self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        KeptSlot {
            slot,
            range,
            _mark: Mark {
                waiting: Arc::clone(&self.waiting),
                bytes,
            },
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
struct Mark {
    waiting: Arc<Waiting>,
    bytes: usize,
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.waiting.slots.fetch_sub(1, Ordering::Relaxed);
        self.waiting.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
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

    fn slot(bytes: usize) -> ReceivedSlot {
        ReceivedSlot::detached((0..10).take(bytes).collect())
    }

    /// Of a lane with so many slots, each of which holds ten bytes.
    fn kept(slots: usize, is_of_gateway: bool) -> KeptSlots {
        let slot_bytes = 10;
        KeptSlots::of(Shape::Static { slot_bytes, slots }, is_of_gateway)
    }

    #[test]
    fn a_quarter_of_the_slots_may_wait() {
        let kept = kept(9, false);
        let one = kept.keep(slot(10), 0..10);
        assert!(kept.has_room(10));
        let other = kept.keep(slot(10), 0..10);
        assert!(!kept.has_room(0));
        drop(one);
        assert!(kept.has_room(10));
        drop(other);
        assert!(!KeptSlots::of(Shape::Dynamic { gather_limit: 9 }, false).has_room(0));
    }

    #[test]
    fn of_what_a_gateway_fills_at_least_a_quarter_may_wait() {
        // Ten in each slot: twenty of the eighty that are filled ahead at least.
        for (slots, sizes) in [
            (40, &[10, 10][..]),
            (40, &[9, 2, 2, 2, 2, 2, 1]),
            // No more than a quarter of all slots, however little is in them.
            (40, &[1; 10]),
            (4, &[10]),
        ] {
            let kept = kept(slots, true);
            let mut waiting: Vec<_> = Vec::new();
            for &size in sizes {
                assert!(kept.has_room(size), "{size} of {sizes:?}");
                waiting.push(kept.keep(slot(size), 0..1));
            }
            assert!(!kept.has_room(1), "{sizes:?}");
            waiting.pop();
            assert!(kept.has_room(1), "{sizes:?}");
        }
    }

    #[test]
    fn copies_are_joined_and_slots_are_not() {
        let kept = kept(9, false);
        let mut parts = Parts::default();
        for byte in 0..100 {
            parts.push(Contents::Shared(Bytes::from(vec![byte])));
            parts.push_copied(1, |into| into.fill(byte));
        }
        parts.push(Contents::Slot(kept.keep(slot(10), 0..10)));
        parts.push(Contents::Shared(vec![1; JOINED_MOST + 1].into()));
        parts.push_copied(2, |into| into.fill(7));
        let lengths: Vec<_> = parts.into_vec().iter().map(Contents::len).collect();
        assert_eq!(lengths, [200, 10, JOINED_MOST + 1, 2]);
    }

    #[test]
    fn a_slot_goes_back_when_what_was_in_it_is_copied() {
        let kept = kept(4, false);
        let mut contents = Contents::Slot(kept.keep(slot(10), 3..9));
        assert!(!kept.has_room(1));
        contents.copy_kept();
        assert!(kept.has_room(1));
        let mut copy = [0; 6];
        contents.copy_out(0, &mut copy);
        assert_eq!(copy, [3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn bytes_are_those_of_the_range() {
        let kept = kept(9, false);
        for contents in [
            Contents::Slot(kept.keep(slot(10), 3..9)),
            Contents::Shared(Bytes::from_static(&[3, 4, 5, 6, 7, 8])),
        ] {
            assert_eq!(contents.len(), 6);
            let mut some = [0; 2];
            contents.copy_out(4, &mut some);
            assert_eq!(some, [7, 8]);
        }
    }
}
