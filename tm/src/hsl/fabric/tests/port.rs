//! Ports over a provider that needs no hardware, in each way in which order is kept and memory is
//! registered.

use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use crate::conformance::{SILENCE, has_card};
use crate::hsl::Card;
use crate::hsl::fabric::domain::Wanted;
use crate::hsl::fabric::{FabricDevice, FabricPortStart};
use crate::hsl::host::Mode;
use crate::hsl::port::tests::{arrival, blocks, bytes_of, gathered, is_misuse, pattern};
use crate::hsl::port::{Arrived, Block, Port, PortTuning};
use crate::lane::LaneError;
use crate::poller::Poller;

const PROVIDER: &str = "tcp;ofi_rxm";

type Pair = [Port<FabricDevice>; 2];

/// Ways in which a provider may want it: in any order, and what is sent from registered.
fn ways() -> [Wanted; 4] {
    [(false, false), (false, true), (true, false), (true, true)].map(
        |(in_any_order, registers_local)| Wanted {
            provider: Some(PROVIDER.to_owned()),
            in_any_order,
            registers_local,
            ..Wanted::default()
        },
    )
}

fn card() -> Card {
    Card::Libfabric {
        provider: Some(PROVIDER.to_owned()),
        domain: None,
    }
}

fn tuning() -> PortTuning {
    PortTuning {
        mode: Mode::Polling,
        foreign: true,
        ..PortTuning::default()
    }
}

/// Both ends; `None` where there is no such card.
fn pair(wanted: &Wanted, tuning: &PortTuning) -> Option<Pair> {
    if !has_card(&card()) {
        return None;
    }
    let (near, far) = UnixStream::pair().unwrap();
    let start =
        |socket, connects| FabricPortStart::over(socket, connects, tuning.clone(), wanted).unwrap();
    let mut starts = [start(near, true), start(far, false)];
    let mut ports = [None, None];
    while ports.iter().any(Option::is_none) {
        for (start, port) in starts.iter_mut().zip(&mut ports) {
            if port.is_none() {
                *port = start.advance().unwrap();
            }
        }
    }
    Some(ports.map(Option::unwrap))
}

fn usual(tuning: &PortTuning) -> Option<Pair> {
    pair(&ways()[0], tuning)
}

/// Goes on at both ends until the first has sent a message.
fn sent([near, far]: &mut Pair) -> Vec<Block> {
    loop {
        near.progress().unwrap();
        far.progress().unwrap();
        if let Some((_, blocks)) = near.next_sent() {
            return blocks;
        }
    }
}

fn send_short(ports: &mut Pair, message: &[u8]) {
    while !ports[0].send_short(message).unwrap() {
        ports.iter_mut().for_each(|port| port.progress().unwrap());
    }
}

#[test]
fn short_messages_arrive_and_their_slots_come_back() {
    for wanted in ways() {
        let Some(mut ports) = pair(&wanted, &tuning()) else {
            return;
        };
        // Several times as many as there are slots; some fit in an entry, and some do not.
        for round in 0..200 {
            let message = pattern(round * 80 + round % 7);
            send_short(&mut ports, &message);
            let Arrived::Short(slot) = arrival(&mut ports) else {
                panic!("not a short message");
            };
            assert!(bytes_of(&slot) == message, "{wanted:?}");
        }
        let counters = ports[0].counters();
        assert_eq!((counters.shorts, counters.copies), (200, 200));
    }
}

#[test]
fn a_sender_that_is_ahead_is_told_so() {
    let Some(mut ports) = usual(&tuning()) else {
        return;
    };
    send_short(&mut ports, b"first");
    let mut held = vec![arrival(&mut ports)];
    while held.len() < tuning().slots {
        send_short(&mut ports, &[7; 100]);
        held.push(arrival(&mut ports));
    }
    assert!(!ports[0].send_short(b"more").unwrap(), "all are held");
    drop(held);
    send_short(&mut ports, b"more");
    assert!(matches!(arrival(&mut ports), Arrived::Short(_)));
}

#[test]
fn a_large_message_goes_from_any_memory_into_any() {
    let message = pattern(300_000);
    for wanted in ways() {
        for registrations in [None, tuning().registrations] {
            let tuning = PortTuning {
                buffers: 0,
                registrations,
                ..tuning()
            };
            let Some(mut ports) = pair(&wanted, &tuning) else {
                return;
            };
            let before = crate::hsl::counters();
            for (from_arena, to_arena) in
                [(true, true), (true, false), (false, true), (false, false)]
            {
                let memory = if to_arena {
                    blocks(ports[1].arena(), &[100_000, 50_000, 200_000], &[])
                } else {
                    [100_000, 50_000, 200_000]
                        .map(|bytes| Block::Other(vec![0; bytes]))
                        .into()
                };
                let from = if from_arena {
                    blocks(ports[0].arena(), &[7, 200_000, 99_993], &message)
                } else {
                    let (one, other) = message.split_at(123_456);
                    vec![Block::Other(one.to_vec()), Block::Other(other.to_vec())]
                };
                let pieces = from.len();
                ports[1].post(memory).unwrap();
                ports[0].send(from).unwrap();
                let Arrived::Posted(memory, length) = arrival(&mut ports) else {
                    panic!("not where it was to go");
                };
                assert!(gathered(&memory, length) == message, "{wanted:?}");
                let back = sent(&mut ports);
                assert_eq!(back.len(), pieces);
                assert_eq!(gathered(&back, length), message, "what was sent comes back");
            }
            let counters = ports[0].counters();
            assert_eq!((counters.rendezvous, counters.copies), (4, 0));
            assert!(crate::hsl::counters().puts > before.puts);
        }
    }
}

