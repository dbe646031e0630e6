//! The forwarding engine: a gateway between networks that do not reach each other.
//!
//! A [`Gateway`] is a node on two or more networks. It takes frames in on its links with
//! endpoints and other gateways, whoever dialled them, and sends them on over the next: to another
//! gateway, or to where they are for. Applications embed it; the `madgate gateway` command is such
//! an application.
//!
//! ```text
//!  network left                     the engine                     network right
//!
//!            ┌ madgate-rx-left ┐                  ┌ link output ┐
//!  lanes ──> │ batches, scan   ├──> flow table ──>│ outboxes    ├──> lanes
//!            └─────────────────┘  (one lock)      └─────────────┘
//!                                     │            sent by the receiver itself,
//!                                     │            or by madgate-tx-right while
//!                                     │            a lane takes no more
//!  lanes <──── credit, refusals <─────┴───── credit from the destinations <── lanes
//! ```
//!
//! Bytes are read in batches, many frames at once; frames go on by reference to the batch
//! and are written as they were read, many at once. What cannot leave is copied out of the
//! batch before the batch is needed again. What frames are, and when they may be sent, is
//! [`madgate_gtm`]'s business; where links come from, [`madgate_vchannel`]'s.
//!
//! Where to start reading: `scan.rs` says what is in a batch, `intake.rs` takes it in,
//! `serve.rs` sends. `receiver/` and `sender.rs` are the two threads of each network,
//! `keeper.rs` is the one for everything that is not data. `instruments/` says what they
//! spend their time on.

#![forbid(unsafe_code)]

mod batch;
#[doc(hidden)]
#[cfg(any(test, feature = "benching"))]
pub mod benching;
mod complaints;
mod counters;
mod dialling;
mod drain;
mod engine;
mod error;
mod fault;
mod fitting;
#[cfg(test)]
mod fixture;
mod frame;
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gateway;
mod held;
mod instruments;
mod intake;
mod keeper;
mod link;
pub mod model;
mod receiver;
mod router;
mod scan;
mod sender;
mod serve;
mod waiting;

pub use counters::{Counters, NetworkCounters};
pub use drain::DrainReport;
pub use error::StartError;
pub use gateway::{Gateway, Observer};
pub use instruments::{HopLatency, PipelineCounters, StageTimes};
