//! Conductors against each other and against strangers, over real networks of one host.

mod links;
mod presence;
mod strangers;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use crossbeam_channel::Receiver;
use madgate_tm::{Lane, LaneError, Piece, Room, Shape};

use super::limits::Patience;
use super::*;
use crate::handshake::tests::fixture::{BOTH, Fixture};

/// Longer than anything here takes: a test that waits so long has failed.
const FOR_EVER: Duration = Duration::from_secs(60);

/// A conductor with the queues of both parties.
struct Node {
    conductor: Conductor,
    endpoint: Receiver<LinkEvent>,
    engine: Receiver<LinkEvent>,
}

impl Node {
    fn start(fixture: &Fixture, name: &str, incarnation: u64) -> Self {
        Self::patient(fixture, name, incarnation, Patience::default())
    }

    fn patient(fixture: &Fixture, name: &str, incarnation: u64, patience: Patience) -> Self {
        Self::of(fixture.member(name, incarnation), patience)
    }

    fn of(member: Arc<Member>, patience: Patience) -> Self {
        let parties = BOTH.map(|party| (party, Arc::new(|| ()) as WakeParty));
        let started = Conductor::start_with(member, parties.to_vec(), patience);
        let (conductor, events) = started.unwrap();
        let mut events = events.into_iter().map(|(_, receiver)| receiver);
        Self {
            conductor,
            endpoint: events.next().unwrap(),
            engine: events.next().unwrap(),
        }
    }

    fn events(&self, party: Party) -> &Receiver<LinkEvent> {
        match party {
            Party::Endpoint => &self.endpoint,
            Party::Engine => &self.engine,
        }
    }
}

fn next(events: &Receiver<LinkEvent>) -> LinkEvent {
    events.recv_timeout(FOR_EVER).expect("an event")
}

/// The next event, which is a link.
fn up(events: &Receiver<LinkEvent>) -> EstablishedLink {
    match next(events) {
        LinkEvent::Up(link) => *link,
        other => panic!("expected a link, got {other:?}"),
    }
}

/// The next event, which is a failure to dial: its text and number of attempts.
fn failure(events: &Receiver<LinkEvent>) -> (String, u32) {
    match next(events) {
        LinkEvent::DialFailed {
            error, attempts, ..
        } => (error, attempts),
        other => panic!("expected a failure, got {other:?}"),
    }
}

fn request(fixture: &Fixture, kind: LinkKind, network: &str, peer: &str) -> LinkRequest {
    LinkRequest {
        kind,
        network: fixture.network(network),
        peer: fixture.node(peer),
    }
}

/// Sends a few bytes over a lane.
fn say(lane: &mut Lane, text: &[u8]) {
    match lane.sender.shape() {
        Shape::Dynamic { .. } => {
            let sent = lane.sender.try_send(&[Piece::from(text)]).unwrap();
            assert_eq!(sent, text.len());
        }
        Shape::Static { .. } => {
            let mut slot = lane.sender.try_lend().unwrap().expect("a free slot");
            slot.room(..).put(Piece::from(text));
            lane.sender.commit(slot, text.len()).unwrap();
        }
    }
}

/// Receives what was said.
fn hear(lane: &mut Lane, expected: &[u8]) {
    let mut batch = BytesMut::with_capacity(64);
    while batch.len() < expected.len() {
        match lane.receiver.shape() {
            Shape::Dynamic { .. } => {
                lane.receiver
                    .try_receive(Room::default(), &mut batch)
                    .unwrap();
            }
            Shape::Static { .. } => {
                if let Some(slot) = lane.receiver.try_receive_slot().unwrap() {
                    let mut bytes = vec![0; slot.len()];
                    slot.copy_out(0, &mut bytes);
                    batch.extend_from_slice(&bytes);
                }
            }
        }
        std::thread::yield_now();
    }
    assert_eq!(&batch[..], expected);
}

/// Waits until the peer of a lane has closed it.
fn ends(lane: &mut Lane) -> LaneError {
    let mut batch = BytesMut::with_capacity(64);
    loop {
        let result = match lane.receiver.shape() {
            Shape::Dynamic { .. } => lane
                .receiver
                .try_receive(Room::default(), &mut batch)
                .map(|_| ()),
            Shape::Static { .. } => lane.receiver.try_receive_slot().map(|_| ()),
        };
        if let Err(error) = result.and_then(|()| lane.receiver.arm().map(|_| ())) {
            return error;
        }
        std::thread::yield_now();
    }
}

/// Both lanes carry bytes, in the directions that links need.
fn check_lanes(dialed: &mut EstablishedLink, accepted: &mut EstablishedLink) {
    assert!(dialed.is_dialed && !accepted.is_dialed);
    say(&mut dialed.urgent, b"urgent");
    say(&mut dialed.bulk, b"bulk");
    say(&mut accepted.urgent, b"back");
    say(&mut accepted.bulk, b"bulky");
    hear(&mut accepted.bulk, b"bulk");
    hear(&mut accepted.urgent, b"urgent");
    hear(&mut dialed.urgent, b"back");
    hear(&mut dialed.bulk, b"bulky");
}

#[test]
fn who_cannot_listen_is_told_what_to_do() {
    let said = |kind: io::ErrorKind| {
        let endpoint = Endpoint::Shm {
            directory: "/run/meet".into(),
            name: "b0".into(),
        };
        let error = StartError::Listen {
            node: "b0".into(),
            network: "right".into(),
            endpoint,
            source: kind.into(),
        };
        error.to_string()
    };
    for (kind, expected) in [
        (
            io::ErrorKind::PermissionDenied,
            "all nodes of this network run as one user",
        ),
        (io::ErrorKind::NotADirectory, "/run/meet cannot be made"),
        (io::ErrorKind::AddrInUse, "running already?"),
    ] {
        assert!(said(kind).contains(expected), "{}", said(kind));
    }
}
