//! How two processes come to have a port between them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::layout::{DIALECT, Geometry};
use super::{Link, Parts, Port, PortDevice, PortTuning};
use crate::copying::Stores;
use crate::hsl::host::{Connection, ForeignProcess, HostCard, HostDevice, HostList, Mode};
use crate::hsl::layout::REGISTERED_AT;
use crate::hsl::put::Put;
use crate::hsl::terms::numbers;
use crate::lane::{LaneClass, LaneError};
use crate::local::bell::Bell;
use crate::local::greeting::{Dialect, TERMS_BYTES};
use crate::local::memory::{Mapping, PeerAccess};
use crate::local::stranger::{Ends, LocalEstablishing, Terms};
use crate::poller::Interest;

/// The bells of a port over the emulated card.
#[derive(Debug)]
pub struct HostLink {
    /// Woken by the other side,
    bell: Arc<Bell>,
    /// which is woken by this one.
    sending: Arc<Bell>,
}

impl PortDevice for HostDevice {
    type Link = HostLink;
}

impl Link for HostLink {
    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.bell.as_fd(), Interest::Readable)
    }
}

impl Drop for HostLink {
    fn drop(&mut self) {
        self.bell.close();
        self.sending.close();
    }
}

/// A port over the emulated card that is being set up.
#[derive(Debug)]
pub struct PortStart {
    establishing: LocalEstablishing<PortTerms>,
    stores: Stores,
}

impl PortStart {
    /// Begins to set one up over a connected socket, on which nothing else is said any more;
    /// one end `connects`, the other does not.
    ///
    /// # Errors
    /// When the tuning is impossible, the system refuses the memory, or the other end runs as
    /// another user.
    pub fn new(socket: UnixStream, connects: bool, tuning: PortTuning) -> Result<Self, LaneError> {
        Geometry::tuned(&tuning).map_err(LaneError::Misuse)?;
        let stores = tuning.stores;
        let terms = PortTerms { tuning };
        // A port has no class; that of the greeting is the same at both ends.
        let class = LaneClass::Bulk;
        let establishing = LocalEstablishing::begin(socket.into(), connects, terms, class)?;
        Ok(Self {
            establishing,
            stores,
        })
    }

    /// Goes on as far as it can; `None` means *wait until readable and call again*.
    ///
    /// # Errors
    /// When the peer is gone, or said something impossible.
    pub fn advance(&mut self) -> Result<Option<Port>, LaneError> {
        match self.establishing.exchange()? {
            Some((own, peer, ends)) => Ok(Some(port(own, peer, ends, self.stores)?)),
            None => Ok(None),
        }
    }
}

impl AsFd for PortStart {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.establishing.as_fd()
    }
}

#[derive(Debug, Clone)]
struct PortTerms {
    tuning: PortTuning,
}

/// The memory of one side.
#[derive(Debug, Clone)]
struct Side {
    memory: Arc<Mapping>,
    geometry: Geometry,
}

impl Terms for PortTerms {
    const PROTOCOL: &'static str = crate::hsl::PROTOCOL;
    const DIALECT: Dialect = DIALECT;
    type Own = Side;
    type Peer = Side;

    fn prepare(&self, _class: LaneClass) -> io::Result<(Side, OwnedFd, [u8; TERMS_BYTES])> {
        let geometry = Geometry::tuned(&self.tuning)
            .map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
        let length = geometry.memory_bytes();
        let (memory, file) = Mapping::create(c"madgate-port", length, PeerAccess::Write)?;
        Ok((Side { memory, geometry }, file, geometry.encode()))
    }

    fn meet(
        &self,
        _own: &Side,
        said: &[u8; TERMS_BYTES],
        memory: &OwnedFd,
    ) -> Result<Side, String> {
        let geometry = Geometry::decode(said)?;
        let memory = Mapping::of_peer(memory, geometry.memory_bytes(), PeerAccess::Write)?;
        Ok(Side { memory, geometry })
    }
}

/// Two ports over memory that has no descriptor, and so without a greeting.
#[cfg(test)]
#[cfg(not(loom))]
pub(super) fn without_descriptors(tunings: &[PortTuning; 2]) -> Result<[Port; 2], LaneError> {
    let side = |tuning| -> Result<Side, LaneError> {
        let geometry = Geometry::tuned(tuning).expect("within the limits");
        let memory = Mapping::for_card(geometry.memory_bytes())?;
        Ok(Side { memory, geometry })
    };
    let [near, far] = [side(&tunings[0])?, side(&tunings[1])?];
    let [there, back] = [UnixStream::pair()?, UnixStream::pair()?];
    let ends = |sending: UnixStream, receiving: UnixStream, connects| Ends {
        sending: Bell::new(sending.into()),
        receiving: Bell::new(receiving.into()),
        connects,
    };
    Ok([
        port(
            near.clone(),
            far.clone(),
            ends(there.0, back.0, true),
            tunings[0].stores,
        )?,
        port(far, near, ends(back.1, there.1, false), tunings[1].stores)?,
    ])
}

fn port(own: Side, peer: Side, ends: Ends, stores: Stores) -> Result<Port, LaneError> {
    let [node, other] = numbers(ends.connects);
    let (sending, bell) = (Arc::new(ends.sending), Arc::new(ends.receiving));
    // The socket that was connected, of which the kernel says who is at the other end. The other
    // one came from the peer, who could have taken it from anywhere.
    let connected = if ends.connects { &sending } else { &bell };
    let to = Connection {
        local_registered: REGISTERED_AT..own.memory.len(),
        node,
        peer: other,
        window: Arc::clone(&peer.memory),
        registered: REGISTERED_AT..peer.memory.len(),
        list: peer.geometry.list(),
        bell: Arc::clone(&sending),
    };
    let mut card = HostCard::new(Arc::clone(&own.memory), peer.geometry.mode, to).stored(stores);
    if own.geometry.foreign.is_some()
        && let Some(process) = peer.geometry.foreign
    {
        card.reach(ForeignProcess::of(connected.as_fd(), process)?);
    }
    let mode = own.geometry.mode;
    let list = HostList::new(&own.memory, own.geometry.list(), other, mode, bell.clone());
    let put = match mode {
        Mode::Interrupt => Put::with_interrupts(card, list)?,
        Mode::Polling | Mode::Adaptive => Put::polling(card, list),
    };
    Port::new(Parts {
        put,
        peer: other,
        own: own.memory,
        geometries: [own.geometry, peer.geometry],
        link: HostLink { bell, sending },
    })
}
