//! Ports over libfabric: one endpoint at each end, which sends from the memory that the other side
//! writes, with its arena.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::attendant::{self, Attendant};
use super::card::{FabricCard, FabricDevice, FabricList};
use super::connection::{Connection, Parts};
use super::control::Half;
use super::domain::{Domain, OPERATIONS_MOST, RECEIVES_MOST, Wanted};
use super::endpoint::{Endpoint, Opened};
use super::error::FabricError;
use super::exchange::{Exchange, Exchanged};
use super::greeting::{Greeting, Said};
use super::meeting::{memory, wanted};
use super::outbox::{Path, PeerMemory, lines_bytes};
use super::queue::Queue;
use super::region::{Access, Region};
use super::registrar::Registering;
use crate::hsl::Card;
use crate::hsl::host::Mode;
use crate::hsl::layout::REGISTERED_AT;
use crate::hsl::port::{self, Geometry, Link, Port, PortDevice, PortTuning};
use crate::hsl::put::Put;
use crate::hsl::registration::RegistrationCounters;
use crate::hsl::terms::numbers;
use crate::lane::{LaneClass, LaneError};
use crate::local::greeting::TERMS_BYTES;
use crate::local::memory::Mapping;
use crate::poller::Interest;

/// Bytes that one write carries at most.
const WRITE_MOST: u32 = 16 << 20;

impl PortDevice for FabricDevice {
    type Link = FabricLink;
}

/// The connection of a port over libfabric.
#[derive(Debug)]
pub struct FabricLink(Arc<Connection>);

impl Link for FabricLink {
    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.0.descriptor(), Interest::Readable)
    }
}

impl Port<FabricDevice> {
    /// What has become of registrations that are kept, of all ports of this process over the same
    /// network, and why none are kept, if the system is the reason; nothing where this port asked
    /// for none.
    pub fn registrations(&mut self) -> Option<(RegistrationCounters, Option<&str>)> {
        self.card().registrations()
    }
}

impl Said for Geometry {
    const MAGIC: [u8; 4] = *b"MGRG";

    fn encode(self) -> [u8; TERMS_BYTES] {
        Geometry::encode(self)
    }

    fn decode(bytes: &[u8; TERMS_BYTES]) -> Result<Self, String> {
        Geometry::decode(bytes)
    }
}

/// A port over libfabric that is being set up.
#[derive(Debug)]
pub struct FabricPortStart {
    exchange: Exchange<Geometry>,
    tuning: PortTuning,
    /// `None` when the port is up.
    side: Option<Side>,
}

/// What this side has.
#[derive(Debug)]
struct Side {
    domain: Arc<Domain>,
    /// Memory that the other side writes, and that is sent from; entries of operations lie behind.
    own: Arc<Region>,
    opened: Opened,
    /// Operations that the endpoint has places for.
    operations: usize,
    attendant: Arc<Attendant>,
}

impl FabricPortStart {
    /// Begins to set one up over a connected socket, on which nothing else is said any more; one
    /// end `connects`, the other does not. Both have the same provider, which `card` names.
    ///
    /// # Errors
    /// When the tuning is impossible, there is no such card, or the system refuses the memory.
    pub fn new(
        socket: UnixStream,
        connects: bool,
        tuning: PortTuning,
        card: &Card,
    ) -> Result<Self, LaneError> {
        Self::over(socket, connects, tuning, &wanted(card, None))
    }

    /// The same, over a network that is described.
    pub(super) fn over(
        socket: UnixStream,
        connects: bool,
        tuning: PortTuning,
        wanted: &Wanted,
    ) -> Result<Self, LaneError> {
        let impossible = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let geometry = Geometry::tuned(&tuning).map_err(impossible)?;
        if tuning.mode == Mode::Interrupt {
            let what = "cards of libfabric's do not interrupt; take mode adaptive or polling";
            return Err(impossible(what).into());
        }
        socket.set_nonblocking(true)?;
        let attendant = attendant::start()?;
        let domain = Domain::open(wanted).map_err(io::Error::from)?;
        let side = Side::new(domain, geometry, attendant).map_err(io::Error::from)?;
        let said = side.greeting(connects, geometry).map_err(io::Error::from)?;
        Ok(Self {
            exchange: Exchange::new(socket.into(), said),
            tuning,
            side: Some(side),
        })
    }

