//! Nodes that are not there, go, and come back.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::{PackError, ReceiveMode, TrySendError, UnpackError};

use crate::support::{ALL, Nodes, Protocol, pattern, receive, send};

#[test]
fn a_message_waits_for_a_node_that_comes_later() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        drop(nodes.stop(1));
        let thread = send(&nodes, 0, 1, vec![(pattern(1, 400_000), Cheaper)]);
        nodes.start(1);
        assert_eq!(
            receive(&nodes.channel(1)).1,
            [(pattern(1, 400_000), Cheaper)]
        );
        thread.join().expect("sends");
    }
}

#[test]
fn a_node_that_never_comes_fails_the_calls_concerned_once() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        drop(nodes.stop(1));
        let (here, to) = (nodes.channel(0), nodes.id(1));
        let small = Bytes::from_static(b"hello");
        let first = here
            .try_send(to, &[(small.clone(), Express)])
            .expect("is retained");
        let second = here.try_send(to, &[(small, Express)]).expect("is retained");
        for delivery in [first, second] {
            let error = delivery.wait().expect_err("nobody is there");
            let PackError::Unreachable { node, messages, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!((node.as_str(), messages), ("n1", &(0..2)));
            assert!(delivery.is_delivered().is_err());
        }
        // The next call says it, once.
        let error = here
            .begin_packing(to)
            .expect_err("messages were not delivered");
        assert!(matches!(&error, PackError::Unreachable { .. }), "{error}");
        let said = error.to_string();
        assert!(said.starts_with("n1 was not reached for 2s"), "{said}");
        assert!(
            said.ends_with("; messages 0 to 1 were not delivered"),
            "{said}"
        );
        // Then the flow begins anew.
        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_safer(b"again", Express).expect("packs");
        nodes.start(1);
        packing.end_packing_delivered().expect("it is there now");
        assert_eq!(receive(&nodes.channel(1)).1, [(b"again".to_vec(), Express)]);
    }
}

#[test]
fn a_borrowed_block_is_given_back_when_its_destination_is_lost() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let (here, to) = (nodes.channel(0), nodes.id(1));
        drop(nodes.stop(1));
        let mut block = pattern(1, 1 << 20);
        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_cheaper(&block, Cheaper).expect("packs");
        let error = packing.end_packing().expect_err("nobody is there");
        let PackError::Unreachable { messages, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(messages, &(0..1));
        assert!(
            error.to_string().ends_with("; message 0 was not delivered"),
            "{error}"
        );
        block.fill(0);
        // It was said, so the next message begins.
        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_safer(b"again", Express).expect("packs");
        nodes.start(1);
        packing.end_packing_delivered().expect("it is there now");
        assert_eq!(receive(&nodes.channel(1)).1, [(b"again".to_vec(), Express)]);
    }
}

#[test]
fn a_message_that_has_failed_takes_no_more_blocks() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let (here, to) = (nodes.channel(0), nodes.id(1));
        drop(nodes.stop(1));
        let large = Bytes::from(pattern(1, 1 << 20));
        let cells = [const { Cell::new(1) }; 9];
        let mut packing = here.begin_packing(to).expect("begins");
        // It waits when the flow keeps as much as it may, until the node is given up.
        let error = loop {
            if let Err(error) = packing.pack_owned(large.clone(), Cheaper) {
                break error;
            }
        };
        assert!(matches!(&error, PackError::Unreachable { .. }), "{error}");
        let failed = [
            packing.pack_safer(b"small", Express),
            packing.pack_cheaper(&large, Cheaper),
            packing.pack_later(&cells, Cheaper),
            packing.pack_owned(large.clone(), Cheaper),
            packing.end_packing(),
        ];
        for error in failed.map(Result::unwrap_err) {
            assert!(matches!(&error, PackError::Failed { .. }), "{error}");
        }
        nodes.start(1);
        let thread = send(&nodes, 0, 1, vec![(vec![1; 9], Express)]);
        assert_eq!(receive(&nodes.channel(1)).1, [(vec![1; 9], Express)]);
        thread.join().expect("sends");
    }
}

#[test]
fn a_sender_that_dies_in_a_message_breaks_it_off() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let there = nodes.channel(1);
        let here = nodes.channel(0);
        let mut packing = here.begin_packing(nodes.id(1)).expect("begins");
        for seed in 1..3 {
            let block = pattern(seed, 20_000);
            packing.pack_safer(&block, Express).expect("packs");
        }
        let mut unpacking = there.begin_unpacking().expect("begins");
        let first = unpacking
            .unpack_owned(20_000, Express)
            .expect("has arrived");
        assert_eq!(first, pattern(1, 20_000));
        // As if its process died: nothing more is said.
        std::mem::forget(packing);
        drop(here);
        drop(nodes.stop(0));
        let error = unpacking
            .unpack_express(&mut [0; 4])
            .expect_err("the sender is gone");
        assert!(matches!(&error, UnpackError::SourceLost { .. }), "{error}");
        // Of this message nothing comes any more.
        let mut block = [0; 4];
        let failed = [
            unpacking.unpack_express(&mut [0; 4]),
            unpacking.unpack_owned(4, Cheaper).map(drop),
            unpacking.unpack_arrived(4, Cheaper).map(drop),
            unpacking.next_block().map(drop),
            unpacking.unpack_cheaper(&mut block),
            unpacking.end_unpacking(),
        ];
        for error in failed.map(Result::unwrap_err) {
            assert!(matches!(&error, UnpackError::Failed { .. }), "{error}");
        }

        nodes.start(0);
        let thread = send(&nodes, 0, 1, vec![(vec![1; 9], Express)]);
        assert_eq!(receive(&there).1, [(vec![1; 9], Express)]);
        thread.join().expect("sends");
    }
}

