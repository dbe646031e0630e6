//! A member that knows the session key, and then says what it likes.

use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use crossbeam_channel::Receiver;
use madgate_gtm::wire::{Flags, HEADER_BYTES, Kind, Opening, checksum};
use madgate_gtm::{FlowKey, Header};
use madgate_tm::{Lane, LaneClass, LaneError, Piece, Room};
use madgate_vchannel::Cluster;
use madgate_vchannel::conductor::{
    Conductor, EstablishedLink, LinkEvent, LinkKind, LinkRequest, Party,
};
use madgate_vchannel::handshake::{SessionKey, draw_incarnation};

use super::LONG;

/// The process of a node that is no node: its links do what the test says.
pub(crate) struct Member {
    cluster: Arc<Cluster>,
    conductor: Conductor,
    events: Receiver<LinkEvent>,
    incarnation: u64,
    /// Of the flow that it opened last: labels only grow.
    label: u32,
}

/// A link of such a member.
pub(crate) struct MemberLink {
    link: Box<EstablishedLink>,
    heard: BytesMut,
}

/// A flow that such a member has opened, as far as it was granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenFlow {
    pub(crate) key: FlowKey,
    pub(crate) label: u32,
    /// Where its next frame belongs.
    pub(crate) position: u64,
    pub(crate) granted: u64,
}

impl Member {
    pub(crate) fn new(cluster: &Arc<Cluster>, name: &str) -> Self {
        let node = cluster.node(name).unwrap();
        let key = SessionKey::load(cluster.key_file()).unwrap();
        let incarnation = draw_incarnation();
        // An engine, so that it may dial as a gateway does.
        let parties = vec![(Party::Engine, Arc::new(|| {}) as _)];
        let cluster = Arc::clone(cluster);
        let started = Conductor::start(Arc::clone(&cluster), node, incarnation, key, parties);
        let (conductor, mut events) = started.unwrap();
        Self {
            cluster,
            conductor,
            events: events.remove(0).1,
            incarnation,
            label: 0,
        }
    }

    /// A new link.
    pub(crate) fn dial(&self, kind: LinkKind, network: &str, peer: &str) -> MemberLink {
        let request = LinkRequest {
            kind,
            network: self.cluster.network_named(network).unwrap(),
            peer: self.cluster.node(peer).unwrap(),
        };
        self.conductor.dial(Party::Engine, request);
        loop {
            match self.events.recv_timeout(LONG).unwrap() {
                LinkEvent::Up(link) => {
                    let heard = BytesMut::with_capacity(1 << 16);
                    return MemberLink { link, heard };
                }
                LinkEvent::DialFailed { error, .. } => println!("{error}"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Lets go of a link.
    pub(crate) fn close(&self, link: MemberLink) {
        self.conductor.link_closed(link.link.id);
    }

    pub(crate) fn flow(&self, source: &str, destination: &str) -> FlowKey {
        let rank = |name| self.cluster.node(name).unwrap().rank();
        FlowKey {
            channel: 0,
            source: rank(source),
            destination: rank(destination),
        }
    }

    /// The frame that opens a flow, and nothing else.
    pub(crate) fn opening(&mut self, key: FlowKey, position: u64) -> Vec<u8> {
        self.label += 1;
        let opening = Opening {
            source_incarnation: self.incarnation,
            destination_incarnation: 0,
            fragment_bytes: 65_536,
        };
        let mut header = Header::new(Kind::Data, key, self.label);
        header.flags = Flags::OPEN.with(Flags::WANT);
        header.position = position;
        sealed(header, &opening.to_bytes())
    }

    /// Opens a flow, and waits for its credit.
    pub(crate) fn open(&mut self, link: &mut MemberLink, key: FlowKey, position: u64) -> OpenFlow {
        let deadline = Instant::now() + LONG;
        loop {
            let opening = self.opening(key, position);
            link.send(LaneClass::Urgent, &opening);
            let answer = link.hear().expect("an answer");
            assert_eq!(answer.flow, key);
            if answer.kind == Kind::Credit {
                return OpenFlow {
                    key,
                    label: self.label,
                    position,
                    granted: answer.offset,
                };
            }
            // A gateway has to dial first.
            assert!(Instant::now() < deadline, "{answer:?}");
        }
    }
}

impl OpenFlow {
    /// The header of the next frame.
    pub(crate) const fn next(&self) -> Header {
        let mut header = Header::new(Kind::Data, self.key, self.label);
        header.position = self.position;
        header
    }
}

/// A frame as its source makes it: length and checksum are right.
pub(crate) fn sealed(mut header: Header, payload: &[u8]) -> Vec<u8> {
    header.length = u32::try_from(payload.len()).unwrap();
    let mut running = checksum::Running::start(&header);
    running.update(payload);
    header.checksum = running.finish();
    [&header.to_bytes()[..], payload].concat()
}

impl MemberLink {
    pub(crate) fn send(&mut self, class: LaneClass, mut bytes: &[u8]) {
        let lane = self.lane(class);
        while !bytes.is_empty() {
            match lane.sender.try_send(&[Piece::new(bytes)]) {
                Ok(0) => std::thread::yield_now(),
                Ok(sent) => bytes = &bytes[sent..],
                // The other end has had enough.
                Err(_) => return,
            }
        }
    }

    /// The next answer; `None` when the other end has closed the link.
    pub(crate) fn hear(&mut self) -> Option<Header> {
        let deadline = Instant::now() + LONG;
        while self.heard.len() < HEADER_BYTES {
            let receiver = &mut self.link.urgent.receiver;
            match receiver.try_receive(Room::default(), &mut self.heard) {
                Ok(0) => std::thread::yield_now(),
                Ok(_) => {}
                Err(LaneError::Closed | LaneError::Broken(_)) => return None,
                Err(other) => panic!("{other}"),
            }
            assert!(Instant::now() < deadline, "no answer");
        }
        let frame = self.heard.split_to(HEADER_BYTES);
        let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
        assert!(header.is_intact_control());
        self.heard.reserve(1 << 16);
        Some(header)
    }

    /// Asks whether the other end is there, and waits until it says so; what it says before
    /// that is dropped.
    pub(crate) fn is_up(&mut self) -> bool {
        let ping = Header::echo(Kind::Ping, 7).to_control_frame();
        self.send(LaneClass::Urgent, &ping);
        loop {
            match self.hear() {
                None => return false,
                Some(header) if header.kind == Kind::Pong => return true,
                Some(_) => {}
            }
        }
    }

    fn lane(&mut self, class: LaneClass) -> &mut Lane {
        match class {
            LaneClass::Urgent => &mut self.link.urgent,
            LaneClass::Bulk => &mut self.link.bulk,
        }
    }
}
