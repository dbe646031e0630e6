//! A peer of the same host before it is a lane, and how it becomes one.

use std::fmt::{self, Write as _};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::bell::Bell;
use super::credentials::{Credentials, check_user};
use super::greeting::{Dialect, Greeting, GreetingError, Received, TERMS_BYTES, check_socket};
use crate::lane::{Establishing, Lane, LaneClass, LaneError, Stranger, Upgrade};

/// How a protocol turns a connection between two processes of one host into a lane.
pub(crate) trait Terms: fmt::Debug + Clone + Send + 'static {
    /// Its name, for people.
    const PROTOCOL: &'static str;
    /// What its greetings begin with.
    const DIALECT: Dialect;
    /// This side's memory.
    type Own: fmt::Debug + Send;
    /// The other side's, as it is seen from here.
    type Peer: fmt::Debug + Send;

    /// Makes this side's memory: it, its descriptor, and what the peer is told about it.
    ///
    /// # Errors
    /// When the system refuses it, or the tuning is impossible.
    fn prepare(&self, class: LaneClass) -> io::Result<(Self::Own, OwnedFd, [u8; TERMS_BYTES])>;

    /// Takes in what the peer tells, and its memory.
    ///
    /// # Errors
    /// What is wrong with it.
    fn meet(
        &self,
        own: &Self::Own,
        said: &[u8; TERMS_BYTES],
        memory: &OwnedFd,
    ) -> Result<Self::Peer, String>;
}

/// How what both sides have becomes a lane.
pub(crate) trait LaneTerms: Terms {
    /// As [`Stranger::limit_ahead`].
    fn limit_ahead(&mut self, bytes: usize);

    /// Both are there.
    ///
    /// # Errors
    /// When the system refuses what the lane needs.
    fn lane(&self, own: Self::Own, peer: Self::Peer, ends: Ends) -> io::Result<Lane>;
}

/// Both sides' memory, and what there is beside it.
pub(crate) type Met<T> = (<T as Terms>::Own, <T as Terms>::Peer, Ends);

/// What a lane has beside memory.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The bell of the direction away from here.
    pub(crate) sending: Bell,
    /// The bell of the other direction.
    pub(crate) receiving: Bell,
    /// Whether this is the side that connected.
    pub(crate) connects: bool,
}

/// A connected socket.
#[derive(Debug)]
pub(crate) struct LocalStranger<T> {
    socket: OwnedFd,
    connects: bool,
    terms: T,
}

impl<T> LocalStranger<T> {
    /// Over a connected socket; `connects` on the side that connected.
    pub(crate) fn new(socket: OwnedFd, connects: bool, terms: T) -> Self {
        Self {
            socket,
            connects,
            terms,
        }
    }
}

impl<T> AsFd for LocalStranger<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<T: Upgrade> Stranger for LocalStranger<T> {
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
        if let Ok(peer) = Credentials::of(self.socket.as_fd()) {
            if let Some(process) = peer.process {
                text = format!("process {process}");
            }
            let _ = write!(text, " of user {}", peer.user);
        }
        text
    }

    fn limit_ahead(&mut self, bytes: usize) {
        self.terms.limit_ahead(bytes);
    }

    fn establish(self: Box<Self>, class: LaneClass) -> Result<Box<dyn Establishing>, LaneError> {
        let Self {
            socket,
            connects,
            terms,
        } = *self;
        terms.establish(socket, connects, class)
    }
}

impl<T: LaneTerms> Upgrade for T {
    fn limit_ahead(&mut self, bytes: usize) {
        LaneTerms::limit_ahead(self, bytes);
    }

    fn establish(
        &self,
        socket: OwnedFd,
        connects: bool,
        class: LaneClass,
    ) -> Result<Box<dyn Establishing>, LaneError> {
        let terms = self.clone();
        Ok(Box::new(LocalEstablishing::begin(
            socket, connects, terms, class,
        )?))
    }
}

fn violation<T: Terms>(what: String) -> LaneError {
    LaneError::Peer {
        protocol: T::PROTOCOL,
        what,
    }
}

