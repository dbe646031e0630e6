//! The `libfabric` device: cards of today, behind libfabric's one interface.
//!
//! The library is loaded when a network asks for it; a process that does not ask starts where it
//! is absent. Each half of a lane has an endpoint of its own at each side; of a port, both halves have
//! one. A put is a write; a notification is a write too, of an entry of the other side's list, that
//! carries 32 bits of immediate data, the message's identifier: the other side's completion queue
//! then says that the entry is there, and with it whatever was written before.
//!
//! ```text
//!   this side                                      the other side
//!   ─────────                                     ┌──────────────────────┐
//!   registered memory ── check, post ── write ════╪═> registered memory  │
//!   entry ────────────── post ── write with data ═╪═> list of received   │
//!                                      ║          │   messages           │
//!                                      ╚══════════╪═> completion queue   │
//!   how far it has been read  <═══ write ═════════┼── list               │
//!                                                 └──────────────────────┘
//! ```
//!
//! | file | |
//! |---|---|
//! | `abi` | the C interface |
//! | `library` | loads it |
//! | `handlers` | what signals do meanwhile, which stays |
//! | `object`, `domain`, `region`, `queue`, `endpoint` | its objects, each used safely |
//! | `posting` | what is needed of an endpoint |
//! | `outbox` | what is posted, until it is sent |
//! | `connection` | that, and what has come |
//! | `card` | that as a device behind PUT |
//! | `attendant` | a thread that goes on where nobody calls |
//! | `control` | the connection over which both sides have met, and how they part |
//! | `greeting`, `exchange`, `meeting` | how they meet |
//! | `registrar` | memory that was not registered when they met |
//! | `port` | ports |
//!
//! Nothing outside of registered memory can be named: this side checks each entry before it is
//! posted, and the provider checks the key of whatever comes.

mod abi;
mod attendant;
mod card;
mod connection;
mod control;
mod domain;
mod endpoint;
mod error;
mod exchange;
#[cfg(not(loom))]
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
mod greeting;
mod handlers;
mod library;
mod meeting;
mod object;
mod outbox;
mod port;
mod posting;
mod queue;
mod region;
mod registrar;
#[cfg(not(loom))]
#[cfg(any(test, feature = "fuzzing"))]
mod simulated;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use card::{FabricCard, FabricDevice, FabricList, FabricSource, FabricTarget};
pub use port::{FabricLink, FabricPortStart};

pub(super) use meeting::FabricTerms;
