//! A header as it lies in memory: its layout, and what can be told without moving it.
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

use super::header::{FlowKey, HEADER_BYTES, Header, MAX_PAYLOAD_BYTES, MAX_POSITION};
use super::{CHARGE_PER_MESSAGE, Flags, Kind, OPENING_BYTES, SMALL_PAYLOAD_BYTES, WireError};

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
const _: () = assert!(offset_of!(RawHeader, offset) == OFFSET_AT);

/// Where the checksum stands in a header.
pub(crate) const CHECKSUM_AT: usize = 16;

/// Where the offset stands in a header, or the number of messages.
pub(crate) const OFFSET_AT: usize = 40;

/// A header where it lies, whose fields make sense for its kind.
#[derive(Debug, Clone, Copy)]
pub struct HeaderRef<'b>(&'b RawHeader);

impl<'b> HeaderRef<'b> {
    /// See [`Header::check`].
    #[inline(always)]
    pub(super) fn check(bytes: &'b [u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        if !raw.is_possible_data() {
            raw.check_other()?;
        }
        Ok(Self(raw))
    }

    /// What the frame is for.
    #[must_use]
    #[inline]
    pub fn kind(self) -> Kind {
        Kind::from_wire(self.0.kind).unwrap_or(Kind::Data)
    }

    /// Whether it is part of a message.
    #[must_use]
    #[inline]
    pub const fn is_data(self) -> bool {
        self.0.kind == Kind::Data as u8
    }

    /// Facts about a data frame; none on others.
    #[must_use]
    #[inline]
    pub fn flags(self) -> Flags {
        Flags::from_wire(self.0.flags).unwrap_or_default()
    }

    /// The flow that the frame belongs to.
    #[must_use]
    #[inline]
    pub fn flow(self) -> FlowKey {
        FlowKey {
            channel: self.0.channel.get(),
            source: self.0.source.get(),
            destination: self.0.destination.get(),
        }
    }

    /// The opening of the flow that it belongs to.
    #[must_use]
    #[inline]
    pub fn label(self) -> u32 {
        self.0.label.get()
    }

    /// Place of the frame in its flow.
    #[must_use]
    #[inline]
    pub fn position(self) -> u64 {
        self.0.position.get()
    }

    /// The first position behind this frame.
    #[must_use]
    #[inline]
    pub fn end_position(self) -> u64 {
        self.read().end_position()
    }

    /// Bytes that follow the header.
    #[must_use]
    #[inline]
    pub fn payload_bytes(self) -> usize {
        self.0.length.get() as usize
    }

    /// Whether this is all of a message and nothing else: described from its first block on, and
    /// ending with this frame, which neither opens its flow nor asks for credit.
    #[must_use]
    #[inline]
    pub const fn is_whole_message(self) -> bool {
        let usual = Flags::DESCRIBED.with(Flags::END).bits();
        let is_usual = self.0.flags & !Flags::HEADER_ONLY.bits() == usual;
        self.is_data() && is_usual && self.0.block.get() == 0
    }

    /// See [`is_absent`](super::checksum::is_absent).
    #[must_use]
    #[inline]
    pub fn lacks_checksum(self) -> bool {
        super::checksum::is_absent_from(self.flags(), self.0.checksum.get())
    }

    /// Whether the checksum, which covers the header alone, is right.
    #[must_use]
    pub fn is_intact_alone(self) -> bool {
        let bytes: &[u8; HEADER_BYTES] = zerocopy::transmute_ref!(self.0);
        super::checksum::is_header_intact(bytes)
    }

    /// Bytes of the whole frame.
    #[must_use]
    #[inline]
    pub fn frame_bytes(self) -> usize {
        HEADER_BYTES + self.0.length.get() as usize
    }

    /// All of it.
    #[must_use]
    #[inline]
    pub fn read(self) -> Header {
        Header {
            kind: self.kind(),
            flags: self.flags(),
            flow: self.flow(),
            length: self.0.length.get(),
            checksum: self.0.checksum.get(),
            label: self.label(),
            position: self.position(),
            message: self.0.message.get(),
            block: self.0.block.get(),
            offset: self.0.offset.get(),
        }
    }
}