/// A lane whose two sides exchange their greetings.
///
/// The connection itself becomes the bell of the direction away from who connected; the
/// socket pair that comes with its greeting becomes that of the other direction.
#[derive(Debug)]
pub(crate) struct LocalEstablishing<T: Terms> {
    socket: OwnedFd,
    greeting: Greeting,
    terms: T,
    /// `None` when the lane is up.
    own: Option<T::Own>,
    /// Our end of the other direction's bell, once there is one.
    reverse: Option<OwnedFd>,
    /// What goes with our greeting, until it is sent.
    unsent: Option<(OwnedFd, Option<OwnedFd>)>,
    /// The peer's memory, once its greeting has come.
    peer: Option<T::Peer>,
}

impl<T: Terms> LocalEstablishing<T> {
    /// Makes this side's memory; over a connected socket on which nothing else is said any more.
    pub(crate) fn begin(
        socket: OwnedFd,
        connects: bool,
        terms: T,
        class: LaneClass,
    ) -> Result<Self, LaneError> {
        check_user(socket.as_fd()).map_err(violation::<T>)?;
        let (own, own_file, said) = terms.prepare(class)?;
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
        Ok(Self {
            socket,
            greeting: Greeting {
                class,
                connects,
                terms: said,
            },
            terms,
            own: Some(own),
            reverse: ours,
            unsent: Some((own_file, theirs)),
            peer: None,
        })
    }

    /// Goes on as far as it can; both sides' memory when it is there.
    pub(crate) fn exchange(&mut self) -> Result<Option<Met<T>>, LaneError> {
        self.send_greeting()?;
        self.receive_greeting()?;
        self.send_greeting()?;
        if self.unsent.is_some() || self.peer.is_none() {
            return Ok(None);
        }
        let (Some(own), Some(peer), Some(reverse)) =
            (self.own.take(), self.peer.take(), self.reverse.take())
        else {
            return Err(LaneError::Misuse("advanced a lane that is up"));
        };
        let forward = self.socket.try_clone()?;
        let connects = self.greeting.connects;
        let (sending, receiving) = if connects {
            (forward, reverse)
        } else {
            (reverse, forward)
        };
        let ends = Ends {
            sending: Bell::new(sending),
            receiving: Bell::new(receiving),
            connects,
        };
        Ok(Some((own, peer, ends)))
    }

    fn send_greeting(&mut self) -> Result<(), LaneError> {
        if let Some((memory, bell)) = &self.unsent {
            let mut descriptors = vec![memory.as_fd()];
            descriptors.extend(bell.as_ref().map(AsFd::as_fd));
            match self.greeting.send(T::DIALECT, &self.socket, &descriptors) {
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
        let Some(own) = &self.own else {
            return Err(LaneError::Misuse("advanced a lane that is up"));
        };
        if self.peer.is_some() {
            return Ok(());
        }
        let Received {
            greeting,
            mut descriptors,
        } = match Greeting::receive(T::DIALECT, &self.socket) {
            Ok(received) => received,
            Err(GreetingError::NotYet) => return Ok(()),
            Err(GreetingError::Closed) => return Err(LaneError::Closed),
            Err(GreetingError::Broken(error)) => return Err(LaneError::Broken(error)),
            Err(GreetingError::Wrong(what)) => return Err(violation::<T>(what)),
        };
        if greeting.class != self.greeting.class {
            return Err(violation::<T>(
                "it takes this for a lane of the other class".to_owned(),
            ));
        }
        if greeting.connects == self.greeting.connects {
            return Err(violation::<T>(
                "it claims our side of the connection".to_owned(),
            ));
        }
        if greeting.connects {
            let bell = descriptors.pop().ok_or(LaneError::Closed)?;
            check_socket(&bell).map_err(violation::<T>)?;
            self.reverse = Some(bell);
        }
        let memory = descriptors.pop().ok_or(LaneError::Closed)?;
        let peer = self.terms.meet(own, &greeting.terms, &memory);
        self.peer = Some(peer.map_err(violation::<T>)?);
        Ok(())
    }
}

impl<T: Terms> AsFd for LocalEstablishing<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<T: LaneTerms> Establishing for LocalEstablishing<T> {
    fn advance(&mut self) -> Result<Option<Lane>, LaneError> {
        match self.exchange()? {
            Some((own, peer, ends)) => Ok(Some(self.terms.lane(own, peer, ends)?)),
            None => Ok(None),
        }
    }
}
