//! Copies of blocks whose memory was given back before they are delivered: many in one piece of
//! memory, which is used again once all of them are.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;

use bytes::{Bytes, BytesMut};
use madgate_tm::Piece;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that wait to be used again at most: what a window of the usual size holds. Deliveries are told
/// in steps of half of that.
const SPARE_PIECES: usize = 64;

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
        Self::fill(self.room_for(block.len()), block)
    }

    /// The same in two steps, for blocks that are not too long: who copies need not have the flow.
    pub(crate) fn fill(mut room: BytesMut, block: &[u8]) -> Bytes {
        room.extend_from_slice(block);
        room.freeze()
    }

    /// A copy of what a block holds now.
    pub(crate) fn of_cells(&mut self, block: &[Cell<u8>]) -> Bytes {
        let cells = Piece::from_cells(block);
        if block.len() > Self::LONGEST_BYTES {
            let mut copy = vec![0; block.len()];
            cells.copy_to(&mut copy);
            return copy.into();
        }
        let mut room = self.room_for(block.len());
        room.resize(block.len(), 0);
        cells.copy_to(&mut room);
        room.freeze()
    }

    /// Room for a block that is not too long, with nothing in it.
    pub(crate) fn room_for(&mut self, bytes: usize) -> BytesMut {
        if let Some(full) = self.piece.take_if(|piece| piece.capacity() < bytes) {
            self.full.push_back(full);
        }
        let piece = match &mut self.piece {
            Some(piece) => piece,
            None => {
                let free = self.take_free();
                self.drop_needless();
                let new = || BytesMut::with_capacity(PIECE_BYTES);
                self.piece.insert(free.unwrap_or_else(new))
            }
        };
        let rest = piece.split_off(bytes);
        mem::replace(piece, rest)
    }

    /// The oldest piece, if everything in it is delivered.
    fn take_free(&mut self) -> Option<BytesMut> {
        let oldest = self.full.front_mut()?;
        let is_free = oldest.try_reclaim(PIECE_BYTES);
        if is_free { self.full.pop_front() } else { None }
    }

    /// Drops a piece if there are more spare ones than are worth keeping.
    fn drop_needless(&mut self) {
        // They are free in order.
        let last_spare = self.full.get_mut(SPARE_PIECES);
        if last_spare.is_some_and(|piece| piece.try_reclaim(PIECE_BYTES)) {
            self.full.pop_front();
        }
    }

    /// Everything is delivered, or given up: one piece is enough for what comes next.
    pub(crate) fn shrink(&mut self) {
        self.full.clear();
        self.full.shrink_to(SPARE_PIECES);
        if let Some(piece) = &mut self.piece {
            // It begins at its front again, which the caches still hold.
            let _ = piece.try_reclaim(PIECE_BYTES);
        }
    }
}

#[cfg(test)]
impl Copies {
    pub(super) fn pieces(&self) -> usize {
        self.full.len() + usize::from(self.piece.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies blocks, each of which is delivered when `kept` others came behind it. Returns the most
    /// pieces that there were at once.
    fn most_pieces(copies: &mut Copies, blocks: usize, kept: usize) -> usize {
        let mut under_way = VecDeque::new();
        let numbers = (0..=250).cycle().take(blocks);
        let pieces = numbers.map(|number| {
            under_way.push_back((number, copies.of_bytes(&[number; 5000])));
            while under_way.len() > kept {
                let (number, copy) = under_way.pop_front().unwrap();
                assert_eq!(copy, [number; 5000][..], "nothing was written over it");
            }
            copies.pieces()
        });
        pieces.max().unwrap()
    }

    #[test]
    fn there_are_as_many_pieces_as_hold_what_is_under_way() {
        let mut copies = Copies::default();
        // 13 fit in a piece: 31 touch four of them at most, and 301 twenty-five.
        assert!((3..=4).contains(&most_pieces(&mut copies, 1000, 30)));
        assert!((24..=25).contains(&most_pieces(&mut copies, 1000, 300)));
        // Of very many, not all wait to be used again.
        assert!(most_pieces(&mut copies, 3000, 2600) >= 200);
        most_pieces(&mut copies, 5000, 30);
        let with_spares = 3..=5 + SPARE_PIECES;
        assert!(with_spares.contains(&most_pieces(&mut copies, 100, 30)));
        copies.shrink();
        assert_eq!(copies.pieces(), 1);
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
