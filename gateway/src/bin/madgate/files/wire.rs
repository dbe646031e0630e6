//! What the two ends of a copy tell each other, and how it stands in service messages.
//!
//! ```text
//! sender                               receiver
//!   Begin(path) ───────────────────────>  finds the target beneath its folder
//!   <─────────────────────── Opened or Refused
//!   Folder, File, Chunk…, Finish, Leave ─>  writes beside, checks, syncs, renames
//!   <───────────── Taken (credit), Done or Failed, one per folder and file
//!   End ───────────────────────────────>
//!   <──────────────────────────── Closed
//! ```
//!
//! Every message of the sender is charged; it may have [`WINDOW_BYTES`] of charge beyond what
//! the receiver has `Taken`, which bounds the replies that the receiver can owe it: neither
//! end ever waits for the other while the other waits for it. The number in the head is the entry that a message is about.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::service::envelope::{Head, MAX_BODY_BYTES};

/// Most bytes of a file in one message.
pub(crate) const CHUNK_BYTES: usize = MAX_BODY_BYTES;

/// What a sender may have on the way and waiting at the receiver, charges included.
pub(crate) const WINDOW_BYTES: u64 = 8 << 20;

/// What a message costs beyond its body.
pub(crate) const MESSAGE_CHARGE_BYTES: u64 = 1 << 10;

const _: () = assert!(MAX_REPLIES as u64 == 2 * WINDOW_BYTES / MESSAGE_CHARGE_BYTES);

/// Most replies that a receiver can owe a sender that keeps to the window: one for each
/// message, and those that move the window.
pub(crate) const MAX_REPLIES: usize = 2 * (8 << 20 >> 10);

/// The longest path, relative to where the copy goes; `PATH_MAX` of Linux.
pub(crate) const MAX_PATH_BYTES: usize = 4096;

/// The longest reason in words; longer ones are cut.
const MAX_REASON_BYTES: usize = 512;

/// Length of a SHA-256 digest.
pub(crate) const DIGEST_BYTES: usize = 32;

/// The SHA-256 of a file's contents.
pub(crate) type Digest = [u8; DIGEST_BYTES];

/// Kinds of messages from the sender to the receiver.
mod request_kind {
    pub(super) const BEGIN: u8 = 0x10;
    pub(super) const FOLDER: u8 = 0x11;
    pub(super) const LEAVE: u8 = 0x12;
    pub(super) const FILE: u8 = 0x13;
    pub(super) const CHUNK: u8 = 0x14;
    pub(super) const FINISH: u8 = 0x15;
    pub(super) const ABANDON: u8 = 0x16;
    pub(super) const END: u8 = 0x17;
    pub(super) const ASK: u8 = 0x18;
}

/// Kinds of messages from the receiver to the sender.
mod reply_kind {
    pub(super) const OPENED: u8 = 0x20;
    pub(super) const REFUSED: u8 = 0x21;
    pub(super) const TAKEN: u8 = 0x22;
    pub(super) const DONE: u8 = 0x23;
    pub(super) const FAILED: u8 = 0x24;
    pub(super) const CLOSED: u8 = 0x25;
    pub(super) const ALIVE: u8 = 0x26;
}

/// From the sender to the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// A copy to `path` begins. `many`: several things are copied, so `path` is a folder.
    Begin { many: bool, path: Bytes },
    /// A folder; what is in it follows until its `Leave`.
    Folder { entry: u64, mode: u32, path: Bytes },
    /// The folder is complete.
    Leave { entry: u64 },
    /// A file, which had `size` bytes when it was opened; its chunks follow.
    File {
        entry: u64,
        mode: u32,
        size: u64,
        path: Bytes,
    },
    /// The next bytes of the file.
    Chunk { entry: u64, bytes: Bytes },
    /// The file is complete.
    Finish {
        entry: u64,
        size: u64,
        digest: Digest,
    },
    /// The rest of the file cannot be read.
    Abandon { entry: u64 },
    /// That is all.
    End,
    /// Is the copy still known?
    Ask,
}

