//! The head of every service message: one express block that says what the rest is.
//!
//! A service message is this head and, where it says so, one more block, the body. The
//! payloads of a bench have no head; they are told apart by their first block's receive mode,
//! which is never express.
//!
//! | bytes | holds |
//! |---|---|
//! | 0 | kind |
//! | 1 | version of this layout, [`VERSION`] |
//! | 2–3 | zero |
//! | 4–7 | length of the body; 0: there is none |
//! | 8–15 | tag: which copy or bench it belongs to |
//! | 16–23 | number: what the kind makes of it |
//!
//! All little-endian.

use thiserror::Error;

/// Length of a head.
pub(crate) const HEAD_BYTES: usize = 24;

/// The version of the layout of heads and bodies.
pub(crate) const VERSION: u8 = 1;

/// The longest body: a chunk of a file.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;

/// The head of a service message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// What the message is.
    pub(crate) kind: u8,
    /// Length of the body, at most [`MAX_BODY_BYTES`].
    pub(crate) body_bytes: usize,
    /// Which copy or bench it belongs to.
    pub(crate) tag: u64,
    /// What the kind makes of it.
    pub(crate) number: u64,
}

/// Why a block is no head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum HeadError {
    /// Another version of `madgate`.
    #[error("speaks version {0} of the service messages, this is version {VERSION}")]
    Version(u8),
    /// Reserved bytes that are not zero.
    #[error("a service message has reserved bytes that are not zero")]
    Reserved,
    /// A body that is longer than any.
    #[error("a service message announces {0} bytes, more than {MAX_BODY_BYTES}")]
    TooLong(u32),
}

impl Head {
    /// The head as it is sent.
    pub(crate) fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let body_bytes = u32::try_from(self.body_bytes).unwrap_or(u32::MAX);
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.kind;
        bytes[1] = VERSION;
        bytes[4..8].copy_from_slice(&body_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Reads a head.
    pub(crate) fn parse(bytes: &[u8; HEAD_BYTES]) -> Result<Self, HeadError> {
        let [kind, version, r0, r1, b0, b1, b2, b3, rest @ ..] = *bytes;
        if version != VERSION {
            return Err(HeadError::Version(version));
        }
        if [r0, r1] != [0, 0] {
            return Err(HeadError::Reserved);
        }
        let announced = u32::from_le_bytes([b0, b1, b2, b3]);
        let body_bytes = usize::try_from(announced)
            .ok()
            .filter(|length| *length <= MAX_BODY_BYTES)
            .ok_or(HeadError::TooLong(announced))?;
        let [
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            t6,
            t7,
            n0,
            n1,
            n2,
            n3,
            n4,
            n5,
            n6,
            n7,
        ] = rest;
        Ok(Self {
            kind,
            body_bytes,
            tag: u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            number: u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_head_survives_the_way() {
        let head = Head {
            kind: 7,
            body_bytes: MAX_BODY_BYTES,
            tag: 0x0123_4567_89ab_cdef,
            number: u64::MAX - 1,
        };
        assert_eq!(Head::parse(&head.to_bytes()), Ok(head));
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let good = Head {
            kind: 1,
            body_bytes: 0,
            tag: 0,
            number: 0,
        }
        .to_bytes();
        let mut bytes = good;
        bytes[1] = 9;
        assert_eq!(Head::parse(&bytes), Err(HeadError::Version(9)));
        bytes = good;
        bytes[3] = 1;
        assert_eq!(Head::parse(&bytes), Err(HeadError::Reserved));
        bytes = good;
        bytes[7] = 1;
        assert_eq!(Head::parse(&bytes), Err(HeadError::TooLong(1 << 24)));
    }

    proptest! {
        #[test]
        fn any_head_survives_the_way(
            kind: u8,
            body_bytes in 0..=MAX_BODY_BYTES,
            tag: u64,
            number: u64,
        ) {
            let head = Head { kind, body_bytes, tag, number };
            prop_assert_eq!(Head::parse(&head.to_bytes()), Ok(head));
        }

        #[test]
        fn any_bytes_are_a_head_or_none(
            mut bytes: [u8; HEAD_BYTES],
            of_this_version: bool,
            length in 0..=2 * MAX_BODY_BYTES,
        ) {
            if of_this_version {
                bytes[1..4].copy_from_slice(&[VERSION, 0, 0]);
                let length = u32::try_from(length).unwrap();
                bytes[4..8].copy_from_slice(&length.to_le_bytes());
                prop_assert_eq!(Head::parse(&bytes).is_ok(), length as usize <= MAX_BODY_BYTES);
            }
            if let Ok(head) = Head::parse(&bytes) {
                prop_assert_eq!(head.to_bytes(), bytes);
            }
        }
    }
}
