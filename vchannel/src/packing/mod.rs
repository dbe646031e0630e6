//! Packing a message.

mod draft;

use std::cell::Cell;

use bytes::Bytes;
use madgate_gtm::wire::{DESCRIPTOR_BYTES, ReceiveMode, SMALL_PAYLOAD_BYTES, SendMode};
use madgate_tm::Pooled;

use self::draft::Draft;
use crate::channel::Channel;
use crate::cluster::NodeId;
use crate::delivery::Delivery;
use crate::error::PackError;
use crate::lending::Lent;

/// Borrowed blocks up to this size are copied, so that `end_packing` need not wait for
/// their delivery, while the flow's retention budget lasts.
pub(crate) const COPY_BYTES: usize = 256 << 10;

/// A message that is being packed: pack blocks, then end it.
///
/// One that is dropped instead is given up: its receiver is told, and never sees its end.
///
/// Blocks that are packed [*later*](Self::pack_later) or [*cheaper*](Self::pack_cheaper) are
/// lent until the message ends, so they are declared before it:
///
/// ```no_run
/// # use madgate_vchannel::{Channel, NodeId, PackError, ReceiveMode};
/// # fn send(channel: &Channel, to: NodeId) -> Result<(), PackError> {
/// let mut block = vec![1; 1000];
/// let mut packing = channel.begin_packing(to)?;
/// packing.pack_cheaper(&block, ReceiveMode::Cheaper)?;
/// packing.end_packing()?;
/// block[0] = 2;
/// # Ok(()) }
/// ```
///
/// What would send other bytes than were packed, or bytes that are gone, does not compile:
///
/// ```compile_fail,E0506
/// # use madgate_vchannel::{Channel, NodeId, PackError, ReceiveMode};
/// # fn send(channel: &Channel, to: NodeId) -> Result<(), PackError> {
/// let mut block = [1; 1000];
/// let mut packing = channel.begin_packing(to)?;
/// packing.pack_cheaper(&block, ReceiveMode::Cheaper)?;
/// block[0] = 2; // is lent
/// packing.end_packing()?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0597
/// # use madgate_vchannel::{Channel, NodeId, PackError, ReceiveMode};
/// # use std::cell::Cell;
/// # fn send(channel: &Channel, to: NodeId) -> Result<(), PackError> {
/// let mut packing = channel.begin_packing(to)?;
/// {
///     let block = [const { Cell::new(1) }; 1000];
///     packing.pack_later(&block, ReceiveMode::Cheaper)?;
/// } // goes before it is sent
/// packing.end_packing()?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0505
/// # use madgate_vchannel::{Channel, NodeId, PackError, ReceiveMode};
/// # fn send(channel: Channel, to: NodeId) -> Result<(), PackError> {
/// let packing = channel.begin_packing(to)?;
/// drop(channel); // the message needs it
/// packing.end_packing()?;
/// # Ok(()) }
/// ```
///
/// Memory that is packed *later* may be changed by the thread that packs, and by no other:
///
/// ```compile_fail,E0277
/// # use madgate_vchannel::{Channel, NodeId, PackError, ReceiveMode};
/// # use std::cell::Cell;
/// # fn send(channel: &Channel, to: NodeId) -> Result<(), PackError> {
/// let block = [const { Cell::new(1) }; 1000];
/// let mut packing = channel.begin_packing(to)?;
/// packing.pack_later(&block, ReceiveMode::Cheaper)?;
/// std::thread::scope(|scope| {
///     scope.spawn(move || packing.end_packing()); // would read cells of another thread
/// });
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a message that is dropped half-packed is given up"]
pub struct Packing<'a> {
    /// Elsewhere, as a message that is being packed is moved when it ends.
    draft: Pooled<Draft<'a>>,
}

impl<'a> Packing<'a> {
    /// A message on a flow that is claimed for it; `scratch` is empty.
    #[inline]
    pub(crate) fn new(channel: &'a Channel, flow: u32, message: u32, scratch: Vec<u8>) -> Self {
        let draft = Pooled::new(|| Draft::new(channel, flow, message, scratch));
        Self { draft }
    }

