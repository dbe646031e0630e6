//! How a connection becomes a lane of shared memory.

use std::io;
use std::os::fd::OwnedFd;

use super::greeting;
use super::layout::Geometry;
use super::memory::{OwnMemory, PeerMemory};
use super::receiver::receiver;
use super::sender::ShmSender;
use crate::lane::{Lane, LaneClass, slots_ahead};
use crate::local::greeting::{Dialect, TERMS_BYTES};
use crate::local::stranger::{Ends, LaneTerms, Terms};
use crate::protocol::ShmTuning;

/// What this side wants of a lane.
#[derive(Debug, Clone)]
pub(super) struct ShmTerms {
    pub(super) tuning: ShmTuning,
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
    fn limit_ahead(&mut self, here: usize, _there: usize) {
        // The slots are of who fills them.
        let ShmTuning {
            bulk_slots,
            bulk_slot_bytes,
            ..
        } = &mut self.tuning;
        *bulk_slots = slots_ahead(*bulk_slots, *bulk_slot_bytes, here);
    }

    fn lane(&self, own: OwnMemory, peer: PeerMemory, ends: Ends) -> io::Result<Lane> {
        Ok(Lane {
            sender: Box::new(ShmSender::new(
                &own,
                &peer,
                ends.sending,
                self.tuning.stores,
            )),
            receiver: Box::new(receiver(&own, &peer, ends.receiving)),
        })
    }
}
