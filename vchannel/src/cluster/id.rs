//! The small numbers that stand for nodes, networks and channels.

/// A node: its rank, which is its place in the cluster file (ranges expanded).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A network: its place among the `[[network]]` tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkId(pub u16);

/// A channel: its place among the `[[channel]]` tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

impl NodeId {
    /// The rank as it stands in frames.
    #[must_use]
    pub const fn rank(self) -> u32 {
        self.0
    }

    /// The rank as an index; every rank fits, as nodes are at most [`MAX_NODES`](super::MAX_NODES).
    #[must_use]
    pub(crate) const fn index(self) -> usize {
        // `usize::from` does not exist for u32; this project needs 64-bit addresses anyway.
        const _: () = assert!(usize::BITS >= u32::BITS);
        self.0 as usize
    }

    /// The node at `index`.
    pub(crate) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("nodes are at most MAX_NODES"))
    }
}

impl NetworkId {
    /// The number as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The network at `index`.
    pub(crate) fn from_index(index: usize) -> Self {
        Self(u16::try_from(index).expect("networks are at most MAX_NETWORKS"))
    }
}

impl ChannelId {
    /// The number as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The channel at `index`.
    pub(crate) fn from_index(index: usize) -> Self {
        Self(u16::try_from(index).expect("channels are at most MAX_CHANNELS"))
    }
}
