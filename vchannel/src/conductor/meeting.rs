//! One connection from its first byte until it is a lane.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use madgate_tm::{Establishing, Interest, Lane, LaneClass, LaneError, Stranger};

use super::dials::Attempt;
use super::limits::LINGER_BYTES;
use super::link::Party;
use crate::handshake::{
    HandshakeError, Initiator, PeerIdentity, Progress, RECORD_BYTES_MAX, Responder,
};

/// A connection and its handshake.
#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) role: Role,
    /// When its patience ends.
    pub(super) until: Instant,
    /// What the poller waits for; `None`: it is not in the poller.
    pub(super) interest: Option<Interest>,
    /// Whether it waits until a contest for its peer's name is settled.
    pub(super) is_held: bool,
    stage: Stage,
}

/// Which end it is.
#[derive(Debug)]
pub(super) enum Role {
    Accepted(Responder),
    Dialed(Initiator, Attempt),
}

#[derive(Debug)]
enum Stage {
    Shaking(Box<dyn Stranger>),
    Establishing(Box<dyn Establishing>),
    /// It has been told why it must go.
    Leaving(Box<dyn Stranger>, usize),
    Gone,
}

/// How far a meeting has come.
#[derive(Debug)]
pub(super) enum Step {
    /// Go on when the descriptor is ready.
    Wait(Interest),
    /// The peer has proved that it is a member: somebody has to decide.
    Decide,
    /// The handshake is over and good: [`Meeting::establish`].
    Agreed,
    /// It is a lane.
    Lane(Lane),
    /// It has left.
    Left,
}

impl Meeting {
    pub(super) fn accepted(
        stranger: Box<dyn Stranger>,
        responder: Responder,
        until: Instant,
    ) -> Self {
        Self::new(stranger, Role::Accepted(responder), until)
    }

    pub(super) fn dialed(
        stranger: Box<dyn Stranger>,
        initiator: Initiator,
        attempt: Attempt,
        until: Instant,
    ) -> Self {
        Self::new(stranger, Role::Dialed(initiator, attempt), until)
    }

    fn new(stranger: Box<dyn Stranger>, role: Role, until: Instant) -> Self {
        Self {
            role,
            until,
            interest: None,
            is_held: false,
            stage: Stage::Shaking(stranger),
        }
    }

    /// The attempt to dial that it belongs to.
    pub(super) fn attempt(&self) -> Option<Attempt> {
        match self.role {
            Role::Accepted(_) => None,
            Role::Dialed(_, attempt) => Some(attempt),
        }
    }

    /// Who the peer is: node and incarnation, once it has said so.
    pub(super) fn peer(&self) -> Option<PeerIdentity> {
        match &self.role {
            Role::Accepted(responder) => responder.hello().map(|hello| PeerIdentity {
                node: hello.node,
                incarnation: hello.incarnation,
            }),
            Role::Dialed(initiator, _) => initiator.peer(),
        }
    }

    /// Who it is, for people.
    pub(super) fn describe(&self) -> String {
        match &self.stage {
            Stage::Shaking(stranger) | Stage::Leaving(stranger, _) => stranger.describe(),
            Stage::Establishing(_) | Stage::Gone => "a member".to_owned(),
        }
    }

    /// Whether it has been told why it must go.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::Leaving(..))
    }

    /// How much of a stranger it still is; `None`: it is a member, or was dialled.
    pub(super) fn strangeness(&self) -> Option<Strangeness> {
        match (&self.role, &self.stage) {
            (_, Stage::Leaving(..)) => Some(Strangeness::Leaving),
            (Role::Accepted(responder), Stage::Shaking(_)) => match responder.progress() {
                Progress::Silent | Progress::Over => Some(Strangeness::Silent),
                Progress::Introduced => Some(Strangeness::Introduced),
                Progress::Member | Progress::Accepted => None,
            },
            _ => None,
        }
    }

    /// The descriptor to wait on.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::Shaking(stranger) | Stage::Leaving(stranger, _) => Some(stranger.as_fd()),
            Stage::Establishing(establishing) => Some(establishing.as_fd()),
            Stage::Gone => None,
        }
    }

    /// Goes on as far as it can.
    pub(super) fn advance(&mut self) -> Result<Step, HandshakeError> {
        match &mut self.stage {
            Stage::Shaking(stranger) => match &mut self.role {
                Role::Accepted(responder) => shake_accepted(stranger.as_mut(), responder),
                Role::Dialed(initiator, _) => shake_dialed(stranger.as_mut(), initiator),
            },
            Stage::Establishing(establishing) => match establishing.advance() {
                Ok(Some(lane)) => Ok(Step::Lane(lane)),
                Ok(None) => Ok(Step::Wait(Interest::Readable)),
                Err(error) => Err(lane_failed(error)),
            },
            Stage::Leaving(stranger, left) => Ok(linger(stranger.as_mut(), left)),
            Stage::Gone => Ok(Step::Left),
        }
    }

    /// Makes a lane of the connection, of which an engine fills no more than `ahead_bytes` ahead of a session.
    /// It must not be in a poller.
    pub(super) fn establish(&mut self, ahead_bytes: usize) -> Result<(), HandshakeError> {
        let (engines, class) = self.purpose();
        if let Stage::Shaking(mut stranger) = std::mem::replace(&mut self.stage, Stage::Gone) {
            // Another engine has frames wait for what it sends to, in half of all slots if need be.
            if engines == [true, false] && class == LaneClass::Bulk {
                stranger.limit_ahead(ahead_bytes);
            }
            let establishing = stranger.establish(class).map_err(lane_failed)?;
            self.stage = Stage::Establishing(establishing);
        }
        Ok(())
    }

    /// Says the last words and begins to leave. `false`: nothing is to be said, and it can be
    /// dropped.
    pub(super) fn leave(&mut self) -> bool {
        let Role::Accepted(responder) = &mut self.role else {
            return false;
        };
        let Stage::Shaking(mut stranger) = std::mem::replace(&mut self.stage, Stage::Gone) else {
            return false;
        };
        // A connection this young takes a few bytes at once, or is not worth waiting for.
        let said_all = write_all(stranger.as_mut(), responder.output());
        if said_all {
            self.stage = Stage::Leaving(stranger, LINGER_BYTES);
        }
        said_all
    }

    /// Whether this side is an engine's, and the other one, and what its frames are.
    fn purpose(&self) -> ([bool; 2], LaneClass) {
        let (hello, dials) = match &self.role {
            Role::Accepted(responder) => (responder.hello(), false),
            Role::Dialed(initiator, _) => (Some(initiator.hello()), true),
        };
        let Some(hello) = hello else {
            return ([false; 2], LaneClass::Urgent);
        };
        // The other end accepts this kind of link, and dials for what this one accepts.
        let [here, there] = match dials {
            true => [hello.kind.back(), hello.kind],
            false => [hello.kind, hello.kind.back()],
        };
        let is_engine = |kind| Party::that_accepts(kind) == Party::Engine;
        ([here, there].map(is_engine), hello.class)
    }
}

