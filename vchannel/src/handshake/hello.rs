//! What the two sides say about themselves.

use madgate_tm::LaneClass;

use super::error::HandshakeError;
use crate::cluster::{NetworkId, NodeId};

/// What a link is for, as the end that dials sees it. All carry frames both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkKind {
    /// From endpoint to endpoint, in one hop.
    Regular,
    /// From an endpoint to an engine, which passes on what arrives.
    Forward,
    /// From the last engine of a route to the destination's endpoint.
    Deliver,
    /// From an engine to the next one. A gateway that runs application code has two links to
    /// its neighbour, one of this kind and one of the other.
    Relay,
}

impl LinkKind {
    /// The kind of the link between the same two parties that the other one dials.
    #[must_use]
    pub const fn back(self) -> Self {
        match self {
            Self::Regular => Self::Regular,
            Self::Forward => Self::Deliver,
            Self::Deliver => Self::Forward,
            Self::Relay => Self::Relay,
        }
    }
}

/// What the side that dials says in message 1: who it is, and what the connection shall be.
///
/// 32 bytes: rank (`u32`), rank of the node that is dialled (`u32`), incarnation (`u64`),
/// number of the link (`u64`), network (`u16`), kind (`u8`: 1 regular, 2 forward, 3
/// deliver, 4 relay), lane (`u8`: 1 urgent, 2 bulk), zero (`u32`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkHello {
    /// The node that dials.
    pub node: NodeId,
    /// The node that it wants.
    pub destination: NodeId,
    /// Its incarnation; not zero.
    pub incarnation: u64,
    /// A random number that the two lanes of one link have in common.
    pub link: u64,
    /// The network that the connection crosses.
    pub network: NetworkId,
    /// What the link is for.
    pub kind: LinkKind,
    /// Which of the link's lanes this is.
    pub class: LaneClass,
}

/// Bytes of a [`LinkHello`].
pub(super) const HELLO_BYTES: usize = 32;

impl LinkHello {
    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[0..4].copy_from_slice(&self.node.rank().to_le_bytes());
        bytes[4..8].copy_from_slice(&self.destination.rank().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.link.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.network.0.to_le_bytes());
        bytes[26] = match self.kind {
            LinkKind::Regular => 1,
            LinkKind::Forward => 2,
            LinkKind::Deliver => 3,
            LinkKind::Relay => 4,
        };
        bytes[27] = match self.class {
            LaneClass::Urgent => 1,
            LaneClass::Bulk => 2,
        };
        bytes
    }

    /// Reads what a peer sent. Whether nodes and network exist is for the caller to check.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HandshakeError> {
        let bytes: &[u8; HELLO_BYTES] = bytes
            .try_into()
            .map_err(|_| HandshakeError::Malformed("its message 1 has the wrong length"))?;
        let kind = match bytes[26] {
            1 => LinkKind::Regular,
            2 => LinkKind::Forward,
            3 => LinkKind::Deliver,
            4 => LinkKind::Relay,
            _ => return Err(HandshakeError::Malformed("a link of an unknown kind")),
        };
        let class = match bytes[27] {
            1 => LaneClass::Urgent,
            2 => LaneClass::Bulk,
            _ => return Err(HandshakeError::Malformed("an unknown lane")),
        };
        if bytes[28..] != [0; 4] {
            return Err(HandshakeError::Malformed("reserved bytes are not zero"));
        }
        Ok(Self {
            node: NodeId(u32_at(bytes, 0)),
            destination: NodeId(u32_at(bytes, 4)),
            incarnation: not_zero(u64_at(bytes, 8))?,
            link: u64_at(bytes, 16),
            network: NetworkId(u16::from_le_bytes([bytes[24], bytes[25]])),
            kind,
            class,
        })
    }
}

/// What the side that listens says of itself in message 2.
///
/// 16 bytes: rank (`u32`), verdict (`u8`: zero, or a [`Refusal`](super::Refusal) that ends
/// the handshake), zero (3 bytes), incarnation (`u64`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The node.
    pub node: NodeId,
    /// Its incarnation; not zero.
    pub incarnation: u64,
}

/// Bytes of a [`PeerIdentity`] with its verdict.
pub(super) const IDENTITY_BYTES: usize = 16;

impl PeerIdentity {
    pub(super) fn encode(&self, verdict: u8) -> [u8; IDENTITY_BYTES] {
        let mut bytes = [0; IDENTITY_BYTES];
        bytes[0..4].copy_from_slice(&self.node.rank().to_le_bytes());
        bytes[4] = verdict;
        bytes[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, u8), HandshakeError> {
        let bytes: &[u8; IDENTITY_BYTES] = bytes
            .try_into()
            .map_err(|_| HandshakeError::Malformed("its message 2 has the wrong length"))?;
        if bytes[5..8] != [0; 3] {
            return Err(HandshakeError::Malformed("reserved bytes are not zero"));
        }
        let identity = Self {
            node: NodeId(u32_at(bytes, 0)),
            incarnation: not_zero(u64_at(bytes, 8))?,
        };
        Ok((identity, bytes[4]))
    }
}

fn not_zero(incarnation: u64) -> Result<u64, HandshakeError> {
    match incarnation {
        0 => Err(HandshakeError::Malformed("incarnation zero")),
        incarnation => Ok(incarnation),
    }
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
