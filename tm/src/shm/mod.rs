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
//! All that is not this protocol's alone is in `local`.

mod entry;
#[doc(hidden)]
#[cfg(not(loom))]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod greeting;
mod layout;
mod memory;
mod receiver;
mod returns;
mod sender;
mod terms;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use std::io;
use std::path::Path;

use crate::lane::{LaneClass, LaneError, Listener, Stranger};
use crate::local::meeting;
use crate::protocol::{Endpoint, ShmTuning};
use terms::ShmTerms;

const PROTOCOL: &str = "shm";

/// Says what is wrong with the memory that such a lane would take.
pub(crate) fn check(tuning: &ShmTuning, class: LaneClass) -> Result<(), &'static str> {
    layout::Geometry::tuned(tuning, class).map(drop)
}

/// Takes the place of `name` in `directory`.
pub(crate) fn listen(
    directory: &Path,
    name: &str,
    tuning: &ShmTuning,
) -> io::Result<Box<dyn Listener>> {
    let endpoint = Endpoint::Shm {
        directory: directory.to_owned(),
        name: name.to_owned(),
    };
    meeting::listen(directory, name, endpoint, ShmTerms::of(tuning))
}

/// Connects to the node `name` in `directory`.
pub(crate) fn connect(
    directory: &Path,
    name: &str,
    tuning: &ShmTuning,
) -> io::Result<Box<dyn Stranger>> {
    meeting::connect(directory, name, ShmTerms::of(tuning))
}

fn violation(what: String) -> LaneError {
    LaneError::Peer {
        protocol: PROTOCOL,
        what,
    }
}
