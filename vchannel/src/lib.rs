//! Virtual channels: cluster file, routes, session, and the pack/unpack API.

#![forbid(unsafe_code)]

pub mod cluster;

pub use cluster::{ChannelId, Cluster, ClusterError, NetworkId, NodeId};
