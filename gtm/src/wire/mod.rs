//! What travels on a link, byte for byte (`docs/wire-format.md` has the pictures).
//!
//! Two levels, as in smoltcp: the `repr(C)` layout that bytes are read into
//! ([`raw::RawHeader`]), and the small checked values made of it once at the edge
//! ([`Header`], [`Descriptor`], [`Opening`]), which cannot hold nonsense.

pub(crate) mod bundled;
pub mod checksum;
pub mod descriptor;
pub(crate) mod encoded;
pub mod error;
pub mod header;
pub mod kind;
pub mod opening;
pub mod raw;
#[cfg(test)]
mod tests;

pub use bundled::{bundled_bytes, bundled_prefix_bytes};
pub use checksum::Coverage;
pub use descriptor::{DESCRIPTOR_BYTES, Descriptor, ReceiveMode, SendMode};
pub use encoded::first_frame_bytes;
pub use error::WireError;
pub use header::{
    CHARGE_PER_FRAME, CHARGE_PER_MESSAGE, FlowKey, HEADER_BYTES, Header, MAX_PAYLOAD_BYTES,
    MAX_POSITION,
};
pub use kind::{Flags, Kind, Refusal, is_older_label};
pub use opening::{OPENING_BYTES, Opening};
pub use raw::HeaderRef;

/// Payload of a small frame at most: it always fits in the share of memory that an admitted
/// flow is guaranteed at every hop ([`GUARANTEED_BYTES`](crate::budget::GUARANTEED_BYTES)),
/// with an opening in front, and travels on the urgent lane.
pub const SMALL_PAYLOAD_BYTES: usize = 3904;
/// The largest frame of an urgent lane: a small one that opens its flow.
pub const URGENT_FRAME_BYTES: usize = HEADER_BYTES + OPENING_BYTES + SMALL_PAYLOAD_BYTES;

const _: () = assert!(
    SMALL_PAYLOAD_BYTES as u64 + OPENING_BYTES as u64 + CHARGE_PER_FRAME
        <= crate::budget::GUARANTEED_BYTES
);

/// Small frames that travel on the bulk lane right in front of a large one of their message, so
/// that one call sends both and one receives both, are together at most this long.
pub const LEAD_BYTES: usize = 200;

/// Bytes that are read ahead of a large frame's payload, to tell where that goes: what may travel
/// in front of the frame, its header, and the descriptor of its block. Any large frame is longer.
pub const AHEAD_BYTES: usize = LEAD_BYTES + HEADER_BYTES + DESCRIPTOR_BYTES;

const _: () = assert!(AHEAD_BYTES <= SMALL_PAYLOAD_BYTES);

/// Messages whose records have more bytes are not bundled: what they would save by it is little beside
/// what is done with their bytes.
pub const BUNDLED_BYTES: usize = 1256;

// Three of them fit in a bundle.
const _: () = assert!(
    3 * (bundled_prefix_bytes(BUNDLED_BYTES) + BUNDLED_BYTES) as u64 + 2 * CHARGE_PER_MESSAGE
        <= SMALL_PAYLOAD_BYTES as u64
);
