//! How a connection becomes a lane of shared memory.

use std::io;
use std::os::fd::OwnedFd;

use super::greeting;
use super::layout::Geometry;
use super::memory::{OwnMemory, PeerMemory};
use super::receiver::receiver;
use super::sender::ShmSender;
use crate::lane::{Lane, LaneClass};
use crate::local::greeting::{Dialect, TERMS_BYTES};
use crate::local::stranger::{Ends, LaneTerms, Terms};
use crate::protocol::ShmTuning;

/// What this side wants of a lane.
#[derive(Debug, Clone)]
pub(super) struct ShmTerms {
    pub(super) tuning: ShmTuning,
    /// As [`Loans::limited`](crate::local::loans::Loans::limited).
    pub(super) ahead_bytes: usize,
}

impl ShmTerms {
    /// Without a limit to what is filled ahead.
    pub(super) fn of(tuning: &ShmTuning) -> Self {
        Self {
            tuning: tuning.clone(),
            ahead_bytes: usize::MAX,
        }
    }
}

impl Terms for ShmTerms {
    const PROTOCOL: &'static str = super::PROTOCOL;
    const DIALECT: Dialect = greeting::DIALECT;
    type Own = OwnMemory;
    type Peer = PeerMemory;

    fn prepare(&self, class: LaneClass) -> io::Result<(OwnMemory, OwnedFd, [u8; TERMS_BYTES])> {
        let geometry = Geometry::tuned(&self.tuning, class)
            .map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
        let (own, file) = OwnMemory::new(geometry)?;
        Ok((own, file, greeting::encode(geometry)))
    }

    fn meet(
        &self,
        _own: &OwnMemory,
        said: &[u8; TERMS_BYTES],
        memory: &OwnedFd,
    ) -> Result<PeerMemory, String> {
        PeerMemory::new(memory, greeting::decode(said)?)
    }
}

impl LaneTerms for ShmTerms {
    fn limit_ahead(&mut self, bytes: usize) {
        self.ahead_bytes = bytes;
    }

    fn lane(&self, own: OwnMemory, peer: PeerMemory, ends: Ends) -> io::Result<Lane> {
        Ok(Lane {
            sender: Box::new(ShmSender::new(&own, &peer, ends.sending, self)),
            receiver: Box::new(receiver(&own, &peer, ends.receiving)),
        })
    }
}
