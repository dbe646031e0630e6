//! The small sets of which a header's fields are members.

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
    /// From a gateway back to the source, which asked with an opening or a probe: what it sent is
    /// here, and waits for its turn to go on, or for a rate.
    Held = 9,
}

impl Kind {
    pub(super) const fn from_wire(kind: u8) -> Option<Self> {
        Some(match kind {
            1 => Self::Data,
            2 => Self::Credit,
            3 => Self::Refusal,
            4 => Self::Probe,
            5 => Self::Close,
            6 => Self::Lost,
            7 => Self::Ping,
            8 => Self::Pong,
            9 => Self::Held,
            _ => return None,
        })
    }

    /// Whether frames of this kind go from the flow's destination back to its source.
    #[must_use]
    pub const fn goes_back(self) -> bool {
        matches!(self, Self::Credit | Self::Refusal | Self::Pong | Self::Held)
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
    /// The checksum covers the header alone (one hop over a protocol that keeps bytes whole, or a channel
    /// that wants no more), or, where its field is 0 and the frame is no opening, there is none (one hop
    /// within a host's memory).
    pub const HEADER_ONLY: Self = Self(1 << 5);
    /// The payload (after an opening) is several whole messages, each its records behind one byte
    /// that says how long they are. `message` is the first of them, `offset` how many there are.
    pub const BUNDLE: Self = Self(1 << 6);

    /// The flags that are set in `bits`, or `None` when one of them is reserved.
    #[inline]
    pub(super) const fn from_wire(bits: u8) -> Option<Self> {
        if bits & !Self::ALL == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    const ALL: u8 = 0x7f;

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
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// Why a hop does not carry a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Refusal {
    /// The hop's guaranteed memory is taken; try again later.
    NoRoom = 1,
    /// The hop does not know the flow (it restarted, or forgot an idle flow); open it again.
    Unknown = 2,
    /// The next link of the route is down, so that the opening went no further; open again
    /// until it is back.
    LinkDown = 3,
    /// The destination runs, but is not the incarnation that the flow was opened to.
    OtherIncarnation = 4,
    /// A frame arrived with a wrong checksum, or with what cannot be; send again from what is
    /// delivered.
    Corrupt = 5,
    /// No route leads there from this hop, or not from this source.
    NoRoute = 6,
    /// The destination has no such channel open.
    NoChannel = 7,
    /// The next link of the route was lost while the flow went over it; open again until it
    /// is back.
    LinkLost = 8,
    /// The destination has given up the message that it had part of: it had heard nothing of its
    /// source for too long, or what came of it then cannot be.
    GivenUp = 9,
}

/// Whether `label` is of an opening before the one of `other`. Labels of a source grow by
/// one with each opening of a flow, and wrap around.
#[must_use]
pub const fn is_older_label(label: u32, other: u32) -> bool {
    label != other && other.wrapping_sub(label) < 1 << 31
}

impl Refusal {
    pub(super) const fn from_wire(reason: u32) -> Option<Self> {
        Some(match reason {
            1 => Self::NoRoom,
            2 => Self::Unknown,
            3 => Self::LinkDown,
            4 => Self::OtherIncarnation,
            5 => Self::Corrupt,
            6 => Self::NoRoute,
            7 => Self::NoChannel,
            8 => Self::LinkLost,
            9 => Self::GivenUp,
            _ => return None,
        })
    }
}
