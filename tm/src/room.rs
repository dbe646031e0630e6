//! Memory to receive into, as the kernel takes it: what a [`Piece`] is for sending. Unsafe island: a
//! raw pointer and a length stand for memory that somebody lent to be filled.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::copying::copy;
use crate::piece::Piece;

/// Memory to fill, borrowed for `'a`.
///
/// It can be memory that another process writes too, although it should not: its bytes are never seen
/// in place. They are [copied in](Self::put) or written by the kernel, and [copied out](Self::first).
///
/// As a piece, it stays on its thread.
pub struct Room<'a> {
    /// Invariant: initialised, valid for writes and reads for all of `'a`, through raw pointers or by
    /// the kernel, and within this process reached through this room alone; it need not be free of
    /// racing accesses by other processes.
    memory: NonNull<[u8]>,
    lent: PhantomData<&'a mut [Cell<u8>]>,
}

impl<'a> Room<'a> {
    /// Ordinary memory.
    #[must_use]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self {
            memory: NonNull::from(bytes),
            lent: PhantomData,
        }
    }

    /// Any memory.
    ///
    /// # Safety
    /// See the invariant of the field.
    pub(crate) unsafe fn from_raw(memory: NonNull<[u8]>) -> Self {
        Self {
            memory,
            lent: PhantomData,
        }
    }

    /// Where it starts; valid for writes of its length while the room lives.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_ptr().cast()
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same room, for a while.
    #[must_use]
    pub fn reborrow(&mut self) -> Room<'_> {
        Room {
            memory: self.memory,
            lent: PhantomData,
        }
    }

    /// What is in its first `length` bytes (in all, where there are fewer): what came, or else what an
    /// earlier use has left.
    #[must_use]
    pub fn first(&self, length: usize) -> Piece<'_> {
        // SAFETY: valid for reads (invariant), as long as the room is borrowed, which keeps it from
        // being filled meanwhile.
        let all = unsafe { Piece::from_raw(self.memory.as_ptr().cast(), self.len()) };
        all.truncated(length)
    }

    /// Copies `piece` to its beginning.
    ///
    /// # Panics
    /// When the room does not hold as much, as copying to a slice does.
    pub fn put(&mut self, piece: Piece<'_>) {
        assert!(
            piece.len() <= self.len(),
            "{} bytes put into a room of {}",
            piece.len(),
            self.len()
        );
        // SAFETY: bounds: asserted. The source is valid for reads (the invariant of `Piece`), and the
        // target for writes. They do not overlap: within this process the memory is reached through
        // this room alone, so no piece refers to it. Bytes have no alignment and every value is valid.
        // Another *process* may access either meanwhile; it is outside of this program's memory
        // model, and any mix of old and new bytes is an acceptable outcome.
        unsafe { copy(piece.as_ptr(), self.as_mut_ptr(), piece.len()) };
    }
}

impl Default for Room<'_> {
    /// No room.
    fn default() -> Self {
        Self::new(&mut [])
    }
}

impl<'a> From<&'a mut [u8]> for Room<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self::new(bytes)
    }
}

impl fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Room({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_there() {
        let mut memory = [0; 5];
        let mut room = Room::new(&mut memory);
        room.put(Piece::new(b"abcde"));
        room.reborrow().put(Piece::new(b"xy"));
        let mut there = [0; 9];
        assert_eq!(room.first(3).copy_to(&mut there), 3);
        assert_eq!(room.first(9).copy_to(&mut there), 5);
        assert_eq!(&there, b"xycde\0\0\0\0");
        assert_eq!(&memory, b"xycde");
        Room::default().put(Piece::default());
    }

    #[test]
    #[should_panic(expected = "2 bytes put into a room of 1")]
    fn what_does_not_fit_panics() {
        Room::new(&mut [0]).put(Piece::new(b"ab"));
    }
}
