//! What the two sides of a lane, or of a port, tell each other before they put.
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | `MGRF`; of a port, `MGRG` |
//! | 4–5 | version, 1 |
//! | 6 | class: 0 urgent, 1 bulk; of a port, 1 |
//! | 7 | 1 from who connected, else 0 |
//! | 8–31 | what it receives with, as the `host` device says it |
//! | 32–39 | the key of its memory |
//! | 40–47 | what the first byte of its memory is called |
//! | 48 | order of the bytes in its lists: 0 little-endian, 1 big-endian |
//! | 49 | reserved, zero |
//! | 50, 51 | bytes of the names of its two endpoints: that which sends, that which receives; a \
//!   port has one, which is both |
//! | 52–115 | its provider, with zeros behind it |
//! | 116–243, 244–371 | the two names, with zeros behind them |
//! | 372–375 | reserved, zero |
//!
//! Numbers are little-endian.

use std::fmt;

use super::endpoint::NAME_BYTES_MAX;
use crate::hsl::greeting;
use crate::hsl::layout::Geometry;
use crate::lane::LaneClass;
use crate::local::greeting::TERMS_BYTES;

pub(in crate::hsl) const GREETING_BYTES: usize = 376;
const VERSION: u16 = 1;
const PROVIDER_BYTES: usize = 64;
const PROVIDER_AT: usize = 52;
const NAMES_AT: usize = PROVIDER_AT + PROVIDER_BYTES;
const END_AT: usize = NAMES_AT + 2 * NAME_BYTES_MAX;
const BYTE_ORDER: u8 = if cfg!(target_endian = "big") { 1 } else { 0 };

/// What one side receives with, in a greeting.
pub(super) trait Said: Copy + fmt::Debug {
    /// What greetings begin with.
    const MAGIC: [u8; 4];

    fn encode(self) -> [u8; TERMS_BYTES];

    /// What bytes say, or what is wrong with them.
    fn decode(bytes: &[u8; TERMS_BYTES]) -> Result<Self, String>;
}

impl Said for Geometry {
    const MAGIC: [u8; 4] = *b"MGRF";

    fn encode(self) -> [u8; TERMS_BYTES] {
        greeting::encode(self)
    }

    fn decode(bytes: &[u8; TERMS_BYTES]) -> Result<Self, String> {
        greeting::decode(bytes)
    }
}

/// What one side says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Greeting<G = Geometry> {
    pub(super) class: LaneClass,
    pub(super) connects: bool,
    pub(super) geometry: G,
    pub(super) key: u64,
    pub(super) base: u64,
    pub(super) provider: String,
    /// Of the endpoint that sends, and of that which receives.
    pub(super) names: [Vec<u8>; 2],
}

