//! Short messages that are copied as they are received.

use std::time::{Duration, Instant};

use super::*;

/// What a test gives up after.
const LONG: Duration = Duration::from_secs(60);

/// Receives the next message, the other end going on as well.
fn next(ports: &mut [Port; 2], into: &mut [u8]) -> usize {
    let [near, far] = ports;
    loop {
        near.progress().unwrap();
        if let Some(length) = far.receive_short(into).unwrap() {
            return length;
        }
    }
}

#[test]
fn copied_messages_arrive_in_every_mode_and_their_slots_go_back() {
    for mode in modes() {
        // With so few slots, none may be forgotten.
        let mut ports = pair(&PortTuning {
            slots: 2,
            ..tuned(mode)
        });
        let mut into = vec![0; ports[1].threshold_bytes()];
        for round in 0..SHORTS {
            let message = pattern(round * 80);
            while !ports[0].send_short(&message).unwrap() {
                ports[0].progress().unwrap();
                // Nothing is here, and its credit is due.
                assert_eq!(ports[1].receive_short(&mut into).unwrap(), None);
            }
            into.fill(255);
            let length = next(&mut ports, &mut into);
            assert!(into[..length] == message, "{mode:?}");
            assert!(into[length..].iter().all(|byte| *byte == 255));
        }
        let counted = ports[1].counters();
        assert_eq!((counted.shorts, counted.copies), (0, SHORTS as u64));
    }
}

#[test]
fn a_message_that_is_longer_than_its_memory_can_be_had_as_it_is() {
    let mut ports = pair(&tuned(Mode::Polling));
    for message in [&b"one"[..], b"much too long", b"two"] {
        assert!(ports[0].send_short(message).unwrap());
    }
    let mut into = [0; 4];
    assert_eq!(next(&mut ports, &mut into), 3);
    assert_eq!(&into[..3], b"one");
    for _ in 0..3 {
        assert_eq!(ports[1].receive_short(&mut into).unwrap(), None);
    }
    let Some(Arrived::Short(slot)) = ports[1].next_arrived() else {
        panic!("it is the next one");
    };
    assert_eq!(next(&mut ports, &mut into), 3);
    assert_eq!(&into[..3], b"two");
    // Nobody has touched what was handed out.
    assert_eq!(bytes_of(&slot), b"much too long");
}

#[test]
fn what_is_handed_out_and_what_is_copied_come_in_their_order() {
    let mut ports = pair(&tuned(Mode::Polling));
    let large = pattern(100_000);
    let mut into = [0; 8];
    for round in 0..10_u8 {
        assert!(ports[0].send_short(&[round; 5]).unwrap());
        let sent = blocks(ports[0].arena(), &[large.len()], &large);
        ports[0].send(sent).unwrap();
        assert_eq!(next(&mut ports, &mut into), 5);
        assert_eq!(into[..5], [round; 5]);
        let slot = loop {
            ports[0].progress().unwrap();
            assert_eq!(ports[1].receive_short(&mut into).unwrap(), None);
            match ports[1].next_arrived() {
                Some(Arrived::Unposted(slot)) => break slot,
                Some(_) => panic!("nothing was posted"),
                None => {}
            }
        };
        assert_eq!(bytes_of(&slot), large);
        while ports[0].next_sent().is_none() {
            ports[0].progress().unwrap();
        }
    }
}

/// What is received until the port ends, and how it does.
fn all_of(port: &mut Port) -> (Vec<Vec<u8>>, LaneError) {
    let (mut into, mut heard) = ([0; 8], Vec::new());
    let deadline = Instant::now() + LONG;
    loop {
        assert!(Instant::now() < deadline, "it never ends: {heard:?}");
        match port.receive_short(&mut into) {
            Ok(Some(length)) => heard.push(into[..length].to_vec()),
            Ok(None) => {}
            Err(error) => return (heard, error),
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "so many looks take it minutes")]
fn what_came_before_the_end_is_there_first() {
    for mode in modes() {
        let [mut near, mut far] = pair(&tuned(mode));
        for message in [b"one", b"two"] {
            assert!(near.send_short(message).unwrap());
        }
        drop(near);
        let (heard, end) = all_of(&mut far);
        assert_eq!(heard, [b"one", b"two"], "{mode:?}");
        assert!(matches!(end, LaneError::Closed), "{end:?}");
    }
}

#[test]
fn what_was_taken_in_before_a_port_failed_is_there() {
    let mut ports = pair(&tuned(Mode::Polling));
    for message in [b"one", b"two"] {
        assert!(ports[0].send_short(message).unwrap());
    }
    ports[0].tell(identifier(Kind::Credit, 0), 0).unwrap();
    assert!(ports[1].progress().is_err(), "that frees nothing");
    let (heard, end) = all_of(&mut ports[1]);
    assert_eq!(heard, [b"one", b"two"]);
    assert!(matches!(end, LaneError::Closed), "{end:?}");
}

#[test]
fn credit_goes_back_before_all_slots_are_used_up() {
    let [mut near, mut far] = pair(&tuned(Mode::Polling));
    while near.send_short(b"more").unwrap() {}
    let slots = far.own_geometry.control_row().slots;
    let mut into = [0; 8];
    for _ in 0..slots / 2 + COPIES_BETWEEN_SETTLING {
        assert_eq!(far.receive_short(&mut into).unwrap(), Some(4));
    }
    near.progress().unwrap();
    assert!(near.control.len() >= slots as usize / 2);
}

#[test]
fn a_request_is_answered_though_a_short_message_is_always_there() {
    let mut ports = pair(&PortTuning {
        buffers: 1,
        ..tuned(Mode::Polling)
    });
    let large = pattern(100_000);
    let send = |port: &mut Port| {
        let sent = blocks(port.arena(), &[large.len()], &large);
        port.send(sent).unwrap();
    };
    send(&mut ports[0]);
    let held = arrival(&mut ports);
    send(&mut ports[0]);
    for _ in 0..3 {
        ports.iter_mut().for_each(|port| port.progress().unwrap());
    }
    // The second waited for the buffer, and nobody but the port itself looks for it from now on.
    drop(held);
    let [near, far] = &mut ports;
    assert!(near.send_short(b"ping").unwrap());
    let mut into = [0; 8];
    for _ in 0..=COPIES_BETWEEN_SETTLING {
        assert!(near.send_short(b"ping").unwrap());
        assert_eq!(far.receive_short(&mut into).unwrap(), Some(4));
        assert!(far.send_short(b"pong").unwrap());
        while near.receive_short(&mut into).unwrap().is_none() {}
    }
    near.progress().unwrap();
    assert!(near.next_sent().is_some() && near.next_sent().is_some());
}

#[test]
fn a_look_at_the_list_says_whether_it_is_worth_more() {
    for mode in modes() {
        let mut ports = pair(&tuned(mode));
        let reads_itself = mode != Mode::Interrupt;
        assert_eq!(ports[1].may_have_arrived(), !reads_itself, "{mode:?}");
        assert!(ports[0].send_short(b"one").unwrap());
        assert!(ports[1].may_have_arrived());
        let mut into = [0; 8];
        assert_eq!(next(&mut ports, &mut into), 3);
        assert_eq!(ports[1].may_have_arrived(), !reads_itself);
        // What was taken in and not taken out is there without a look at the list.
        assert!(ports[0].send_short(b"two").unwrap());
        while ports[1].arrived.is_empty() {
            ports[1].progress().unwrap();
        }
        assert!(ports[1].may_have_arrived());
    }
}