#[test]
fn memory_elsewhere_is_posted_where_both_ends_want_it_alone() {
    let closed = PortTuning {
        foreign: false,
        ..tuning()
    };
    let Some(mut ports) = usual(&closed) else {
        return;
    };
    let refused = ports[1].post(vec![Block::Other(vec![0; 20_000])]);
    assert!(is_misuse(refused));
    // It may be sent from.
    let message = vec![Block::Other(pattern(20_000))];
    ports[0].send(message).unwrap();
    assert!(matches!(arrival(&mut ports), Arrived::Unposted(_)));
    let interrupts = PortTuning {
        mode: Mode::Interrupt,
        ..tuning()
    };
    let socket = UnixStream::pair().unwrap().0;
    let refused = FabricPortStart::new(socket, true, interrupts, &card()).unwrap_err();
    assert!(refused.to_string().contains("adaptive or polling"));
}

#[test]
fn what_nothing_was_posted_for_goes_into_buffers_and_then_waits() {
    let Some(mut ports) = usual(&tuning()) else {
        return;
    };
    let buffers = tuning().buffers;
    let message = pattern(20_000);
    for _ in 0..=buffers {
        let from = blocks(ports[0].arena(), &[message.len()], &message);
        ports[0].send(from).unwrap();
    }
    let mut held: Vec<Arrived> = (0..buffers).map(|_| arrival(&mut ports)).collect();
    for arrived in &held {
        let Arrived::Unposted(slot) = arrived else {
            panic!("nothing was posted");
        };
        assert!(bytes_of(slot) == message);
    }
    // A short message says that all before it has been taken in.
    send_short(&mut ports, b"all");
    assert!(matches!(arrival(&mut ports), Arrived::Short(_)));
    held.pop();
    assert!(matches!(arrival(&mut ports), Arrived::Unposted(_)));
}

#[test]
fn an_arena_is_as_large_as_what_can_be_allocated() {
    for (arena_bytes, capacity) in [(0, 0), (100, 0), ((1 << 20) + 1, 1 << 20)] {
        let tuning = PortTuning {
            arena_bytes,
            ..tuning()
        };
        let Some(ports) = usual(&tuning) else { return };
        assert_eq!(ports[0].arena().capacity(), capacity);
    }
}

#[test]
fn an_arena_that_is_exhausted_leaves_other_memory_and_comes_back() {
    let small = PortTuning {
        arena_bytes: 1 << 17,
        ..tuning()
    };
    let Some(mut ports) = usual(&small) else {
        return;
    };
    let message = pattern(1 << 17);
    let whole = blocks(ports[0].arena(), &[message.len()], &message);
    assert!(ports[0].arena().allocate(1).is_none());
    ports[0].send(whole).unwrap();
    ports[0].send(vec![Block::Other(message.clone())]).unwrap();
    for _ in 0..2 {
        let Arrived::Unposted(slot) = arrival(&mut ports) else {
            panic!("nothing was posted");
        };
        assert!(bytes_of(&slot) == message);
    }
    assert!(
        ports[0].arena().allocate(1).is_none(),
        "it is still sent from"
    );
    drop(sent(&mut ports));
    drop(sent(&mut ports));
    assert!(ports[0].arena().allocate(1 << 17).is_some());
}

/// So much is always mapped for itself, and unmapped when it is freed: no allocator keeps more than
/// 64 MiB that are free.
const MAPPED_BYTES: usize = 80 << 20;

/// A network that no other test has, and so registrations that it alone makes.
fn alone(last: u8) -> Wanted {
    Wanted {
        address: Some([127, 0, 0, last].into()),
        ..ways()[1].clone()
    }
}

/// Memory that was registered goes back to the system, and what comes at its addresses is sent and
/// received as it is.
#[test]
fn memory_that_was_registered_may_be_freed() {
    let bytes = MAPPED_BYTES;
    let Some(mut ports) = pair(&alone(2), &tuning()) else {
        return;
    };
    for round in 0..3_u8 {
        let mut message = pattern(bytes);
        message[..100].fill(round);
        ports[1].post(vec![Block::Other(vec![0; bytes])]).unwrap();
        ports[0].send(vec![Block::Other(message.clone())]).unwrap();
        let Arrived::Posted(memory, length) = arrival(&mut ports) else {
            panic!("it was posted");
        };
        assert!(gathered(&memory, length) == message, "round {round}");
        drop(sent(&mut ports));
        drop(memory);
    }
    let (counters, why_off) = ports[0].registrations().unwrap();
    match why_off {
        None => assert!(counters.invalidated > 0, "{counters:?}"),
        Some(_) => assert_eq!(counters.hits, 0),
    }
}

