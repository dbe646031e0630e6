//! How two processes find out that they belong to one session, before anything else is said
//! between them. No I/O and no clock: it is given bytes and returns bytes.
//!
//! ```text
//!  dials                                                       listens
//!  Initiator                                                  Responder
//!      │ ── preamble: magic, version, digest of the cluster file ──> │
//!      │ ── message 1: who, to whom, which lane of which link ─────> │ still a stranger:
//!      │ <── preamble ────────────────────────────────────────────── │ this can be a replay
//!      │ <── message 2: who, and whether to go on ────────────────── │
//!      │ ── message 3: proves that message 2 was understood ───────> │ a member
//!      │ <── message 4: the verdict, when the caller has decided ─── │
//!      └───────────── what follows belongs to the lane ──────────────┘
//! ```
//!
//! Messages 1 and 2 are those of the Noise pattern `NNpsk0` under the session key, with the
//! preamble as prologue; 3 and 4 are enciphered with the keys that come of it. Only a process
//! that knows the session key can write any of them, and only one that takes part right now
//! can write 3 and 4, as both sides draw a new key pair each time. Whatever goes wrong is said
//! to the other side as well: enciphered where it can be, else as an *alert* in clear, which
//! is believed as much as a connection that just closes.
//!
//! The bytes: the preamble is the magic `MADGATE\0`, the version (`u16`) and the digest (32
//! bytes), and stays so in every version. Then come records: kind (`u8`: 1 message, 2 alert),
//! length (`u16`, at most [`RECORD_BYTES_MAX`]) and that many bytes; an alert is one byte, a
//! [`Refusal`]. All numbers are little-endian; what the messages hold stands in
//! [`LinkHello`] and [`PeerIdentity`].
//!
//! Start reading in [`Initiator`], then [`Responder`]; [`Member`] is what both know of their
//! own side.

mod error;
mod hello;
mod incarnation;
mod initiator;
mod key;
mod member;
mod noise;
mod random;
mod responder;
#[cfg(test)]
pub(crate) mod tests;
mod wire;

pub use error::{HandshakeError, Refusal};
pub use hello::{LinkHello, LinkKind, PeerIdentity};
pub use incarnation::draw_incarnation;
pub use initiator::Initiator;
pub use key::{KEY_BYTES, KeyError, SessionKey};
pub use member::Member;
pub(crate) use random::random_u64;
pub use responder::{Progress, Responder};
pub use wire::{MAGIC, PREAMBLE_BYTES, PROTOCOL_VERSION, RECORD_BYTES_MAX};
