//! Transmission modules: what a network can do, and one folder per protocol.
//!
//! A transmission module (paper 003, section 2.1.1) knows how to move bytes between two
//! processes over one kind of network, and nothing else: no messages, no routes, no
//! gateways. What the layers above see of it comes in two families of traits:
//!
//! - **shape** ([`Shape`]): what kind of buffers the module likes. *Dynamic*: any memory
//!   of the caller's, several pieces gathered in one call. *Static*: slots of its own,
//!   which it lends to be filled.
//! - **link** ([`Listener`], [`Stranger`], [`LaneSender`], [`LaneReceiver`]): how two
//!   processes meet and what they can do then.
//!
//! ```text
//!  listen() ──> Listener ──accept──> Stranger ─┐   a byte pipe, for the handshake only
//!  connect() ────────────────────> Stranger ───┤
//!                                              └─ establish() ──> Establishing ──> Lane
//!                                                                                 │
//!             LaneSender  (try_send, or try_lend + commit)  <─────────────────────┤
//!             LaneReceiver (try_receive, or try_receive_slot)  <──────────────────┘
//! ```
//!
//! A **lane** is one connection. A link between two nodes is two lanes, *urgent* and
//! *bulk*, so that small frames and promises overtake what a kernel buffer already holds.
//! Nothing here blocks: every call does what it can now, and a [`Poller`] waits on as many
//! lanes as there are.
//!
//! What is sent is a [`Piece`], what is received into is a [`Room`]: memory that is never seen in place, as
//! another process may write it, or the kernel does.
//!
//! Bytes that need not be seen can pass from one lane to another in a [`Pipe`], where both
//! lanes can do that.
//!
//! [`Gather`] decides how much of what is certain to come is worth waiting for.
//!
//! How long threads look before they sleep says [`AdaptiveSpin`]; how those that wait for lanes get on with
//! others says [`Crowd`], and [`Scheduling`] tells the system.
//!
//! [`Pooled`] is here because unsafe code is: memory for what lives as long as one message.
//!
//! Start reading in [`lane`](mod@lane), then [`tcp`](mod@tcp) (the simple one), then
//! [`shm`](mod@shm) (the fast one), then [`hsl`](mod@hsl) (remote write, with two transmission
//! modules of its own). What the last two have in common is in `local`.

#![deny(unsafe_code)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod copying;
mod crowd;
mod gather;
pub mod hsl;
pub mod lane;
mod local;
mod piece;
pub mod pipe;
pub mod poller;
mod pooled;
pub mod protocol;
mod room;
mod scheduling;
pub mod shm;
mod slot;
mod spares;
mod spin;
pub mod tcp;

pub use copying::Stores;
pub use crowd::Crowd;
pub use gather::Gather;
pub use lane::{
    Establishing, LEAST_AHEAD, Lane, LaneClass, LaneError, LaneReceiver, LaneSender, LentSlot,
    Listener, Piece, ReceivedSlot, Room, Shape, Stranger,
};
pub use pipe::{Pipe, Pipes};
pub use poller::{Interest, Poller, Ready, Waker};
pub use pooled::Pooled;
pub use protocol::{
    Endpoint, EndpointError, HslTuning, Protocol, ShmTuning, TcpTuning, Tuning, check_memory,
    connect, largest_frame, listen, stays_in_memory,
};
pub use scheduling::Scheduling;
pub use spares::Spares;
pub use spin::AdaptiveSpin;
