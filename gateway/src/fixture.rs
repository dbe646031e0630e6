//! An engine without threads, and links whose lanes do what a test wants, for unit tests.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::{Bytes, BytesMut};
use crossbeam_channel::Receiver;
use madgate_gtm::transit::{Lane, LinkId};
use madgate_gtm::wire::{Flags, FlowKey, OPENING_BYTES, Opening};
use madgate_gtm::{Header, Kind, Time};
use madgate_tm::{
    Interest, LaneError, LaneReceiver, LaneSender, LentSlot, Piece, Poller, ReceivedSlot, Room,
    Shape,
};
use madgate_vchannel::Cluster;
use madgate_vchannel::conductor::{Conductor, LinkEvent, LinkKind, LinkRequest, Party};
use madgate_vchannel::handshake::SessionKey;

use crate::engine::{Engine, Hub, HubEnds};
use crate::frame::{Frame, Memory};
use crate::instruments::Stay;
use crate::link::Link;
use crate::router::Router;

/// Slots of a lane, and bytes of each.
const SHAPE: Shape = Shape::Static {
    slot_bytes: 1 << 16,
    slots: 8,
};

/// The engine of gw, between `left` and `right`; nobody else of its cluster is there.
pub(crate) struct Fixture {
    pub(crate) engine: Arc<Engine>,
    /// Of each network.
    pub(crate) ends: Vec<HubEnds>,
    /// What the conductor tells the engine.
    pub(crate) events: Receiver<LinkEvent>,
    _folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// The same where `right` has a rate, which is never reached.
    pub(crate) fn limited() -> Self {
        Self::with("rate = \"8000Gbit/s\"\n")
    }

    /// The same where it lets one small frame leave now, and the next in a while.
    pub(crate) fn slow() -> Self {
        Self::with("rate = \"8kbit/s\"\n")
    }

