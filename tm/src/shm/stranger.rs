//! A peer over shared memory before it is a lane, and how it becomes one.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::bell::Bell;
use super::greeting::{Greeting, GreetingError, Received, check_socket};
use super::layout::Geometry;
use super::memory::{OwnMemory, PeerMemory};
use super::receiver::ShmReceiver;
use super::sender::ShmSender;
use super::violation;
use crate::lane::{Establishing, Lane, LaneClass, LaneError, Stranger};
use crate::protocol::ShmTuning;

#[derive(Debug)]
pub(super) struct ShmStranger {
    socket: OwnedFd,
    connects: bool,
    tuning: ShmTuning,
}

impl ShmStranger {
    /// Over a connected socket; `connects` on the side that connected.
    pub(super) fn new(socket: OwnedFd, connects: bool, tuning: ShmTuning) -> Self {
        Self {
            socket,
            connects,
            tuning,
        }
    }
}

impl AsFd for ShmStranger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Stranger for ShmStranger {
    fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (count, _) = rustix::net::recv(&self.socket, into, RecvFlags::DONTWAIT)?;
        Ok(count)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(&self.socket, bytes, flags)?)
    }

    fn describe(&self) -> String {
        let mut text = "a process of this host".to_owned();
        if let Ok(peer) = rustix::net::sockopt::socket_peercred(&self.socket) {
            text = format!("process {}", peer.pid.as_raw_nonzero());
            let _ = write!(text, " of user {}", peer.uid.as_raw());
        }
        text
    }

    fn establish(self: Box<Self>, class: LaneClass) -> Result<Box<dyn Establishing>, LaneError> {
        let Self {
            socket,
            connects,
            tuning,
        } = *self;
        let geometry = Geometry::tuned(&tuning, class).map_err(invalid)?;
        let (own, own_file) = OwnMemory::new(geometry)?;
        let (ours, theirs) = if connects {
            let (ours, theirs) = rustix::net::socketpair(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
                None,
            )
            .map_err(io::Error::from)?;
            (Some(ours), Some(theirs))
        } else {
            (None, None)
        };
        let greeting = Greeting {
            class,
            connects,
            geometry,
        };
        Ok(Box::new(ShmEstablishing {
            socket,
            greeting,
            own,
            reverse: ours,
            unsent: Some((own_file, theirs)),
            peer: None,
        }))
    }
}

fn invalid(what: &'static str) -> LaneError {
    LaneError::Broken(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// A lane whose two sides exchange their greetings.
///
/// The connection itself becomes the bell of the direction away from who connected; the
/// socket pair that comes with its greeting becomes that of the other direction.
#[derive(Debug)]
struct ShmEstablishing {
    socket: OwnedFd,
    greeting: Greeting,
    own: Arc<OwnMemory>,
    /// Our end of the other direction's bell, once there is one.
    reverse: Option<OwnedFd>,
    /// What goes with our greeting, until it is sent.
    unsent: Option<(OwnedFd, Option<OwnedFd>)>,
    /// The peer's memory, once its greeting has come.
    peer: Option<Arc<PeerMemory>>,
}

impl ShmEstablishing {
    fn send_greeting(&mut self) -> Result<(), LaneError> {
        if let Some((memory, bell)) = &self.unsent {
            let mut descriptors = vec![memory.as_fd()];
            descriptors.extend(bell.as_ref().map(AsFd::as_fd));
            match self.greeting.send(&self.socket, &descriptors) {
                Ok(()) => self.unsent = None,
                // Tried again when the peer's greeting comes.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Err(LaneError::Closed);
                }
                Err(error) => return Err(LaneError::Broken(error)),
            }
        }
        Ok(())
    }

    fn receive_greeting(&mut self) -> Result<(), LaneError> {
        if self.peer.is_some() {
            return Ok(());
        }
        let Received {
            greeting,
            mut descriptors,
        } = match Greeting::receive(&self.socket) {
            Ok(received) => received,
            Err(GreetingError::NotYet) => return Ok(()),
            Err(GreetingError::Closed) => return Err(LaneError::Closed),
            Err(GreetingError::Broken(error)) => return Err(LaneError::Broken(error)),
            Err(GreetingError::Wrong(what)) => return Err(violation(what)),
        };
        if greeting.class != self.greeting.class {
            return Err(violation(
                "it takes this for a lane of the other class".to_owned(),
            ));
        }
        if greeting.connects == self.greeting.connects {
            return Err(violation("it claims our side of the connection".to_owned()));
        }
        if greeting.connects {
            let bell = descriptors.pop().ok_or(LaneError::Closed)?;
            check_socket(&bell).map_err(violation)?;
            self.reverse = Some(bell);
        }
        let memory = descriptors.pop().ok_or(LaneError::Closed)?;
        self.peer = Some(PeerMemory::new(&memory, greeting.geometry).map_err(violation)?);
        Ok(())
    }
}

impl AsFd for ShmEstablishing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Establishing for ShmEstablishing {
    fn advance(&mut self) -> Result<Option<Lane>, LaneError> {
        self.send_greeting()?;
        self.receive_greeting()?;
        self.send_greeting()?;
        let (Some(peer), None) = (&self.peer, &self.unsent) else {
            return Ok(None);
        };
        let reverse = self
            .reverse
            .take()
            .ok_or(LaneError::Misuse("advanced a lane that is up"))?;
        let forward = self.socket.try_clone()?;
        let (sending, receiving) = if self.greeting.connects {
            (forward, reverse)
        } else {
            (reverse, forward)
        };
        Ok(Some(Lane {
            sender: Box::new(ShmSender::new(&self.own, peer, Bell::new(sending))),
            receiver: Box::new(ShmReceiver::new(&self.own, peer, Bell::new(receiving))),
        }))
    }
}
