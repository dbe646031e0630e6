//! Each end counts the copies of what it sends and hands out (paper 000, table 2: two for each control message,
//! none for a rendezvous).

use super::*;

/// Copies that each end has counted.
fn copies(ports: &[Port; 2]) -> [u64; 2] {
    ports.each_ref().map(|port| port.counters().copies)
}

#[test]
fn a_short_message_is_copied_once_at_each_end() {
    let mut ports = pair(&tuned(Mode::Polling));
    for count in 1..=3 {
        assert!(ports[0].send_short(&pattern(100)).unwrap());
        assert_eq!(copies(&ports), [count, count - 1], "it has not come");
        let Arrived::Short(slot) = arrival(&mut ports) else {
            panic!("not a short message");
        };
        assert_eq!(bytes_of(&slot), pattern(100));
        assert_eq!(copies(&ports), [count; 2]);
    }
    // As blocks, however many.
    let sent = blocks(ports[0].arena(), &[10, 20, 70], &pattern(100));
    ports[0].send(sent).unwrap();
    drop(arrival(&mut ports));
    assert_eq!(copies(&ports), [4, 4]);
    // And back.
    assert!(ports[1].send_short(b"pong").unwrap());
    assert_eq!(copies(&ports), [4, 5]);
}

#[test]
fn a_rendezvous_into_the_arena_copies_nothing() {
    let mut ports = pair(&tuned(Mode::Polling));
    let message = pattern(100_000);
    let memory = blocks(ports[1].arena(), &[message.len()], &[]);
    ports[1].post(memory).unwrap();
    let sent = blocks(ports[0].arena(), &[40_000, 60_000], &message);
    ports[0].send(sent).unwrap();
    let Arrived::Posted(memory, length) = arrival(&mut ports) else {
        panic!("it was posted");
    };
    assert_eq!(gathered(&memory, length), message);
    assert_eq!(copies(&ports), [0, 0]);
}

#[test]
fn a_message_that_nothing_was_posted_for_is_copied_once_by_who_reads_it() {
    let mut ports = pair(&tuned(Mode::Polling));
    let message = pattern(100_000);
    for count in 1..=2 {
        let sent = blocks(ports[0].arena(), &[message.len()], &message);
        ports[0].send(sent).unwrap();
        let Arrived::Unposted(slot) = arrival(&mut ports) else {
            panic!("nothing was posted");
        };
        assert_eq!(bytes_of(&slot), message);
        assert_eq!(copies(&ports), [0, count]);
    }
}
