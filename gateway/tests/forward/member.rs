//! Nodes that keep to the protocol as far as a test wants them to: raw frames over links that
//! were set up as those of every member.

use std::sync::Arc;

use bytes::BytesMut;
use crossbeam_channel::Receiver;
use madgate_gtm::wire::{
    Descriptor, Flags, HEADER_BYTES, Kind, OPENING_BYTES, Opening, ReceiveMode, SendMode, checksum,
};
use madgate_gtm::{FlowKey, Header};
use madgate_tm::{LaneError, LaneReceiver, Piece, Room};
use madgate_vchannel::Cluster;
use madgate_vchannel::conductor::{
    Conductor, EstablishedLink, LinkEvent, LinkKind, LinkRequest, Party,
};
use madgate_vchannel::handshake::{SessionKey, draw_incarnation};

use crate::world::{LONG, World};

/// A node that answers when it is dialled, and has no link yet.
pub(crate) struct Listener {
    conductor: Conductor,
    events: Vec<(Party, Receiver<LinkEvent>)>,
}

impl Listener {
    pub(crate) fn of(cluster: Arc<Cluster>, node: &str) -> Self {
        let id = cluster.node(node).unwrap();
        let key = SessionKey::load(cluster.key_file()).unwrap();
        let parties = vec![(Party::Endpoint, Arc::new(|| {}) as _)];
        let (conductor, events) =
            Conductor::start(cluster, id, draw_incarnation(), key, parties).unwrap();
        Self { conductor, events }
    }

    /// Waits for a link.
    pub(crate) fn accept(self) -> Member {
        let link = loop {
            match self.events[0].1.recv_timeout(LONG).unwrap() {
                LinkEvent::Up(link) => break link,
                LinkEvent::DialFailed { error, .. } => println!("{error}"),
                other => panic!("{other:?}"),
            }
        };
        Member {
            link,
            _conductor: self.conductor,
            _events: self.events,
        }
    }
}

/// A node that has shaken hands as a member should, and then says what it likes.
pub(crate) struct Member {
    link: Box<EstablishedLink>,
    _conductor: Conductor,
    _events: Vec<(Party, Receiver<LinkEvent>)>,
}

impl Member {
    /// A link of this kind from `node` to the gateway.
    pub(crate) fn dial(world: &World, node: &str, kind: LinkKind, network: &str) -> Self {
        Self::of(world.cluster(), node, kind, network)
    }

    /// The same with a cluster file that was read before.
    pub(crate) fn of(cluster: Arc<Cluster>, node: &str, kind: LinkKind, network: &str) -> Self {
        let request = LinkRequest {
            kind,
            network: cluster.network_named(network).unwrap(),
            peer: cluster.node("gw").unwrap(),
        };
        let listener = Listener::of(cluster, node);
        listener.conductor.dial(Party::Endpoint, request);
        listener.accept()
    }

    /// Asks the gateway whether it is there, and waits for the answer.
    pub(crate) fn ping(&mut self) {
        self.send(
            LaneOf::Urgent,
            &Header::echo(Kind::Ping, 1).to_control_frame(),
        );
        assert_eq!(self.hear().kind, Kind::Pong);
    }

    /// The same where other answers may come before.
    pub(crate) fn ping_among_others(&mut self) {
        let ping = Header::echo(Kind::Ping, 1).to_control_frame();
        self.send(LaneOf::Urgent, &ping);
        while self.hear().kind != Kind::Pong {}
    }

    pub(crate) fn send(&mut self, lane: LaneOf, bytes: &[u8]) {
        let lane = match lane {
            LaneOf::Urgent => &mut self.link.urgent,
            LaneOf::Bulk => &mut self.link.bulk,
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            match lane.sender.try_send(&[Piece::new(rest)]) {
                Ok(0) => std::thread::yield_now(),
                Ok(sent) => rest = &rest[sent..],
                // The gateway had enough.
                Err(_) => return,
            }
        }
    }

    /// So many bytes of the bulk lane.
    pub(crate) fn receive_bulk(&mut self, count: usize) -> BytesMut {
        receive(&mut *self.link.bulk.receiver, count)
    }

    /// So many bytes of the urgent lane.
    pub(crate) fn receive_urgent(&mut self, count: usize) -> BytesMut {
        receive(&mut *self.link.urgent.receiver, count)
    }

