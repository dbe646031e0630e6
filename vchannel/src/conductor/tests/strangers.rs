//! Those who are no members.

use super::presence::{Claimant, connect};
use super::*;
use crate::handshake::{Initiator, LinkHello, PREAMBLE_BYTES};
use madgate_tm::LaneClass;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// What the other side says until it closes; a reset closes too.
fn last_words(stream: &mut TcpStream) -> Vec<u8> {
    let mut words = Vec::new();
    let _ = stream.read_to_end(&mut words);
    words
}

/// A first message of a member, as it goes over the wire.
fn introduction(fixture: &Fixture) -> Vec<u8> {
    let hello = LinkHello {
        node: fixture.node("a0"),
        destination: fixture.node("gw"),
        incarnation: 10,
        link: 1,
        network: fixture.network("left"),
        kind: LinkKind::Forward,
        class: LaneClass::Urgent,
    };
    let initiator = Initiator::new(fixture.member("a0", 10), hello);
    initiator.output().to_vec()
}

/// That a member gets in shows that nothing else has.
fn check_that_members_work(fixture: &Fixture, gw: &Node) {
    let mut lanes = Claimant::pair(fixture, 77);
    lanes.iter_mut().for_each(|lane| lane.finish().unwrap());
    assert_eq!(up(&gw.engine).peer_incarnation, 77);
    assert!(gw.engine.is_empty() && gw.endpoint.is_empty());
}

#[test]
fn garbage_is_sent_away_at_once() {
    let fixture = Fixture::new();
    // So long that no time-out can be what sends them away.
    let patience = Patience {
        handshake: FOR_EVER,
        ..Patience::default()
    };
    let gw = Node::patient(&fixture, "gw", 12, patience);
    let introduction = introduction(&fixture);
    let spoilt = |place: usize| {
        let mut bytes = introduction.clone();
        bytes[place] ^= 0xff;
        bytes
    };
    // What is said, how much is answered beyond the preamble, and the refusal's code.
    let cases: [(Vec<u8>, usize, Option<u8>); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 0, None),
        (spoilt(8), PREAMBLE_BYTES, None),
        (spoilt(10), PREAMBLE_BYTES, None),
        // The record's kind, its length, and its contents.
        (spoilt(42), PREAMBLE_BYTES + 4, Some(2)),
        (spoilt(44), PREAMBLE_BYTES + 4, Some(2)),
        (spoilt(60), PREAMBLE_BYTES + 4, Some(1)),
    ];
    for (bytes, length, code) in cases {
        let mut stream = connect(&fixture, "gw");
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let words = last_words(&mut stream);
        assert_eq!(words.len(), length, "{words:?}");
        assert_eq!(words.get(PREAMBLE_BYTES + 3).copied(), code);
    }
    check_that_members_work(&fixture, &gw);
}

#[test]
fn the_truncated_and_the_silent_run_out_of_time() {
    let fixture = Fixture::new();
    let patience = Patience {
        handshake: Duration::from_millis(100),
        ..Patience::default()
    };
    let gw = Node::patient(&fixture, "gw", 12, patience);
    let introduction = introduction(&fixture);
    for length in [0, 1, PREAMBLE_BYTES, PREAMBLE_BYTES + 2, 100] {
        let mut stream = connect(&fixture, "gw");
        stream.write_all(&introduction[..length]).unwrap();
        let words = last_words(&mut stream);
        assert!(words.len() <= PREAMBLE_BYTES, "{words:?}");
    }
    // Truncated and closed: there is nobody to wait for.
    drop(connect(&fixture, "gw"));

    // Whoever trickles has no more time than others.
    let mut trickle = connect(&fixture, "gw");
    let mut pieces = introduction.iter().cycle();
    let mut is_sent_away = || match pieces.next() {
        Some(byte) => {
            std::thread::sleep(Duration::from_millis(5));
            trickle.write_all(&[*byte]).is_err()
        }
        None => true,
    };
    while !is_sent_away() {}
    drop(gw);

    let gw = Node::start(&fixture, "gw", 13);
    check_that_members_work(&fixture, &gw);
}

#[test]
fn a_replay_is_no_link() {
    let fixture = Fixture::new();
    let gw = Node::start(&fixture, "gw", 12);
    let mut stream = connect(&fixture, "gw");
    stream.write_all(&introduction(&fixture)).unwrap();
    // Message 3 of another handshake.
    stream.write_all(&[1, 16, 0]).unwrap();
    stream.write_all(&[7; 16]).unwrap();
    let words = last_words(&mut stream);
    let message_2 = 3 + 64;
    assert_eq!(words[PREAMBLE_BYTES + message_2..], [2, 1, 0, 2]);
    check_that_members_work(&fixture, &gw);
}

#[test]
fn members_get_in_through_a_crowd_that_says_nothing() {
    // Both ends are in this process, which may have as few as 1024 descriptors.
    const CROWD: usize = STRANGER_SLOTS + 64;
    let fixture = Fixture::new();
    // Nobody runs out of time here: who goes, goes for others.
    let patience = Patience {
        handshake: FOR_EVER,
        ..Patience::default()
    };
    let gw = Node::patient(&fixture, "gw", 12, patience);
    let crowd: Vec<TcpStream> = (0..CROWD).map(|_| connect(&fixture, "gw")).collect();
    let mut replays: Vec<TcpStream> = (0..8).map(|_| connect(&fixture, "gw")).collect();
    let introduction = introduction(&fixture);
    for replay in &mut replays {
        replay.write_all(&introduction).unwrap();
    }
    let a1 = Node::start(&fixture, "a1", 11);
    let forward = request(&fixture, LinkKind::Forward, "left", "gw");
    a1.conductor.dial(Party::Endpoint, forward);
    let (mut here, mut there) = (up(&a1.endpoint), up(&gw.engine));
    check_lanes(&mut here, &mut there);
    check_that_members_work(&fixture, &gw);
    // The oldest were sent away.
    let mut crowd = crowd.into_iter();
    for mut stream in crowd.by_ref().take(CROWD - STRANGER_SLOTS) {
        assert_eq!(last_words(&mut stream), []);
    }
    assert_eq!(crowd.len(), STRANGER_SLOTS);
}