    pub(crate) fn without_waiting(mut self) -> Self {
        self.draft.never_waits();
        self
    }

    /// The node that the message is for.
    #[must_use]
    pub fn destination(&self) -> NodeId {
        self.draft.destination()
    }

    // ---- blocks -------------------------------------------------------------------------

    /// Packs a block that may be changed as soon as this returns: it is copied.
    ///
    /// # Errors
    /// When the destination is lost; the message is then given up.
    #[inline]
    pub fn pack_safer(&mut self, block: &[u8], receive: ReceiveMode) -> Result<(), PackError> {
        let descriptor = self.draft.describe(block.len(), SendMode::Safer, receive)?;
        if block.len() + DESCRIPTOR_BYTES <= SMALL_PAYLOAD_BYTES {
            return self.draft.pack_small(descriptor, block);
        }
        let copy = self.draft.copy(block);
        self.draft.pack_bytes(descriptor, copy)
    }

    /// Packs a block whose value is taken when the message ends.
    ///
    /// # Errors
    /// As [`pack_safer`](Self::pack_safer).
    pub fn pack_later(
        &mut self,
        block: &'a [Cell<u8>],
        receive: ReceiveMode,
    ) -> Result<(), PackError> {
        let descriptor = self.draft.describe(block.len(), SendMode::Later, receive)?;
        self.draft.lend(descriptor, Lent::Cells(block))
    }

    /// Packs a block that stays as it is until the message ends: it is copied or referred
    /// to, whichever is cheaper. A large one makes [`end_packing`](Self::end_packing) wait
    /// for its delivery.
    ///
    /// # Errors
    /// As [`pack_safer`](Self::pack_safer).
    #[inline]
    pub fn pack_cheaper(&mut self, block: &'a [u8], receive: ReceiveMode) -> Result<(), PackError> {
        let descriptor = self
            .draft
            .describe(block.len(), SendMode::Cheaper, receive)?;
        if block.len() + DESCRIPTOR_BYTES <= SMALL_PAYLOAD_BYTES {
            return self.draft.pack_small(descriptor, block);
        }
        self.draft.lend(descriptor, Lent::Bytes(block))
    }

    /// Packs a block that is given away: nothing is copied, nothing waits for its delivery.
    /// This waits only while the flow keeps as much as its retention budget allows.
    ///
    /// # Errors
    /// As [`pack_safer`](Self::pack_safer).
    #[inline]
    pub fn pack_owned(&mut self, block: Bytes, receive: ReceiveMode) -> Result<(), PackError> {
        let descriptor = self
            .draft
            .describe(block.len(), SendMode::Cheaper, receive)?;
        if block.len() + DESCRIPTOR_BYTES <= SMALL_PAYLOAD_BYTES {
            return self.draft.pack_small(descriptor, &block);
        }
        self.draft.pack_bytes(descriptor, block)
    }

    // ---- the end ------------------------------------------------------------------------

    /// Ends the message. All memory that was lent to it may be changed when this returns;
    /// the message itself is delivered unless a later call says that it was not.
    ///
    /// # Errors
    /// When the destination is lost; names what was not delivered.
    #[inline]
    pub fn end_packing(mut self) -> Result<(), PackError> {
        self.draft.end(false)
    }

    /// Ends the message and waits until the destination's node has all of it.
    ///
    /// # Errors
    /// When the destination is lost; names what was not delivered.
    pub fn end_packing_delivered(mut self) -> Result<(), PackError> {
        self.draft.end(true)?;
        self.draft.delivery().wait()
    }

    /// Ends the message, and returns a handle that tells when it is delivered.
    ///
    /// # Errors
    /// As [`end_packing`](Self::end_packing).
    pub fn end_packing_tracked(mut self) -> Result<Delivery, PackError> {
        self.draft.end(false)?;
        Ok(self.draft.delivery())
    }
}
