//! A piece of memory to be sent, as the kernel takes it. Unsafe island: the one place where
//! a raw pointer and a length stand for memory that somebody lent.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

use crate::copying::copy;

/// Bytes to send, borrowed for `'a`, in the form that a gather call takes.
///
/// It can refer to memory that is not a `&[u8]`: cells that the caller may still change, or
/// a slot that another process may write although it should not. So its bytes are never
/// seen in place; they are copied ([`copy_to`](Self::copy_to)) or handed to the kernel.
///
/// A piece stays on its thread (it is neither `Send` nor `Sync`): [`Cell`]s may only be
/// read by the thread that can also write them.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Piece<'a> {
    /// Invariant: `iov_base` is valid for reads of `iov_len` bytes for all of `'a`, through
    /// raw pointers or by the kernel; it need not be free of racing writes by other
    /// processes.
    vector: libc::iovec,
    memory: PhantomData<&'a [Cell<u8>]>,
}

const _: () = assert!(
    mem::size_of::<Piece<'static>>() == mem::size_of::<libc::iovec>()
        && mem::align_of::<Piece<'static>>() == mem::align_of::<libc::iovec>()
);

impl<'a> Piece<'a> {
    /// Refers to ordinary memory.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        // SAFETY: a shared slice is valid for reads of its length for its lifetime.
        unsafe { Self::from_raw(bytes.as_ptr(), bytes.len()) }
    }

    /// Refers to memory that the owner may change until the bytes are taken.
    #[must_use]
    pub fn from_cells(cells: &'a [Cell<u8>]) -> Self {
        // SAFETY: `Cell<u8>` has the layout of `u8`, so the slice is valid for reads of its
        // length for its lifetime. Cells are not `Sync` and a piece is not `Send`, so no
        // other thread writes while this one reads.
        unsafe { Self::from_raw(cells.as_ptr().cast::<u8>(), cells.len()) }
    }

    /// Refers to any memory.
    ///
    /// # Safety
    /// `start` must be valid for reads of `length` bytes for all of `'a` (see the field's
    /// invariant), within one allocation or mapping.
    pub(crate) unsafe fn from_raw(start: *const u8, length: usize) -> Self {
        Self {
            vector: libc::iovec {
                iov_base: start.cast_mut().cast::<libc::c_void>(),
                iov_len: length,
            },
            memory: PhantomData,
        }
    }

    /// Where it starts; valid for reads of its length while the piece lives.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.vector.iov_base.cast_const().cast()
    }

    /// Its memory: valid for reads, through raw pointers, while the piece lives.
    pub(crate) fn memory(&self) -> NonNull<[u8]> {
        // Null is valid for no reads, so there are none where it is.
        let start = NonNull::new(self.vector.iov_base.cast()).unwrap_or(NonNull::dangling());
        NonNull::slice_from_raw_parts(start, self.len())
    }

    /// Bytes that it refers to.
    #[must_use]
    pub fn len(&self) -> usize {
        self.vector.iov_len
    }

    /// Whether it refers to none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the first `count` bytes, which have been taken.
    ///
    /// # Panics
    /// When the piece is shorter than that.
    pub fn advance(&mut self, count: usize) {
        assert!(
            count <= self.len(),
            "a piece of {} bytes advanced by {count}",
            self.len()
        );
        // SAFETY: `count` is at most the length, so the result is within the memory or one
        // past its end, and the rest keeps the invariant.
        let start = unsafe { self.vector.iov_base.cast::<u8>().add(count) };
        self.vector.iov_base = start.cast::<libc::c_void>();
        self.vector.iov_len -= count;
    }

    /// The first `length` bytes only (all, when there are fewer).
    #[must_use]
    pub fn truncated(mut self, length: usize) -> Self {
        self.vector.iov_len = self.len().min(length);
        self
    }

    /// Drops the first `count` bytes of a gather list, as after a partial write: pieces
    /// that are done leave the front of the list. Empty ones leave it too.
    ///
    /// # Panics
    /// When the list holds fewer bytes.
    pub fn advance_slice(pieces: &mut &mut [Piece<'a>], mut count: usize) {
        let mut rest = mem::take(pieces);
        while let Some(first) = rest.first_mut() {
            if first.len() > count {
                first.advance(count);
                count = 0;
                break;
            }
            count -= first.len();
            rest = &mut mem::take(&mut rest)[1..];
        }
        assert!(
            count == 0,
            "a gather list advanced by {count} bytes more than it holds"
        );
        *pieces = rest;
    }

    /// Copies as much as both hold; returns how much that is.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let count = self.len().min(into.len());
        // SAFETY: bounds: `count` is at most either length. The source is valid for reads
        // (invariant) and the target for writes (exclusive slice). They do not overlap: an
        // exclusive slice shares no memory with anything that is lent for `'a`. Bytes have
        // no alignment and every value is valid. Another *process* may be writing the
        // source (a slot that a hostile peer mapped); it is outside of this program's
        // memory model, and any mix of old and new bytes is an acceptable outcome.
        unsafe {
            copy(self.vector.iov_base.cast::<u8>(), into.as_mut_ptr(), count);
        }
        count
    }
}

impl<'a> From<&'a [u8]> for Piece<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::new(bytes)
    }
}

impl<'a> From<&'a [Cell<u8>]> for Piece<'a> {
    fn from(cells: &'a [Cell<u8>]) -> Self {
        Self::from_cells(cells)
    }
}

impl Default for Piece<'_> {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(piece: Piece<'_>) -> Vec<u8> {
        let mut copy = vec![0; piece.len()];
        assert_eq!(piece.copy_to(&mut copy), copy.len());
        copy
    }

    #[test]
    fn advance_drops_what_was_taken() {
        let mut piece = Piece::new(b"madeleine");
        piece.advance(4);
        assert_eq!(text(piece), b"leine");
        assert_eq!(text(piece.truncated(2)), b"le");
        piece.advance(5);
        assert!(piece.is_empty());
    }

    #[test]
    #[should_panic(expected = "advanced by 2")]
    fn advance_beyond_the_end_panics() {
        Piece::new(b"a").advance(2);
    }

    #[test]
    fn copy_takes_the_shorter_length() {
        let mut small = [0; 2];
        assert_eq!(Piece::new(b"abc").copy_to(&mut small), 2);
        assert_eq!(&small, b"ab");
        let mut large = [7; 4];
        assert_eq!(Piece::new(b"abc").copy_to(&mut large), 3);
        assert_eq!(&large, b"abc\x07");
    }

    #[test]
    fn cells_are_read_when_copied() {
        let cells = [Cell::new(1), Cell::new(2)];
        let piece = Piece::from_cells(&cells);
        cells[1].set(9);
        assert_eq!(text(piece), [1, 9]);
    }

    #[test]
    fn a_list_advances_over_whole_pieces() {
        let mut storage = [
            Piece::new(b"ab"),
            Piece::new(b""),
            Piece::new(b"cde"),
            Piece::new(b"f"),
        ];
        let mut list = &mut storage[..];
        Piece::advance_slice(&mut list, 3);
        assert_eq!(list.len(), 2);
        assert_eq!(text(list[0]), b"de");
        Piece::advance_slice(&mut list, 2);
        assert_eq!(text(list[0]), b"f");
        Piece::advance_slice(&mut list, 1);
        assert!(list.is_empty());
        Piece::advance_slice(&mut list, 0);
    }

    #[test]
    #[should_panic(expected = "1 bytes more")]
    fn a_list_does_not_advance_beyond_its_end() {
        let mut storage = [Piece::new(b"ab")];
        Piece::advance_slice(&mut &mut storage[..], 3);
    }
}
