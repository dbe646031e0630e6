//! The header that every frame starts with.
//!
//! ```text
//!  0 kind      1 flags     2 channel (2)
//!  4 source (4)            8 destination (4)
//! 12 length (4)           16 checksum (4)
//! 20 label (4)            24 position (8)
//! 32 message (4)          36 block (4)
//! 40 offset (8)                                      48 bytes, little-endian
//! ```

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;

/// Payload of a frame at most, so that a length from the wire is bounded before anything
/// is allocated for it.
pub const MAX_PAYLOAD_BYTES: usize = 16 << 20;

/// What a frame costs in credit besides its payload, so that empty messages cost too.
pub const CHARGE_PER_FRAME: u64 = 128;

/// The header's layout on the wire.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    kind: u8,
    flags: u8,
    channel: U16,
    source: U32,
    destination: U32,
    length: U32,
    checksum: U32,
    label: U32,
    position: U64,
    message: U32,
    block: U32,
    offset: U64,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(offset_of!(RawHeader, channel) == 2);
const _: () = assert!(offset_of!(RawHeader, source) == 4);
const _: () = assert!(offset_of!(RawHeader, destination) == 8);
const _: () = assert!(offset_of!(RawHeader, length) == 12);
const _: () = assert!(offset_of!(RawHeader, checksum) == CHECKSUM_AT);
const _: () = assert!(offset_of!(RawHeader, label) == 20);
const _: () = assert!(offset_of!(RawHeader, position) == 24);
const _: () = assert!(offset_of!(RawHeader, message) == 32);
const _: () = assert!(offset_of!(RawHeader, block) == 36);
const _: () = assert!(offset_of!(RawHeader, offset) == 40);

/// Where the checksum stands in a header.
pub(crate) const CHECKSUM_AT: usize = 16;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Part of a message; the only kind with a payload, and the only one that costs credit.
    Data = 1,
    /// From the destination back: *delivered up to* (`position`) and *granted up to*
    /// (`offset`); `message` and `block` are the low and high half of the destination's
    /// incarnation. The papers' CRDT.
    Credit = 2,
    /// From any hop back: the flow is not admitted, or no longer; `block` says why
    /// ([`Refusal`]), `offset` is the destination's incarnation where that is why. A NACK.
    Refusal = 3,
    /// From the source: asks for the destination's newest credit.
    Probe = 4,
    /// From the source: everything is delivered, every hop may forget the flow.
    Close = 5,
    /// From a gateway to the destination: the flow's link from its source is lost; what is
    /// half received may never be completed.
    Lost = 6,
    /// Between the two ends of one link: are you there? `position` is echoed.
    Ping = 7,
    /// The answer to a ping.
    Pong = 8,
}

impl Kind {
    const fn from_wire(kind: u8) -> Option<Self> {
        Some(match kind {
            1 => Self::Data,
            2 => Self::Credit,
            3 => Self::Refusal,
            4 => Self::Probe,
            5 => Self::Close,
            6 => Self::Lost,
            7 => Self::Ping,
            8 => Self::Pong,
            _ => return None,
        })
    }

    /// Whether frames of this kind go from the flow's destination back to its source.
    #[must_use]
    pub const fn goes_back(self) -> bool {
        matches!(self, Self::Credit | Self::Refusal | Self::Pong)
    }
}

/// Facts about a data frame, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// The payload starts with an [`Opening`](super::Opening): the flow asks to be admitted.
    pub const OPEN: Self = Self(1);
    /// The payload (after an opening) is records: a descriptor, then its block's bytes.
    pub const DESCRIBED: Self = Self(1 << 1);
    /// The message ends with this frame.
    pub const END: Self = Self(1 << 2);
    /// The source wants credit at once: it has run out, or waits for delivery.
    pub const WANT: Self = Self(1 << 3);
    /// The source gave the message up half-way; what there is of it is to be discarded.
    pub const ABORT: Self = Self(1 << 4);
    /// The checksum covers the header alone (one hop over a protocol that keeps bytes whole).
    pub const HEADER_ONLY: Self = Self(1 << 5);

    const ALL: u8 = 0x3f;

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set if `condition`, else none.
    #[must_use]
    pub const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }

    /// Whether every flag of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// What identifies a flow: all that goes from one node to another over one channel. The