    /// With these keys of `right`.
    fn with(right: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[session]\nname = \"test\"\nkey_file = \"session.key\"\n\
            [[network]]\nname = \"left\"\nprotocol = \"shm\"\ndirectory = \"left\"\n\
            [[network]]\nname = \"right\"\nprotocol = \"shm\"\ndirectory = \"right\"\n{right}\
            [[node]]\nname = \"a0\"\naddresses = {{ left = \"a0\" }}\n\
            [[node]]\nname = \"gw\"\ngateway = true\n\
            addresses = {{ left = \"gw\", right = \"gw\" }}\n\
            [[node]]\nname = \"b0\"\naddresses = {{ right = \"b0\" }}\n\
            [[channel]]\nname = \"main\"\nnetworks = [\"left\", \"right\"]\n"
        );
        let cluster = Arc::new(Cluster::parse(&text, folder.path()).unwrap());
        let node = cluster.node("gw").unwrap();
        let parties = vec![(Party::Engine, Arc::new(|| ()) as _)];
        let key = SessionKey::generate();
        let (conductor, mut events) =
            Conductor::start(Arc::clone(&cluster), node, 1, key, parties).unwrap();
        let (hubs, ends) = cluster
            .networks_of(node)
            .map(|network| {
                let waker = || Poller::new().unwrap().waker();
                let name = cluster.network(network).name.clone();
                Hub::new(network, name, waker(), waker())
            })
            .unzip();
        let router = Router::new(Arc::clone(&cluster), node);
        let conductor = Arc::new(conductor);
        let engine = Engine::new(cluster, node, conductor, hubs, router, 16 << 20);
        Self {
            engine: Arc::new(engine),
            ends,
            events: events.remove(0).1,
            _folder: folder,
        }
    }

    /// The link to b0.
    pub(crate) fn request(&self) -> LinkRequest {
        LinkRequest {
            kind: LinkKind::Deliver,
            network: self.engine.networks[1].network,
            peer: self.engine.cluster.node("b0").unwrap(),
        }
    }

    /// The link to b0 is up, with lanes that lend slots. Whoever asks a lane for anything finds
    /// that somebody else wants to send.
    pub(crate) fn link(&self) -> Arc<Link> {
        self.link_of(self.request(), true)
    }

    /// The same where b0 has dialled it.
    pub(crate) fn accepted_link(&self) -> Arc<Link> {
        self.link_of(self.request().back(), false)
    }

    /// The same where whoever wants to send has brought something, far more often than anybody should
    /// look.
    pub(crate) fn endless_link(&self) -> Arc<Link> {
        let wanting = Wanting {
            brings: Arc::new(AtomicUsize::new(1_000_000)),
            ..Wanting::default()
        };
        self.link_with(self.request(), true, &wanting)
    }

    /// The same with lanes that can be waited for.
    pub(crate) fn patient_link(&self) -> Arc<Link> {
        let wanting = Wanting {
            arms: true,
            ..Wanting::default()
        };
        self.link_with(self.request(), true, &wanting)
    }

    /// The same where b0 has left, which nobody has found yet.
    pub(crate) fn left_link(&self) -> Arc<Link> {
        let wanting = Wanting {
            is_gone: true,
            ..Wanting::default()
        };
        self.link_with(self.request(), true, &wanting)
    }

    /// Another link to b0, which leads through it, is up too.
    pub(crate) fn link_on(&self) -> Arc<Link> {
        let request = LinkRequest {
            kind: LinkKind::Forward,
            ..self.request()
        };
        self.link_of(request, true)
    }

    /// The first frame of a flow from this source, which is small, waits for `link`.
    pub(crate) fn wait_for(&self, link: &Link, source: u32) {
        let from = self.engine.lock().transit.add_link();
        self.open(from, link, source);
        let shared = self.engine.lock();
        assert!(shared.transit.has_queued(link.transit, Lane::Urgent));
    }

    /// A flow of this source has come from `from`, and `link` has granted it this much more.
    pub(crate) fn flow(&self, from: &Link, link: &Link, source: u32, granted: u64) -> FlowKey {
        let opening = self.open(from.transit, link, source);
        let end = opening.end_position();
        let credit = Header::credit(opening.flow, opening.label, end, end + granted, 1);
        let transit = &mut self.engine.lock().transit;
        transit.poll_transmit(link.transit, Lane::Urgent, 1, Time(1), |_, _| {});
        transit.handle_control(link.transit, &credit, Time(1));
        opening.flow
    }

    /// The header of a flow's first frame.
    pub(crate) fn opening(flow: FlowKey) -> Header {
        Header {
            flags: Flags::OPEN.with(Flags::DESCRIBED),
            length: u32::try_from(OPENING_BYTES).unwrap() + 3000,
            ..Header::new(Kind::Data, flow, 1)
        }
    }

    /// The first frame of a flow has come.
    fn open(&self, from: LinkId, link: &Link, source: u32) -> Header {
        let header = Self::opening(FlowKey {
            channel: 0,
            source,
            destination: 2,
        });
        let opening = Opening {
            source_incarnation: 1,
            destination_incarnation: 0,
            fragment_bytes: 1 << 16,
        };
        let frame = Frame::new(
            Memory::shared(Bytes::from(vec![0; header.frame_bytes()])),
            Stay::since(link.arrival(Time(1))),
        );
        let way = Ok(link.transit);
        let transit = &mut self.engine.lock().transit;
        transit.handle_opening(from, &header, &opening, way, frame, Time(1));
        header
    }

    fn link_of(&self, request: LinkRequest, is_dialed: bool) -> Arc<Link> {
        self.link_with(request, is_dialed, &Wanting::default())
    }

    fn link_with(&self, request: LinkRequest, is_dialed: bool, wanting: &Wanting) -> Arc<Link> {
        let mut shared = self.engine.lock();
        let limits = self.engine.limits_of(request);
        let transit = shared.transit.add_limited_link(limits);
        let lane = || Box::new(SlotSender::new(wanting.clone()));
        let link = Link::new(transit, 1, request, 1, 1, is_dialed, true, lane(), lane());
        let link = Arc::new(link);
        wanting.link.set(Arc::downgrade(&link)).unwrap();
        shared.links.insert(transit, Arc::clone(&link));
        shared.add_way(&link);
        link
    }

    /// Whether a link has been given to the sender's thread of its network.
    pub(crate) fn is_handed_over(&self, link: &Arc<Link>) -> bool {
        let handed_over = self.ends[link.network].handovers.try_recv();
        link.taken_over();
        handed_over.is_ok_and(|one| Arc::ptr_eq(&one, link))
    }
}

