//! How a connection becomes a lane over libfabric: both sides register memory, open endpoints,
//! and tell each other their names.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use socket2::SockRef;

use super::abi;
use super::attendant::{self, Attendant};
use super::card::{FabricCard, FabricDevice, FabricList};
use super::connection::{Connection, Parts};
use super::control::{Control, Half};
use super::domain::{Domain, OPERATIONS_MOST, RECEIVES_MOST, Wanted};
use super::endpoint::{Endpoint, Opened};
use super::error::FabricError;
use super::exchange::{Exchange, Exchanged};
use super::greeting::Greeting;
use super::outbox::{Path, PeerMemory, lines_bytes};
use super::posting::Posting;
use super::queue::Queue;
use super::region::{Access, Region};
use crate::hsl::Card;
use crate::hsl::host::{ListPlace, Mode};
use crate::hsl::lane::{self, HslSender, SlotSource};
use crate::hsl::layout::{Geometry, REGISTERED_AT};
use crate::hsl::put::NodeNumber;
use crate::hsl::terms::numbers;
use crate::lane::{Establishing, Lane, LaneClass, LaneError, Upgrade};
use crate::local::free::Reuse;
use crate::local::loans::Loans;
use crate::local::memory::Mapping;
use crate::protocol::HslTuning;

/// What this side wants of a lane.
#[derive(Debug, Clone)]
pub(in crate::hsl) struct FabricTerms {
    tuning: HslTuning,
    wanted: Wanted,
    /// Kept open between one lane and the next.
    _domain: Arc<Domain>,
}

impl FabricTerms {
    /// Finds out whether there is such a network; `address` is this side's, where it is known.
    pub(in crate::hsl) fn new(tuning: &HslTuning, address: Option<IpAddr>) -> io::Result<Self> {
        Self::of(tuning, wanted(&tuning.card, address))
    }

    /// The same, for a network that is described.
    pub(super) fn of(tuning: &HslTuning, wanted: Wanted) -> io::Result<Self> {
        attendant::start()?;
        Ok(Self {
            tuning: tuning.clone(),
            _domain: Domain::open(&wanted)?,
            wanted,
        })
    }
}

/// Which network of libfabric's is meant: without an address of another host, this host's own.
pub(super) fn wanted(card: &Card, address: Option<IpAddr>) -> Wanted {
    let (provider, domain) = match card {
        Card::Libfabric { provider, domain } => (provider.clone(), domain.clone()),
        Card::Host => (None, None),
    };
    let own = domain.is_none().then_some(Ipv4Addr::LOCALHOST.into());
    Wanted {
        provider,
        domain,
        address: address.or(own),
        in_any_order: false,
        registers_local: false,
    }
}

impl Upgrade for FabricTerms {
    fn establish(
        &self,
        socket: OwnedFd,
        connects: bool,
        class: LaneClass,
    ) -> Result<Box<dyn Establishing>, LaneError> {
        let this_end = SockRef::from(&socket).local_addr()?;
        let mut wanted = self.wanted.clone();
        if let Some(address) = this_end.as_socket() {
            wanted.address = Some(address.ip());
        }
        let establishing =
            FabricEstablishing::begin(socket, connects, class, &self.tuning, &wanted);
        Ok(Box::new(establishing?))
    }
}

/// A lane whose two sides exchange their greetings.
#[derive(Debug)]
pub(super) struct FabricEstablishing {
    exchange: Exchange<Geometry>,
    /// `None` when the lane is up.
    side: Option<Side>,
}

/// What this side has.
#[derive(Debug)]
struct Side {
    domain: Arc<Domain>,
    /// Memory that the other side writes.
    own: Region,
    sending: Opened,
    receiving: Opened,
    /// Operations that each endpoint has places for.
    operations: usize,
    attendant: Arc<Attendant>,
}