impl<G: Said> Greeting<G> {
    /// Its bytes. Names that are too long are cut, and mean nothing to anybody.
    pub(super) fn encode(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[0..4].copy_from_slice(&G::MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = u8::from(self.class == LaneClass::Bulk);
        bytes[7] = u8::from(self.connects);
        bytes[8..8 + TERMS_BYTES].copy_from_slice(&self.geometry.encode());
        bytes[32..40].copy_from_slice(&self.key.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.base.to_le_bytes());
        bytes[48] = BYTE_ORDER;
        let provider = &self.provider.as_bytes()[..self.provider.len().min(PROVIDER_BYTES)];
        bytes[PROVIDER_AT..PROVIDER_AT + provider.len()].copy_from_slice(provider);
        for (which, name) in self.names.iter().enumerate() {
            let name = &name[..name.len().min(NAME_BYTES_MAX)];
            let at = NAMES_AT + which * NAME_BYTES_MAX;
            bytes[50 + which] = u8::try_from(name.len()).unwrap_or(0);
            bytes[at..at + name.len()].copy_from_slice(name);
        }
        bytes
    }

    /// What bytes say, or what is wrong with them.
    pub(super) fn decode(bytes: &[u8; GREETING_BYTES]) -> Result<Self, String> {
        if bytes[0..4] != G::MAGIC {
            let magic = String::from_utf8_lossy(&G::MAGIC);
            return Err(format!("its greeting does not begin with {magic}"));
        }
        let version = u16::from_le_bytes(array(bytes, 4));
        if version != VERSION {
            return Err(format!("it speaks version {version}, not {VERSION}"));
        }
        let class = match bytes[6] {
            0 => LaneClass::Urgent,
            1 => LaneClass::Bulk,
            other => return Err(format!("it names class {other}")),
        };
        let connects = match bytes[7] {
            0 => false,
            1 => true,
            other => return Err(format!("it names side {other}")),
        };
        if bytes[48] != BYTE_ORDER {
            return Err("the bytes of its numbers have another order than here".to_owned());
        }
        if bytes[49] != 0 || bytes[END_AT..].iter().any(|&byte| byte != 0) {
            return Err("its greeting uses reserved bytes".to_owned());
        }
        let provider = &bytes[PROVIDER_AT..PROVIDER_AT + PROVIDER_BYTES];
        let length = provider.iter().position(|&byte| byte == 0);
        let provider = &provider[..length.unwrap_or(PROVIDER_BYTES)];
        let provider = str::from_utf8(provider)
            .map_err(|error| format!("the name of its provider is no text: {error}"))?;
        Ok(Self {
            class,
            connects,
            geometry: G::decode(&array(bytes, 8))?,
            key: u64::from_le_bytes(array(bytes, 32)),
            base: u64::from_le_bytes(array(bytes, 40)),
            provider: provider.to_owned(),
            names: [name(bytes, 0)?, name(bytes, 1)?],
        })
    }

    /// What the other side has said, if it goes together with this.
    pub(super) fn answered_by(&self, bytes: &[u8; GREETING_BYTES]) -> Result<Self, String> {
        let peer = Self::decode(bytes)?;
        if peer.class != self.class {
            return Err("it takes this for a lane of the other class".to_owned());
        }
        if peer.connects == self.connects {
            return Err("it claims our side of the connection".to_owned());
        }
        if peer.provider != self.provider {
            return Err(format!(
                "it uses libfabric's provider \"{}\", and this node \"{}\": give the network a \
                 `provider`",
                peer.provider, self.provider
            ));
        }
        Ok(peer)
    }
}

fn name(bytes: &[u8; GREETING_BYTES], which: usize) -> Result<Vec<u8>, String> {
    let length = usize::from(bytes[50 + which]);
    if length == 0 || length > NAME_BYTES_MAX {
        return Err(format!("the name of its endpoint has {length} bytes"));
    }
    let at = NAMES_AT + which * NAME_BYTES_MAX;
    Ok(bytes[at..at + length].to_vec())
}

/// `N` bytes at `at`.
fn array<const N: usize>(bytes: &[u8; GREETING_BYTES], at: usize) -> [u8; N] {
    let mut some = [0; N];
    some.copy_from_slice(&bytes[at..at + N]);
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hsl::host::Mode;
    use proptest::prelude::*;

    fn greeting() -> Greeting {
        Greeting {
            class: LaneClass::Bulk,
            connects: true,
            geometry: Geometry::new(16, 69_632, 16_384, Mode::Adaptive).unwrap(),
            key: 0x1122_3344_5566_7788,
            base: 0x7f00_0000_1000,
            provider: "tcp;ofi_rxm".to_owned(),
            names: [vec![1, 2, 3], vec![4; NAME_BYTES_MAX]],
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = greeting().encode();
        assert_eq!(bytes[..8], *b"MGRF\x01\0\x01\x01");
        assert_eq!(
            bytes[32..40],
            [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]
        );
        assert_eq!(bytes[40..52], [0, 0x10, 0, 0, 0, 0x7f, 0, 0, 0, 0, 3, 128]);
        assert_eq!(bytes[52..64], *b"tcp;ofi_rxm\0");
        assert_eq!(bytes[116..120], [1, 2, 3, 0]);
        assert_eq!(bytes[243..246], [0, 4, 4]);
        assert_eq!(bytes[371..], [4, 0, 0, 0, 0]);
        assert_eq!(Greeting::decode(&bytes), Ok(greeting()));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(
            bytes in proptest::collection::vec(any::<u8>(), GREETING_BYTES),
            as_greeting: bool,
        ) {
            let mut bytes: [u8; GREETING_BYTES] = bytes.try_into().unwrap();
            if as_greeting {
                bytes[..32].copy_from_slice(&greeting().encode()[..32]);
            }
            let _ = Greeting::<Geometry>::decode(&bytes);
        }

        #[test]
        fn a_changed_byte_is_noticed(place in 0..GREETING_BYTES, by in 1..=255_u8) {
            let mut bytes = greeting().encode();
            bytes[place] ^= by;
            // What lies behind the end of a text means nothing.
            let is_padding = (64..116).contains(&place) || (119..244).contains(&place);
            prop_assert!(is_padding || Greeting::decode(&bytes) != Ok(greeting()));
        }
    }
}