    /// Goes on as far as it can; `None` means *wait until readable and call again*.
    ///
    /// # Errors
    /// When the peer is gone, or said something impossible.
    pub fn advance(&mut self) -> Result<Option<Port<FabricDevice>>, LaneError> {
        let Some(exchanged) = self.exchange.advance()? else {
            return Ok(None);
        };
        let side = self.side.take();
        let side = side.ok_or(LaneError::Misuse("advanced a port that is up"))?;
        let parts = side.meet(exchanged, &self.tuning);
        Port::new(parts.map_err(io::Error::from)?).map(Some)
    }
}

impl AsFd for FabricPortStart {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exchange.as_fd()
    }
}

impl Side {
    fn new(
        domain: Arc<Domain>,
        geometry: Geometry,
        attendant: Arc<Attendant>,
    ) -> Result<Self, FabricError> {
        let operations = domain.facts.sends.clamp(1, OPERATIONS_MOST);
        let receives = domain.facts.receives.min(RECEIVES_MOST);
        let bytes = geometry.memory_bytes() + lines_bytes(operations);
        let own = memory(&domain, Mapping::for_card(bytes))?;
        let own = Region::new(&domain, own, Access::Both)?;
        // Room for each operation's end, and for all that may be told of at once.
        let entries = Geometry::fabric_list().entries + operations;
        let sleeps = geometry.mode != Mode::Polling && domain.facts.wakes;
        let queue = Queue::open(&domain, entries, sleeps)?;
        Ok(Self {
            opened: Opened::open(&domain, queue, operations, receives)?,
            own: Arc::new(own),
            operations,
            domain,
            attendant,
        })
    }

    fn greeting(
        &self,
        connects: bool,
        geometry: Geometry,
    ) -> Result<Greeting<Geometry>, FabricError> {
        let name = self.opened.name()?;
        Ok(Greeting {
            class: LaneClass::Bulk,
            connects,
            geometry,
            key: self.own.key(),
            base: self.own.base(),
            provider: self.domain.facts.provider.clone(),
            names: [name.clone(), name],
        })
    }

    /// Both sides are there.
    fn meet(
        self,
        exchanged: Exchanged<Geometry>,
        tuning: &PortTuning,
    ) -> Result<port::Parts<FabricDevice>, FabricError> {
        let Exchanged {
            said,
            peer,
            control,
        } = exchanged;
        let numbers = numbers(said.connects);
        let peer_memory = PeerMemory {
            endpoint: self.opened.address_of(&peer.names[1])?,
            key: peer.key,
            base: peer.base,
            registered: REGISTERED_AT as u64..peer.geometry.memory_bytes() as u64,
            list: Geometry::fabric_list(),
        };
        let own = Arc::clone(self.own.memory());
        let endpoint = Endpoint::new(self.opened, Arc::clone(&self.own), self.own);
        let connection = Connection::new(Parts {
            path: Path {
                numbers,
                operations: self.operations,
                data_bytes: said.geometry.memory_bytes(),
                largest: WRITE_MOST,
                peer: peer_memory,
            },
            endpoint: Box::new(endpoint),
            own: Arc::clone(&own),
            own_list: Geometry::fabric_list(),
            control: Arc::new(control),
            half: Half::Both,
            attendant: self.attendant,
        })?;
        let list = FabricList::new(
            Arc::clone(&connection),
            &own,
            Geometry::fabric_list(),
            numbers[1],
            said.geometry.mode,
        );
        let mut card = FabricCard::new(Arc::clone(&connection));
        let is_written = said.geometry.foreign.is_some() && peer.geometry.foreign.is_some();
        let limits = tuning.registrations.as_ref();
        card.register(Registering::new(&self.domain, is_written, limits));
        Ok(port::Parts {
            put: Put::polling(card, list),
            peer: numbers[1],
            own,
            geometries: [said.geometry, peer.geometry],
            link: FabricLink(connection),
        })
    }
}
