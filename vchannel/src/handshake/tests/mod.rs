//! Both sides against each other, in memory, byte by byte.

pub(crate) mod fixture;

use std::sync::Arc;

use madgate_tm::LaneClass;
use proptest::prelude::*;

use super::*;
use crate::cluster::NodeId;
use crate::conductor::Party;
use fixture::{BOTH, Fixture};

fn hello(fixture: &Fixture, from: &str, to: &str, kind: LinkKind) -> LinkHello {
    LinkHello {
        node: fixture.node(from),
        destination: fixture.node(to),
        incarnation: 17,
        link: 0x0102_0304_0506_0708,
        network: fixture.network("left"),
        kind,
        class: LaneClass::Bulk,
    }
}

/// `a0` dials `gw` over `left`.
fn pair(fixture: &Fixture) -> (Initiator, Responder) {
    let hello = hello(fixture, "a0", "gw", LinkKind::Forward);
    let initiator = Initiator::new(fixture.member("a0", 17), hello);
    let responder = Responder::new(fixture.member("gw", 23), fixture.network("left"));
    (initiator, responder)
}

type Ended = (Result<(), HandshakeError>, Result<(), HandshakeError>);

/// Carries bytes between the two, at most `step` at a time, until nothing moves any more;
/// accepts. Returns what each said.
fn carry(initiator: &mut Initiator, responder: &mut Responder, step: usize) -> Ended {
    let mut ended: Ended = (Ok(()), Ok(()));
    loop {
        let mut has_moved = false;
        let count = initiator.output().len().min(step);
        let bytes = initiator.output()[..count].to_vec();
        let count = count.min(responder.wanted_bytes());
        if count > 0 {
            match responder.handle_bytes(&bytes[..count]) {
                Ok(taken) => assert_eq!(taken, count),
                Err(error) => ended.1 = Err(error),
            }
            initiator.sent(count);
            has_moved = true;
        }
        if responder.progress() == Progress::Member {
            responder.accept();
        }
        let count = responder.output().len().min(step);
        let count = count.min(initiator.wanted_bytes());
        if count > 0 {
            let bytes = responder.output()[..count].to_vec();
            match initiator.handle_bytes(&bytes) {
                Ok(taken) => assert_eq!(taken, count),
                Err(error) => ended.0 = Err(error),
            }
            responder.sent(count);
            has_moved = true;
        }
        if !has_moved {
            return ended;
        }
    }
}

#[test]
fn members_find_each_other_whatever_the_pieces() {
    let fixture = Fixture::new();
    for step in 1..=256 {
        let (mut initiator, mut responder) = pair(&fixture);
        let (here, there) = carry(&mut initiator, &mut responder, step);
        here.unwrap();
        there.unwrap();
        let peer = PeerIdentity {
            node: fixture.node("gw"),
            incarnation: 23,
        };
        assert_eq!(initiator.peer(), Some(peer));
        assert_eq!(responder.progress(), Progress::Accepted);
        assert_eq!(responder.hello(), Some(initiator.hello()));
        assert_eq!(initiator.wanted_bytes() + responder.wanted_bytes(), 0);
        assert!(initiator.output().is_empty() && responder.output().is_empty());
    }
}

#[test]
fn what_follows_is_left_alone() {
    let fixture = Fixture::new();
    let (mut initiator, mut responder) = pair(&fixture);
    let frames = b"frames";
    loop {
        let bytes = initiator.output().to_vec();
        responder.handle_bytes(&bytes).unwrap();
        initiator.sent(bytes.len());
        let is_last = responder.progress() == Progress::Member;
        responder.accept();
        let mut bytes = responder.output().to_vec();
        responder.sent(bytes.len());
        if is_last {
            assert_eq!(responder.handle_bytes(frames).unwrap(), 0);
            bytes.extend_from_slice(frames);
            let taken = initiator.handle_bytes(&bytes).unwrap();
            assert_eq!(&bytes[taken..], frames);
            assert!(initiator.peer().is_some());
            return;
        }
        assert_eq!(initiator.handle_bytes(&bytes).unwrap(), bytes.len());
    }
}

#[test]
fn nothing_is_decided_before_the_member_has_proved_itself() {
    let fixture = Fixture::new();
    let (initiator, mut responder) = pair(&fixture);
    responder.accept();
    assert_eq!(responder.progress(), Progress::Silent);
    responder.handle_bytes(initiator.output()).unwrap();
    assert_eq!(responder.progress(), Progress::Introduced);
    responder.accept();
    responder.refuse(Refusal::Busy);
    assert_eq!(responder.progress(), Progress::Introduced);
}

