//! The side that listens.

use std::sync::Arc;

use super::error::{HandshakeError, Refusal};
use super::hello::LinkHello;
use super::member::Member;
use super::noise::Noise;
use super::wire::{Arrived, Intake, Output, RECORD_BYTES_MAX, check_preamble};
use crate::cluster::NetworkId;

/// How far a stranger has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// It has proved nothing.
    Silent,
    /// It knew the session key when it wrote message 1, which may have been long ago.
    Introduced,
    /// It knows the session key: the caller decides now.
    Member,
    /// The caller has accepted it: when the output is sent, the connection belongs to the
    /// lane.
    Accepted,
    /// The handshake failed, or the caller refused: when the output is sent, close.
    Over,
}

/// The side that listens. Until it is sure of its peer, it keeps a few hundred bytes.
///
/// - **Make**: [`new`](Self::new).
/// - **Input**: read at most [`wanted_bytes`](Self::wanted_bytes), give them to
///   [`handle_bytes`](Self::handle_bytes).
/// - **Output**: send [`output`](Self::output), tell [`sent`](Self::sent); after an error
///   too: it tells the peer why.
/// - **Decide**: at [`Progress::Member`], look at [`hello`](Self::hello), then
///   [`accept`](Self::accept) or [`refuse`](Self::refuse).
#[derive(Debug)]
pub struct Responder {
    member: Arc<Member>,
    network: NetworkId,
    intake: Intake,
    output: Output,
    noise: Option<Noise>,
    progress: Progress,
    hello: Option<LinkHello>,
}

impl Responder {
    /// Waits for a peer that connects over `network`.
    #[must_use]
    pub fn new(member: Arc<Member>, network: NetworkId) -> Self {
        Self {
            member,
            network,
            intake: Intake::new(),
            output: Output::default(),
            noise: None,
            progress: Progress::Silent,
            hello: None,
        }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// What the peer says of itself: checked against the cluster file, proved from
    /// [`Progress::Member`] on.
    #[must_use]
    pub fn hello(&self) -> Option<&LinkHello> {
        self.hello.as_ref()
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

    /// How many bytes to read at most; zero while nothing is due.
    #[must_use]
    pub fn wanted_bytes(&self) -> usize {
        match self.progress {
            Progress::Silent | Progress::Introduced => self.intake.wanted_bytes(),
            _ => 0,
        }
    }

    /// Takes bytes that arrived; returns how many. What it leaves belongs to the lane.
    ///
    /// # Errors
    /// When the peer is no member, or wants what it cannot have.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let result = self.take_all(bytes);
        if let Err(error) = &result {
            // Unless message 2 has told it already.
            if self.progress != Progress::Over
                && let Some(refusal) = error.refusal()
            {
                self.output.push_alert(refusal.code());
            }
            self.progress = Progress::Over;
        }
        result
    }

    /// Lets the member in.
    pub fn accept(&mut self) {
        if self.decide(Refusal::NONE) {
            self.progress = Progress::Accepted;
        }
    }

    /// Tells the member why it is not let in.
    pub fn refuse(&mut self, refusal: Refusal) {
        if self.decide(refusal.code()) {
            self.progress = Progress::Over;
        }
    }

    fn decide(&mut self, verdict: u8) -> bool {
        if self.progress != Progress::Member {
            return false;
        }
        if let Some(noise) = &mut self.noise {
            self.output.push_message(&noise.write(&[verdict]));
        }
        true
    }

    fn take_all(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let mut taken = 0;
        while taken < bytes.len() && self.wanted_bytes() > 0 {
            let (count, arrived) = self.intake.take(&bytes[taken..])?;
            taken += count;
            match (self.progress, arrived) {
                (_, None) => {}
                (Progress::Silent, Some(Arrived::Preamble(theirs))) => {
                    // Ours lets the peer find out the same.
                    let checked = check_preamble(theirs, self.member.preamble());
                    self.output.push_preamble(self.member.preamble());
                    checked?;
                }
                (Progress::Silent, Some(Arrived::Message(message))) => {
                    let mut noise = Noise::responder(self.member.key(), self.member.preamble());
                    let hello = read_hello(&mut noise, message)?;
                    let checked = self.member.check(&hello, self.network);
                    let refusal = checked.as_ref().err().and_then(HandshakeError::refusal);
                    let verdict = refusal.map_or(Refusal::NONE, Refusal::code);
                    let identity = self.member.identity().encode(verdict);
                    self.output.push_message(&noise.write(&identity));
                    if checked.is_err() {
                        self.progress = Progress::Over;
                    }
                    checked?;
                    self.noise = Some(noise);
                    self.hello = Some(hello);
                    self.progress = Progress::Introduced;
                }
                (Progress::Introduced, Some(Arrived::Message(message))) => {
                    let mut payload = [0; RECORD_BYTES_MAX];
                    let noise = self.noise.as_mut().ok_or(HandshakeError::WrongKey)?;
                    // Whoever wrote message 1 knew the key, but that can have been another.
                    if !matches!(noise.read(message, &mut payload), Ok(&[])) {
                        let what = "its message 3 answers no message 2 of ours: a replay";
                        return Err(HandshakeError::Malformed(what));
                    }
                    self.progress = Progress::Member;
                }
                (_, Some(Arrived::Alert(code))) => {
                    let refusal = Refusal::from_code(code);
                    return Err(refusal.map_or(HandshakeError::Closed, HandshakeError::Refused));
                }
                _ => return Err(HandshakeError::Malformed("a message out of order")),
            }
        }
        Ok(taken)
    }
}

fn read_hello(noise: &mut Noise, message: &[u8]) -> Result<LinkHello, HandshakeError> {
    let mut payload = [0; RECORD_BYTES_MAX];
    LinkHello::decode(noise.read(message, &mut payload)?)
}
