//! Virtual channels: cluster file, routes, session, and the pack/unpack API.

#![forbid(unsafe_code)]

pub mod cluster;
pub mod topology;

pub use cluster::{ChannelId, Cluster, ClusterError, NetworkId, NodeId};
pub use topology::{Hop, NoRoute, Route, Routes};
