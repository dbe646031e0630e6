//! How lanes end: the peer closes, or its process is killed.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use super::Rig;
use super::meeting::{Pair, accept, read_exact, wait_for, write_all};
use super::traffic::{
    pattern_from, receive_some, send_some, sleep_until_arrival, sleep_until_room,
};
use crate::hsl::Card;
use crate::{
    Endpoint, Establishing, Interest, Lane, LaneClass, LaneError, LaneReceiver, LaneSender, Tuning,
    connect, listen,
};

/// Receives until the lane ends.
fn receive_to_the_end(receiver: &mut dyn LaneReceiver, into: &mut Vec<u8>) -> LaneError {
    loop {
        let received = receive_some(receiver, into).and_then(|count| {
            if count == 0 {
                sleep_until_arrival(receiver)?;
            }
            Ok(())
        });
        if let Err(error) = received {
            return error;
        }
    }
}

/// Sends until the lane ends.
fn send_to_the_end(sender: &mut dyn LaneSender) -> LaneError {
    let block = pattern_from(0, 4096);
    loop {
        let sent = send_some(sender, &block).and_then(|sent| match sent {
            Some(_) => Ok(()),
            None => sleep_until_room(sender),
        });
        if let Err(error) = sent {
            return error;
        }
    }
}

/// What was sent before the peer closed still arrives, then the end does; it is told
/// whether one polls or sleeps, and again to who asks again. Who sends to a peer that
/// closed learns it.
pub fn closing(rig: &Rig) {
    for sleeps in [true, false] {
        let Pair {
            mut dialer,
            mut acceptor,
        } = Pair::new(rig, LaneClass::Urgent);
        let mut sent = Vec::new();
        let block = pattern_from(0, 3000);
        for _ in 0..10 {
            if let Some(count) = send_some(dialer.sender.as_mut(), &block).expect("sending") {
                sent.extend_from_slice(&block[..count]);
            }
        }
        drop(dialer);
        let mut received = Vec::new();
        let receiver = acceptor.receiver.as_mut();
        let error = if sleeps {
            receive_to_the_end(receiver, &mut received)
        } else {
            loop {
                if let Err(error) = receive_some(receiver, &mut received) {
                    break error;
                }
            }
        };
        assert!(matches!(error, LaneError::Closed), "{error}");
        assert!(
            received == sent,
            "{} of {} bytes came",
            received.len(),
            sent.len()
        );
        assert!(
            receive_some(receiver, &mut received).is_err(),
            "the end is final"
        );

        let error = send_to_the_end(acceptor.sender.as_mut());
        assert!(
            matches!(error, LaneError::Closed | LaneError::Broken(_)),
            "{error}"
        );
    }
    // A direction that ends leaves the other one.
    let Pair {
        dialer,
        mut acceptor,
    } = Pair::new(rig, LaneClass::Urgent);
    let Lane {
        sender,
        mut receiver,
    } = dialer;
    drop(sender);
    let mut received = Vec::new();
    let error = receive_to_the_end(acceptor.receiver.as_mut(), &mut received);
    assert!(
        matches!(error, LaneError::Closed) && received.is_empty(),
        "{error}"
    );
    let sender = acceptor.sender.as_mut();
    while send_some(sender, b"still here").expect("sending").is_none() {
        sleep_until_room(sender).expect("waiting");
    }
    drop(acceptor);
    let error = receive_to_the_end(receiver.as_mut(), &mut received);
    assert!(
        matches!(error, LaneError::Closed) && received == b"still here",
        "{error}"
    );
}

/// Where the child of `peer_killed` finds its parent.
const CHILD_VARIABLE: &str = "MADGATE_CONFORMANCE_PARENT";

