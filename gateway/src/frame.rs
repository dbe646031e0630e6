//! What the engine queues: frames, in whatever memory they arrived.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use madgate_bmm::{Body, Buffer};
use madgate_gtm::Header;
use madgate_gtm::transit::{Lane, LinkId};
use madgate_gtm::wire::HEADER_BYTES;
use madgate_tm::{LentSlot, ReceivedSlot, Room};

use crate::instruments::Stay;

/// One frame or a run of them, on its way through.
#[derive(Debug)]
pub(crate) struct Frame {
    memory: Memory,
    pub(crate) stay: Stay,
}

/// Where its bytes are.
#[derive(Debug)]
pub(crate) enum Memory {
    /// In a batch that arrived, in a slot that arrived, in a pipe, or in memory of its own.
    Buffer(Buffer),
    /// Received straight into a slot of the lane that it leaves by.
    Lent(LentFrame),
}

impl Frame {
    pub(crate) const fn new(memory: Memory, stay: Stay) -> Self {
        Self { memory, stay }
    }

    /// Copies it out of memory that a receiver waits for. Returns the bytes that were copied;
    /// none where that is done already, or where it is ready to leave.
    pub(crate) fn detach(&mut self) -> usize {
        let bytes = match &mut self.memory {
            Memory::Buffer(buffer) => buffer.detach(),
            Memory::Lent(_) => 0,
        };
        self.stay.note_parked(bytes);
        bytes
    }

    /// Whether it lies in a slot of the bulk lane of `link`.
    pub(crate) fn is_in_place_of(&self, link: LinkId) -> bool {
        matches!(&self.memory, Memory::Lent(lent) if lent.lender == link)
    }

    /// As what leaves by this lane of `link`.
    pub(crate) fn into_buffer(self, link: LinkId, lane: Lane) -> Buffer {
        match self.memory {
            Memory::Buffer(buffer) => buffer,
            Memory::Lent(lent) => lent.into_buffer(link, lane),
        }
    }
}

impl Memory {
    /// Whether it is a pipe.
    pub(crate) const fn is_piped(&self) -> bool {
        matches!(self, Self::Buffer(buffer) if buffer.is_piped())
    }

    /// A range of a batch.
    pub(crate) fn shared(bytes: Bytes) -> Self {
        Self::Buffer(Buffer::shared(bytes))
    }

    /// A frame in a slot that arrived. The slot's owner might still write it, so the header
    /// that was checked goes on, not the one in the slot. Until the slot is back, it is `counted`.
    pub(crate) fn received(
        header: &[u8],
        slot: ReceivedSlot,
        payload: Range<usize>,
        counted: Arc<()>,
    ) -> Self {
        Self::Buffer(Buffer::unit(
            header,
            Body::Received {
                slot,
                range: payload,
                counted,
            },
        ))
    }
}

/// A slot that was lent to receive one frame into.
#[derive(Debug)]
pub(crate) struct LentFrame {
    /// `None` once it has been handed on.
    slot: Option<LentSlot>,
    /// What was checked: whoever the slot leads to may write it too.
    header: Header,
    lender: LinkId,
    /// How many slots the lender has lent so.
    count: Arc<AtomicUsize>,
}

impl LentFrame {
    /// The frame that `header` begins will be received into `slot`, which the bulk lane of `lender`
    /// lent.
    pub(crate) fn new(
        slot: LentSlot,
        header: &Header,
        lender: LinkId,
        count: Arc<AtomicUsize>,
    ) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self {
            slot: Some(slot),
            header: *header,
            lender,
            count,
        }
    }

    /// The memory of the frame, without its first `filled` bytes.
    pub(crate) fn room(&mut self, filled: usize) -> Room<'_> {
        match &mut self.slot {
            Some(slot) => slot.room(filled..self.header.frame_bytes()),
            None => Room::default(),
        }
    }

    fn into_buffer(mut self, link: LinkId, lane: Lane) -> Buffer {
        let Some(slot) = self.slot.take() else {
            return Buffer::shared(Bytes::new());
        };
        let length = self.header.frame_bytes();
        if self.lender == link && lane == Lane::Bulk {
            return Buffer::of(Body::Lent { slot, length });
        }
        // The flow has been opened again, over another link.
        Buffer::shared(copied(&self.header, &slot).into())
    }
}

/// A frame that was received into `slot`, with the header that was checked.
fn copied(header: &Header, slot: &LentSlot) -> Vec<u8> {
    let mut copy = vec![0; header.frame_bytes()];
    let (head, payload) = copy.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&header.to_bytes());
    slot.piece(HEADER_BYTES..).copy_to(payload);
    copy
}

impl Drop for LentFrame {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use madgate_gtm::{FlowKey, Kind};
    use madgate_tm::Piece;

    use super::*;

    #[test]
    fn what_leaves_by_another_link_has_the_header_that_was_checked() {
        let flow = FlowKey {
            channel: 1,
            source: 2,
            destination: 3,
        };
        let mut header = Header::new(Kind::Data, flow, 4);
        header.length = 5;
        let mut slot = LentSlot::detached(100);
        // As its receiver may change it.
        slot.room(..).put(Piece::new(&[7; 100]));
        let copy = copied(&header, &slot);
        let (head, payload) = copy.split_at(HEADER_BYTES);
        assert_eq!(head, header.to_bytes());
        assert_eq!(payload, [7; 5]);
    }
}
