//! The generic transmission module: what makes messages cross networks that differ.
//!
//! Paper 003 (section 2.2.2) puts a *generic* transmission module between the buffers and
//! the real networks, used by both ends of every message that crosses a gateway, so that a
//! gateway can pass it on without knowing what is in it. This crate is that module's logic
//! and nothing else: **no I/O, no clock, no threads, no pointers to user memory**. It is
//! given bytes and the time, and speaks in frames and ranges; every test of it runs in
//! virtual time.
//!
//! ```text
//!   source                        gateway                        destination
//!
//!   blocks ──> Outgoing ──frames──> Transit ──frames──> Incoming ──records──> blocks
//!                 ^                  |    ^                 |
//!                 └──── credit ──────┘    └──── credit ─────┘
//!                  (lowered to what         (what the destination's
//!                   the gateway promises)    memory promises)
//! ```
//!
//! - [`wire`]: the 48-byte header and what follows it, byte for byte;
//! - [`Outgoing`]: one flow at its source: fragments, credit, retention, opening;
//! - [`Incoming`]: one flow at its destination: order, duplicates, credit; with
//!   [`Reassembly`], which turns frames back into blocks;
//! - [`Transit`]: every flow that crosses a gateway: admission, the regulation of credit,
//!   queues and their round robin;
//! - [`Budget`]: the memory behind a node's promises.
//!
//! The rule that all of it serves: **a frame is only sent when every hop ahead of it has
//! promised a place for it.** Start reading in [`wire`], then [`Outgoing`].

#![forbid(unsafe_code)]

pub mod budget;
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod incoming;
pub mod outgoing;
pub mod reassembly;
pub mod time;
pub mod transit;

pub mod wire;

pub use budget::Budget;
pub use incoming::{Incoming, OpenVerdict, Placement};
pub use outgoing::{Failure, Outgoing, Transmit};
pub use reassembly::{Reassembly, Record, Violation};
pub use time::{FORGET_AFTER, LOST_AFTER, Time};
pub use transit::Transit;

pub use wire::{FlowKey, Header, Kind};