#[test]
fn a_sender_that_is_restarted_breaks_its_message_off_and_goes_on() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let there = nodes.channel(1);
        let here = nodes.channel(0);
        let mut packing = here.begin_packing(nodes.id(1)).expect("begins");
        for seed in 1..3 {
            let block = pattern(seed, 20_000);
            packing.pack_safer(&block, Express).expect("packs");
        }
        let mut unpacking = there.begin_unpacking().expect("begins");
        unpacking
            .unpack_owned(20_000, Express)
            .expect("has arrived");
        std::mem::forget(packing);
        drop(here);
        drop(nodes.stop(0));
        nodes.start(0);
        let thread = send(&nodes, 0, 1, vec![(vec![1; 9], Express)]);
        let error = unpacking
            .unpack_express(&mut [0; 4])
            .expect_err("it was restarted");
        assert!(
            matches!(&error, UnpackError::SourceRestarted { .. }),
            "{error}"
        );
        drop(unpacking);
        assert_eq!(receive(&there).1, [(vec![1; 9], Express)]);
        thread.join().expect("sends");
    }
}

#[test]
fn whole_messages_of_a_sender_that_is_gone_can_still_be_unpacked() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let (here, there) = (nodes.channel(0), nodes.channel(1));
        for number in 0..3 {
            let mut packing = here.begin_packing(nodes.id(1)).expect("begins");
            packing
                .pack_safer(&pattern(number, 9000), Express)
                .expect("packs");
            packing.end_packing_delivered().expect("is delivered");
        }
        drop(here);
        drop(nodes.stop(0));
        for number in 0..3 {
            assert_eq!(receive(&there).1, [(pattern(number, 9000), Express)]);
        }
    }
}

#[test]
fn a_destination_that_is_restarted_loses_what_it_had() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let (here, to) = (nodes.channel(0), nodes.id(1));
        // More than its window: part of it is there, part is not.
        let block = Bytes::from(pattern(1, 6 << 20));
        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_safer(&[1], Express).expect("packs");
        packing.end_packing_delivered().expect("is delivered");
        let lost = here.try_send(to, &[(block, Cheaper)]).expect("is retained");
        drop(
            nodes
                .channel(1)
                .begin_unpacking()
                .expect("the first is there"),
        );
        drop(nodes.stop(1));
        nodes.start(1);
        let error = lost.wait().expect_err("half of it was lost with the node");
        let PackError::Restarted { node, messages } = &error else {
            panic!("{error}");
        };
        assert_eq!((node.as_str(), messages), ("n1", &(1..2)));
        here.begin_packing(to)
            .expect_err("messages were not delivered");
        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_safer(b"again", Express).expect("packs");
        packing.end_packing_delivered().expect("it is there again");
        assert_eq!(receive(&nodes.channel(1)).1, [(b"again".to_vec(), Express)]);
    }
}

/// A block of which a destination that unpacks nothing has a part only: it is more than its window.
fn too_much() -> Vec<(Bytes, ReceiveMode)> {
    vec![(Bytes::from(pattern(1, 6 << 20)), Cheaper)]
}

#[test]
fn a_message_that_is_being_packed_is_lost_with_those_before_it() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let (here, to) = (nodes.channel(0), nodes.id(1));
        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_safer(&[1], Express).expect("packs");
        packing.end_packing_delivered().expect("is delivered");
        let before = here.try_send(to, &too_much()).expect("is retained");
        // More than is copied: nothing of it has to wait before it is sent.
        let lent = pattern(2, 1 << 20);
        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_cheaper(&lent, Cheaper).expect("packs");
        drop(nodes.stop(1));
        nodes.start(1);
        before
            .wait()
            .expect_err("half of it was lost with the node");
        let error = packing
            .end_packing_delivered()
            .expect_err("nor is this one");
        let PackError::Restarted { messages, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(messages, &(1..3));

        let mut packing = here.begin_packing(to).expect("that was said");
        packing.pack_safer(b"again", Express).expect("packs");
        packing.end_packing_delivered().expect("it is there again");
        assert_eq!(receive(&nodes.channel(1)).1, [(b"again".to_vec(), Express)]);
    }
}

