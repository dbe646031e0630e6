//! What the engine queues: frames, in whatever memory they arrived.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use madgate_bmm::{Body, Buffer};
use madgate_gtm::transit::LinkId;
use madgate_tm::{LentSlot, ReceivedSlot};

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

    /// As what leaves by `link`.
    pub(crate) fn into_buffer(self, link: LinkId) -> Buffer {
        match self.memory {
            Memory::Buffer(buffer) => buffer,
            Memory::Lent(lent) => lent.into_buffer(link),
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
    length: usize,
    lender: LinkId,
    /// How many slots the lender has lent so.
    count: Arc<AtomicUsize>,
}

impl LentFrame {
    /// `length` bytes of frame will be received into `slot`, which the bulk lane of `lender`
    /// lent.
    pub(crate) fn new(
        slot: LentSlot,
        length: usize,
        lender: LinkId,
        count: Arc<AtomicUsize>,
    ) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self {
            slot: Some(slot),
            length,
            lender,
            count,
        }
    }

    /// The memory of the frame.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.slot {
            Some(slot) => &mut slot.bytes_mut()[..self.length],
            None => &mut [],
        }
    }

    fn into_buffer(mut self, link: LinkId) -> Buffer {
        if self.lender != link {
            // The flow has been opened again, over another link.
            return Buffer::shared(Bytes::copy_from_slice(self.bytes_mut()));
        }
        match self.slot.take() {
            Some(slot) => Buffer::of(Body::Lent {
                slot,
                length: self.length,
            }),
            None => Buffer::shared(Bytes::new()),
        }
    }
}

impl Drop for LentFrame {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
