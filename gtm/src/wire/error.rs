//! Why bytes are not a frame.

/// Why bytes are not a frame. The peer that sent them is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// No such kind of frame.
    #[error("unknown kind of frame {0}")]
    UnknownKind(u8),
    /// Flags that this version does not know, or that this kind does not have.
    #[error("reserved flags are set: {0:#04x}")]
    ReservedFlags(u8),
    /// More payload than a frame of this kind can have.
    #[error("a payload of {0} bytes is longer than such a frame can have")]
    TooLong(u32),
    /// Less payload than the flags announce.
    #[error("a payload of {length} bytes where the flags announce {least} at least")]
    TooShort {
        /// The payload's length, in bytes.
        length: u32,
        /// What the flags need.
        least: usize,
    },
    /// A refusal without a known reason.
    #[error("unknown reason of a refusal {0}")]
    UnknownReason(u32),
    /// Fields that exclude each other.
    #[error("the header holds {0}")]
    Contradiction(&'static str),
    /// A block descriptor with reserved bits or an unknown mode.
    #[error("a block descriptor is malformed")]
    Descriptor,
    /// A bundle whose messages are not as long, or as many, as it says.
    #[error("a bundle of messages is malformed")]
    Bundle,
    /// An opening with reserved bits, or without an incarnation.
    #[error("the opening of a flow is malformed")]
    Opening,
}
