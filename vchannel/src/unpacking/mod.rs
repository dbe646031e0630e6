//! Unpacking a message.

mod reading;

use bytes::BytesMut;
use madgate_gtm::wire::ReceiveMode;
use madgate_tm::Pooled;

use self::reading::Reading;
use crate::arrived::ArrivedBlock;
use crate::channel::Channel;
use crate::cluster::NodeId;
use crate::error::UnpackError;
use crate::session::Early;

/// A message that is being unpacked: take its blocks in the order, with the sizes and
/// receive modes, with which they were packed, then end it.
///
/// One that is dropped instead is discarded: the rest of it is read and forgotten as it
/// comes, and the messages after it are not touched.
///
/// Memory for blocks that are unpacked [*cheaper*](Self::unpack_cheaper) is lent until the
/// message ends, so it is declared before it:
///
/// ```no_run
/// # use madgate_vchannel::{Channel, UnpackError};
/// # fn receive(channel: &Channel) -> Result<u8, UnpackError> {
/// let mut block = vec![0; 1000];
/// let mut unpacking = channel.begin_unpacking()?;
/// unpacking.unpack_cheaper(&mut block)?;
/// unpacking.end_unpacking()?;
/// # Ok(
/// block[0]
/// # ) }
/// ```
///
/// What would see it before it is filled, or fill what is gone, does not compile:
///
/// ```compile_fail,E0502
/// # use madgate_vchannel::{Channel, UnpackError};
/// # fn receive(channel: &Channel) -> Result<(), UnpackError> {
/// let mut block = [0; 1000];
/// let mut unpacking = channel.begin_unpacking()?;
/// unpacking.unpack_cheaper(&mut block)?;
/// println!("{:?}", &block[..]); // is lent
/// unpacking.end_unpacking()?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0597
/// # use madgate_vchannel::{Channel, UnpackError};
/// # fn receive(channel: &Channel) -> Result<(), UnpackError> {
/// let mut unpacking = channel.begin_unpacking()?;
/// {
///     let mut block = [0; 1000];
///     unpacking.unpack_cheaper(&mut block)?;
/// } // goes before it is filled
/// unpacking.end_unpacking()?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0505
/// # use madgate_vchannel::{Channel, UnpackError};
/// # fn receive(channel: Channel) -> Result<(), UnpackError> {
/// let unpacking = channel.begin_unpacking()?;
/// drop(channel); // the message needs it
/// unpacking.end_unpacking()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a message that is dropped half-unpacked is discarded"]
pub struct Unpacking<'a> {
    /// Elsewhere, as a message that is being unpacked is moved when it is claimed and when it ends.
    reading: Pooled<Reading<'a>>,
}

impl<'a> Unpacking<'a> {
    /// A message that is still to be [claimed](Self::claim).
    #[inline]
    pub(crate) fn new(channel: &'a Channel) -> Self {
        let reading = Pooled::new(|| Reading::new(channel));
        Self { reading }
    }

    /// The message is the next one of this flow. Returns where it goes if it is small and all
    /// there.
    pub(crate) fn claim(&mut self, flow: u32, source: NodeId) -> &mut Early {
        self.reading.claim(flow, source)
    }

    /// The flow that it is claimed from.
    pub(crate) fn flow(&self) -> u32 {
        self.reading.flow()
    }

    /// The node that packed the message.
    #[must_use]
    pub fn source(&self) -> NodeId {
        self.reading.source()
    }

    /// Unpacks a block that was packed *express*: it is there when this returns. Its size
    /// is that of `into`.
    ///
    /// # Errors
    /// [`UnpackError::Mismatch`] when another block was packed here (nothing is unpacked
    /// then, and the right call can follow); the others end the message.
    #[inline]
    pub fn unpack_express(&mut self, into: &mut [u8]) -> Result<(), UnpackError> {
        self.reading.unpack_express(into)
    }

    /// Unpacks a block that was packed *cheaper*: it is there when
    /// [`end_unpacking`](Self::end_unpacking) returns. Its size is that of `into`.
    ///
    /// # Errors
    /// [`UnpackError::Failed`] after an error that ended the message. What is wrong with the block is
    /// said when the message ends, or when a later block is unpacked that has to be there at once;
    /// where more blocks were lent behind it by then, that ends the message.
    #[inline]
    pub fn unpack_cheaper(&mut self, into: &'a mut [u8]) -> Result<(), UnpackError> {
        self.reading.unpack_cheaper(into)
    }

    /// Unpacks a block into memory of its own, at once, whichever its mode; both ends still
    /// agree about size and mode. The memory is that in which the block arrived, where it arrived in
    /// one piece: over `tcp` a large block that begins a message does not, unless its sender's
    /// `leads` are off.
    ///
    /// # Errors
    /// As [`unpack_express`](Self::unpack_express).
    pub fn unpack_owned(
        &mut self,
        length: usize,
        receive: ReceiveMode,
    ) -> Result<BytesMut, UnpackError> {
        self.reading.unpack_owned(length, receive)
    }

    /// Unpacks a block where it has arrived, at once, whichever its mode; both ends still agree about
    /// size and mode. Over networks of shared memory and of remote write, between two nodes that
    /// both are on, a block that is not small stays in the network's memory, while there is room
    /// ([`ArrivedBlock`]): nothing is copied. It
    /// can be [read](ArrivedBlock::read) there, and should be dropped soon.
    ///
    /// ```no_run
    /// # use madgate_vchannel::{Channel, ReceiveMode, UnpackError};
    /// # fn receive(channel: &Channel) -> Result<u64, UnpackError> {
    /// let mut unpacking = channel.begin_unpacking()?;
    /// let block = unpacking.unpack_arrived(1 << 20, ReceiveMode::Cheaper)?;
    /// unpacking.end_unpacking()?;
    /// // Only what is needed of it is copied.
    /// let mut last = [0; 8];
    /// block.read(block.len() - 8, &mut last);
    /// # Ok(
    /// u64::from_le_bytes(last)
    /// # ) }
    /// ```
    ///
    /// # Errors
    /// As [`unpack_express`](Self::unpack_express).
    pub fn unpack_arrived(
        &mut self,
        length: usize,
        receive: ReceiveMode,
    ) -> Result<ArrivedBlock, UnpackError> {
        self.reading.unpack_arrived(length, receive)
    }

    /// What the next block is: its size and receive mode, or `None` when the message ends.
    /// Waits until that is known. Messages describe themselves, so a receiver that does not
    /// know what was packed can ask.
    ///
    /// # Errors
    /// When the message breaks off.
    pub fn next_block(&mut self) -> Result<Option<(u64, ReceiveMode)>, UnpackError> {
        self.reading.next_block()
    }

    /// Waits until all blocks are there, and ends the message.
    ///
    /// # Errors
    /// [`UnpackError::Mismatch`] when blocks are left, or other blocks were packed; else
    /// when the message broke off.
    #[inline]
    pub fn end_unpacking(mut self) -> Result<(), UnpackError> {
        self.reading.end()
    }
}
