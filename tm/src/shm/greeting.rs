//! What the two sides of a lane tell each other about their memory.
//!
//! | bytes of the greeting | |
//! |---|---|
//! | 8–11 | slots |
//! | 12–15 | bytes of a slot |
//! | 16–23 | bytes of the memory |
//! | 24–31 | reserved, zero |

use super::layout::Geometry;
use crate::local::greeting::{Dialect, TERMS_BYTES};

/// What greetings begin with.
pub(super) const DIALECT: Dialect = Dialect {
    magic: *b"MGSM",
    version: 1,
};

/// What a side says about its memory.
pub(super) fn encode(geometry: Geometry) -> [u8; TERMS_BYTES] {
    let mut bytes = [0; TERMS_BYTES];
    bytes[0..4].copy_from_slice(&geometry.slots().to_le_bytes());
    bytes[4..8].copy_from_slice(&geometry.slot_bytes().to_le_bytes());
    bytes[8..16].copy_from_slice(&(geometry.memory_bytes() as u64).to_le_bytes());
    bytes
}

/// The geometry that was said, or what is wrong with it.
pub(super) fn decode(bytes: &[u8; TERMS_BYTES]) -> Result<Geometry, String> {
    let [s0, s1, s2, s3, b0, b1, b2, b3, rest @ ..] = bytes;
    let slots = u32::from_le_bytes([*s0, *s1, *s2, *s3]);
    let slot_bytes = u32::from_le_bytes([*b0, *b1, *b2, *b3]);
    let geometry = Geometry::new(slots.into(), slot_bytes.into())?;
    let (memory_bytes, reserved) = rest.split_at(8);
    if memory_bytes != (geometry.memory_bytes() as u64).to_le_bytes() {
        return Err("its memory does not have the size that its slots take".to_owned());
    }
    if reserved.iter().any(|&byte| byte != 0) {
        return Err("its greeting uses reserved bytes".to_owned());
    }
    Ok(geometry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let geometry = Geometry::new(16, 69_632).unwrap();
        let mut golden = *b"\x10\x00\x00\x00\x00\x10\x01\x00________\0\0\0\0\0\0\0\0";
        golden[8..16].copy_from_slice(&(20_480_u64 + 16 * 69_632).to_le_bytes());
        assert_eq!(encode(geometry), golden);
        assert_eq!(decode(&golden), Ok(geometry));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes: [u8; TERMS_BYTES]) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_changed_byte_is_noticed(place in 0..TERMS_BYTES, by in 1..=255_u8) {
            let geometry = Geometry::new(16, 69_632).unwrap();
            let mut bytes = encode(geometry);
            bytes[place] ^= by;
            prop_assert_ne!(decode(&bytes), Ok(geometry));
        }
    }
}
