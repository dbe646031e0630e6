//! Which message comes when, to whom, and who waits for whom.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::{Channel, Delivery, PackError, Session, Unpacking};

use crate::support::{ALL, Nodes, pattern, receive, send};

#[test]
fn sessions_and_channels_can_be_used_from_any_thread() {
    fn is_shared<T: Clone + Send + Sync>() {}
    fn is_sent<T: Send>() {}
    is_shared::<Session>();
    is_shared::<Channel>();
    is_shared::<Delivery>();
    is_sent::<Unpacking<'_>>();
}

#[test]
fn two_messages_to_one_node_are_not_packed_at_once_by_one_thread() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 3, "");
        let here = nodes.channel(0);
        let mut first = here.begin_packing(nodes.id(1)).expect("begins");
        let error = here
            .begin_packing(nodes.id(1))
            .expect_err("it would wait for itself");
        assert!(
            matches!(&error, PackError::AlreadyPacking { node } if node == "n1"),
            "{error}"
        );
        // To another node, or over another channel, they are.
        let other = nodes
            .session(0)
            .channel("other")
            .expect("it has the channel");
        let mut second = here.begin_packing(nodes.id(2)).expect("begins");
        let mut third = other.begin_packing(nodes.id(1)).expect("begins");
        first.pack_safer(&[1], Express).expect("packs");
        second.pack_safer(&[2], Express).expect("packs");
        third.pack_safer(&[3], Express).expect("packs");
        for packing in [third, first, second] {
            packing.end_packing().expect("ends");
        }
        assert_eq!(receive(&nodes.channel(1)).1, [(vec![1], Express)]);
        assert_eq!(receive(&nodes.channel(2)).1, [(vec![2], Express)]);
        let other = nodes
            .session(1)
            .channel("other")
            .expect("it has the channel");
        assert_eq!(receive(&other).1, [(vec![3], Express)]);
        here.begin_packing(nodes.id(1))
            .expect("begins")
            .end_packing()
            .expect("ends");
    }
}

#[test]
fn another_thread_waits_until_the_message_before_has_ended() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let (here, there, to) = (nodes.channel(0), nodes.channel(1), nodes.id(1));
        for ends in [true, false] {
            let mut first = here.begin_packing(to).expect("begins");
            first.pack_safer(&[1; 9], Express).expect("packs");
            let (said, heard) = mpsc::channel();
            let second = thread::spawn({
                let here = here.clone();
                move || {
                    said.send(()).expect("is heard");
                    let mut second = here.begin_packing(to).expect("waits, then begins");
                    second.pack_safer(&[2; 9], Express).expect("packs");
                    second.end_packing().expect("ends");
                }
            });
            heard.recv().expect("the thread has begun");
            first.pack_safer(&[1; 5000], Cheaper).expect("packs");
            if ends {
                first.end_packing().expect("ends");
                let expected = [(vec![1; 9], Express), (vec![1; 5000], Cheaper)];
                assert_eq!(receive(&there).1, expected);
            } else {
                drop(first);
                // If any of it has arrived, it is a message that does not end.
                let mut unpacking = there.begin_unpacking().expect("begins");
                while let Ok(Some((length @ (9 | 5000), receive))) = unpacking.next_block() {
                    let length = usize::try_from(length).expect("fits");
                    let Ok(block) = unpacking.unpack_owned(length, receive) else {
                        break;
                    };
                    if block[0] == 2 {
                        break;
                    }
                }
                drop(unpacking);
            }
            second.join().expect("sends");
            if ends {
                assert_eq!(receive(&there).1, [(vec![2; 9], Express)]);
            }
        }
    }
}

#[test]
fn several_threads_pack_to_several_nodes() {
    const MESSAGES: u32 = 300;
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 3, "");
        thread::scope(|scope| {
            for from in 0..3 {
                for to in (0..3).filter(|to| *to != from) {
                    for _ in 0..2 {
                        let (channel, to) = (nodes.channel(from), nodes.id(to));
                        scope.spawn(move || {
                            for number in 0..MESSAGES {
                                let length = (number * 131 % 9000) as usize;
                                let block = pattern(number, length);
                                let mut packing = channel.begin_packing(to).expect("begins");
                                packing
                                    .pack_safer(&number.to_le_bytes(), Express)
                                    .expect("packs");
                                packing.pack_cheaper(&block, Cheaper).expect("packs");
                                packing.end_packing().expect("ends");
                            }
                        });
                    }
                }
                let channel = nodes.channel(from);
                scope.spawn(move || {
                    for _ in 0..4 * MESSAGES {
                        let (_, blocks) = receive(&channel);
                        assert_eq!(blocks.len(), 2);
                        let number = blocks[0].0[..].try_into().expect("is a number");
                        let number = u32::from_le_bytes(number);
                        let length = (number * 131 % 9000) as usize;
                        assert!(blocks[1].0 == pattern(number, length));
                    }
                });
            }
        });
    }
}

