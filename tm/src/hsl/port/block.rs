//! What messages are made of.

use super::arena::{Arena, ArenaBuffer};
use crate::local::memory::SharedBytes;

/// Memory of a message: in the arena, which needs no copies, or anywhere else.
#[derive(Debug)]
#[non_exhaustive]
pub enum Block {
    /// In the arena.
    Arena(ArenaBuffer),
    /// Somewhere else: to be sent, or, where that is switched on, to be received into.
    Other(Vec<u8>),
}

impl Block {
    /// Bytes that it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Arena(buffer) => buffer.len(),
            Self::Other(bytes) => bytes.len(),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes at `offset` to `into`.
    ///
    /// # Panics
    /// When there are not so many, as indexing a slice does.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        match self {
            Self::Arena(buffer) => buffer.read(offset, into),
            Self::Other(bytes) => into.copy_from_slice(&bytes[offset..offset + into.len()]),
        }
    }

    /// Whether it can be used with `arena`.
    pub(super) fn is_of(&self, arena: &Arena) -> bool {
        match self {
            Self::Arena(buffer) => buffer.is_of(arena),
            Self::Other(_) => true,
        }
    }

    pub(super) fn is_foreign(&self) -> bool {
        matches!(self, Self::Other(_))
    }

    /// Copies all of it to `at` of this side's memory.
    pub(super) fn copy_to(&self, memory: &SharedBytes, at: usize) {
        match self {
            Self::Arena(buffer) => buffer.copy_to(memory, at),
            Self::Other(bytes) => memory.write(at, bytes),
        }
    }
}

/// Bytes of all of them.
pub(super) fn length(blocks: &[Block]) -> u64 {
    blocks.iter().map(|block| block.len() as u64).sum()
}
