//! What the two sides of a lane tell each other about what they receive with.
//!
//! | bytes of the greeting | |
//! |---|---|
//! | 8–11 | messages that can be on their way |
//! | 12–15 | bytes of the largest message |
//! | 16–19 | bytes of the largest control message |
//! | 20 | how it is told: 0 polling, 1 interrupt, 2 adaptive |
//! | 21–23 | reserved, zero |
//! | 24–31 | bytes of the memory |

use super::host::Mode;
use super::layout::Geometry;
use crate::local::greeting::{Dialect, TERMS_BYTES};

/// What greetings begin with.
pub(super) const DIALECT: Dialect = Dialect {
    magic: *b"MGRW",
    version: 1,
};

/// What a side says about its memory.
pub(super) fn encode(geometry: Geometry) -> [u8; TERMS_BYTES] {
    let mut bytes = [0; TERMS_BYTES];
    bytes[0..4].copy_from_slice(&geometry.slots().to_le_bytes());
    bytes[4..8].copy_from_slice(&geometry.slot_bytes().to_le_bytes());
    bytes[8..12].copy_from_slice(&geometry.control_bytes().to_le_bytes());
    bytes[12] = mode_code(geometry.mode);
    bytes[16..24].copy_from_slice(&(geometry.memory_bytes() as u64).to_le_bytes());
    bytes
}

/// The geometry that was said, or what is wrong with it.
pub(super) fn decode(bytes: &[u8; TERMS_BYTES]) -> Result<Geometry, String> {
    let [
        s0,
        s1,
        s2,
        s3,
        b0,
        b1,
        b2,
        b3,
        c0,
        c1,
        c2,
        c3,
        mode,
        rest @ ..,
    ] = bytes;
    let slots = u32::from_le_bytes([*s0, *s1, *s2, *s3]);
    let slot_bytes = u32::from_le_bytes([*b0, *b1, *b2, *b3]);
    let control_bytes = u32::from_le_bytes([*c0, *c1, *c2, *c3]);
    let mode = mode_of(*mode)?;
    let geometry = Geometry::new(slots.into(), slot_bytes.into(), control_bytes.into(), mode)?;
    let (reserved, memory_bytes) = rest.split_at(3);
    if memory_bytes != (geometry.memory_bytes() as u64).to_le_bytes() {
        return Err("its memory does not have the size that its slots take".to_owned());
    }
    if reserved.iter().any(|&byte| byte != 0) {
        return Err("its greeting uses reserved bytes".to_owned());
    }
    Ok(geometry)
}

/// What stands for a mode.
pub(super) fn mode_code(mode: Mode) -> u8 {
    match mode {
        Mode::Polling => 0,
        Mode::Interrupt => 1,
        Mode::Adaptive => 2,
    }
}

/// The mode that a byte stands for.
pub(super) fn mode_of(code: u8) -> Result<Mode, String> {
    match code {
        0 => Ok(Mode::Polling),
        1 => Ok(Mode::Interrupt),
        2 => Ok(Mode::Adaptive),
        other => Err(format!("it names mode {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn geometry() -> Geometry {
        Geometry::new(16, 69_632, 16_384, Mode::Adaptive).unwrap()
    }

    #[test]
    fn golden_bytes() {
        let mut golden = *b"\x10\0\0\0\x00\x10\x01\0\0\x40\0\0\x02\0\0\0________";
        let memory = 1_052_672_u64 + 16 * 16_384 + 16 * 69_632;
        golden[16..24].copy_from_slice(&memory.to_le_bytes());
        assert_eq!(encode(geometry()), golden);
        assert_eq!(decode(&golden), Ok(geometry()));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes: [u8; TERMS_BYTES]) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_changed_byte_is_noticed(place in 0..TERMS_BYTES, by in 1..=255_u8) {
            let mut bytes = encode(geometry());
            bytes[place] ^= by;
            prop_assert_ne!(decode(&bytes), Ok(geometry()));
        }
    }
}