impl FabricEstablishing {
    pub(super) fn begin(
        control: OwnedFd,
        connects: bool,
        class: LaneClass,
        tuning: &HslTuning,
        wanted: &Wanted,
    ) -> Result<Self, LaneError> {
        let geometry = Geometry::tuned(tuning, class)
            .map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
        let domain = Domain::open(wanted).map_err(io::Error::from)?;
        let attendant = attendant::start()?;
        let side = Side::new(domain, geometry, attendant).map_err(io::Error::from)?;
        let greeting = side.greeting(class, connects, geometry);
        let greeting = greeting.map_err(io::Error::from)?;
        Ok(Self {
            exchange: Exchange::new(control, greeting),
            side: Some(side),
        })
    }

    /// Goes on as far as it can; both halves when they are there.
    pub(super) fn exchange(&mut self) -> Result<Option<Halves>, LaneError> {
        let Some(exchanged) = self.exchange.advance()? else {
            return Ok(None);
        };
        let side = self.side.take();
        let side = side.ok_or(LaneError::Misuse("advanced a lane that is up"))?;
        let Exchanged {
            said,
            peer,
            control,
        } = exchanged;
        let halves = side.meet(&said, &peer, control);
        Ok(Some(halves.map_err(io::Error::from)?))
    }
}

impl AsFd for FabricEstablishing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exchange.as_fd()
    }
}

impl Establishing for FabricEstablishing {
    fn advance(&mut self) -> Result<Option<Lane>, LaneError> {
        Ok(self.exchange()?.map(Halves::lane))
    }
}

impl Side {
    fn new(
        domain: Arc<Domain>,
        geometry: Geometry,
        attendant: Arc<Attendant>,
    ) -> Result<Self, FabricError> {
        let own = memory(&domain, Mapping::for_card(geometry.memory_bytes()))?;
        let own = Region::new(&domain, own, Access::RemoteWrite)?;
        let operations = domain.facts.sends.clamp(1, OPERATIONS_MOST);
        let receives = domain.facts.receives.min(RECEIVES_MOST);
        // Room for each operation's end, and for all that may be told of at once.
        let entries = geometry.receiver_list().entries + operations;
        let sleeps = geometry.mode != Mode::Polling && domain.facts.wakes;
        let open = || {
            let queue = Queue::open(&domain, entries, sleeps)?;
            Opened::open(&domain, queue, operations, receives)
        };
        Ok(Self {
            sending: open()?,
            receiving: open()?,
            own,
            operations,
            domain,
            attendant,
        })
    }

    fn greeting(
        &self,
        class: LaneClass,
        connects: bool,
        geometry: Geometry,
    ) -> Result<Greeting, FabricError> {
        Ok(Greeting {
            class,
            connects,
            geometry,
            key: self.own.key(),
            base: self.own.base(),
            provider: self.domain.facts.provider.clone(),
            names: [self.sending.name()?, self.receiving.name()?],
        })
    }

    /// Both sides are there.
    fn meet(
        self,
        said: &Greeting,
        peer: &Greeting,
        control: Control,
    ) -> Result<Halves, FabricError> {
        let Self {
            domain,
            own,
            sending,
            receiving,
            operations,
            attendant,
        } = self;
        let own = Arc::new(own);
        let source = |data_bytes: usize| {
            let bytes = data_bytes + lines_bytes(operations);
            let memory = memory(&domain, Mapping::private(bytes))?;
            Region::new(&domain, memory, Access::Send).map(Arc::new)
        };
        // What sends there writes to what receives here, and the other way round.
        let there = [
            sending.address_of(&peer.names[1])?,
            receiving.address_of(&peer.names[0])?,
        ];
        let slots = source(peer.geometry.send_row().end())?;
        let sending = Endpoint::new(sending, slots, Arc::clone(&own));
        let receiving = Endpoint::new(receiving, source(0)?, Arc::clone(&own));
        let meeting = Meeting {
            own: Arc::clone(own.memory()),
            operations,
            said,
            peer,
            control: Arc::new(control),
            attendant,
        };
        meeting.halves([Box::new(sending), Box::new(receiving)], there)
    }
}

