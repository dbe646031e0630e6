//! The header that every frame starts with, field by field; [`raw`](super::raw) has its layout.

use super::raw::{HeaderRef, HeaderWords};
use super::{Flags, Kind, OPENING_BYTES, Refusal, SMALL_PAYLOAD_BYTES, WireError, checksum};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;

/// Payload of a frame at most, so that a length from the wire is bounded before anything
/// is allocated for it.
pub const MAX_PAYLOAD_BYTES: usize = 16 << 20;

/// What a frame costs in credit besides its payload, so that empty messages cost too.
pub const CHARGE_PER_FRAME: u64 = 128;

/// What each message of a bundle but the first costs besides its bytes, so that a promise bounds
/// the number of messages too: they take time, and a flow with more of them under way than
/// others have is further from its turn.
pub const CHARGE_PER_MESSAGE: u64 = 64;

/// The last place in a flow where a frame may start; credit may reach twice as far. At
/// 100 GB/s a flow gets there after more than a year. It keeps every sum of a place and a
/// length within 64 bits.
pub const MAX_POSITION: u64 = 1 << 62;

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
    /// Names one opening of the flow, and so stands for both incarnations; never 0 on
    /// frames of a flow. What carries another label than the one in force is stale.
    pub label: u32,
    /// Place of the frame in its flow, in charged bytes; see [`Kind`] for other kinds.
    pub position: u64,
    /// Number of the message in its flow.
    pub message: u32,
    /// Number of the (first) block in the message.
    pub block: u32,
    /// Where in that block the payload belongs, in bytes; how many messages a bundle has.
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
        Ok(Self::check(bytes)?.read())
    }

    /// As [`parse`](Self::parse), but leaves the header where it is. Where frames come by the
    /// million, few of its fields are needed of each, and one that is put together field by field
    /// cannot be moved as a whole before it has left the processor's store buffer.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    #[inline]
    pub fn check(bytes: &[u8; HEADER_BYTES]) -> Result<HeaderRef<'_>, WireError> {
        HeaderRef::check(bytes)
    }

    /// The header as it goes on the wire.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        zerocopy::transmute!(HeaderWords::from(self))
    }

    /// Writes the header as it goes on the wire to where it leaves from.
    #[inline]
    pub fn write_to(&self, bytes: &mut [u8; HEADER_BYTES]) {
        *bytes = self.to_bytes();
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
    #[inline]
    pub fn is_bare_opening(&self) -> bool {
        self.flags.has(Flags::OPEN)
            && self.payload_bytes() == 0
            && !self.flags.has(Flags::END)
            && !self.flags.has(Flags::ABORT)
    }

    /// Bytes of the payload, an opening in front of it left out.
    #[must_use]
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        let opening = if self.flags.has(Flags::OPEN) {
            OPENING_BYTES
        } else {
            0
        };
        (self.length as usize).saturating_sub(opening)
    }

    /// Whether the frame is small: it travels on the urgent lane of a link, others on the
    /// bulk lane.
    #[must_use]
    #[inline]
    pub fn is_small(&self) -> bool {
        self.payload_bytes() <= SMALL_PAYLOAD_BYTES
    }

    /// What the frame costs in credit: its payload without an opening, and a fixed part for it
    /// and for each message that shares it.
    /// A bare opening costs nothing.
    #[must_use]
    #[inline]
    pub fn charge(&self) -> u64 {
        if self.is_bare_opening() {
            return 0;
        }
        let further = if self.flags.has(Flags::BUNDLE) {
            self.offset.saturating_sub(1)
        } else {
            0
        };
        self.payload_bytes() as u64 + CHARGE_PER_FRAME + further * CHARGE_PER_MESSAGE
    }

    /// The first position behind this frame.
    #[must_use]
    #[inline]
    pub fn end_position(&self) -> u64 {
        self.position + self.charge()
    }

    /// Bytes of the whole frame.
    #[must_use]
    #[inline]
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.length as usize
    }

    pub(super) fn check_control(&self) -> Result<(), WireError> {
        if self.length != 0 {
            return Err(WireError::TooLong(self.length));
        }
        let belongs_to_link = matches!(self.kind, Kind::Ping | Kind::Pong);
        if self.label == 0 && !belongs_to_link {
            return Err(WireError::Contradiction("a flow without a label"));
        }
        let rest_is_zero = match self.kind {
            Kind::Data => true,
            Kind::Credit => {
                let is_possible = self.position <= self.offset
                    && self.offset <= 2 * MAX_POSITION
                    && self.credit_incarnation() != 0;
                if !is_possible {
                    return Err(WireError::Contradiction("credit that nobody can give"));
                }
                true
            }
            Kind::Refusal => {
                if Refusal::from_wire(self.block).is_none() {
                    return Err(WireError::UnknownReason(self.block));
                }
                self.position == 0 && self.message == 0
            }
            Kind::Probe | Kind::Close => {
                if self.position > MAX_POSITION {
                    return Err(WireError::Contradiction("a place that no flow reaches"));
                }
                self.message == 0 && self.block == 0 && self.offset == 0
            }
            Kind::Lost | Kind::Held => {
                self.position == 0 && self.message == 0 && self.block == 0 && self.offset == 0
            }
            Kind::Ping | Kind::Pong => {
                let flow = self.flow;
                self.message == 0
                    && self.block == 0
                    && self.offset == 0
                    && self.label == 0
                    && (flow.channel, flow.source, flow.destination) == (0, 0, 0)
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

/// The low and the high half of an incarnation, as credit carries them.
fn halves(incarnation: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = incarnation.to_le_bytes();
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    ]
}
