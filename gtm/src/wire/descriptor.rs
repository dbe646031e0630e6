//! How a block is described: eight bytes in front of its data.

use super::WireError;

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 8;

/// Bytes of one block at most: 48 bits.
pub const MAX_BLOCK_BYTES: u64 = (1 << 48) - 1;

/// When the receiver needs a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReceiveMode {
    /// As soon as `unpack` returns, so that its value can steer the rest (receive_EXPRESS).
    Express,
    /// When `end_unpacking` returns (receive_CHEAPER).
    Cheaper,
}

/// When the sender may change a block. It matters to the sender alone, but both ends
/// state the same modes, and a difference is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendMode {
    /// As soon as `pack` returns (send_SAFER).
    Safer,
    /// Until `end_packing`, whose value is sent (send_LATER).
    Later,
    /// After `end_packing` (send_CHEAPER); an owned block is this too.
    Cheaper,
}

/// Size and modes of a block.
///
/// On the wire: bits 0–47 the size in bytes, bit 48 set for express, bits 49–50 the send
/// mode, the rest zero; little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    length: u64,
    /// When the receiver needs the block.
    pub receive: ReceiveMode,
    /// When the sender may change it.
    pub send: SendMode,
}

impl Descriptor {
    /// Describes a block, or `None` when it is larger than [`MAX_BLOCK_BYTES`].
    #[must_use]
    pub const fn new(length: u64, send: SendMode, receive: ReceiveMode) -> Option<Self> {
        if length > MAX_BLOCK_BYTES {
            None
        } else {
            Some(Self {
                length,
                receive,
                send,
            })
        }
    }

    /// Bytes of the block.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// As it goes on the wire.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; DESCRIPTOR_BYTES] {
        let receive = match self.receive {
            ReceiveMode::Cheaper => 0,
            ReceiveMode::Express => 1,
        };
        let send = match self.send {
            SendMode::Cheaper => 0,
            SendMode::Safer => 1,
            SendMode::Later => 2,
        };
        (self.length | receive << 48 | send << 49).to_le_bytes()
    }

    /// Reads a descriptor.
    ///
    /// # Errors
    /// [`WireError::Descriptor`] when reserved bits are set or the send mode is unknown.
    pub const fn parse(bytes: [u8; DESCRIPTOR_BYTES]) -> Result<Self, WireError> {
        let word = u64::from_le_bytes(bytes);
        if word >> 51 != 0 {
            return Err(WireError::Descriptor);
        }
        let receive = if word >> 48 & 1 == 1 {
            ReceiveMode::Express
        } else {
            ReceiveMode::Cheaper
        };
        let send = match word >> 49 {
            0 => SendMode::Cheaper,
            1 => SendMode::Safer,
            2 => SendMode::Later,
            _ => return Err(WireError::Descriptor),
        };
        Ok(Self {
            length: word & MAX_BLOCK_BYTES,
            receive,
            send,
        })
    }
}
