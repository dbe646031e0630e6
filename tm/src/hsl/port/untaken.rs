//! What a port does not take.

use std::io;

use super::block::Block;
use crate::hsl::put::Refused;
use crate::lane::LaneError;

/// Blocks that a port did not take, and why.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Untaken {
    /// The caller's again, all of them and in their order; none when they had been taken before
    /// the port broke.
    pub blocks: Vec<Block>,
    /// Why.
    #[source]
    pub why: Why,
}

/// Why a port does not take blocks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// As much as a port takes at once is on its way, or posted: they can be given again after
    /// [`progress`](super::Port::progress).
    #[error("too much is on its way already: go on with it, and give it again then")]
    Full,
    /// The card cannot be told of memory that is not of the arena.
    #[error("the card cannot be told of this memory (give it memory of the port's arena): {0}")]
    Unregistered(#[source] io::Error),
    /// The blocks are not such as a port takes, or the port is of no use any more.
    #[error(transparent)]
    Lane(#[from] LaneError),
}

impl Untaken {
    /// `blocks` are the caller's again.
    pub(super) fn new(blocks: Vec<Block>, why: impl Into<Why>) -> Self {
        Self {
            blocks,
            why: why.into(),
        }
    }

    /// Whether they can be given again later.
    #[must_use]
    pub fn is_for_want_of_room(&self) -> bool {
        matches!(self.why, Why::Full)
    }
}

/// The port broke after it had taken the blocks.
impl From<LaneError> for Untaken {
    fn from(error: LaneError) -> Self {
        Self::new(Vec::new(), error)
    }
}

/// Each block as the card knows it; all of them again where the card cannot be told of one.
pub(super) fn told_of<T>(
    blocks: Vec<Block>,
    mut tell: impl FnMut(Block) -> Result<T, Refused>,
    back: impl Fn(T) -> Block,
) -> Result<Vec<T>, Untaken> {
    let mut told = Vec::with_capacity(blocks.len());
    let mut blocks = blocks.into_iter();
    while let Some(block) = blocks.next() {
        match tell(block) {
            Ok(one) => told.push(one),
            Err((bytes, error)) => {
                let before = told.into_iter().map(back);
                let all = before.chain([Block::Other(bytes)]).chain(blocks);
                return Err(Untaken::new(all.collect(), Why::Unregistered(error)));
            }
        }
    }
    Ok(told)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn bytes(block: Block) -> Vec<u8> {
        match block {
            Block::Other(bytes) => bytes,
            Block::Arena(_) => unreachable!("there is no arena"),
        }
    }

    #[test]
    fn a_card_that_refuses_one_block_gives_all_of_them_back() {
        let all = || (1..4).map(|byte| vec![byte]);
        for refused in 1..4 {
            let blocks = all().map(Block::Other).collect();
            let tell = |block| match bytes(block) {
                one if one[0] == refused => Err((one, io::Error::other("full"))),
                one => Ok(one),
            };
            let untaken = told_of(blocks, tell, Block::Other).unwrap_err();
            assert!(matches!(untaken.why, Why::Unregistered(_)), "{untaken}");
            assert!(untaken.blocks.into_iter().map(bytes).eq(all()));
        }
        let blocks = all().map(Block::Other).collect();
        let told = told_of(blocks, |block| Ok(bytes(block)), Block::Other).unwrap();
        assert!(told.into_iter().eq(all()));
    }
}