    /// Everything that the gateway answers, until it closes the link.
    pub(crate) fn hear_to_the_end(&mut self) -> BytesMut {
        let mut heard = BytesMut::with_capacity(1 << 16);
        loop {
            match self
                .link
                .urgent
                .receiver
                .try_receive(Room::default(), &mut heard)
            {
                Ok(0) => std::thread::yield_now(),
                Ok(_) => {}
                Err(LaneError::Closed | LaneError::Broken(_)) => return heard,
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// The next answer.
    pub(crate) fn hear(&mut self) -> Header {
        let heard = self.receive_urgent(HEADER_BYTES);
        Header::parse(heard.first_chunk().unwrap()).unwrap()
    }
}

fn receive(lane: &mut dyn LaneReceiver, count: usize) -> BytesMut {
    let mut received = BytesMut::zeroed(count);
    let mut filled = 0;
    while filled < count {
        match lane.try_receive(Room::new(&mut received[filled..]), &mut BytesMut::new()) {
            Ok(0) => std::thread::yield_now(),
            Ok(more) => filled += more,
            Err(error) => panic!("{error} after {filled} of {count} bytes"),
        }
    }
    received
}

#[derive(Clone, Copy)]
pub(crate) enum LaneOf {
    Urgent,
    Bulk,
}

/// From c0 to b0, where nodes have the ranks of a0, gw, b0, c0.
pub(crate) const FLOW: FlowKey = FlowKey {
    channel: 0,
    source: 3,
    destination: 2,
};

/// a0 and c0 on the left, which is of TCP, b0 on the right; ranks in the order of the file.
pub(crate) fn world_to(right: &str, settings: &str) -> World {
    World::new(settings)
        .networks(&[("left", "tcp"), ("right", right)])
        .node("a0", &[("left", "tcp")])
        .node("gw", &[("left", "tcp"), ("right", right)])
        .node("b0", &[("right", right)])
        .node("c0", &[("left", "tcp")])
        .channel("main", &["left", "right"])
}

/// Opens the flow from c0 to b0; returns both ends, and the credit that c0 has.
pub(crate) fn open(world: &World) -> (Member, Member, u64) {
    let listener = Listener::of(world.cluster(), "b0");
    std::thread::scope(|scope| {
        let destination = scope.spawn(|| {
            let mut destination = listener.accept();
            admit(&mut destination);
            destination
        });
        let (source, granted) = open_from(world);
        (source, destination.join().unwrap(), granted)
    })
}

/// The source's part of it.
pub(crate) fn open_from(world: &World) -> (Member, u64) {
    let mut source = Member::dial(world, "c0", LinkKind::Forward, "left");
    loop {
        // Until the link to b0 is there, the gateway refuses.
        source.send(LaneOf::Urgent, &opening(FLOW, 1, 65_536));
        let answer = source.hear();
        if answer.kind == Kind::Credit && answer.offset > 0 {
            return (source, answer.offset);
        }
    }
}

/// The destination's part of it: grants what the next opening asks for.
pub(crate) fn admit(destination: &mut Member) {
    let asked = loop {
        let header = destination.hear();
        if header.kind == Kind::Data {
            break header;
        }
    };
    assert!(!asked.flags.has(Flags::HEADER_ONLY), "each hop looks at it");
    destination.receive_urgent(OPENING_BYTES);
    let credit = Header::credit(FLOW, asked.label, 0, 64 << 20, 9);
    destination.send(LaneOf::Urgent, &credit.to_control_frame());
}

pub(crate) fn opening(flow: FlowKey, label: u32, fragment_bytes: u32) -> Vec<u8> {
    let opening = Opening {
        source_incarnation: 5,
        destination_incarnation: 0,
        fragment_bytes,
    };
    let payload = opening.to_bytes();
    let mut header = Header::new(Kind::Data, flow, label);
    header.flags = Flags::OPEN;
    header.length = u32::try_from(OPENING_BYTES).unwrap();
    let mut running = checksum::Running::start(&header);
    running.update(&payload);
    header.checksum = running.finish();
    [&header.to_bytes()[..], &payload].concat()
}

pub(crate) fn data(flow: FlowKey, position: u64, length: u32) -> Vec<u8> {
    let mut header = Header::new(Kind::Data, flow, 1);
    header.position = position;
    header.length = length;
    let mut frame = header.to_bytes().to_vec();
    frame.resize(48 + usize::try_from(length).unwrap(), 1);
    frame
}

/// Part of a message, at a position and at an offset of its block, intact.
pub(crate) fn part(flags: Flags, position: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut header = Header::new(Kind::Data, FLOW, 1);
    header.flags = flags;
    header.position = position;
    header.offset = offset;
    header.length = u32::try_from(payload.len()).unwrap();
    let mut running = checksum::Running::start(&header);
    running.update(payload);
    header.checksum = running.finish();
    [&header.to_bytes()[..], payload].concat()
}

/// One message of one block, all of it in one frame, which is intact.
pub(crate) fn message(block: &[u8]) -> Vec<u8> {
    let length = u64::try_from(block.len()).unwrap();
    let descriptor = Descriptor::new(length, SendMode::Safer, ReceiveMode::Express).unwrap();
    let payload = [&descriptor.to_bytes()[..], block].concat();
    part(Flags::DESCRIBED.with(Flags::END), 0, 0, &payload)
}
