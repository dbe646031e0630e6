//! Messages that would not fit anywhere: one block larger than what gateways keep, and more
//! blocks than anybody wants to remember.

use bytes::Bytes;
use madgate_vchannel::{Channel, NodeId, PackError, ReceiveMode, UnpackError};

use super::node::broken;

/// Between two places of a block that are not zero: no multiple of a fragment.
const STRIDE: usize = 1_000_003;

/// Packs a message of `count` empty blocks.
pub(super) fn pack_crumbs(channel: &Channel, to: NodeId, count: usize) -> Result<(), PackError> {
    let mut packing = channel.begin_packing(to)?;
    for _ in 0..count {
        packing.pack_safer(&[], ReceiveMode::Cheaper)?;
    }
    packing.end_packing()
}

/// Packs a message of one block of `length` bytes. Memory that is zero costs nothing, and
/// most of it is; places all over it say where they are.
pub(super) fn pack_block(channel: &Channel, to: NodeId, length: usize) -> Result<(), PackError> {
    let mut block = vec![0; length];
    for place in places(length) {
        block[place..place + 8].copy_from_slice(&mark(place));
    }
    let mut packing = channel.begin_packing(to)?;
    packing.pack_owned(Bytes::from(block), ReceiveMode::Cheaper)?;
    packing.end_packing()
}

/// Unpacks the next message, whatever it is of the two. Returns how many blocks and bytes.
pub(super) fn swallow(channel: &Channel) -> Result<(usize, usize), UnpackError> {
    let mut unpacking = channel.begin_unpacking()?;
    let (mut blocks, mut bytes) = (0, 0);
    while let Some((length, receive)) = unpacking.next_block()? {
        let length = usize::try_from(length).unwrap();
        let block = unpacking.unpack_owned(length, receive)?;
        if let Some(place) = places(length).find(|place| block[*place..][..8] != mark(*place)) {
            broken(format!("the block is wrong at {place}"));
        }
        blocks += 1;
        bytes += length;
    }
    unpacking.end_unpacking()?;
    Ok((blocks, bytes))
}

fn places(length: usize) -> impl Iterator<Item = usize> {
    (0..length.saturating_sub(7)).step_by(STRIDE)
}

fn mark(place: usize) -> [u8; 8] {
    u64::try_from(place).unwrap().to_le_bytes()
}