/// Both halves of a connection's end, each with a card and a list of its own.
#[derive(Debug)]
pub(super) struct Halves {
    pub(super) sending: (FabricCard, FabricList),
    pub(super) receiving: (FabricCard, FabricList),
    /// What the sending half sends from,
    pub(super) slots: Arc<Mapping>,
    /// and what the other side writes.
    pub(super) own: Arc<Mapping>,
    /// What this side receives with, and the other one.
    pub(super) geometries: [Geometry; 2],
    pub(super) peer: NodeNumber,
}

impl Halves {
    pub(super) fn lane(self) -> Lane {
        let [here, there] = self.geometries;
        let slots = Loans::new(self.slots, there.send_row(), Reuse::Newest);
        let slots = SlotSource::here(slots, there.buffer_row().slots);
        let (card, answers) = self.sending;
        let sender = HslSender::<FabricDevice>::new(slots, there, card, answers, self.peer);
        let (card, messages) = self.receiving;
        let receiver = lane::receiver::<FabricDevice>(&self.own, here, messages, card, self.peer);
        Lane {
            sender: Box::new(sender),
            receiver: Box::new(receiver),
        }
    }
}

/// What both halves of a lane have in common.
#[derive(Debug)]
pub(super) struct Meeting<'a> {
    /// What the other side writes.
    pub(super) own: Arc<Mapping>,
    /// Operations that each endpoint has places for.
    pub(super) operations: usize,
    pub(super) said: &'a Greeting,
    pub(super) peer: &'a Greeting,
    pub(super) control: Arc<Control>,
    pub(super) attendant: Arc<Attendant>,
}

impl Meeting<'_> {
    /// Both halves, over the endpoint that sends and that which receives, and what these call
    /// the other side's.
    pub(super) fn halves(
        self,
        [sending, receiving]: [Box<dyn Posting>; 2],
        there: [abi::Address; 2],
    ) -> Result<Halves, FabricError> {
        let slots = Arc::clone(sending.source());
        let geometries = [self.said.geometry, self.peer.geometry];
        let [here, peer] = geometries;
        let lists = [peer.receiver_list(), peer.sender_list()];
        let sending = self.connect(sending, there[0], lists, Half::Sending)?;
        let lists = [here.sender_list(), here.receiver_list()];
        let receiving = self.connect(receiving, there[1], lists, Half::Receiving)?;
        Ok(Halves {
            sending,
            receiving,
            slots,
            geometries,
            peer: numbers(self.said.connects)[1],
            own: self.own,
        })
    }

    /// One half, with the list that it writes there, and that which it reads here.
    fn connect(
        &self,
        endpoint: Box<dyn Posting>,
        there: abi::Address,
        [list, own_list]: [ListPlace; 2],
        half: Half,
    ) -> Result<(FabricCard, FabricList), FabricError> {
        let geometry = self.peer.geometry;
        let numbers = numbers(self.said.connects);
        let peer = PeerMemory {
            endpoint: there,
            key: self.peer.key,
            base: self.peer.base,
            registered: REGISTERED_AT as u64..geometry.memory_bytes() as u64,
            list,
        };
        let connection = Connection::new(Parts {
            path: Path {
                numbers,
                operations: self.operations,
                data_bytes: endpoint.source().len() - lines_bytes(self.operations),
                largest: geometry.slot_bytes(),
                peer,
            },
            endpoint,
            own: Arc::clone(&self.own),
            own_list: own_list.clone(),
            control: Arc::clone(&self.control),
            half,
            attendant: Arc::clone(&self.attendant),
        })?;
        let list = FabricList::new(
            Arc::clone(&connection),
            &self.own,
            own_list,
            numbers[1],
            self.said.geometry.mode,
        );
        Ok((FabricCard::new(connection), list))
    }
}

/// Memory, or why there is none.
pub(super) fn memory(
    domain: &Domain,
    made: io::Result<Arc<Mapping>>,
) -> Result<Arc<Mapping>, FabricError> {
    made.map_err(|error| FabricError::Call {
        call: "mmap",
        provider: domain.facts.provider.clone(),
        what: error.to_string(),
    })
}
