//! Copies of blocks whose memory was given back before they are delivered: many in one piece of
//! memory, which is used again once all of them are.

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use madgate_tm::Piece;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// The copies that one flow sends. They are delivered in order, so that pieces become free in the order
/// in which they were filled; there are as many as hold what the flow may retain.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// The piece that is being filled: what is left of it.
    piece: Option<BytesMut>,
    /// Full ones, the oldest first.
    full: VecDeque<BytesMut>,
}

impl Copies {
    /// Longer blocks are copied into memory of their own: what that costs is little beside the
    /// copying.
    pub(crate) const LONGEST_BYTES: usize = 16 << 10;

    /// A copy of a block.
    pub(crate) fn of_bytes(&mut self, block: &[u8]) -> Bytes {
        if block.len() > Self::LONGEST_BYTES {
            return Bytes::copy_from_slice(block);
        }
        let piece = self.piece_for(block.len());
        piece.extend_from_slice(block);
        piece.split().freeze()
    }

    /// A copy of what a block holds now.
    pub(crate) fn of_cells(&mut self, block: &[Cell<u8>]) -> Bytes {
        let cells = Piece::from_cells(block);
        if block.len() > Self::LONGEST_BYTES {
            let mut copy = vec![0; block.len()];
            cells.copy_to(&mut copy);
            return copy.into();
        }
        let piece = self.piece_for(block.len());
        piece.resize(block.len(), 0);
        cells.copy_to(piece);
        piece.split().freeze()
    }

    /// A piece with room for so many bytes, which nothing is in.
    fn piece_for(&mut self, bytes: usize) -> &mut BytesMut {
        if let Some(full) = self.piece.take_if(|piece| piece.capacity() < bytes) {
            self.full.push_back(full);
        }
        self.piece.get_or_insert_with(|| {
            let oldest = self.full.front_mut();
            let is_free = oldest.is_some_and(|oldest| oldest.try_reclaim(PIECE_BYTES));
            let free = if is_free { self.full.pop_front() } else { None };
            free.unwrap_or_else(|| BytesMut::with_capacity(PIECE_BYTES))
        })
    }

    /// Everything is delivered: one piece is enough for what comes next.
    pub(crate) fn shrink(&mut self) {
        self.full = VecDeque::new();
        if let Some(piece) = &mut self.piece {
            // It begins at its front again, which the caches still hold.
            let _ = piece.try_reclaim(PIECE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the copies of so many blocks are, each of which is delivered when `kept` others came
    /// behind it.
    fn places(copies: &mut Copies, blocks: u8, kept: usize) -> Vec<*const u8> {
        let mut under_way = VecDeque::new();
        let mut places = Vec::new();
        for number in 0..blocks {
            let copy = copies.of_bytes(&[number; 5000]);
            places.push(copy.as_ptr());
            under_way.push_back((number, copy));
            if under_way.len() > kept {
                let (number, copy) = under_way.pop_front().unwrap();
                assert_eq!(copy, [number; 5000][..], "nothing was written over it");
            }
        }
        places
    }

    #[test]
    fn pieces_are_used_again_when_all_in_them_is_delivered() {
        let mut copies = Copies::default();
        let first = places(&mut copies, 100, 30);
        let second = places(&mut copies, 100, 30);
        // 13 fit in a piece, so that 31 touch four of them at most.
        let mut distinct = [first, second].concat();
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() <= 4 * 13, "{} places", distinct.len());
        copies.shrink();
        assert_eq!(copies.full.len(), 0);
    }

    #[test]
    fn who_waits_for_each_delivery_needs_one_piece() {
        let mut copies = Copies::default();
        let mut place = None;
        for number in 0..100 {
            let copy = copies.of_bytes(&[number; 5000]);
            assert_eq!(*place.get_or_insert(copy.as_ptr()), copy.as_ptr());
            drop(copy);
            copies.shrink();
        }
    }

    #[test]
    fn copies_hold_what_was_there_whatever_their_length() {
        let mut copies = Copies::default();
        let mut made = Vec::new();
        let longest = Copies::LONGEST_BYTES;
        for length in [0, 1, 4096, longest, longest + 1, 200_000] {
            let mut block: Vec<u8> = (0..=250).cycle().take(length).collect();
            let bytes = copies.of_bytes(&block);
            let cells = copies.of_cells(Cell::from_mut(&mut block[..]).as_slice_of_cells());
            made.extend([(block.clone(), bytes), (block.clone(), cells)]);
            block.fill(255);
        }
        for (block, copy) in made {
            assert!(copy == block, "{} bytes", block.len());
        }
    }
}
