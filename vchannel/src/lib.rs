//! Virtual channels: cluster file, routes, session, and the pack/unpack API.

#![forbid(unsafe_code)]

mod channel;
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

pub use channel::Channel;

pub use cluster::{ChannelId, Cluster, ClusterError, NetworkId, NodeId};
pub use delivery::Delivery;
pub use error::{CloseError, OpenError, PackError, TrySendError, UnpackError};
pub use madgate_gtm::wire::{ReceiveMode, SendMode};
pub use packing::Packing;
pub use session::{Packed, Session};
pub use topology::{Hop, NoRoute, Route, Routes};
pub use unpacking::Unpacking;