/// same in every frame of the flow, whichever way the frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Number of the channel in the cluster file.
    pub channel: u16,
    /// Rank of the node whose messages these are.
    pub source: u32,
    /// Rank of the node that they are for.
    pub destination: u32,
}

/// Why a hop does not carry a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Refusal {
    /// The hop's guaranteed memory is taken; try again later.
    NoRoom = 1,
    /// The hop does not know the flow (it restarted, or forgot an idle flow); open it again.
    Unknown = 2,
    /// The next link of the route is down; open again until it is back.
    LinkDown = 3,
    /// The destination runs, but is not the incarnation that the flow was opened to.
    OtherIncarnation = 4,
    /// A frame arrived with a wrong checksum or out of place; send again from what is delivered.
    Corrupt = 5,
    /// No route leads there from this hop, or not from this source.
    NoRoute = 6,
    /// The destination has no such channel open.
    NoChannel = 7,
}

impl Refusal {
    const fn from_wire(reason: u32) -> Option<Self> {
        Some(match reason {
            1 => Self::NoRoom,
            2 => Self::Unknown,
            3 => Self::LinkDown,
            4 => Self::OtherIncarnation,
            5 => Self::Corrupt,
            6 => Self::NoRoute,
            7 => Self::NoChannel,
            _ => return None,
        })
    }
}

/// A header whose fields make sense for its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is for.
    pub kind: Kind,
    /// Facts about a data frame; none on others.
    pub flags: Flags,
    /// The flow that the frame belongs to.
    pub flow: FlowKey,
    /// Bytes that follow the header.
    pub length: u32,
    /// CRC-32C of the header (with this field zero) and the payload.
    pub checksum: u32,
    /// Drawn by the source each time it opens the flow: stands for both incarnations and
    /// for this opening. What carries another label is stale.
    pub label: u32,
    /// Place of the frame in its flow, in charged bytes; see [`Kind`] for other kinds.
    pub position: u64,
    /// Number of the message in its flow.
    pub message: u32,
    /// Number of the (first) block in the message.
    pub block: u32,
    /// Where in that block the payload belongs, in bytes.
    pub offset: u64,
}

impl Header {
    /// A header of `kind` for `flow` with everything else zero.
    #[must_use]
    pub const fn new(kind: Kind, flow: FlowKey, label: u32) -> Self {
        Self {
            kind,
            flags: Flags::NONE,
            flow,
            length: 0,
            checksum: 0,
            label,
            position: 0,
            message: 0,
            block: 0,
            offset: 0,
        }
    }

    /// Credit as the destination's `incarnation` gives it, or as a gateway lowers it.
    #[must_use]
    pub fn credit(
        flow: FlowKey,
        label: u32,
        delivered: u64,
        granted: u64,
        incarnation: u64,
    ) -> Self {
        let [low, high] = halves(incarnation);
        Self {
            position: delivered,
            message: low,
            block: high,
            offset: granted,
            ..Self::new(Kind::Credit, flow, label)
        }
    }

    /// A refusal of the opening `label` of `flow`.
    #[must_use]
    pub const fn refusal(flow: FlowKey, label: u32, reason: Refusal, incarnation: u64) -> Self {
        let mut header = Self::new(Kind::Refusal, flow, label);
        header.block = reason as u32;
        header.offset = incarnation;
        header
    }

    /// A ping or pong: it belongs to a link, not to a flow.
    #[must_use]
    pub const fn echo(kind: Kind, token: u64) -> Self {
        let mut header = Self::new(
            kind,
            FlowKey {
                channel: 0,
                source: 0,
                destination: 0,
            },
            0,
        );
        header.position = token;
        header
    }