/// A peer whose process is killed in the middle of its sending: what it sent arrives up to
/// some place, unchanged, and both halves of the lane end. `child` names the test that
/// calls [`child`], which is run in a process of its own.
pub fn peer_killed(rig: &Rig, child: &str) {
    /// Received before the peer is killed: more than a lane holds.
    const ENOUGH: usize = 2 << 20;
    let mut listener = listen(&rig.endpoint, &rig.tuning).expect("listening");
    let place = match listener.local_endpoint() {
        Endpoint::Tcp { host, port } => format!("tcp\n{host}\n{port}"),
        Endpoint::HslHost { host, port } => format!("hsl host\n{host}\n{port}"),
        Endpoint::Shm { directory, name } | Endpoint::Hsl { directory, name } => {
            let protocol = rig.endpoint.protocol();
            format!("{protocol}\n{}\n{name}", directory.display())
        }
    };
    let provider = match &rig.tuning.hsl.card {
        Card::Libfabric { provider, .. } => provider.as_deref().unwrap_or_default(),
        Card::Host => "",
    };
    let place = format!("{place}\n{provider}");
    // The test harness knows its tests by their path without the crate.
    let (_, test) = child.split_once("::").expect("a path");
    let mut process = Command::new(std::env::current_exe().expect("this test"))
        .args([test, "--exact", "--nocapture"])
        .env(CHILD_VARIABLE, place)
        .stdout(Stdio::null())
        .spawn()
        .expect("starting the peer");

    let mut stranger = accept(listener.as_mut());
    assert_eq!(read_exact::<1>(stranger.as_mut()), *b"?");
    write_all(stranger.as_mut(), b"!");
    let mut waiting = stranger.establish(LaneClass::Urgent).expect("establishing");
    let mut lane = finish(waiting.as_mut());
    let mut received = Vec::new();
    while received.len() < ENOUGH {
        if receive_some(lane.receiver.as_mut(), &mut received).expect("receiving") == 0 {
            sleep_until_arrival(lane.receiver.as_mut()).expect("waiting");
        }
    }
    process.kill().expect("killing");
    process.wait().expect("the end of the peer");
    let error = receive_to_the_end(lane.receiver.as_mut(), &mut received);
    assert!(
        matches!(error, LaneError::Closed | LaneError::Broken(_)),
        "{error}"
    );
    let error = send_to_the_end(lane.sender.as_mut());
    assert!(
        matches!(error, LaneError::Closed | LaneError::Broken(_)),
        "{error}"
    );
    assert!(
        received == pattern_from(0, received.len()),
        "not what was sent"
    );
}

fn finish(waiting: &mut dyn Establishing) -> Lane {
    loop {
        match waiting.advance().expect("advancing") {
            Some(lane) => return lane,
            None => wait_for(waiting.as_fd(), Interest::Readable, waiting),
        }
    }
}

/// The peer that `peer_killed` kills, when called in the process that it starts; nothing
/// otherwise.
pub fn child() {
    let Ok(place) = std::env::var(CHILD_VARIABLE) else {
        return;
    };
    let mut fields = place.split('\n');
    let mut field = || fields.next().expect("four fields").to_owned();
    let (kind, first, second, provider) = (field(), field(), field(), field());
    let port = || second.parse().expect("a port");
    let (directory, name) = (first.clone().into(), second.clone());
    let endpoint = match kind.as_str() {
        "tcp" => Endpoint::Tcp {
            port: port(),
            host: first,
        },
        "hsl host" => Endpoint::HslHost {
            port: port(),
            host: first,
        },
        "shm" => Endpoint::Shm { directory, name },
        "hsl" => Endpoint::Hsl { directory, name },
        other => panic!("no protocol: {other}"),
    };
    let mut tuning = Tuning::default();
    if !provider.is_empty() {
        tuning.hsl.card = Card::Libfabric {
            provider: Some(provider),
            domain: None,
        };
    }
    let mut stranger = connect(&endpoint, &tuning).expect("connecting");
    write_all(stranger.as_mut(), b"?");
    assert_eq!(read_exact::<1>(stranger.as_mut()), *b"!");
    let mut waiting = stranger.establish(LaneClass::Urgent).expect("establishing");
    let mut lane = finish(waiting.as_mut());
    let mut position = 0;
    loop {
        let bytes = pattern_from(position, 10_000);
        // It ends with the parent, should that fail before it kills.
        match send_some(lane.sender.as_mut(), &bytes) {
            Ok(Some(count)) => position += count,
            Ok(None) => sleep_until_room(lane.sender.as_mut()).expect("waiting"),
            Err(_) => return,
        }
    }
}
