//! Memory of this process that a card reads, or the other side writes, while nobody here refers
//! to it. Unsafe island: takes vectors apart, and puts them together again.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::put::{Name, Target};
use crate::hsl::host::FOREIGN;

/// Memory of this process that somebody else may be using: nobody here refers to it until it is
/// back.
#[derive(Debug)]
pub struct LentOut {
    /// Invariant: with `capacity`, the parts of a `Vec`, which is nowhere else.
    memory: NonNull<[u8]>,
    capacity: usize,
    /// Whether another process knows the address, which this one cannot keep from it.
    is_told: bool,
}

// SAFETY: it owns the memory like the vector that it came from, and gives out no reference.
unsafe impl Send for LentOut {}
// SAFETY: as above: shared, it only gives out addresses.
unsafe impl Sync for LentOut {}

impl LentOut {
    /// Takes memory away from this process. It stays where it is.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        // Not of the slice: what this points to is all that was allocated.
        let start = NonNull::new(bytes.as_mut_ptr()).expect("a vector points somewhere");
        Self {
            memory: NonNull::slice_from_raw_parts(start, bytes.len()),
            capacity: bytes.capacity(),
            is_told: false,
        }
    }

    /// The vector again.
    ///
    /// # Safety
    /// Once, and nothing of this is used after that.
    unsafe fn to_vec(&self) -> Vec<u8> {
        let (start, length) = (self.memory.cast::<u8>().as_ptr(), self.memory.len());
        // SAFETY: these are the parts of a vector that was taken apart (invariant), and which the
        // caller puts together once.
        unsafe { Vec::from_raw_parts(start, length, self.capacity) }
    }

    /// `length` bytes at `offset`. The pointer is good for reads and writes as long as this is
    /// there.
    pub(crate) fn range(&self, offset: usize, length: usize) -> NonNull<[u8]> {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.memory.len()),
            "{length} bytes at {offset} of {}",
            self.memory.len()
        );
        // SAFETY: `offset` is within the memory, which is one allocation.
        let start = unsafe { self.memory.cast::<u8>().add(offset) };
        NonNull::slice_from_raw_parts(start, length)
    }
}

impl Target for LentOut {
    fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// The address, which a card of this host writes to without asking. From here on the memory is
    /// never freed until [`back`](Target::back).
    fn tell(&mut self) -> (u64, Name) {
        self.is_told = true;
        let address = self.memory.as_ptr().cast::<u8>().expose_provenance();
        (FOREIGN | address as u64, Name::default())
    }

    fn back(self) -> Vec<u8> {
        let this = ManuallyDrop::new(self);
        // SAFETY: this is consumed, and not dropped.
        unsafe { this.to_vec() }
    }
}

impl Drop for LentOut {
    fn drop(&mut self) {
        // What the other side was told of it may still write: that memory must not become
        // anything else, and is lost. It is at most what was posted when a connection ended.
        if !self.is_told {
            // SAFETY: this is being dropped.
            drop(unsafe { self.to_vec() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_write_is_there_when_it_is_back() {
        let mut lent = LentOut::new(vec![1; 10]);
        let (address, _) = lent.tell();
        let start = lent.range(4, 3).cast::<u8>();
        assert_eq!(address & !FOREIGN, start.addr().get() as u64 - 4);
        // SAFETY: three bytes of memory that nobody refers to (`range`).
        unsafe { start.write_bytes(7, 3) };
        assert_eq!(lent.back(), [1, 1, 1, 1, 7, 7, 7, 1, 1, 1]);
        drop(LentOut::new(vec![1; 10]));
    }

    #[test]
    fn memory_stays_where_it_is_with_what_else_was_allocated_for_it() {
        for length in [0, 10] {
            let mut bytes = Vec::with_capacity(1000);
            bytes.resize(length, 7);
            let (start, capacity) = (bytes.as_ptr(), bytes.capacity());
            let lent = LentOut::new(bytes);
            assert_eq!(
                lent.range(0, length).cast::<u8>().as_ptr().cast_const(),
                start
            );
            let mut back = lent.back();
            assert_eq!((back.as_ptr(), back.capacity()), (start, capacity));
            assert_eq!(back, vec![7; length]);
            back.resize(capacity, 1);
            assert_eq!(back.as_ptr(), start);
        }
    }

    #[test]
    #[should_panic(expected = "7 bytes at 4 of 10")]
    fn a_range_beyond_the_end_panics() {
        let _ = LentOut::new(vec![1; 10]).range(4, 7);
    }
}