    /// Why a refusal refuses; `None` for other kinds.
    #[must_use]
    pub const fn reason(&self) -> Option<Refusal> {
        match self.kind {
            Kind::Refusal => Refusal::from_wire(self.block),
            _ => None,
        }
    }

    /// The destination's incarnation in a credit frame.
    #[must_use]
    pub fn credit_incarnation(&self) -> u64 {
        u64::from(self.message) | u64::from(self.block) << 32
    }

    /// Reads a header and checks that its fields are possible together. Whether they are
    /// *right* (flow, label, position, checksum) is for the flow to say.
    ///
    /// # Errors
    /// Names the first field that cannot be.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        let kind = Kind::from_wire(raw.kind).ok_or(WireError::UnknownKind(raw.kind))?;
        let header = Self {
            kind,
            flags: Flags(raw.flags),
            flow: FlowKey {
                channel: raw.channel.get(),
                source: raw.source.get(),
                destination: raw.destination.get(),
            },
            length: raw.length.get(),
            checksum: raw.checksum.get(),
            label: raw.label.get(),
            position: raw.position.get(),
            message: raw.message.get(),
            block: raw.block.get(),
            offset: raw.offset.get(),
        };
        if kind == Kind::Data {
            header.check_payload()?;
        } else {
            header.check_control()?;
        }
        Ok(header)
    }

    /// The header as it goes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        zerocopy::transmute!(RawHeader {
            kind: self.kind as u8,
            flags: self.flags.0,
            channel: self.flow.channel.into(),
            source: self.flow.source.into(),
            destination: self.flow.destination.into(),
            length: self.length.into(),
            checksum: self.checksum.into(),
            label: self.label.into(),
            position: self.position.into(),
            message: self.message.into(),
            block: self.block.into(),
            offset: self.offset.into(),
        })
    }

    /// A frame without payload, sealed and ready to send.
    #[must_use]
    pub fn to_control_frame(&self) -> [u8; HEADER_BYTES] {
        let mut sealed = Self {
            checksum: 0,
            ..*self
        };
        sealed.checksum = checksum::of(&sealed.to_bytes());
        sealed.to_bytes()
    }

    /// Whether the checksum of a frame without payload is right.
    #[must_use]
    pub fn is_intact_control(&self) -> bool {
        let unsealed = Self {
            checksum: 0,
            ..*self
        };
        checksum::of(&unsealed.to_bytes()) == self.checksum
    }

    /// Whether this opens a flow and carries nothing else.
    #[must_use]
    pub fn is_bare_opening(&self) -> bool {
        self.flags.has(Flags::OPEN)
            && self.length as usize == super::OPENING_BYTES
            && !self.flags.has(Flags::END)
            && !self.flags.has(Flags::ABORT)
    }

    /// What the frame costs in credit: its payload without an opening, and a fixed part.
    /// A bare opening costs nothing.
    #[must_use]
    pub fn charge(&self) -> u64 {
        if self.is_bare_opening() {
            return 0;
        }
        let opening = if self.flags.has(Flags::OPEN) {
            super::OPENING_BYTES as u64
        } else {
            0
        };
        u64::from(self.length) - opening + CHARGE_PER_FRAME
    }

    /// The first position behind this frame.
    #[must_use]
    pub fn end_position(&self) -> u64 {
        self.position + self.charge()
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.length as usize
    }

    fn check_payload(&self) -> Result<(), WireError> {
        if self.length as usize > MAX_PAYLOAD_BYTES {
            return Err(WireError::TooLong(self.length));
        }
        if self.flags.0 & !Flags::ALL != 0 {
            return Err(WireError::ReservedFlags(self.flags.0));
        }
        let mut least = 0;
        if self.flags.has(Flags::OPEN) {
            least += super::OPENING_BYTES;
        }
        if self.flags.has(Flags::DESCRIBED) {
            least += super::DESCRIPTOR_BYTES;
            if self.offset != 0 {
                return Err(WireError::Contradiction(
                    "a described block that does not start at 0",
                ));
            }
        }
        if (self.length as usize) < least {
            return Err(WireError::TooShort {
                length: self.length,
                least,
            });
        }
        if self.flags.has(Flags::OPEN)
            && self.length as usize > super::SMALL_PAYLOAD_BYTES + super::OPENING_BYTES
        {
            return Err(WireError::TooLong(self.length));
        }
        if self.position > u64::MAX - (2 * MAX_PAYLOAD_BYTES as u64)
            || self.offset > super::descriptor::MAX_BLOCK_BYTES
        {
            return Err(WireError::Contradiction("a place that no flow reaches"));
        }
        Ok(())
    }

    fn check_control(&self) -> Result<(), WireError> {
        if self.flags.0 != 0 {
            return Err(WireError::ReservedFlags(self.flags.0));
        }
        if self.length != 0 {
            return Err(WireError::TooLong(self.length));
        }
        let rest_is_zero = match self.kind {
            Kind::Data | Kind::Credit => true,
            Kind::Refusal => {
                if Refusal::from_wire(self.block).is_none() {
                    return Err(WireError::UnknownReason(self.block));
                }
                self.position == 0 && self.message == 0
            }
            Kind::Probe | Kind::Close => self.message == 0 && self.block == 0 && self.offset == 0,
            Kind::Lost => {
                self.position == 0 && self.message == 0 && self.block == 0 && self.offset == 0
            }
            Kind::Ping | Kind::Pong => {
                self.message == 0
                    && self.block == 0
                    && self.offset == 0
                    && self.label == 0
                    && self.flow
                        == FlowKey {
                            channel: 0,
                            source: 0,
                            destination: 0,
                        }
            }
        };
        if !rest_is_zero {
            return Err(WireError::Contradiction(
                "a reserved field that is not zero",
            ));
        }
        Ok(())
    }
}

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
    /// An opening with reserved bits, or without an incarnation.
    #[error("the opening of a flow is malformed")]
    Opening,
}

