//! Greetings go to and fro over the connection over which both sides have met.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::control::Control;
use super::greeting::{GREETING_BYTES, Greeting, Said};
use crate::hsl::violation;
use crate::lane::LaneError;

#[derive(Debug)]
pub(super) struct Exchange<G> {
    control: OwnedFd,
    said: Greeting<G>,
    unsent: Vec<u8>,
    heard: Vec<u8>,
}

/// What both sides have said, and the connection over which they have.
#[derive(Debug)]
pub(super) struct Exchanged<G> {
    pub(super) said: Greeting<G>,
    pub(super) peer: Greeting<G>,
    pub(super) control: Control,
}

impl<G: Said> Exchange<G> {
    /// Says `said` over `control`, on which nothing else is said.
    pub(super) fn new(control: OwnedFd, said: Greeting<G>) -> Self {
        Self {
            control,
            unsent: said.encode().to_vec(),
            said,
            heard: Vec::with_capacity(GREETING_BYTES),
        }
    }

    /// Goes on as far as it can; what was said when all of it was.
    pub(super) fn advance(&mut self) -> Result<Option<Exchanged<G>>, LaneError> {
        self.send()?;
        self.receive()?;
        self.send()?;
        let Ok(heard) = <&[u8; GREETING_BYTES]>::try_from(self.heard.as_slice()) else {
            return Ok(None);
        };
        if !self.unsent.is_empty() {
            return Ok(None);
        }
        Ok(Some(Exchanged {
            peer: self.said.answered_by(heard).map_err(violation)?,
            said: self.said.clone(),
            control: Control::new(self.control.try_clone()?)?,
        }))
    }

    fn send(&mut self) -> Result<(), LaneError> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !self.unsent.is_empty() {
            match rustix::net::send(&self.control, &self.unsent, flags) {
                Ok(count) => _ = self.unsent.drain(..count),
                Err(Errno::INTR) => {}
                // Tried again when the peer's greeting comes: a socket has room for one.
                Err(Errno::AGAIN) => break,
                Err(Errno::PIPE) => return Err(LaneError::Closed),
                Err(error) => return Err(LaneError::Broken(error.into())),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), LaneError> {
        let mut bytes = [0; GREETING_BYTES];
        while self.heard.len() < GREETING_BYTES {
            let rest = &mut bytes[self.heard.len()..];
            match rustix::net::recv(&self.control, rest, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(LaneError::Closed),
                Ok((count, _)) => {
                    let end = self.heard.len() + count;
                    self.heard.extend_from_slice(&bytes[self.heard.len()..end]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(LaneError::Broken(error.into())),
            }
        }
        Ok(())
    }
}

impl<G> AsFd for Exchange<G> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}