/// From the receiver to the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The target is there.
    Opened,
    /// There will be no copy, or no more of it.
    Refused { reason: String },
    /// All messages up to a charge of `charge` are dealt with.
    Taken { charge: u64 },
    /// The entry is complete, checked and on disk.
    Done { entry: u64 },
    /// The entry is not there.
    Failed { entry: u64, reason: String },
    /// The copy is over.
    Closed,
    /// The copy is known.
    Alive,
}

/// Why a message is no part of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum WireError {
    /// A kind that does not exist.
    #[error("unknown kind {0:#04x} of service message")]
    UnknownKind(u8),
    /// A body that cannot be one of its kind.
    #[error("a malformed service message of kind {0:#04x}")]
    Malformed(u8),
}

/// What a message with such a body costs of the window; asking costs nothing.
pub(crate) fn charge(body_bytes: usize) -> u64 {
    count(body_bytes) + MESSAGE_CHARGE_BYTES
}

/// The length of some bytes.
pub(crate) fn length(bytes: &[u8]) -> u64 {
    count(bytes.len())
}

/// A count in memory, where 64 bits always hold it.
pub(crate) fn count(count: usize) -> u64 {
    const { assert!(usize::BITS <= u64::BITS) };
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl Request {
    /// Whether a kind is one of the sender's.
    pub(crate) fn is_kind(kind: u8) -> bool {
        (request_kind::BEGIN..=request_kind::ASK).contains(&kind)
    }

    /// Whether a kind is the first message of a copy.
    pub(crate) fn begins(kind: u8) -> bool {
        kind == request_kind::BEGIN
    }

    /// Whether a sender waits after a message of this kind.
    pub(crate) fn wants_answer(kind: u8) -> bool {
        matches!(
            kind,
            request_kind::ASK | request_kind::FINISH | request_kind::END
        )
    }

    /// How long its body is.
    pub(crate) fn body_bytes(&self) -> usize {
        match self {
            Self::Begin { path, .. } => path.len(),
            Self::Folder { path, .. } => 4 + path.len(),
            Self::File { path, .. } => 12 + path.len(),
            Self::Chunk { bytes, .. } => bytes.len(),
            Self::Finish { .. } => 8 + DIGEST_BYTES,
            Self::Leave { .. } | Self::Abandon { .. } | Self::End | Self::Ask => 0,
        }
    }

    /// The message as head and body.
    pub(crate) fn encode(&self, tag: u64) -> (Head, Bytes) {
        let (kind, number, body) = match self {
            Self::Begin { many, path } => (request_kind::BEGIN, u64::from(*many), path.clone()),
            Self::Folder { entry, mode, path } => {
                let mut body = BytesMut::with_capacity(4 + path.len());
                body.put_u32_le(*mode);
                body.put_slice(path);
                (request_kind::FOLDER, *entry, body.freeze())
            }
            Self::Leave { entry } => (request_kind::LEAVE, *entry, Bytes::new()),
            Self::File {
                entry,
                mode,
                size,
                path,
            } => {
                let mut body = BytesMut::with_capacity(12 + path.len());
                body.put_u32_le(*mode);
                body.put_u64_le(*size);
                body.put_slice(path);
                (request_kind::FILE, *entry, body.freeze())
            }
            Self::Chunk { entry, bytes } => (request_kind::CHUNK, *entry, bytes.clone()),
            Self::Finish {
                entry,
                size,
                digest,
            } => {
                let mut body = BytesMut::with_capacity(8 + DIGEST_BYTES);
                body.put_u64_le(*size);
                body.put_slice(digest);
                (request_kind::FINISH, *entry, body.freeze())
            }
            Self::Abandon { entry } => (request_kind::ABANDON, *entry, Bytes::new()),
            Self::End => (request_kind::END, 0, Bytes::new()),
            Self::Ask => (request_kind::ASK, 0, Bytes::new()),
        };
        let head = Head {
            kind,
            body_bytes: body.len(),
            tag,
            number,
        };
        (head, body)
    }

    /// Reads a message of the sender.
    pub(crate) fn decode(head: &Head, body: Bytes) -> Result<Self, WireError> {
        let malformed = WireError::Malformed(head.kind);
        let entry = head.number;
        let mut fields = Fields {
            rest: body,
            malformed,
        };
        let request = match head.kind {
            request_kind::BEGIN => Self::Begin {
                many: match head.number {
                    0 => false,
                    1 => true,
                    _ => return Err(malformed),
                },
                path: fields.path()?,
            },
            request_kind::FOLDER => Self::Folder {
                entry,
                mode: fields.u32()?,
                path: fields.path()?,
            },
            request_kind::LEAVE => Self::Leave { entry },
            request_kind::FILE => Self::File {
                entry,
                mode: fields.u32()?,
                size: fields.u64()?,
                path: fields.path()?,
            },
            request_kind::CHUNK => Self::Chunk {
                entry,
                bytes: std::mem::take(&mut fields.rest),
            },
            request_kind::FINISH => Self::Finish {
                entry,
                size: fields.u64()?,
                digest: fields.array()?,
            },
            request_kind::ABANDON => Self::Abandon { entry },
            request_kind::END => Self::End,
            request_kind::ASK => Self::Ask,
            kind => return Err(WireError::UnknownKind(kind)),
        };
        fields.end()?;
        Ok(request)
    }
}

impl Reply {
    /// The message as head and body.
    pub(crate) fn encode(&self, tag: u64) -> (Head, Bytes) {
        let (kind, number, reason) = match self {
            Self::Opened => (reply_kind::OPENED, 0, ""),
            Self::Refused { reason } => (reply_kind::REFUSED, 0, reason.as_str()),
            Self::Taken { charge } => (reply_kind::TAKEN, *charge, ""),
            Self::Done { entry } => (reply_kind::DONE, *entry, ""),
            Self::Failed { entry, reason } => (reply_kind::FAILED, *entry, reason.as_str()),
            Self::Closed => (reply_kind::CLOSED, 0, ""),
            Self::Alive => (reply_kind::ALIVE, 0, ""),
        };
        let mut cut = reason.len().min(MAX_REASON_BYTES);
        while !reason.is_char_boundary(cut) {
            cut -= 1;
        }
        let body = Bytes::copy_from_slice(&reason.as_bytes()[..cut]);
        let head = Head {
            kind,
            body_bytes: body.len(),
            tag,
            number,
        };
        (head, body)
    }

    /// Reads a message of the receiver.
    pub(crate) fn decode(head: &Head, body: &[u8]) -> Result<Self, WireError> {
        let malformed = WireError::Malformed(head.kind);
        // Printed on a terminal: control characters of a peer have no business there.
        let reason = || -> String {
            let text = String::from_utf8_lossy(body);
            text.chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect()
        };
        let entry = head.number;
        let reply = match head.kind {
            reply_kind::OPENED => Self::Opened,
            reply_kind::REFUSED => return Ok(Self::Refused { reason: reason() }),
            reply_kind::TAKEN => Self::Taken {
                charge: head.number,
            },
            reply_kind::DONE => Self::Done { entry },
            reply_kind::FAILED => {
                return Ok(Self::Failed {
                    entry,
                    reason: reason(),
                });
            }
            reply_kind::CLOSED => Self::Closed,
            reply_kind::ALIVE => Self::Alive,
            kind => return Err(WireError::UnknownKind(kind)),
        };
        if body.is_empty() {
            Ok(reply)
        } else {
            Err(malformed)
        }
    }
}

/// Takes fields off the front of a body.
struct Fields {
    rest: Bytes,
    malformed: WireError,
}

impl Fields {
    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], WireError> {
        let field = *self.rest.first_chunk().ok_or(self.malformed)?;
        drop(self.rest.split_to(LENGTH));
        Ok(field)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// All that is left, as a path.
    fn path(&mut self) -> Result<Bytes, WireError> {
        if self.rest.len() > MAX_PATH_BYTES {
            return Err(self.malformed);
        }
        Ok(std::mem::take(&mut self.rest))
    }

    fn end(self) -> Result<(), WireError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.malformed)
        }
    }
}

#[cfg(test)]
mod tests;
