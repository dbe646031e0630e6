//! The Noise pattern under the session key, as far as this handshake uses it.

use snow::params::NoiseParams;
use snow::{Builder, HandshakeState, TransportState};

use super::error::HandshakeError;
use super::key::SessionKey;
use super::wire::RECORD_BYTES_MAX;

/// No static keys, and a shared one that is mixed in before anything is said.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// One side of the pattern, and then of the ciphers that come of it.
#[derive(Debug)]
pub(super) enum Noise {
    Shaking(Box<HandshakeState>),
    Talking(Box<TransportState>),
    /// Never seen from outside: between the two.
    Switching,
}

impl Noise {
    pub(super) fn initiator(key: &SessionKey, prologue: &[u8]) -> Self {
        let built = builder(key, prologue).and_then(Builder::build_initiator);
        Self::Shaking(Box::new(built.expect(COMPLETE)))
    }

    pub(super) fn responder(key: &SessionKey, prologue: &[u8]) -> Self {
        let built = builder(key, prologue).and_then(Builder::build_responder);
        Self::Shaking(Box::new(built.expect(COMPLETE)))
    }

    /// Enciphers the next message.
    pub(super) fn write(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut message = [0; RECORD_BYTES_MAX];
        let length = match self {
            Self::Shaking(state) => state.write_message(payload, &mut message),
            Self::Talking(state) => state.write_message(payload, &mut message),
            Self::Switching => Ok(0),
        };
        // Messages are short, and each side knows whose turn it is.
        let length = length.expect("a short message can be written in turn");
        self.switch();
        message[..length].to_vec()
    }

    /// Deciphers the peer's next message into `payload`. What nobody with the same key wrote
    /// for this very handshake fails.
    pub(super) fn read<'a>(
        &mut self,
        message: &[u8],
        payload: &'a mut [u8; RECORD_BYTES_MAX],
    ) -> Result<&'a [u8], HandshakeError> {
        let length = match self {
            Self::Shaking(state) => state.read_message(message, payload),
            Self::Talking(state) => state.read_message(message, payload),
            Self::Switching => Ok(0),
        };
        let length = length.map_err(|_| HandshakeError::WrongKey)?;
        self.switch();
        Ok(&payload[..length])
    }

    /// Goes on to the ciphers when the pattern is over.
    fn switch(&mut self) {
        *self = match std::mem::replace(self, Self::Switching) {
            Self::Shaking(state) if state.is_handshake_finished() => {
                let talking = state.into_transport_mode();
                Self::Talking(Box::new(talking.expect("the pattern is finished")))
            }
            other => other,
        };
    }
}

const COMPLETE: &str = "the pattern needs a pre-shared key and nothing else";

fn builder<'a>(key: &'a SessionKey, prologue: &'a [u8]) -> Result<Builder<'a>, snow::Error> {
    let params: NoiseParams = PATTERN.parse()?;
    Builder::new(params).psk(0, key.bytes())?.prologue(prologue)
}
