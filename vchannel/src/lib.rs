//! Virtual channels: cluster file, routes, session, and the pack/unpack API.
//!
//! A virtual channel (paper 003, section 2.2.1) spans several networks, and those who pack and
//! unpack messages on it never see where one ends. This crate is everything that a node needs
//! which does not forward:
//!
//! ```text
//!  application      Packing, Unpacking          blocks of memory
//!                        │   ▲
//!                        ▼   │
//!  session/         flows, inboxes              what is known, behind one lock
//!                        │   ▲
//!                 flush  ▼   │ drive            by callers that wait, or by one thread
//!                      links                    two lanes each
//!                        ▲
//!  conductor/            └── listens, dials, shakes hands: everything slow, in a thread
//!                            of its own
//!
//!  cluster/ ──> topology/                       the file, and the routes that follow from it
//!  handshake/                                   who is a member; no I/O
//! ```
//!
//! - [`Cluster`]: what the cluster file says;
//! - [`Session`]: a node's part in it; [`Channel`]: where messages begin;
//! - [`Packing`] and [`Unpacking`]: one message; `docs/api.md` has the rules;
//! - [`Routes`]: which way messages go;
//! - [`conductor`]: links, for those who forward.
//!
//! A message is cut into frames and put together again by [`madgate_gtm`]; links come from
//! [`madgate_tm`], and what leaves by one goes through an outbox of [`madgate_bmm`].
//!
//! Start reading in `session/mod.rs`; `channel.rs`, `packing/` and `unpacking/` are what
//! applications call, and `claiming.rs` is what they wait for between messages.

#![forbid(unsafe_code)]

mod arrived;
mod channel;
mod claiming;
pub mod cluster;
pub mod conductor;
mod delivery;
pub mod error;
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod handshake;
mod lending;
mod packing;
mod session;
pub mod topology;
mod unpacking;

pub use arrived::ArrivedBlock;
pub use channel::Channel;

pub use cluster::{ChannelId, Cluster, ClusterError, NetworkId, NodeId};
pub use delivery::Delivery;
pub use error::{CloseError, OpenError, PackError, TrySendError, UnpackError};
pub use madgate_gtm::wire::{ReceiveMode, SendMode};
pub use packing::Packing;
pub use session::{Packed, Progress, Session};
pub use topology::{Hop, NoRoute, Route, Routes};
pub use unpacking::Unpacking;

/// Its examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
