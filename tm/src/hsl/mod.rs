//! Remote write: the sender's card stores messages in the receiver's memory, and the receiver
//! finds out by looking at a list in its own.
//!
//! The network of papers 000 and 004: one primitive, **put**, and above it two transmission
//! modules with a switch between them.
//!
//! ```text
//!        lane: lend, commit                    receive, drop
//!               │                                  ▲    │
//!        ┌──────┴─────── switch ───────┐           │    │
//!        │ up to the threshold         │ above it  │    │
//!   control messages              rendezvous       │    │  slots, buffers
//!   SHORT into a slot           DATA into a buffer │    │  free again
//!        │                     that was offered    │    │
//!        └──────┬──────────────────────┘           │    ▼
//!   PUT:  list of messages to send        list of received messages
//!               │                                  ▲    │  RSP, CRDT:
//!   device:  check, store, notify ═════════════════╝    ╰─ puts the other way
//! ```
//!
//! - [`put`]: the lists, and what a card is.
//! - [`host`]: the emulated card, for nodes of one host.
//! - [`port`]: the transmission modules and the switch, for two processes that post their own
//!   memory.
//! - `lane`: the same as lanes, for everything above.
//! - [`registration`]: a cache of what cards have been told of memory, safe where it goes away.
//!
//! Two nodes that map each other's memory trust each other with it, so that both run as the same
//! user, and the cluster file says so. What a peer writes is checked nevertheless: its lists
//! name slots, which must be its to fill, and lengths, which must fit; what it fills is only
//! ever copied out or handed to the kernel.

#[cfg(not(loom))]
#[cfg(any(test, feature = "fuzzing"))]
mod attack;
mod counters;
#[cfg(not(loom))]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grants;
mod greeting;
pub mod host;
mod lane;
mod layout;
mod message;
mod pending;
pub mod port;
pub mod put;
pub mod registration;
mod terms;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

pub use counters::{Counters, counters};
pub use host::Mode;

use crate::lane::{LaneError, Listener, Stranger};
use crate::local::meeting;
use crate::protocol::{Endpoint, HslTuning};
use put::PutError;
use terms::HslTerms;

const PROTOCOL: &str = "hsl";

/// Which card a network has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Card {
    /// The emulated one, for nodes of one host.
    #[default]
    Host,
}

impl Card {
    /// Its name in the cluster file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
        }
    }
}

/// Takes the place of `name` in `directory`.
pub(crate) fn listen(
    directory: &Path,
    name: &str,
    tuning: &HslTuning,
) -> io::Result<Box<dyn Listener>> {
    let endpoint = Endpoint::Hsl {
        directory: directory.to_owned(),
        name: name.to_owned(),
    };
    let tuning = tuning.clone();
    meeting::listen(directory, name, endpoint, HslTerms { tuning })
}

/// Connects to the node `name` in `directory`.
pub(crate) fn connect(
    directory: &Path,
    name: &str,
    tuning: &HslTuning,
) -> io::Result<Box<dyn Stranger>> {
    let tuning = tuning.clone();
    meeting::connect(directory, name, HslTerms { tuning })
}

/// What a card's complaint means for the lane.
fn failure(error: PutError) -> LaneError {
    match error {
        PutError::Closed => LaneError::Closed,
        PutError::Unreachable(_) => LaneError::Broken(io::Error::other(error)),
        error => violation(error.to_string()),
    }
}

fn violation(what: String) -> LaneError {
    LaneError::Peer {
        protocol: PROTOCOL,
        what,
    }
}