/// Who has to go first when slots are short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strangeness {
    /// It has been refused already.
    Leaving,
    /// It has proved nothing.
    Silent,
    /// It, or somebody whose words it repeats, knew the session key.
    Introduced,
}

fn lane_failed(error: LaneError) -> HandshakeError {
    match error {
        LaneError::Closed => HandshakeError::Closed,
        LaneError::Broken(error) => HandshakeError::Io(error),
        other => HandshakeError::Io(io::Error::other(other)),
    }
}

fn shake_accepted(
    stranger: &mut dyn Stranger,
    responder: &mut Responder,
) -> Result<Step, HandshakeError> {
    loop {
        while !responder.output().is_empty() {
            match write(stranger, responder.output())? {
                Some(count) => responder.sent(count),
                None => return Ok(Step::Wait(Interest::Writable)),
            }
        }
        match responder.progress() {
            Progress::Silent | Progress::Introduced => {}
            Progress::Member => return Ok(Step::Decide),
            Progress::Accepted => return Ok(Step::Agreed),
            Progress::Over => return Ok(Step::Left),
        }
        let mut bytes = [0; RECORD_BYTES_MAX];
        let wanted = responder.wanted_bytes();
        match read(stranger, &mut bytes[..wanted])? {
            Some(count) => responder.handle_bytes(&bytes[..count])?,
            None => return Ok(Step::Wait(Interest::Readable)),
        };
    }
}

fn shake_dialed(
    stranger: &mut dyn Stranger,
    initiator: &mut Initiator,
) -> Result<Step, HandshakeError> {
    loop {
        while !initiator.output().is_empty() {
            match write(stranger, initiator.output())? {
                Some(count) => initiator.sent(count),
                None => return Ok(Step::Wait(Interest::Writable)),
            }
        }
        let wanted = initiator.wanted_bytes();
        if wanted == 0 {
            return Ok(Step::Decide);
        }
        let mut bytes = [0; RECORD_BYTES_MAX];
        match read(stranger, &mut bytes[..wanted])? {
            Some(count) => initiator.handle_bytes(&bytes[..count])?,
            None => return Ok(Step::Wait(Interest::Readable)),
        };
    }
}

/// Reads what the peer still says, to no purpose, until it closes.
fn linger(stranger: &mut dyn Stranger, left: &mut usize) -> Step {
    let mut bytes = [0; RECORD_BYTES_MAX];
    while *left > 0 {
        match read(stranger, &mut bytes) {
            Ok(Some(count)) => *left = left.saturating_sub(count),
            Ok(None) => return Step::Wait(Interest::Readable),
            Err(_) => return Step::Left,
        }
    }
    Step::Left
}

/// Whether the connection took all of it.
fn write_all(stranger: &mut dyn Stranger, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match write(stranger, bytes) {
            Ok(Some(count)) => bytes = &bytes[count..],
            Ok(None) | Err(_) => return false,
        }
    }
    true
}

/// Bytes that went, or `None`: not now.
fn write(stranger: &mut dyn Stranger, bytes: &[u8]) -> Result<Option<usize>, HandshakeError> {
    loop {
        match stranger.try_write(bytes) {
            Ok(0) => return Ok(None),
            Ok(count) => return Ok(Some(count)),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock => return Ok(None),
                _ => return Err(error.into()),
            },
        }
    }
}

/// Bytes that came, or `None`: nothing now.
fn read(stranger: &mut dyn Stranger, into: &mut [u8]) -> Result<Option<usize>, HandshakeError> {
    loop {
        match stranger.try_read(into) {
            Ok(0) => return Err(HandshakeError::Closed),
            Ok(count) => return Ok(Some(count)),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock => return Ok(None),
                _ => return Err(error.into()),
            },
        }
    }
}