#[test]
fn a_replay_stays_a_stranger() {
    let fixture = Fixture::new();
    let (mut initiator, mut responder) = pair(&fixture);
    // All that the dialling side ever says.
    let mut recorded = initiator.output().to_vec();
    initiator.sent(recorded.len());
    responder.handle_bytes(&recorded).unwrap();
    initiator.handle_bytes(responder.output()).unwrap();
    responder.sent(responder.output().len());
    recorded.extend_from_slice(initiator.output());
    carry(&mut initiator, &mut responder, 256).1.unwrap();
    assert_eq!(responder.progress(), Progress::Accepted);

    let mut again = Responder::new(fixture.member("gw", 23), fixture.network("left"));
    let error = again.handle_bytes(&recorded).unwrap_err();
    assert!(error.to_string().contains("replay"), "{error}");
    assert_eq!(again.progress(), Progress::Over);
}

#[test]
fn another_key_is_recognised_by_both() {
    let fixture = Fixture::new();
    let hello = hello(&fixture, "a0", "gw", LinkKind::Forward);
    let stranger = fixture.member_with("a0", 17, &SessionKey::generate(), &BOTH);
    let mut initiator = Initiator::new(stranger, hello);
    let mut responder = pair(&fixture).1;
    let (here, there) = carry(&mut initiator, &mut responder, 64);
    assert!(matches!(here, Err(HandshakeError::WrongKey)), "{here:?}");
    assert!(matches!(there, Err(HandshakeError::WrongKey)), "{there:?}");
    assert!(initiator.peer().is_none());
}

#[test]
fn another_cluster_file_is_recognised_by_both() {
    let fixture = Fixture::new();
    let (cluster, node) = (fixture.other_cluster(), fixture.node("a0"));
    let other = Member::new(cluster, node, 17, fixture.key.clone(), BOTH.to_vec());
    let hello = hello(&fixture, "a0", "gw", LinkKind::Forward);
    let mut initiator = Initiator::new(Arc::new(other), hello);
    let mut responder = pair(&fixture).1;
    let (here, there) = carry(&mut initiator, &mut responder, 64);
    assert!(
        matches!(here, Err(HandshakeError::OtherCluster)),
        "{here:?}"
    );
    assert!(
        matches!(there, Err(HandshakeError::OtherCluster)),
        "{there:?}"
    );
}

#[test]
fn another_version_is_recognised_by_both() {
    let fixture = Fixture::new();
    let (mut initiator, mut responder) = pair(&fixture);
    let mut bytes = initiator.output().to_vec();
    bytes[8] = 99;
    let error = responder.handle_bytes(&bytes).unwrap_err();
    assert!(error.to_string().contains("version 99"), "{error}");
    let mut answer = responder.output().to_vec();
    assert_eq!(
        answer.len(),
        PREAMBLE_BYTES,
        "our preamble, so that it can tell why"
    );
    answer[8] = 98;
    let error = initiator.handle_bytes(&answer).unwrap_err();
    assert!(error.to_string().contains("version 98"), "{error}");
}

#[test]
fn another_protocol_is_recognised_by_its_first_byte() {
    let fixture = Fixture::new();
    let (mut initiator, mut responder) = pair(&fixture);
    let error = responder.handle_bytes(b"G").unwrap_err();
    assert!(matches!(error, HandshakeError::NotMadgate));
    assert!(responder.output().is_empty(), "it would not understand");
    assert_eq!(responder.wanted_bytes(), 0);
    let error = initiator.handle_bytes(b"MADNESS").unwrap_err();
    assert!(matches!(error, HandshakeError::NotMadgate));
}

/// What both sides say when `from` dials `to` with this hello, and `to` has these parties.
fn refused(fixture: &Fixture, hello: LinkHello, to: &str, parties: &[Party]) -> (String, String) {
    let mut initiator = Initiator::new(fixture.member("a0", 17), hello);
    let member = fixture.member_with(to, 23, &fixture.key, parties);
    let mut responder = Responder::new(member, fixture.network("left"));
    let (here, there) = carry(&mut initiator, &mut responder, 64);
    assert_eq!(responder.progress(), Progress::Over);
    assert!(initiator.peer().is_none());
    (
        here.unwrap_err().to_string(),
        there.unwrap_err().to_string(),
    )
}

