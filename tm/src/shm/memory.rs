//! The memory of a lane: ours, which we alone write, and the peer's, which we only read.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::layout::Geometry;
use crate::local::memory::{Mapping, OwnWords, PeerAccess, PeerWords};

/// The memory that this side made and alone writes.
#[derive(Debug)]
pub(super) struct OwnMemory {
    mapping: Arc<Mapping>,
    geometry: Geometry,
}

impl OwnMemory {
    /// Makes and seals it; with the descriptor that the peer gets.
    pub(super) fn new(geometry: Geometry) -> io::Result<(Self, OwnedFd)> {
        let length = geometry.memory_bytes();
        let (mapping, file) = Mapping::create(c"madgate-lane", length, PeerAccess::Read)?;
        Ok((Self { mapping, geometry }, file))
    }

    /// Memory that has no descriptor, and as the other side sees it.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn without_descriptor(geometry: Geometry) -> io::Result<(Self, PeerMemory)> {
        let mapping = Mapping::private(geometry.memory_bytes())?;
        let seen = PeerMemory {
            mapping: Arc::clone(&mapping),
            geometry,
        };
        Ok((Self { mapping, geometry }, seen))
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// `count` words at `offset`, to write.
    pub(super) fn words(&self, offset: usize, count: usize) -> OwnWords {
        self.mapping.words(offset, count)
    }
}

/// The memory that the peer made, mapped for reading.
#[derive(Debug)]
pub(super) struct PeerMemory {
    mapping: Arc<Mapping>,
    geometry: Geometry,
}

impl PeerMemory {
    /// Checks that the descriptor is memory as agreed, and maps it.
    ///
    /// The error is what is wrong with it.
    pub(super) fn new(file: &OwnedFd, geometry: Geometry) -> Result<Self, String> {
        let mapping = Mapping::of_peer(file, geometry.memory_bytes(), PeerAccess::Read)?;
        Ok(Self { mapping, geometry })
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// `count` words at `offset`, to read.
    pub(super) fn words(&self, offset: usize, count: usize) -> PeerWords {
        self.mapping.peer_words(offset, count)
    }
}