#[test]
fn one_node_can_be_heard_before_others() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 3, "");
        let here = nodes.channel(0);
        for from in [1, 2, 1, 2] {
            let channel = nodes.channel(from);
            let mut packing = channel.begin_packing(nodes.id(0)).expect("begins");
            packing
                .pack_safer(&[u8::try_from(from).expect("fits")], Express)
                .expect("packs");
            packing.end_packing_delivered().expect("is delivered");
        }
        for from in [2, 2] {
            let mut unpacking = here.begin_unpacking_from(nodes.id(from)).expect("begins");
            assert_eq!(unpacking.source(), nodes.id(from));
            assert_eq!(unpacking.unpack_owned(1, Express).expect("unpacks")[0], 2);
            unpacking.end_unpacking().expect("ends");
        }
        for _ in 0..2 {
            assert_eq!(receive(&here), (nodes.id(1), vec![(vec![1], Express)]));
        }
        assert!(here.try_begin_unpacking().expect("looks").is_none());
    }
}

#[test]
fn two_messages_of_two_nodes_are_unpacked_at_once() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 3, "");
        let here = nodes.channel(0);
        let threads: Vec<_> = [1, 2]
            .map(|from| {
                let number = u32::try_from(from).expect("fits");
                send(
                    &nodes,
                    from,
                    0,
                    vec![
                        (pattern(number, 9), Express),
                        (pattern(number, 400_000), Cheaper),
                    ],
                )
            })
            .into();
        let mut one = here.begin_unpacking_from(nodes.id(1)).expect("begins");
        let mut two = here.begin_unpacking_from(nodes.id(2)).expect("begins");
        assert_eq!(
            two.unpack_owned(9, Express).expect("unpacks"),
            pattern(2, 9)
        );
        assert_eq!(
            one.unpack_owned(9, Express).expect("unpacks"),
            pattern(1, 9)
        );
        assert!(two.unpack_owned(400_000, Cheaper).expect("unpacks") == pattern(2, 400_000));
        assert!(one.unpack_owned(400_000, Cheaper).expect("unpacks") == pattern(1, 400_000));
        two.end_unpacking().expect("ends");
        one.end_unpacking().expect("ends");
        for thread in threads {
            thread.join().expect("sends");
        }
    }
}

#[test]
fn channels_do_not_mix() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let other = nodes
            .session(0)
            .channel("other")
            .expect("it has the channel");
        assert_eq!(other.name(), "other");
        let mut packing = other.begin_packing(nodes.id(1)).expect("begins");
        packing.pack_safer(&[1], Express).expect("packs");
        packing.end_packing_delivered().expect("is delivered");
        assert!(
            nodes
                .channel(1)
                .try_begin_unpacking()
                .expect("looks")
                .is_none()
        );
        let other = nodes
            .session(1)
            .channel("other")
            .expect("it has the channel");
        assert_eq!(receive(&other).1, [(vec![1], Express)]);
    }
}

#[test]
fn waiting_for_a_message_can_be_limited() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 2, "");
        let there = nodes.channel(1);
        assert!(there.try_begin_unpacking().expect("looks").is_none());
        let short = Duration::from_millis(1);
        assert!(
            there
                .begin_unpacking_within(short)
                .expect("looks")
                .is_none()
        );
        let thread = send(&nodes, 0, 1, vec![(vec![1], Express)]);
        let long = Duration::from_secs(3600);
        let unpacking = there.begin_unpacking_within(long).expect("looks");
        let mut unpacking = unpacking.expect("a message comes");
        unpacking.unpack_express(&mut [0]).expect("unpacks");
        unpacking.end_unpacking().expect("ends");
        assert!(
            there
                .begin_unpacking_within(Duration::ZERO)
                .expect("looks")
                .is_none()
        );
        thread.join().expect("sends");
    }
}

#[test]
fn a_sender_of_many_messages_does_not_keep_another_one_out() {
    for protocol in ALL {
        let nodes = Nodes::open(protocol, 3, "");
        for (from, messages) in [(1, 5), (2, 2)] {
            let channel = nodes.channel(from);
            for _ in 0..messages {
                let packing = channel.begin_packing(nodes.id(0)).expect("begins");
                packing.end_packing_delivered().expect("is delivered");
            }
        }
        let here = nodes.channel(0);
        let sources: Vec<_> = (0..7).map(|_| receive(&here).0).collect();
        let expected = [1, 2, 1, 2, 1, 1, 1].map(|node| nodes.id(node));
        assert_eq!(sources, expected);
    }
}
