//! What the two sides of a lane tell each other before they share memory: one fixed
//! message each way, with descriptors beside it.
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | the protocol's four letters |
//! | 4–5 | its version |
//! | 6 | class: 0 urgent, 1 bulk |
//! | 7 | 1 from who connected, else 0 |
//! | 8–31 | the protocol's own |
//!
//! Numbers are little-endian. Beside it travel the memory's descriptor and, from who
//! connected, the end of a socket pair for the direction from the other side.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, sockopt,
};

use crate::lane::LaneClass;

const GREETING_BYTES: usize = 32;
/// Bytes of it that are the protocol's own.
pub(crate) const TERMS_BYTES: usize = 24;
/// Descriptors that a greeting has room for; more is a mistake, which costs no more.
const DESCRIPTORS_MAX: usize = 2;

/// Which protocol speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u16,
}

/// What one side says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) class: LaneClass,
    pub(crate) connects: bool,
    /// What the protocol has to say.
    pub(crate) terms: [u8; TERMS_BYTES],
}

/// What came with a greeting.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) greeting: Greeting,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Why a greeting is none.
#[derive(Debug)]
pub(crate) enum GreetingError {
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
    /// As it goes over the socket.
    pub(crate) fn encode(self, dialect: Dialect) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[0..4].copy_from_slice(&dialect.magic);
        bytes[4..6].copy_from_slice(&dialect.version.to_le_bytes());
        bytes[6] = u8::from(self.class == LaneClass::Bulk);
        bytes[7] = u8::from(self.connects);
        bytes[8..].copy_from_slice(&self.terms);
        bytes
    }

    /// The greeting that the bytes are, or what is wrong with them.
    pub(crate) fn decode(bytes: &[u8], dialect: Dialect) -> Result<Self, String> {
        let bytes: &[u8; GREETING_BYTES] = bytes
            .try_into()
            .map_err(|_| format!("its greeting has {} bytes instead of 32", bytes.len()))?;
        let [m0, m1, m2, m3, v0, v1, class, connects, terms @ ..] = bytes;
        if [*m0, *m1, *m2, *m3] != dialect.magic {
            let expected = String::from_utf8_lossy(&dialect.magic).into_owned();
            return Err(format!("its greeting does not begin with {expected}"));
        }
        let version = u16::from_le_bytes([*v0, *v1]);
        if version != dialect.version {
            let ours = dialect.version;
            return Err(format!("it speaks version {version}, not {ours}"));
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
        Ok(Self {
            class,
            connects,
            terms: *terms,
        })
    }

    /// Sends it with `descriptors`. It goes whole or, when the socket takes nothing now,
    /// not at all.
    pub(crate) fn send(
        self,
        dialect: Dialect,
        socket: impl AsFd,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = self.encode(dialect);
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
    pub(crate) fn receive(dialect: Dialect, socket: impl AsFd) -> Result<Received, GreetingError> {
        let mut bytes = [0; GREETING_BYTES];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = match rustix::net::recvmsg(socket, &mut into, &mut control, flags) {
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                return Err(GreetingError::NotYet);
            }
            Err(error) => return Err(GreetingError::Broken(error.into())),
        };
        let lacks_some = received.flags.contains(ReturnFlags::CTRUNC);
        let received = received.bytes;
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
        let greeting = Self::decode(&bytes[..received], dialect).map_err(GreetingError::Wrong)?;
        let expected = if greeting.connects { 2 } else { 1 };
        if descriptors.len() < expected && lacks_some {
            // The kernel keeps back what this process may not have.
            return Err(GreetingError::Broken(rustix::io::Errno::MFILE.into()));
        }
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
pub(crate) fn check_socket(socket: &OwnedFd) -> Result<(), String> {
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

    const DIALECT: Dialect = Dialect {
        magic: *b"TEST",
        version: 3,
    };

    fn greeting() -> Greeting {
        Greeting {
            class: LaneClass::Bulk,
            connects: true,
            terms: *b"the protocol's own terms",
        }
    }

    #[test]
    fn golden_bytes() {
        let golden = *b"TEST\x03\x00\x01\x01the protocol's own terms";
        assert_eq!(greeting().encode(DIALECT), golden);
        assert_eq!(Greeting::decode(&golden, DIALECT), Ok(greeting()));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Greeting::decode(&bytes, DIALECT);
        }

        #[test]
        fn a_changed_byte_is_noticed(place in 0..GREETING_BYTES, by in 1..=255_u8) {
            let mut bytes = greeting().encode(DIALECT);
            bytes[place] ^= by;
            prop_assert_ne!(Greeting::decode(&bytes, DIALECT), Ok(greeting()));
        }
    }

    #[test]
    fn a_greeting_brings_its_descriptors() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let send = |descriptors: &[BorrowedFd<'_>]| {
            greeting().send(DIALECT, &near, descriptors).unwrap();
        };
        assert!(matches!(
            Greeting::receive(DIALECT, &far),
            Err(GreetingError::NotYet)
        ));
        send(&[near.as_fd(), far.as_fd()]);
        let received = Greeting::receive(DIALECT, &far).unwrap();
        assert_eq!(received.greeting, greeting());
        assert!(
            received
                .descriptors
                .iter()
                .all(|socket| check_socket(socket).is_ok())
        );

        send(&[near.as_fd()]);
        assert!(matches!(
            Greeting::receive(DIALECT, &far),
            Err(GreetingError::Wrong(_))
        ));
        drop(near);
        // What the failed greeting left open has been closed.
        drop(received);
        assert!(matches!(
            Greeting::receive(DIALECT, &far),
            Err(GreetingError::Closed)
        ));
    }
}
