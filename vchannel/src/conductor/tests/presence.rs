//! Two processes that claim to be the same node.

use super::*;
use crate::handshake::{Initiator, LinkHello, random_u64};
use madgate_tm::{Endpoint, LaneClass};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// A process that says that it is `a0`, over connections that a test holds in its hands.
pub(super) struct Claimant {
    stream: TcpStream,
    initiator: Initiator,
}

pub(super) fn connect(fixture: &Fixture, to: &str) -> TcpStream {
    let network = fixture.network("left");
    match fixture.cluster.address(fixture.node(to), network) {
        Some(Endpoint::Tcp { host, port }) => TcpStream::connect((host.as_str(), port)).unwrap(),
        other => panic!("{other:?}"),
    }
}

impl Claimant {
    /// Both lanes of a forward link from `a0` to `gw`.
    pub(super) fn pair(fixture: &Fixture, incarnation: u64) -> [Self; 2] {
        let link = random_u64();
        [LaneClass::Urgent, LaneClass::Bulk]
            .map(|class| Self::begin(fixture, incarnation, link, class))
    }

    fn begin(fixture: &Fixture, incarnation: u64, link: u64, class: LaneClass) -> Self {
        let hello = LinkHello {
            node: fixture.node("a0"),
            destination: fixture.node("gw"),
            incarnation,
            link,
            network: fixture.network("left"),
            kind: LinkKind::Forward,
            class,
        };
        let mut claimant = Self {
            stream: connect(fixture, "gw"),
            initiator: Initiator::new(fixture.member("a0", incarnation), hello),
        };
        claimant.speak();
        claimant
    }

    fn speak(&mut self) {
        let bytes = self.initiator.output().to_vec();
        self.stream.write_all(&bytes).unwrap();
        self.initiator.sent(bytes.len());
    }

    /// Goes on to the end, and says how it was.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        let mut bytes = [0; 256];
        while self.initiator.peer().is_none() {
            let wanted = self.initiator.wanted_bytes();
            let count = match self.stream.read(&mut bytes[..wanted]) {
                Ok(0) => return Err("closed".to_owned()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            self.initiator
                .handle_bytes(&bytes[..count])
                .map_err(|error| error.to_string())?;
            self.speak();
        }
        Ok(())
    }
}

/// `gw`, with a link from the first incarnation of `a0`.
fn occupied(fixture: &Fixture, patience: Patience) -> (Node, EstablishedLink, [Claimant; 2]) {
    let gw = Node::patient(fixture, "gw", 12, patience);
    let mut first = Claimant::pair(fixture, 1);
    first.iter_mut().for_each(|lane| lane.finish().unwrap());
    let link = up(&gw.engine);
    assert_eq!(link.peer_incarnation, 1);
    (gw, link, first)
}

fn challenge(events: &Receiver<LinkEvent>) -> (NodeId, u64) {
    match next(events) {
        LinkEvent::Challenge { peer, incarnation } => (peer, incarnation),
        other => panic!("expected a challenge, got {other:?}"),
    }
}

#[test]
fn a_name_stays_with_who_answers() {
    let fixture = Fixture::new();
    // So long that nothing but the answer can end it.
    let patience = Patience {
        handshake: FOR_EVER,
        challenge: FOR_EVER,
    };
    let (gw, _link, _first) = occupied(&fixture, patience);
    let mut second = Claimant::pair(&fixture, 2);
    let answer = std::thread::scope(|scope| {
        let lanes = second.each_mut();
        let lanes = lanes.map(|lane| scope.spawn(|| lane.finish()));
        let (peer, incarnation) = challenge(&gw.engine);
        assert_eq!((peer, incarnation), (fixture.node("a0"), 1));
        assert_eq!(challenge(&gw.endpoint), (peer, incarnation));
        gw.conductor.challenge_answered(peer, incarnation);
        // Both lanes may not have come before the answer: then it is asked again.
        while !lanes.iter().all(|lane| lane.is_finished()) {
            if let Ok(LinkEvent::Challenge { peer, incarnation }) = gw.engine.try_recv() {
                gw.conductor.challenge_answered(peer, incarnation);
            }
            std::thread::yield_now();
        }
        lanes.map(|lane| lane.join().unwrap().unwrap_err())
    });
    for error in answer {
        assert!(error.contains("present already, and answers"), "{error}");
    }
    // The first one may have as many links as it likes.
    let mut more = Claimant::pair(&fixture, 1);
    more.iter_mut().for_each(|lane| lane.finish().unwrap());
    assert_eq!(up(&gw.engine).peer_incarnation, 1);
}

#[test]
fn a_name_goes_from_who_is_silent() {
    let fixture = Fixture::new();
    let patience = Patience {
        handshake: FOR_EVER,
        challenge: Duration::from_millis(20),
    };
    let (gw, link, _first) = occupied(&fixture, patience);
    let mut second = Claimant::pair(&fixture, 2);
    std::thread::scope(|scope| {
        for lane in &mut second {
            scope.spawn(|| lane.finish().unwrap());
        }
        let peer = fixture.node("a0");
        assert_eq!(challenge(&gw.engine), (peer, 1));
        match next(&gw.engine) {
            LinkEvent::PeerReplaced {
                peer: who,
                incarnation: 1,
            } if who == peer => {}
            other => panic!("{other:?}"),
        }
        // Too late, and no harm.
        gw.conductor.challenge_answered(peer, 1);
        gw.conductor.link_closed(link.id);
    });
    assert_eq!(up(&gw.engine).peer_incarnation, 2);
}

#[test]
fn a_name_is_free_when_the_last_link_is_closed() {
    let fixture = Fixture::new();
    let patience = Patience {
        handshake: FOR_EVER,
        challenge: FOR_EVER,
    };
    let (gw, mut link, first) = occupied(&fixture, patience);
    let mut second = Claimant::pair(&fixture, 2);
    std::thread::scope(|scope| {
        for lane in &mut second {
            scope.spawn(|| lane.finish().unwrap());
        }
        challenge(&gw.engine);
        drop(first);
        ends(&mut link.urgent);
        gw.conductor.link_closed(link.id);
    });
    assert_eq!(up(&gw.engine).peer_incarnation, 2);
}