/// Another thread that has something to send on a link, and finds its output locked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanting {
    link: Arc<OnceLock<Weak<Link>>>,
    /// How often it still brings something.
    brings: Arc<AtomicUsize>,
    /// Whether the lane can be waited for.
    arms: bool,
    /// Whether the peer has left.
    is_gone: bool,
}

impl Wanting {
    fn want(&self) {
        if let Some(link) = self.link.get().and_then(Weak::upgrade) {
            let left = self.brings.load(Ordering::Relaxed);
            if left > 0 {
                self.brings.store(left - 1, Ordering::Relaxed);
                link.push_echo(Kind::Ping, 0);
            }
            assert!(want(&link));
        }
    }
}

/// Wants to send on a link as another thread does. Whether somebody has its output, who is to
/// look then.
pub(crate) fn want(link: &Link) -> bool {
    link.want();
    link.try_output().is_none()
}

/// A lane that lends slots, and takes no others.
#[derive(Debug)]
pub(crate) struct SlotSender {
    descriptor: UnixStream,
    wanting: Wanting,
    /// Where those are that it has lent.
    lent: Vec<usize>,
}

impl SlotSender {
    pub(crate) fn new(wanting: Wanting) -> Self {
        Self {
            descriptor: UnixStream::pair().unwrap().0,
            wanting,
            lent: Vec::new(),
        }
    }

    fn asked(&self) {
        self.wanting.want();
    }
}

impl LaneSender for SlotSender {
    fn shape(&self) -> Shape {
        SHAPE
    }

    fn try_send(&mut self, _: &[Piece<'_>]) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("streams"))
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        if self.wanting.is_gone {
            return Err(LaneError::Closed);
        }
        self.asked();
        let slot = LentSlot::detached(1 << 16);
        self.lent.push(slot.address());
        Ok(Some(slot))
    }

    fn commit(&mut self, slot: LentSlot, _: usize) -> Result<(), LaneError> {
        let at = self.lent.iter().position(|lent| *lent == slot.address());
        let at = at.ok_or(LaneError::Misuse("a slot that another lane lent"))?;
        self.lent.swap_remove(at);
        Ok(())
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        self.asked();
        Ok(self.wanting.arms)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.descriptor.as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {}
}

/// A lane that has a few slots, and then is at its end.
#[derive(Debug)]
pub(crate) struct SlotReceiver {
    slots: VecDeque<Vec<u8>>,
    descriptor: UnixStream,
}

impl SlotReceiver {
    pub(crate) fn new(slots: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self {
            slots: slots.into_iter().collect(),
            descriptor: UnixStream::pair().unwrap().0,
        }
    }
}

impl LaneReceiver for SlotReceiver {
    fn shape(&self) -> Shape {
        SHAPE
    }

    fn try_receive(&mut self, _: Room<'_>, _: &mut BytesMut) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("streams"))
    }

    fn try_receive_slot(&mut self) -> Result<Option<ReceivedSlot>, LaneError> {
        let slot = self.slots.pop_front().ok_or(LaneError::Closed)?;
        Ok(Some(ReceivedSlot::detached(slot)))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(false)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.descriptor.as_fd(), Interest::Readable)
    }

    fn acknowledge_wake(&mut self) {}
}
