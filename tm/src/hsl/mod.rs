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
//! - [`fabric`]: cards of libfabric's.
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
pub mod fabric;
#[cfg(not(loom))]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grants;
mod greeting;
pub mod host;
mod lane;
mod layout;
mod lent_out;
mod message;
mod pending;
pub mod port;
pub mod put;
mod received;
pub mod registration;
mod terms;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

pub use counters::{Counters, counters};
pub use host::Mode;

use crate::lane::{LaneClass, LaneError, Listener, Stranger};
use crate::local::meeting;
use crate::protocol::{Endpoint, HslTuning, Tuning};
use crate::tcp;
use fabric::FabricTerms;
use put::PutError;
use terms::HslTerms;

const PROTOCOL: &str = "hsl";

/// Which card a network has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Card {
    /// The emulated one, for nodes of one host.
    #[default]
    Host,
    /// One of libfabric's.
    Libfabric {
        /// libfabric's name of the provider; the first that it offers if there is none.
        provider: Option<String>,
        /// Its name of the interface, where not any will do.
        domain: Option<String>,
    },
}

impl Card {
    /// Its name in the cluster file.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Libfabric { .. } => "libfabric",
        }
    }

    /// Whether this host has it.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    pub fn probe(&self) -> io::Result<()> {
        let tuning = HslTuning {
            card: self.clone(),
            ..HslTuning::default()
        };
        match self {
            Self::Host => Ok(()),
            Self::Libfabric { .. } => FabricTerms::new(&tuning, None).map(drop),
        }
    }
}

/// Says what is wrong with the memory that such a lane would take.
pub(crate) fn check(tuning: &HslTuning, class: LaneClass) -> Result<(), &'static str> {
    layout::Geometry::tuned(tuning, class).map(drop)
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
    match &tuning.card {
        Card::Host => meeting::listen(directory, name, endpoint, HslTerms::of(tuning)),
        Card::Libfabric { .. } => {
            let terms = FabricTerms::new(tuning, None)?;
            meeting::listen(directory, name, endpoint, terms)
        }
    }
}

/// Connects to the node `name` in `directory`.
pub(crate) fn connect(
    directory: &Path,
    name: &str,
    tuning: &HslTuning,
) -> io::Result<Box<dyn Stranger>> {
    match &tuning.card {
        Card::Host => meeting::connect(directory, name, HslTerms::of(tuning)),
        Card::Libfabric { .. } => {
            meeting::connect(directory, name, FabricTerms::new(tuning, None)?)
        }
    }
}

/// Listens for nodes of other hosts, which a card of libfabric's reaches.
pub(crate) fn listen_on_host(
    host: &str,
    port: u16,
    tuning: &Tuning,
) -> io::Result<Box<dyn Listener>> {
    let terms = terms_of_host(host, tuning)?;
    let endpoint = |host, port| Endpoint::HslHost { host, port };
    tcp::listen_for(host, port, &tuning.tcp, endpoint, terms)
}

/// Connects to a node of another host.
pub(crate) fn connect_to_host(
    host: &str,
    port: u16,
    tuning: &Tuning,
) -> io::Result<Box<dyn Stranger>> {
    let terms = FabricTerms::new(host_card(tuning)?, None)?;
    tcp::connect_for(host, port, &tuning.tcp, terms)
}

fn terms_of_host(host: &str, tuning: &Tuning) -> io::Result<FabricTerms> {
    FabricTerms::new(host_card(tuning)?, host.parse().ok())
}

/// Nodes of different hosts have no memory in common.
fn host_card(tuning: &Tuning) -> io::Result<&HslTuning> {
    match tuning.hsl.card {
        Card::Libfabric { .. } => Ok(&tuning.hsl),
        Card::Host => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the emulated card only reaches nodes of this host, which meet in a directory",
        )),
    }
}

/// What a card's complaint means for the lane.
fn failure(error: PutError) -> LaneError {
    match error {
        PutError::Closed => LaneError::Closed,
        PutError::Unreachable(_) | PutError::Forbidden(_) => {
            LaneError::Broken(io::Error::other(error))
        }
        error => violation(error.to_string()),
    }
}

fn violation(what: String) -> LaneError {
    LaneError::Peer {
        protocol: PROTOCOL,
        what,
    }
}
