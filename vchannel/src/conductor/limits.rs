//! How much, and how long: every bound of the conductor.

use std::time::Duration;

/// How long an incarnation that is present has to answer when another one claims its name.
pub const PRESENCE_CHALLENGE: Duration = Duration::from_secs(2);

/// Strangers at once, of all listeners together.
pub const STRANGER_SLOTS: usize = 256;

/// How long a handshake may take, from its connection to its last byte, and how long one lane
/// of a link waits for the other.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Members whose connections are not links yet: their name is being contested, their lane is
/// being set up, or its twin is missing.
pub const MEMBERS_WAITING_MOST: usize = 1024;

/// Attempts to dial that are under way at once; further ones take their turn.
pub const ATTEMPTS_AT_ONCE: usize = 128;

/// The pause after a failed attempt to dial; it doubles with each, up to the longest.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(10);

/// The longest pause between two attempts to dial, or a part of `link_timeout` if that is shorter.
pub const BACKOFF_LONGEST: Duration = Duration::from_secs(1);

/// Into so many parts the longest pause divides `link_timeout`, at least.
pub(super) const ATTEMPTS_LEAST: u32 = 4;

/// Events that wait for a party. Beyond them the conductor begins nothing new.
pub const EVENTS_MOST: usize = 1024;

/// Connections that one listener accepts before others have their turn.
pub(super) const ACCEPTED_AT_ONCE: usize = 64;

/// How long a listener rests when the process has no descriptors left, or a party's events
/// wait.
pub(super) const REST: Duration = Duration::from_millis(20);

/// How often a listener whose place can be taken away looks whether it still has it.
pub(super) const PLACE_LOOK: Duration = Duration::from_secs(1);

/// After a refusal, how long the peer may take to read it and close.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// After a refusal, bytes of the peer's that are read and thrown away, so that closing does
/// not tear down what it has not read.
pub(super) const LINGER_BYTES: usize = 1024;

/// How long resolving a host name may take.
pub const RESOLVING_TIMEOUT: Duration = Duration::from_secs(60);

/// Threads that resolve host names: so many that take long keep others waiting.
pub(super) const RESOLVERS: usize = 8;

/// Names that wait to be resolved.
pub(super) const NAMES_WAITING_MOST: usize = 256;

/// Failures of strangers are told at most once in this time.
pub(super) const COMPLAINT_PERIOD: Duration = Duration::from_secs(5);

/// The times that tests shorten.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) handshake: Duration,
    pub(super) challenge: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            handshake: HANDSHAKE_TIMEOUT,
            challenge: PRESENCE_CHALLENGE,
        }
    }
}