impl RawHeader {
    /// Whether this is the header of a data frame, and its fields are possible together.
    #[inline]
    fn is_possible_data(&self) -> bool {
        let flags = Flags::from_wire(self.flags);
        self.kind == Kind::Data as u8 && flags.is_some_and(|flags| self.check_data(flags).is_ok())
    }

    /// What is wrong with a header that is not that of a data frame, or of none that can be.
    #[cold]
    #[inline(never)]
    fn check_other(&self) -> Result<(), WireError> {
        let kind = Kind::from_wire(self.kind).ok_or(WireError::UnknownKind(self.kind))?;
        let flags = Flags::from_wire(self.flags).ok_or(WireError::ReservedFlags(self.flags))?;
        if kind == Kind::Data {
            self.check_data(flags)
        } else if flags != Flags::NONE {
            Err(WireError::ReservedFlags(self.flags))
        } else {
            HeaderRef(self).read().check_control()
        }
    }

    /// What is wrong with the header of a bundle with so many bytes of messages.
    fn check_bundle(&self, flags: Flags, bytes: usize) -> Result<(), WireError> {
        if bytes > SMALL_PAYLOAD_BYTES {
            return Err(WireError::TooLong(self.length.get()));
        }
        let is_whole = flags.has(Flags::DESCRIBED.with(Flags::END)) && self.block.get() == 0;
        // No more than these bytes can be, and none that costs more than a small frame may.
        let most = bytes / (1 + super::DESCRIPTOR_BYTES);
        let messages = self.offset.get();
        let fits = (2..=most as u64).contains(&messages)
            && bytes as u64 + (messages - 1) * CHARGE_PER_MESSAGE <= SMALL_PAYLOAD_BYTES as u64;
        if is_whole && fits {
            Ok(())
        } else {
            Err(WireError::Contradiction("a bundle that is none"))
        }
    }

    #[inline]
    fn check_data(&self, flags: Flags) -> Result<(), WireError> {
        let length = self.length.get();
        let opens = flags.has(Flags::OPEN);
        let described = flags.has(Flags::DESCRIBED);
        let most = if opens {
            SMALL_PAYLOAD_BYTES + OPENING_BYTES
        } else {
            MAX_PAYLOAD_BYTES
        };
        if length as usize > most {
            return Err(WireError::TooLong(length));
        }
        let opening = if opens { OPENING_BYTES } else { 0 };
        let descriptor = if described {
            super::DESCRIPTOR_BYTES
        } else {
            0
        };
        let least = opening + descriptor;
        if (length as usize) < least {
            return Err(WireError::TooShort { length, least });
        }
        if self.label.get() == 0 {
            return Err(WireError::Contradiction("a flow without a label"));
        }
        if flags.has(Flags::BUNDLE) {
            self.check_bundle(flags, length as usize - opening)?;
        } else if described && self.offset.get() != 0 {
            return Err(WireError::Contradiction(
                "a described block that does not start at 0",
            ));
        }
        let has_payload = length as usize > opening;
        if flags.has(Flags::ABORT) && (described || flags.has(Flags::END) || has_payload) {
            return Err(WireError::Contradiction(
                "a message that is given up and goes on",
            ));
        }
        let is_reached = self.position.get() <= MAX_POSITION
            && self.offset.get() <= super::descriptor::MAX_BLOCK_BYTES;
        if !is_reached {
            return Err(WireError::Contradiction("a place that no flow reaches"));
        }
        Ok(())
    }
}

/// A header in six words, as they lie on the wire. Written so, word by word, it can be read in words
/// at once; what is written in smaller pieces cannot before it has left the processor's store
/// buffer.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(transparent)]
pub(super) struct HeaderWords([U64; HEADER_BYTES / 8]);

impl From<&Header> for HeaderWords {
    #[inline]
    fn from(header: &Header) -> Self {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let first = u32::from(header.kind as u8)
            | u32::from(header.flags.bits()) << 8
            | u32::from(header.flow.channel) << 16;
        let words = [
            pair(first, header.flow.source),
            pair(header.flow.destination, header.length),
            pair(header.checksum, header.label),
            header.position,
            pair(header.message, header.block),
            header.offset,
        ];
        Self(words.map(U64::new))
    }
}
