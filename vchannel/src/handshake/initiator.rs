//! The side that dials.

use std::sync::Arc;

use super::error::{HandshakeError, Refusal};
use super::hello::{LinkHello, PeerIdentity};
use super::member::Member;
use super::noise::Noise;
use super::wire::{Arrived, Intake, Output, RECORD_BYTES_MAX, check_preamble};

/// The side that dials.
///
/// - **Make**: [`new`](Self::new), which has something to send at once.
/// - **Output**: send [`output`](Self::output), tell [`sent`](Self::sent).
/// - **Input**: read at most [`wanted_bytes`](Self::wanted_bytes), give them to
///   [`handle_bytes`](Self::handle_bytes).
/// - **End**: when [`peer`](Self::peer) is there, the connection belongs to the lane. An
///   error ends the handshake.
#[derive(Debug)]
pub struct Initiator {
    member: Arc<Member>,
    hello: LinkHello,
    intake: Intake,
    output: Output,
    noise: Noise,
    awaits: Awaits,
    identity: Option<PeerIdentity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Preamble,
    Message2,
    Verdict,
    Nothing,
}

impl Initiator {
    /// Begins the handshake for one lane.
    #[must_use]
    pub fn new(member: Arc<Member>, hello: LinkHello) -> Self {
        let mut noise = Noise::initiator(member.key(), member.preamble());
        let mut output = Output::default();
        output.push_preamble(member.preamble());
        output.push_message(&noise.write(&hello.encode()));
        Self {
            member,
            hello,
            intake: Intake::new(),
            output,
            noise,
            awaits: Awaits::Preamble,
            identity: None,
        }
    }

    /// What it said of itself.
    #[must_use]
    pub fn hello(&self) -> &LinkHello {
        &self.hello
    }

    /// What waits to be sent.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.output.waiting()
    }

    /// Takes note that the first `count` bytes of the output have been sent.
    pub fn sent(&mut self, count: usize) {
        self.output.sent(count);
    }

    /// How many bytes to read at most; zero when the handshake is over.
    #[must_use]
    pub fn wanted_bytes(&self) -> usize {
        match self.awaits {
            Awaits::Nothing => 0,
            _ => self.intake.wanted_bytes(),
        }
    }

    /// Takes bytes that arrived; returns how many. What it leaves belongs to the lane.
    ///
    /// # Errors
    /// When the peer refuses, is no member, or is not the one that was dialled.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let result = self.take_all(bytes);
        if result.is_err() {
            self.awaits = Awaits::Nothing;
            self.identity = None;
        }
        result
    }

    /// The peer, when it has accepted.
    #[must_use]
    pub fn peer(&self) -> Option<PeerIdentity> {
        self.identity.filter(|_| self.awaits == Awaits::Nothing)
    }

    fn take_all(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let mut taken = 0;
        while taken < bytes.len() && self.awaits != Awaits::Nothing {
            let (count, arrived) = self.intake.take(&bytes[taken..])?;
            taken += count;
            let mut payload = [0; RECORD_BYTES_MAX];
            match (self.awaits, arrived) {
                (_, None) => {}
                (Awaits::Preamble, Some(Arrived::Preamble(theirs))) => {
                    check_preamble(theirs, self.member.preamble())?;
                    self.awaits = Awaits::Message2;
                }
                (Awaits::Message2, Some(Arrived::Message(message))) => {
                    let payload = self.noise.read(message, &mut payload)?;
                    let (identity, verdict) = PeerIdentity::decode(payload)?;
                    self.judge(identity, verdict)?;
                    self.identity = Some(identity);
                    self.output.push_message(&self.noise.write(&[]));
                    self.awaits = Awaits::Verdict;
                }
                (Awaits::Verdict, Some(Arrived::Message(message))) => {
                    let &[verdict] = self.noise.read(message, &mut payload)? else {
                        let what = "its message 4 has the wrong length";
                        return Err(HandshakeError::Malformed(what));
                    };
                    refused(verdict)?;
                    self.awaits = Awaits::Nothing;
                }
                (_, Some(Arrived::Alert(code))) => {
                    return Err(refused(code).err().unwrap_or(HandshakeError::Closed));
                }
                _ => return Err(HandshakeError::Malformed("a message out of order")),
            }
        }
        Ok(taken)
    }

    fn judge(&self, identity: PeerIdentity, verdict: u8) -> Result<(), HandshakeError> {
        if identity.node != self.hello.destination {
            return Err(HandshakeError::WrongNode {
                wanted: self.member.name_of_rank(self.hello.destination),
                found: self.member.name_of_rank(identity.node),
            });
        }
        refused(verdict)
    }
}

fn refused(code: u8) -> Result<(), HandshakeError> {
    match Refusal::from_code(code) {
        None => Ok(()),
        // Both ends see the same difference; neither knows which key is right.
        Some(Refusal::WrongKey) => Err(HandshakeError::WrongKey),
        Some(refusal) => Err(HandshakeError::Refused(refusal)),
    }
}
