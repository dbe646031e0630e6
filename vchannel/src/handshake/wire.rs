//! Preambles and records, collected from bytes that come as they like.

use super::error::HandshakeError;

/// What every connection begins with, in both directions.
pub const MAGIC: [u8; 8] = *b"MADGATE\0";

/// The version of the protocol: of the handshake after its preamble, and of frames.
pub const PROTOCOL_VERSION: u16 = 6;

/// Bytes of the preamble, in every version.
pub const PREAMBLE_BYTES: usize = MAGIC.len() + 2 + DIGEST_BYTES;

const DIGEST_BYTES: usize = 32;

/// The longest record that is accepted, without its header.
pub const RECORD_BYTES_MAX: usize = 256;

/// Kind and length.
const RECORD_HEADER_BYTES: usize = 3;

/// What a side sends in a whole handshake at most: a preamble and three records.
const OUTPUT_BYTES: usize = PREAMBLE_BYTES + 3 * (RECORD_HEADER_BYTES + 112);

/// The kind of a record that holds a message.
const MESSAGE: u8 = 1;
/// The kind of a record that holds one byte: why the handshake ends.
const ALERT: u8 = 2;

/// The preamble of this version with a cluster's digest.
pub(super) fn preamble(digest: &[u8; DIGEST_BYTES]) -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    bytes[10..].copy_from_slice(digest);
    bytes
}

/// Compares the peer's preamble with ours.
pub(super) fn check_preamble(
    theirs: &[u8],
    ours: &[u8; PREAMBLE_BYTES],
) -> Result<(), HandshakeError> {
    if !theirs.starts_with(&MAGIC) || theirs.len() != ours.len() {
        return Err(HandshakeError::NotMadgate);
    }
    if theirs[8..10] != ours[8..10] {
        return Err(HandshakeError::Version {
            theirs: u16::from_le_bytes([theirs[8], theirs[9]]),
            ours: PROTOCOL_VERSION,
        });
    }
    if theirs != ours {
        return Err(HandshakeError::OtherCluster);
    }
    Ok(())
}

/// Something whole that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived<'a> {
    Preamble(&'a [u8]),
    Message(&'a [u8]),
    Alert(u8),
}

/// Collects what arrives, never more than the record that is due, in memory of fixed size.
#[derive(Debug)]
pub(super) struct Intake {
    bytes: [u8; RECORD_BYTES_MAX],
    filled: usize,
    due: Due,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Preamble,
    Header,
    Body { kind: u8, length: usize },
}

impl Intake {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; RECORD_BYTES_MAX],
            filled: 0,
            due: Due::Preamble,
        }
    }

    /// Bytes that are missing until something is whole (or until its length is known).
    pub(super) fn wanted_bytes(&self) -> usize {
        self.length() - self.filled
    }

    /// Takes bytes, at most until something is whole; returns how many, and what is whole.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
    ) -> Result<(usize, Option<Arrived<'_>>), HandshakeError> {
        let mut taken = self.fill(bytes);
        if self.due == Due::Preamble {
            // A program that speaks first and otherwise is recognised by its first bytes.
            let begin = self.filled.min(MAGIC.len());
            if self.bytes[..begin] != MAGIC[..begin] {
                return Err(HandshakeError::NotMadgate);
            }
        }
        if self.due == Due::Header && self.wanted_bytes() == 0 {
            let length = u16::from_le_bytes([self.bytes[1], self.bytes[2]]);
            let length = usize::from(length);
            if length == 0 || length > RECORD_BYTES_MAX {
                return Err(HandshakeError::Malformed(
                    "a record of an impossible length",
                ));
            }
            let kind = self.bytes[0];
            self.due = Due::Body { kind, length };
            self.filled = 0;
            taken += self.fill(&bytes[taken..]);
        }
        if self.wanted_bytes() > 0 {
            return Ok((taken, None));
        }
        let due = std::mem::replace(&mut self.due, Due::Header);
        let whole = &self.bytes[..std::mem::take(&mut self.filled)];
        let arrived = match due {
            Due::Preamble => Arrived::Preamble(whole),
            Due::Body { kind: MESSAGE, .. } => Arrived::Message(whole),
            Due::Body { kind: ALERT, .. } => Arrived::Alert(whole[0]),
            Due::Header | Due::Body { .. } => {
                return Err(HandshakeError::Malformed("a record of an unknown kind"));
            }
        };
        Ok((taken, Some(arrived)))
    }

    fn length(&self) -> usize {
        match self.due {
            Due::Preamble => PREAMBLE_BYTES,
            Due::Header => RECORD_HEADER_BYTES,
            Due::Body { length, .. } => length,
        }
    }

    fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = self.wanted_bytes().min(bytes.len());
        self.bytes[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        count
    }
}

/// What waits to be sent.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    pub(super) fn push_preamble(&mut self, preamble: &[u8; PREAMBLE_BYTES]) {
        self.bytes.reserve_exact(OUTPUT_BYTES);
        self.bytes.extend_from_slice(preamble);
    }

    pub(super) fn push_message(&mut self, message: &[u8]) {
        self.push_record(MESSAGE, message);
    }

    pub(super) fn push_alert(&mut self, code: u8) {
        self.push_record(ALERT, &[code]);
    }

    fn push_record(&mut self, kind: u8, body: &[u8]) {
        debug_assert!(body.len() <= RECORD_BYTES_MAX);
        let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(body);
    }

    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(super) fn sent(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.bytes.len());
    }
}