/// Fields of an encoded header, where only some of them matter: frames that this node made
/// itself, so nothing here is checked.
pub(crate) struct Raw;

/// See [`Raw`].
pub(crate) const RAW: Raw = Raw;

impl Raw {
    pub(crate) fn length(&self, frame: &[u8]) -> u32 {
        word(frame, 12)
    }

    pub(crate) fn flags(&self, frame: &[u8]) -> u8 {
        frame[1]
    }

    pub(crate) fn message(&self, frame: &[u8]) -> u32 {
        word(frame, 32)
    }

    pub(crate) fn block(&self, frame: &[u8]) -> u32 {
        word(frame, 36)
    }

    /// Gives a frame its place in the flow; it is ready to be sealed.
    pub(crate) fn place(&self, frame: &mut [u8], label: u32, position: u64, want: bool) {
        if want {
            frame[1] |= Flags::WANT.0;
        }
        frame[20..24].copy_from_slice(&label.to_le_bytes());
        frame[24..32].copy_from_slice(&position.to_le_bytes());
    }

    /// Makes a placed frame an opening, `length` being its new payload length.
    pub(crate) fn mark_opening(&self, frame: &mut [u8], length: usize) {
        frame[1] |= Flags::OPEN.0;
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        frame[12..16].copy_from_slice(&length.to_le_bytes());
        frame[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    }

    /// Takes back what placing and sealing wrote.
    pub(crate) fn unseal(&self, frame: &mut [u8]) {
        frame[1] &= !Flags::WANT.0;
        frame[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    }
}

fn word(frame: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&frame[at..at + 4]);
    u32::from_le_bytes(bytes)
}

/// The low and the high half of an incarnation, as credit carries them.
fn halves(incarnation: u64) -> [u32; 2] {
    let bytes = incarnation.to_le_bytes();
    let [a, b, c, d, e, f, g, h] = bytes;
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    ]
}
