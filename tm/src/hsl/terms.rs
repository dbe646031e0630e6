//! How a connection becomes a lane of remote write.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::greeting;
use super::host::{Connection, HostCard, HostDevice, HostList};
use super::lane::SlotSource;
use super::layout::{Geometry, REGISTERED_AT};
use super::put::NodeNumber;
use super::{HslTuning, lane};
use crate::lane::{Lane, LaneClass};
use crate::local::bell::Bell;
use crate::local::free::Reuse;
use crate::local::greeting::{Dialect, TERMS_BYTES};
use crate::local::loans::Loans;
use crate::local::memory::{Mapping, PeerAccess};
use crate::local::stranger::{Ends, LaneTerms, Terms};

/// What this side wants of a lane.
#[derive(Debug, Clone)]
pub(super) struct HslTerms {
    pub(super) tuning: HslTuning,
    /// As [`Loans::limited`].
    pub(super) ahead_bytes: usize,
}

impl HslTerms {
    /// Without a limit to what is filled ahead.
    pub(super) fn of(tuning: &HslTuning) -> Self {
        Self {
            tuning: tuning.clone(),
            ahead_bytes: usize::MAX,
        }
    }
}

/// The memory of one side.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) memory: Arc<Mapping>,
    pub(super) geometry: Geometry,
}

/// Who connected, and who was connected to, as the cards know them.
pub(super) fn numbers(connects: bool) -> [NodeNumber; 2] {
    let (own, peer) = if connects { (0, 1) } else { (1, 0) };
    [NodeNumber(own), NodeNumber(peer)]
}

impl Terms for HslTerms {
    const PROTOCOL: &'static str = super::PROTOCOL;
    const DIALECT: Dialect = greeting::DIALECT;
    type Own = Side;
    type Peer = Side;

    fn prepare(&self, class: LaneClass) -> io::Result<(Side, OwnedFd, [u8; TERMS_BYTES])> {
        let geometry = Geometry::tuned(&self.tuning, class)
            .map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
        let length = geometry.memory_bytes();
        let (memory, file) = Mapping::create(c"madgate-hsl", length, PeerAccess::Write)?;
        Ok((Side { memory, geometry }, file, greeting::encode(geometry)))
    }

    fn meet(
        &self,
        _own: &Side,
        said: &[u8; TERMS_BYTES],
        memory: &OwnedFd,
    ) -> Result<Side, String> {
        let geometry = greeting::decode(said)?;
        let memory = Mapping::of_peer(memory, geometry.memory_bytes(), PeerAccess::Write)?;
        Ok(Side { memory, geometry })
    }
}

impl LaneTerms for HslTerms {
    fn limit_ahead(&mut self, bytes: usize) {
        self.ahead_bytes = bytes;
    }

    fn lane(&self, own: Side, peer: Side, ends: Ends) -> io::Result<Lane> {
        let numbers = numbers(ends.connects);
        Ok(Lane {
            sender: Box::new(sender(&own, &peer, numbers, ends.sending, self)?),
            receiver: Box::new(receiver(&own, &peer, numbers, ends.receiving)),
        })
    }
}

/// The half that sends what `peer` receives.
pub(super) fn sender(
    own: &Side,
    peer: &Side,
    [node, other]: [NodeNumber; 2],
    bell: Bell,
    terms: &HslTerms,
) -> io::Result<lane::HslSender<HostDevice>> {
    let bell = Arc::new(bell);
    // With buffers to lend, nothing is sent from slots of this side's.
    let (memory, registered, slots) = if peer.geometry.has_rendezvous() {
        let row = peer.geometry.buffer_row();
        let reuse = Reuse::quarter_in_turn(row.slots);
        let buffers = Loans::granted(Arc::clone(&peer.memory), row, reuse);
        let buffers = buffers.limited(terms.ahead_bytes);
        (Arc::clone(&own.memory), 0..0, SlotSource::There(buffers))
    } else {
        let row = peer.geometry.send_row();
        let memory = Mapping::private(row.end())?;
        let slots = Loans::new(Arc::clone(&memory), row, Reuse::Newest);
        (memory, 0..row.end(), SlotSource::here(slots, 0))
    };
    let to = Connection {
        local_registered: registered,
        node,
        peer: other,
        window: Arc::clone(&peer.memory),
        registered: REGISTERED_AT..peer.memory.len(),
        list: peer.geometry.receiver_list(),
        bell: Arc::clone(&bell),
    };
    let card = HostCard::new(memory, peer.geometry.mode, to).stored(terms.tuning.stores);
    let place = peer.geometry.sender_list();
    let list = HostList::new(&own.memory, place, other, own.geometry.mode, bell.clone());
    Ok(lane::HslSender::new(
        slots,
        peer.geometry,
        card,
        list,
        other,
    ))
}

/// The half that receives what `peer` sends.
pub(super) fn receiver(
    own: &Side,
    peer: &Side,
    [node, other]: [NodeNumber; 2],
    bell: Bell,
) -> lane::HslReceiver<HostDevice> {
    let bell = Arc::new(bell);
    let place = own.geometry.receiver_list();
    let list = HostList::new(&own.memory, place, other, own.geometry.mode, bell.clone());
    let to = Connection {
        // Answers have no data.
        local_registered: 0..0,
        node,
        peer: other,
        window: Arc::clone(&peer.memory),
        registered: REGISTERED_AT..peer.memory.len(),
        list: own.geometry.sender_list(),
        bell: Arc::clone(&bell),
    };
    let card = HostCard::new(Arc::clone(&own.memory), peer.geometry.mode, to);
    lane::receiver(&own.memory, own.geometry, list, card, other)
}
