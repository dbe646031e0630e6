//! Why a gateway cannot start.

use std::io;

use madgate_vchannel::cluster::UnknownName;
use madgate_vchannel::error::remedy;
use madgate_vchannel::handshake::KeyError;
use madgate_vchannel::{OpenError, conductor};

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The cluster file has no such node.
    #[error(transparent)]
    UnknownNode(UnknownName),
    /// The node does not forward.
    #[error(
        "node {node:?} is no gateway{}; give it `gateway = true` in the cluster file to make it one",
        unlike(.gateways, *.more)
    )]
    NoGateway {
        /// The node.
        node: String,
        /// The first few that are.
        gateways: Vec<String>,
        /// How many more are.
        more: usize,
    },
    /// The session key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The node cannot listen, or dial.
    #[error(transparent)]
    Conductor(#[from] conductor::StartError),
    /// The node's own part in the session cannot begin.
    #[error(transparent)]
    Session(#[from] OpenError),
    /// The memory that the gateway may use is too small for its batches.
    #[error(
        "a memory of {memory} is too small: {batches} batches of {batch} take {pools}, and \
         {least} must be left for flows; raise `memory`, or lower `depth` or `batch`"
    )]
    MemoryTooSmall {
        /// What it may use.
        memory: String,
        /// What its batches take.
        pools: String,
        /// How many batches.
        batches: usize,
        /// Bytes of one.
        batch: String,
        /// What must be left.
        least: String,
    },
    /// The conductor does not tell a party of its links.
    #[error("the conductor does not tell a party of its links")]
    NoEvents,
    /// The system refuses a thread or a descriptor.
    #[error("the system refuses what a gateway needs{}", remedy(.0))]
    System(#[from] io::Error),
}

/// Which nodes are gateways, where one that is not was named.
fn unlike(gateways: &[String], more: usize) -> String {
    if gateways.is_empty() {
        return String::new();
    }
    let named = gateways.join(", ");
    match more {
        0 => format!(", unlike {named}"),
        more => format!(", unlike {named} and {more} more"),
    }
}