#[test]
fn nothing_is_added_to_a_message_that_is_lost_whoever_was_told() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let (here, to) = (nodes.channel(0), nodes.id(1));
        let small = [(Bytes::from_static(b"small"), Express)];
        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_safer(&[1], Express).expect("packs");
        packing.end_packing_delivered().expect("is delivered");
        let mut packing = here.begin_packing(to).expect("begins");
        for _ in 0..2 {
            // The first goes to the flow when the second is packed.
            let block = Bytes::from(pattern(1, 3 << 20));
            packing.pack_owned(block, Cheaper).expect("packs");
        }
        drop(nodes.stop(1));
        nodes.start(1);
        // Somebody else is told.
        let told = loop {
            match here.try_send(to, &small) {
                Ok(_) => panic!("a message is being packed"),
                Err(TrySendError::NotNow) => thread::yield_now(),
                Err(TrySendError::Pack(error)) => break error,
                Err(error) => panic!("{error}"),
            }
        };
        assert!(matches!(&told, PackError::Restarted { .. }), "{told}");
        let large = pattern(2, 100_000);
        let error = packing
            .pack_safer(&large, Cheaper)
            .and_then(|()| packing.pack_safer(&large, Cheaper))
            .expect_err("it is lost");
        assert!(matches!(&error, PackError::Restarted { .. }), "{error}");
        packing.end_packing().expect_err("it is lost");

        let mut packing = here.begin_packing(to).expect("begins");
        packing.pack_safer(b"again", Express).expect("packs");
        packing.end_packing_delivered().expect("it is there again");
        assert_eq!(receive(&nodes.channel(1)).1, [(b"again".to_vec(), Express)]);
    }
}

#[test]
fn a_message_that_was_lost_is_lost_after_others_were() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let (here, to) = (nodes.channel(0), nodes.id(1));
        let mut lost = Vec::new();
        for _ in 0..3 {
            let mut packing = here.begin_packing(to).expect("begins");
            packing.pack_safer(&[1], Express).expect("packs");
            packing.end_packing_delivered().expect("is delivered");
            lost.push(here.try_send(to, &too_much()).expect("is retained"));
            drop(nodes.stop(1));
            nodes.start(1);
            for delivery in &lost {
                let error = delivery.wait().expect_err("its node was restarted");
                assert!(matches!(&error, PackError::Restarted { .. }), "{error}");
            }
            here.begin_packing(to).expect_err("that is said once");
        }
    }
}

#[test]
fn nodes_die_and_come_back_while_others_talk() {
    let mut nodes = Nodes::open(Protocol::Tcp, 3, "");
    let (here, there) = (nodes.channel(0), nodes.channel(1));
    let to = nodes.id(1);
    let talk = thread::spawn(move || {
        for number in 0..2000 {
            let mut packing = here.begin_packing(to).expect("begins");
            packing
                .pack_safer(&pattern(number, 700), Express)
                .expect("packs");
            packing.end_packing().expect("ends");
        }
    });
    let listen = thread::spawn(move || {
        for number in 0..2000 {
            assert_eq!(receive(&there).1, [(pattern(number, 700), Express)]);
        }
    });
    let (here, to) = (nodes.channel(0), nodes.id(2));
    for number in 0..5 {
        drop(nodes.stop(2));
        nodes.start(2);
        // What was on its way to the node that died is said to be lost.
        loop {
            let Ok(mut packing) = here.begin_packing(to) else {
                continue;
            };
            packing.pack_safer(&[number; 5], Cheaper).expect("packs");
            match packing.end_packing_delivered() {
                Ok(()) => break,
                Err(PackError::Restarted { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let expected = vec![(vec![number; 5], Cheaper)];
        assert_eq!(receive(&nodes.channel(2)).1, expected);
    }
    talk.join().expect("sends");
    listen.join().expect("receives");
}

#[test]
fn an_answer_is_waited_for_within_a_bound() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 3, "");
        let (client, server) = (nodes.channel(0), nodes.id(1));
        // The message of somebody else is no answer.
        send(&nodes, 2, 0, vec![(pattern(2, 9), Cheaper)])
            .join()
            .expect("sends");
        let within = |time| {
            let waited = client.begin_unpacking_from_within(server, time);
            waited.expect("there is such a node").is_some()
        };
        assert!(!within(Duration::from_millis(20)), "{protocol:?}");
        send(&nodes, 1, 0, vec![(pattern(1, 9), Cheaper)])
            .join()
            .expect("sends");
        assert!(within(Duration::MAX), "{protocol:?}");
        assert_eq!(receive(&client).1, [(pattern(2, 9), Cheaper)]);
        // Of a server that has gone, a request that is waited for says so.
        drop(nodes.stop(1));
        let mut packing = client.begin_packing(server).expect("begins");
        packing.pack_safer(&[1; 9], Express).expect("packs");
        let error = packing.end_packing_delivered().unwrap_err();
        assert!(matches!(error, PackError::Unreachable { .. }), "{error}");
    }
}
