//! What the first frame of a flow says before its payload.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::WireError;

/// Bytes of an opening.
pub const OPENING_BYTES: usize = 24;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawOpening {
    source_incarnation: U64,
    destination_incarnation: U64,
    fragment_bytes: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<RawOpening>() == OPENING_BYTES);

/// Both ends of the flow as its source knows them, said once so that the label of every
/// later frame can stand for them (paper 003: destination and MTU, once, at the start).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The incarnation of the source; never 0.
    pub source_incarnation: u64,
    /// The incarnation of the destination, or 0 while the source does not know it.
    pub destination_incarnation: u64,
    /// Payload of the flow's fragments at most, in bytes.
    pub fragment_bytes: u32,
}

impl Opening {
    /// As it goes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; OPENING_BYTES] {
        zerocopy::transmute!(RawOpening {
            source_incarnation: self.source_incarnation.into(),
            destination_incarnation: self.destination_incarnation.into(),
            fragment_bytes: self.fragment_bytes.into(),
            reserved: 0.into(),
        })
    }

    /// Reads an opening from the front of a payload.
    ///
    /// # Errors
    /// [`WireError::Opening`] when it is cut short, reserved bits are set, the source has no
    /// incarnation or fragments no size.
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let (raw, _) = RawOpening::ref_from_prefix(payload).map_err(|_| WireError::Opening)?;
        if raw.reserved.get() != 0
            || raw.source_incarnation.get() == 0
            || raw.fragment_bytes.get() == 0
        {
            return Err(WireError::Opening);
        }
        Ok(Self {
            source_incarnation: raw.source_incarnation.get(),
            destination_incarnation: raw.destination_incarnation.get(),
            fragment_bytes: raw.fragment_bytes.get(),
        })
    }
}
