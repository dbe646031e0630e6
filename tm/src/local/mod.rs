//! What the protocols of one host have in common: memory that two processes map, rings and
//! flags in it, the sockets that wake who sleeps, and how nodes meet.
//!
//! | file | |
//! |---|---|
//! | `memory` | sealed memfds, mapped here and there; words in them |
//! | `ring` | entries from one side to the other, told apart by a phase bit |
//! | `armed` | who sleeps, so that only sleepers are woken |
//! | `bell` | the socket that wakes them, and tells that the peer is gone |
//! | `free` | slots that may be filled, and which of them is next |
//! | `filled` | how much is in those that the peer has, and may be |
//! | `loans` | which slots of this side's are free, lent, or with the peer |
//! | `arrivals` | which slots the peer has filled, and how they go back |
//! | `untold` | slots that were read, until their sender is told |
//! | `receiver` | the half of a lane that receives such slots |
//! | `meeting` | sockets in a folder, where nodes find each other |
//! | `stranger` | a connection, and how it becomes a lane |
//! | `credentials` | who is at the other end of such a socket |
//! | `greeting` | what both sides say first, with descriptors beside it |
//! | `sync` | the atomics, so that loom can replace them |

pub(crate) mod armed;
pub(crate) mod arrivals;
pub(crate) mod bell;
pub(crate) mod credentials;
pub(crate) mod filled;
pub(crate) mod free;
pub(crate) mod greeting;
pub(crate) mod loans;
pub(crate) mod meeting;
pub(crate) mod memory;
pub(crate) mod receiver;
pub(crate) mod ring;
pub(crate) mod stranger;
pub(crate) mod sync;
pub(crate) mod untold;

#[cfg(test)]
pub(crate) mod tests;

/// Longest path that a Unix socket can have.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A caller that polls without ever arming still learns of the peer's death: after so many
/// calls in a row that found nothing, the lane looks at its socket.
pub(crate) const LOOKS_BETWEEN_CHECKS: u32 = 4096;
