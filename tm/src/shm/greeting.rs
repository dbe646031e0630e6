//! What the two sides of a lane tell each other before they share memory: one fixed
//! message each way, with descriptors beside it.
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | `MGSM` |
//! | 4–5 | version, 1 |
//! | 6 | class: 0 urgent, 1 bulk |
//! | 7 | 1 from who connected, else 0 |
//! | 8–11 | slots |
//! | 12–15 | bytes of a slot |
//! | 16–23 | bytes of the memory |
//! | 24–31 | reserved, zero |
//!
//! Numbers are little-endian. Beside it travel the memory's descriptor and, from who
//! connected, the end of a socket pair for the direction from the other side.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, sockopt,
};

use super::layout::Geometry;
use crate::lane::LaneClass;

const GREETING_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"MGSM";
const VERSION: u16 = 1;
/// Descriptors that a greeting has room for; more is a mistake, which costs no more.
const DESCRIPTORS_MAX: usize = 2;

/// What one side says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) class: LaneClass,
    pub(super) connects: bool,
    pub(super) geometry: Geometry,
}

/// What came with a greeting.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) greeting: Greeting,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Why a greeting is none.
#[derive(Debug)]
pub(super) enum GreetingError {
    /// It has not come yet.
    NotYet,
    /// The peer closed the connection instead.
    Closed,
    /// The connection broke.
    Broken(io::Error),
    /// What came is no greeting.
    Wrong(String),
}

impl Greeting {
    fn encode(self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = u8::from(self.class == LaneClass::Bulk);
        bytes[7] = u8::from(self.connects);
        bytes[8..12].copy_from_slice(&self.geometry.slots().to_le_bytes());
        bytes[12..16].copy_from_slice(&self.geometry.slot_bytes().to_le_bytes());
        bytes[16..24].copy_from_slice(&(self.geometry.memory_bytes() as u64).to_le_bytes());
        bytes
    }

    /// The greeting that the bytes are, or what is wrong with them.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes: &[u8; GREETING_BYTES] = bytes
            .try_into()
            .map_err(|_| format!("its greeting has {} bytes instead of 32", bytes.len()))?;
        let [
            m0,
            m1,
            m2,
            m3,
            v0,
            v1,
            class,
            connects,
            s0,
            s1,
            s2,
            s3,
            b0,
            b1,
            b2,
            b3,
            rest @ ..,
        ] = bytes;
        if [*m0, *m1, *m2, *m3] != MAGIC {
            return Err("its greeting does not begin with MGSM".to_owned());
        }
        let version = u16::from_le_bytes([*v0, *v1]);
        if version != VERSION {
            return Err(format!("it speaks version {version}, not {VERSION}"));
        }
        let class = match class {
            0 => LaneClass::Urgent,
            1 => LaneClass::Bulk,
            other => return Err(format!("it names class {other}")),
        };
        let connects = match connects {
            0 => false,
            1 => true,
            other => return Err(format!("it names side {other}")),
        };
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
        Ok(Self {
            class,
            connects,
            geometry,
        })
    }

    /// Sends it with `descriptors`. It goes whole or, when the socket takes nothing now,
    /// not at all.
    pub(super) fn send(self, socket: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = self.encode();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags)?;
        // So small a message is never split.
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Receives the peer's.
    pub(super) fn receive(socket: impl AsFd) -> Result<Received, GreetingError> {
        let mut bytes = [0; GREETING_BYTES];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = match rustix::net::recvmsg(socket, &mut into, &mut control, flags) {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                return Err(GreetingError::NotYet);
            }
            Err(error) => return Err(GreetingError::Broken(error.into())),
        };
        if received == 0 {
            return Err(GreetingError::Closed);
        }
        let descriptors: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        let greeting = Self::decode(&bytes[..received]).map_err(GreetingError::Wrong)?;
        let expected = if greeting.connects { 2 } else { 1 };
        if descriptors.len() != expected {
            let came = descriptors.len();
            return Err(GreetingError::Wrong(format!(
                "{came} descriptors came with its greeting instead of {expected}"
            )));
        }
        Ok(Received {
            greeting,
            descriptors,
        })
    }
}

/// Checks that a descriptor of the peer's is a socket that can be told not to wait.
pub(super) fn check_socket(socket: &OwnedFd) -> Result<(), String> {
    let is_stream = sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    let is_unix = sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX);
    if is_stream && is_unix {
        Ok(())
    } else {
        Err("the descriptor that it wakes with is no Unix socket".to_owned())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn greeting() -> Greeting {
        let geometry = Geometry::new(16, 69_632).unwrap();
        Greeting {
            class: LaneClass::Bulk,
            connects: true,
            geometry,
        }
    }

    #[test]
    fn golden_bytes() {
        let mut golden =
            *b"MGSM\x01\x00\x01\x01\x10\x00\x00\x00\x00\x10\x01\x00________\0\0\0\0\0\0\0\0";
        golden[16..24].copy_from_slice(&(20_480_u64 + 16 * 69_632).to_le_bytes());
        assert_eq!(greeting().encode(), golden);
        assert_eq!(Greeting::decode(&golden), Ok(greeting()));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Greeting::decode(&bytes);
        }

        #[test]
        fn a_changed_byte_is_noticed(place in 0..GREETING_BYTES, by in 1..=255_u8) {
            let mut bytes = greeting().encode();
            bytes[place] ^= by;
            prop_assert_ne!(Greeting::decode(&bytes), Ok(greeting()));
        }
    }

    #[test]
    fn a_greeting_brings_its_descriptors() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(
            Greeting::receive(&far),
            Err(GreetingError::NotYet)
        ));
        greeting()
            .send(&near, &[near.as_fd(), far.as_fd()])
            .unwrap();
        let received = Greeting::receive(&far).unwrap();
        assert_eq!(received.greeting, greeting());
        assert!(
            received
                .descriptors
                .iter()
                .all(|socket| check_socket(socket).is_ok())
        );

        greeting().send(&near, &[near.as_fd()]).unwrap();
        assert!(matches!(
            Greeting::receive(&far),
            Err(GreetingError::Wrong(_))
        ));
        drop(near);
        // What the failed greeting left open has been closed.
        drop(received);
        assert!(matches!(
            Greeting::receive(&far),
            Err(GreetingError::Closed)
        ));
    }
}