#[test]
fn members_are_not_believed_everything() {
    let fixture = Fixture::new();
    let good = hello(&fixture, "a0", "gw", LinkKind::Forward);
    let check = |hello: LinkHello, to: &str, parties: &[Party], expected: (&str, &str)| {
        let (here, there) = refused(&fixture, hello, to, parties);
        assert!(here.contains(expected.0), "{here}");
        assert!(there.contains(expected.1), "{there}");
    };
    let nobody = NodeId(4_000_000_000);
    let unknown = ("knows no node", "rank 4000000000");
    check(
        LinkHello {
            node: nobody,
            ..good
        },
        "gw",
        &BOTH,
        unknown,
    );
    let wrong = (
        "gw was dialled and a1 answers",
        "gw was dialled and a1 answers",
    );
    check(good, "a1", &BOTH, wrong);
    let node = fixture.node("gw");
    let present = ("this node's name", "another process that is gw");
    check(LinkHello { node, ..good }, "gw", &BOTH, present);
    let node = fixture.node("b0");
    let absent = ("over another network", "b0 is not on the network");
    check(LinkHello { node, ..good }, "gw", &BOTH, absent);
    let network = fixture.network("right");
    let elsewhere = ("over another network", "a0 is not on the network");
    check(LinkHello { network, ..good }, "gw", &BOTH, elsewhere);
    let to_a1 = LinkHello {
        destination: fixture.node("a1"),
        ..good
    };
    let no_gateway = ("needs a gateway", "a1 is no gateway");
    check(to_a1, "a1", &BOTH, no_gateway);
    let kind = LinkKind::Deliver;
    let no_gateway = ("needs a gateway", "a0 is no gateway");
    check(LinkHello { kind, ..good }, "gw", &BOTH, no_gateway);
    let kind = LinkKind::Relay;
    check(LinkHello { kind, ..good }, "gw", &BOTH, no_gateway);
    let no_engine = ("nothing there", "asks for the engine");
    check(good, "gw", &[Party::Endpoint], no_engine);
    let kind = LinkKind::Regular;
    let no_endpoint = ("nothing there", "asks for the endpoint");
    check(
        LinkHello { kind, ..good },
        "gw",
        &[Party::Engine],
        no_endpoint,
    );
    let incarnation = 0;
    let zero = ("breaks the protocol", "incarnation zero");
    check(
        LinkHello {
            incarnation,
            ..good
        },
        "gw",
        &BOTH,
        zero,
    );
}

#[test]
fn the_callers_refusal_arrives() {
    let fixture = Fixture::new();
    let (mut initiator, mut responder) = pair(&fixture);
    responder.handle_bytes(initiator.output()).unwrap();
    initiator.sent(initiator.output().len());
    initiator.handle_bytes(responder.output()).unwrap();
    responder.sent(responder.output().len());
    responder.handle_bytes(initiator.output()).unwrap();
    responder.refuse(Refusal::NamePresent);
    let error = initiator.handle_bytes(responder.output()).unwrap_err();
    assert!(
        matches!(error, HandshakeError::Refused(Refusal::NamePresent)),
        "{error}"
    );
    assert_eq!(responder.progress(), Progress::Over);
}

#[test]
fn what_is_said_in_clear_is_fixed() {
    let fixture = Fixture::new();
    let (initiator, _) = pair(&fixture);
    let output = initiator.output();
    assert_eq!(output[..8], *b"MADGATE\0");
    assert_eq!(output[8..10], [6, 0]);
    assert_eq!(output[10..42], fixture.cluster.digest());
    // A message of an ephemeral key, the hello and a tag.
    assert_eq!(output[42..45], [1, 80, 0]);
    assert_eq!(output.len(), 42 + 3 + 80);
    let hello = initiator.hello().encode();
    let expected: [u8; 32] = [
        0, 0, 0, 0, 2, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 2, 2, 0, 0,
        0, 0,
    ];
    assert_eq!(hello, expected);
    let identity = PeerIdentity {
        node: NodeId(2),
        incarnation: 23,
    };
    let expected: [u8; 16] = [2, 0, 0, 0, 8, 0, 0, 0, 23, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(identity.encode(Refusal::NamePresent.code()), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a stranger says, it stays one.
    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..600), as_madgate: bool) {
        let fixture = Fixture::new();
        let (mut initiator, mut responder) = pair(&fixture);
        let mut said = Vec::new();
        if as_madgate {
            said.extend_from_slice(fixture.member("gw", 1).preamble());
        }
        said.extend_from_slice(&bytes);
        let _ = responder.handle_bytes(&said);
        prop_assert!(responder.progress() < Progress::Member || responder.progress() == Progress::Over);
        let _ = initiator.handle_bytes(&said);
        prop_assert!(initiator.peer().is_none());
    }

    /// A handshake in which one byte is changed on the way ends without a link, or waits for
    /// more; the one exception is nothing: every byte counts.
    #[test]
    fn every_byte_counts(place in 0_usize..300, change in 1_u8.., cut in 1_usize..64) {
        let fixture = Fixture::new();
        let (mut initiator, mut responder) = pair(&fixture);
        let mut seen = 0;
        loop {
            let before = seen;
            for to_responder in [true, false] {
                let output = if to_responder { initiator.output() } else { responder.output() };
                let mut bytes = output[..output.len().min(cut)].to_vec();
                if let Some(byte) = place.checked_sub(seen).and_then(|at| bytes.get_mut(at)) {
                    *byte ^= change;
                }
                seen += bytes.len();
                if to_responder {
                    initiator.sent(bytes.len());
                    let _ = responder.handle_bytes(&bytes);
                    responder.accept();
                } else {
                    responder.sent(bytes.len());
                    let _ = initiator.handle_bytes(&bytes);
                }
            }
            if seen == before {
                break;
            }
        }
        // The verdict is the last thing said: when it is spoilt, only one side knows.
        let both = initiator.peer().is_some() && responder.progress() == Progress::Accepted;
        prop_assert_eq!(both, place >= seen, "{} of {}", place, seen);
    }
}
