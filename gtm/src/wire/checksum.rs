//! CRC-32C, end to end: made by the source over header and payload, or over the header alone, looked
//! at by the destination, carried untouched by gateways (paper 002 found that memory and cards on the
//! way corrupt what links deliver intact).

use madgate_crc32c::Crc32c;

use super::{Flags, HEADER_BYTES, Header, encoded};

/// What the checksums of a flow's frames cover. Openings have one always, as each hop acts on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// Header and payload.
    Whole,
    /// The header: enough on one hop over a protocol that keeps bytes whole, and where an application
    /// looks at its bytes itself.
    Header,
    /// Nothing: there is none, where frames never leave the memory of one host.
    Nothing,
}

impl Coverage {
    /// What frames say of it.
    pub(crate) const fn flags(self) -> Flags {
        match self {
            Self::Whole => Flags::NONE,
            Self::Header | Self::Nothing => Flags::HEADER_ONLY,
        }
    }

    /// Puts the checksum, if there is one, in a frame whose checksum field is zero.
    pub(crate) fn seal(self, frame: &mut [u8]) {
        debug_assert_eq!(encoded::checksum(frame), 0);
        if self != Self::Nothing {
            encoded::seal(frame);
        }
    }
}

/// CRC-32C of one piece.
#[must_use]
#[inline]
pub fn of(bytes: &[u8]) -> u32 {
    madgate_crc32c::of(bytes)
}

/// Frames up to this size are copied to have their checksum taken in one go, which costs
/// less than taking it in two.
const COPIED_BYTES: usize = 256;

/// CRC-32C of a frame whose payload comes in pieces.
#[derive(Debug)]
pub struct Running(Crc32c);

impl Running {
    /// Starts with a header, whose own checksum field counts as zero.
    #[must_use]
    pub fn start(header: &Header) -> Self {
        let mut sum = Crc32c::new();
        sum.update(
            &Header {
                checksum: 0,
                ..*header
            }
            .to_bytes(),
        );
        Self(sum)
    }

    /// Goes on with the next piece of payload.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The checksum.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.0.finish()
    }
}

/// Whether a data frame with this header says that it has no checksum ([`Coverage::Nothing`]): to be
/// believed only where nothing on the way could have changed it.
#[must_use]
pub fn is_absent(header: &Header) -> bool {
    is_absent_from(header.flags, header.checksum)
}

/// As [`is_absent`], of what a header says.
#[inline]
pub(super) fn is_absent_from(flags: Flags, checksum: u32) -> bool {
    let says_so = flags.has(Flags::HEADER_ONLY) && !flags.has(Flags::OPEN);
    checksum == 0 && says_so
}

/// Whether a data frame whose payload lies in one piece is as its source made it, by its checksum.
#[must_use]
pub fn is_intact(header: &Header, payload: &[u8]) -> bool {
    is_whole(&header.to_bytes(), payload)
}

/// Whether a data frame that lies in one piece is as its source made it, by its checksum. It begins with a header
/// that was [checked](Header::check), and is as long as that says.
#[must_use]
pub fn is_frame_intact(frame: &[u8]) -> bool {
    let parts = frame.split_first_chunk();
    parts.is_some_and(|(head, payload)| is_whole(head, payload))
}

/// Whether a header that lies in memory is as its source made it, where its checksum covers nothing
/// else.
#[inline]
pub(super) fn is_header_intact(head: &[u8; HEADER_BYTES]) -> bool {
    sum_of(head, &[]) == encoded::checksum(head)
}

#[inline]
fn is_whole(head: &[u8; HEADER_BYTES], payload: &[u8]) -> bool {
    let covered = if encoded::has_any(head, Flags::HEADER_ONLY) {
        &[]
    } else {
        payload
    };
    sum_of(head, covered) == encoded::checksum(head)
}

/// CRC-32C of a header, whose own checksum field counts as zero, and what it covers.
#[inline]
fn sum_of(head: &[u8; HEADER_BYTES], payload: &[u8]) -> u32 {
    if payload.is_empty() {
        let mut unsealed = *head;
        encoded::clear_checksum(&mut unsealed);
        return of(&unsealed);
    }
    let frame_bytes = HEADER_BYTES + payload.len();
    if frame_bytes <= COPIED_BYTES {
        let mut copy = [0; COPIED_BYTES];
        let copy = &mut copy[..frame_bytes];
        copy[..HEADER_BYTES].copy_from_slice(head);
        copy[HEADER_BYTES..].copy_from_slice(payload);
        encoded::clear_checksum(copy);
        return of(copy);
    }
    let mut unsealed = *head;
    encoded::clear_checksum(&mut unsealed);
    let mut sum = Crc32c::new();
    sum.update(&unsealed);
    sum.update(payload);
    sum.finish()
}