#[test]
fn registrations_are_found_again_for_memory_that_is_used_again() {
    let bytes = MAPPED_BYTES;
    let Some(mut ports) = pair(&alone(3), &tuning()) else {
        return;
    };
    let mut from = vec![Block::Other(pattern(bytes))];
    let mut memory = vec![Block::Other(vec![0; bytes])];
    for _ in 0..3 {
        ports[1].post(memory).unwrap();
        ports[0].send(from).unwrap();
        let Arrived::Posted(arrived, _) = arrival(&mut ports) else {
            panic!("it was posted");
        };
        memory = arrived;
        from = sent(&mut ports);
    }
    let (counters, why_off) = ports[0].registrations().unwrap();
    if why_off.is_none() {
        assert_eq!((counters.misses, counters.hits), (2, 4), "{counters:?}");
    }
    assert!(gathered(&memory, bytes as u64) == pattern(bytes));
}

#[test]
fn what_was_sent_before_the_end_arrives() {
    for wanted in ways() {
        let Some([mut near, mut far]) = pair(&wanted, &tuning()) else {
            return;
        };
        while !near.send_short(&[5; 1000]).unwrap() {
            near.progress().unwrap();
            far.progress().unwrap();
        }
        drop(near);
        let mut heard = 0;
        let error = loop {
            match far.progress().and_then(|()| far.arm()) {
                Ok(_) => heard += std::iter::from_fn(|| far.next_arrived()).count(),
                Err(error) => break error,
            }
        };
        heard += std::iter::from_fn(|| far.next_arrived()).count();
        assert!(matches!(error, LaneError::Closed), "{error}");
        assert_eq!(heard, 1, "{wanted:?}");
    }
}

fn poller(port: &Port<FabricDevice>) -> Poller {
    let poller = Poller::new().unwrap();
    let (descriptor, interest) = port.descriptor();
    poller.add(descriptor, 1, interest).unwrap();
    poller
}

#[test]
fn a_sleeper_is_woken() {
    let adaptive = PortTuning {
        mode: Mode::Adaptive,
        ..tuning()
    };
    let Some([mut near, mut far]) = usual(&adaptive) else {
        return;
    };
    let message = pattern(50_000);
    let answer = |port: &mut Port<FabricDevice>, poller: &mut Poller| loop {
        port.progress().unwrap();
        if let Some(arrived) = port.next_arrived() {
            return arrived;
        }
        if port.arm().unwrap() {
            poller.wait(Some(SILENCE)).unwrap();
            port.acknowledge();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut poller = poller(&far);
            for _ in 0..30 {
                assert!(matches!(
                    answer(&mut far, &mut poller),
                    Arrived::Unposted(_)
                ));
                while !far.send_short(b"back").unwrap() {
                    far.progress().unwrap();
                }
            }
            // What was posted goes on with whoever calls.
            while !matches!(far.progress(), Err(LaneError::Closed)) {
                if far.arm().is_err() {
                    break;
                }
            }
        });
        let mut poller = poller(&near);
        for _ in 0..30 {
            near.send(vec![Block::Other(message.clone())]).unwrap();
            assert!(matches!(answer(&mut near, &mut poller), Arrived::Short(_)));
        }
        drop(near);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever the two lists of segments are, every byte arrives: also with more pieces than the
    /// card is given at once.
    #[test]
    fn segments_need_not_match(
        sent in proptest::collection::vec(1..200_usize, 1..1500),
        posted in proptest::collection::vec(1..20_000_usize, 1..60),
        way in 0..4_usize,
    ) {
        let tuning = PortTuning { threshold_bytes: 64, ..tuning() };
        let Some(mut ports) = pair(&ways()[way], &tuning) else {
            return Ok(());
        };
        let room: usize = posted.iter().sum();
        let message = pattern(sent.iter().sum::<usize>().min(room).max(65));
        let memory = posted.iter().map(|bytes| Block::Other(vec![0; *bytes])).collect();
        ports[1].post(memory).unwrap();
        let mut rest = message.as_slice();
        let mut from = Vec::new();
        for length in sent {
            let (now, then) = rest.split_at(rest.len().min(length));
            from.push(Block::Other(now.to_vec()));
            rest = then;
        }
        from.push(Block::Other(rest.to_vec()));
        ports[0].send(from).unwrap();
        let arrived = match arrival(&mut ports) {
            Arrived::Posted(memory, length) => gathered(&memory, length),
            Arrived::Unposted(slot) => bytes_of(&slot),
            Arrived::Short(_) => panic!("it is not short"),
        };
        prop_assert!(arrived == message);
    }
}
