//! Shared memory: static buffers in sealed memfd rings, for the processes of one host.
//!
//! Each side of a lane makes one memfd that it alone can write, and maps the other's for
//! reading. There is nothing that both write, so neither can disturb more than what the
//! other reads from it, and all of that is copied out and checked at every use.
//!
//! ```text
//!         side A's memory                          side B's memory
//!    ┌──────────────────────┐                 ┌──────────────────────┐
//!    │ A's slots            │                 │ return ring ─────────│──> A: these are free
//!    │ publish ring ────────│──> B: these are │                      │
//!    │                      │    committed    │                      │
//!    │ armed? ──────────────│──> B: ring the  │ armed? ──────────────│──> A: ring the
//!    │                      │    bell for A   │                      │    bell for B
//!    └──────────────────────┘                 └──────────────────────┘
//!    (and the same from B to A, in the same two memories)
//! ```
//!
//! The way of a slot: **lent** from the free ones, filled by the caller, **committed** to
//! the publish ring; found there by the other side, handed out, and put into its return
//! ring when it is dropped; free again. While both sides are awake none of this is a
//! system call. A side that wants to sleep says so (the `armed` file), and is woken through
//! a Unix socket, whose end also tells that the peer is gone. What a peer committed before
//! it went is still received.
//!
//! Nodes meet through sockets in the network's folder, where the handshake happens too;
//! the descriptors of the memory then travel over the same socket (the `greeting` file).

mod armed;
mod bell;
mod greeting;
mod layout;
mod memory;
mod receiver;
mod rendezvous;
mod ring;
mod sender;
mod slots;
mod stranger;
mod sync;

#[cfg(test)]
mod tests;

use crate::lane::LaneError;

pub(crate) use rendezvous::{connect, listen, socket_path};

/// Longest path that a Unix socket can have.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A caller that polls without ever arming still learns of the peer's death: after so many
/// calls in a row that found nothing, the lane looks at its socket.
const LOOKS_BETWEEN_CHECKS: u32 = 4096;

fn violation(what: String) -> LaneError {
    LaneError::Peer {
        protocol: "shm",
        what,
    }
}
