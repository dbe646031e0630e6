//! Two ports in one process.

mod copies;
mod hostile;
mod shorts;

use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::start::without_descriptors;
use super::*;
use crate::hsl::layout::REQUESTS_MAX;
use crate::hsl::tests::modes;
use crate::poller::Poller;

fn pair_of(near: PortTuning, far: PortTuning) -> [Port; 2] {
    let mut ports = if cfg!(miri) {
        // Which knows no memory with a descriptor.
        without_descriptors(&[near, far]).unwrap()
    } else {
        greeted(near, far)
    };
    // Each has told the other that all control slots are free.
    for port in &mut ports {
        while port.control.len() < port.peer_geometry.control_row().slots as usize {
            port.progress().unwrap();
        }
    }
    ports
}

fn greeted(near: PortTuning, far: PortTuning) -> [Port; 2] {
    let (one, other) = UnixStream::pair().unwrap();
    let mut starts = [
        PortStart::new(one, true, near).unwrap(),
        PortStart::new(other, false, far).unwrap(),
    ];
    let mut ports = [None, None];
    while ports.iter().any(Option::is_none) {
        for (start, port) in starts.iter_mut().zip(&mut ports) {
            if port.is_none() {
                *port = start.advance().unwrap();
            }
        }
    }
    ports.map(Option::unwrap)
}

fn pair(tuning: &PortTuning) -> [Port; 2] {
    pair_of(tuning.clone(), tuning.clone())
}

/// Goes on at both ends until a message has arrived at the second.
pub(in crate::hsl) fn arrival<D: PortDevice>([near, far]: &mut [Port<D>; 2]) -> Arrived {
    loop {
        near.progress().unwrap();
        far.progress().unwrap();
        if let Some(arrived) = far.next_arrived() {
            return arrived;
        }
    }
}

pub(in crate::hsl) fn bytes_of(slot: &ReceivedSlot) -> Vec<u8> {
    let mut bytes = vec![0; slot.len()];
    slot.copy_out(0, &mut bytes);
    bytes
}

pub(in crate::hsl) fn pattern(length: usize) -> Vec<u8> {
    let lap: Vec<u8> = (0..251).collect();
    let mut bytes = lap.repeat(length.div_ceil(lap.len()));
    bytes.truncate(length);
    bytes
}

/// Blocks of these lengths, with `bytes` in them as far as they go.
pub(in crate::hsl) fn blocks(arena: &Arena, lengths: &[usize], mut bytes: &[u8]) -> Vec<Block> {
    lengths
        .iter()
        .map(|length| {
            let mut buffer = arena.allocate(u32::try_from(*length).unwrap()).unwrap();
            let (now, rest) = bytes.split_at(bytes.len().min(*length));
            buffer.write(0, now);
            bytes = rest;
            Block::Arena(buffer)
        })
        .collect()
}

pub(in crate::hsl) fn gathered(blocks: &[Block], length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for block in blocks {
        let mut part = vec![0; block.len()];
        block.read(0, &mut part);
        bytes.extend(part);
    }
    bytes.truncate(usize::try_from(length).unwrap());
    bytes
}

fn tuned(mode: Mode) -> PortTuning {
    PortTuning {
        mode,
        ..PortTuning::default()
    }
}

const SHORTS: usize = if cfg!(miri) { 20 } else { 200 };

#[test]
fn short_messages_arrive_in_every_mode() {
    for mode in modes() {
        let mut ports = pair(&tuned(mode));
        for round in 0..SHORTS {
            let message = pattern(round * 80);
            while !ports[0].send_short(&message).unwrap() {
                ports[0].progress().unwrap();
            }
            let Arrived::Short(slot) = arrival(&mut ports) else {
                panic!("not a short message");
            };
            assert_eq!(bytes_of(&slot), message, "{mode:?}");
        }
        let counters = ports[0].counters();
        assert_eq!(
            (counters.shorts, counters.copies),
            (SHORTS as u64, SHORTS as u64)
        );
        assert_eq!(ports[1].interrupts() > 0, mode == Mode::Interrupt);
    }
}

/// The smaller threshold counts: what one side's control slots hold may be more than the other one
/// has staging for.
#[test]
fn thresholds_may_differ() {
    let low = PortTuning {
        threshold_bytes: 100,
        ..tuned(Mode::Polling)
    };
    let mut ports = pair_of(low, tuned(Mode::Polling));
    for _ in 0..2 {
        assert_eq!(ports[0].threshold_bytes(), 100);
        let message = pattern(5000);
        let whole = u32::try_from(ports[0].arena().capacity()).unwrap() - 8192;
        let rest = ports[0].arena().allocate(whole).unwrap();
        assert!(matches!(
            ports[0].send_short(&message),
            Err(LaneError::Misuse(_))
        ));
        let sent = blocks(ports[0].arena(), &[message.len()], &message);
        ports[0].send(sent).unwrap();
        let Arrived::Unposted(slot) = arrival(&mut ports) else {
            panic!("it is not short");
        };
        assert_eq!(bytes_of(&slot), message);
        let mut untouched = vec![1; rest.len()];
        rest.read(0, &mut untouched);
        assert!(untouched == vec![0; untouched.len()]);
        ports.reverse();
    }
}

#[test]
#[cfg_attr(miri, ignore = "so many rounds take it minutes")]
fn credit_rides_on_what_goes_back_or_goes_by_itself() {
    let mut ports = pair(&tuned(Mode::Polling));
    let at_first = ports.each_ref().map(|port| port.counters().credits);
    for _ in 0..100 {
        assert!(ports[0].send_short(b"ping").unwrap());
        drop(arrival(&mut ports));
        assert!(ports[1].send_short(b"pong").unwrap());
        while ports[0].next_arrived().is_none() {
            ports[0].progress().unwrap();
        }
    }
    let there_and_back = ports.each_ref().map(|port| port.counters().credits);
    assert_eq!(there_and_back, at_first, "all of it rode");
    for _ in 0..100 {
        assert!(ports[0].send_short(b"one way").unwrap());
        drop(arrival(&mut ports));
        ports[1].progress().unwrap();
        ports[0].progress().unwrap();
    }
    let credits = ports[1].counters().credits - at_first[1];
    assert!(
        (3..=7).contains(&credits),
        "half of 32 at a time: {credits}"
    );
}

#[test]
fn slots_that_are_exhausted_come_back() {
    let mut ports = pair(&tuned(Mode::Adaptive));
    let mut sent = 0;
    while ports[0].send_short(b"more").unwrap() {
        sent += 1;
        ports[0].progress().unwrap();
    }
    assert_eq!(sent, PortTuning::default().slots);
    let held: Vec<Arrived> = (0..sent).map(|_| arrival(&mut ports)).collect();
    ports[1].progress().unwrap();
    assert!(!ports[0].send_short(b"more").unwrap(), "all are held");
    drop(held);
    ports[1].progress().unwrap();
    ports[0].progress().unwrap();
    assert!(ports[0].send_short(b"more").unwrap());
}

#[test]
fn a_large_message_goes_into_what_was_posted_before_or_after_it() {
    let without_buffers = PortTuning {
        buffers: 0,
        ..PortTuning::default()
    };
    let mut ports = pair(&without_buffers);
    let message = pattern(300_000);
    for posts_first in [true, false] {
        let memory = blocks(ports[1].arena(), &[100_000, 50_000, 200_000], &[]);
        // What is too small stays for another message.
        let small = blocks(ports[1].arena(), &[1000], &[]);
        ports[1].post(small).unwrap();
        let sent = blocks(ports[0].arena(), &[7, 200_000, 99_993], &message);
        if posts_first {
            ports[1].post(memory).unwrap();
            ports[0].send(sent).unwrap();
        } else {
            ports[0].send(sent).unwrap();
            ports[1].progress().unwrap();
            ports[1].post(memory).unwrap();
        }
        let Arrived::Posted(memory, length) = arrival(&mut ports) else {
            panic!("not where it was to go");
        };
        assert_eq!(gathered(&memory, length), message);
        let (_, sent) = ports[0].next_sent().unwrap();
        assert_eq!(sent.len(), 3);
    }
    let counters = ports[0].counters();
    assert_eq!((counters.rendezvous, counters.copies), (2, 0));
}

#[test]
fn what_nothing_was_posted_for_goes_into_buffers_and_then_waits() {
    let mut ports = pair(&tuned(Mode::Adaptive));
    let buffers = PortTuning::default().buffers;
    let message = pattern(20_000);
    let send = |port: &mut Port| {
        let sent = blocks(port.arena(), &[message.len()], &message);
        port.send(sent).unwrap();
    };
    (0..=buffers).for_each(|_| send(&mut ports[0]));
    let mut held: Vec<Arrived> = (0..buffers).map(|_| arrival(&mut ports)).collect();
    for arrived in &held {
        let Arrived::Unposted(slot) = arrived else {
            panic!("nothing was posted");
        };
        assert_eq!(bytes_of(slot), message);
    }
    ports.iter_mut().for_each(|port| port.progress().unwrap());
    assert!(ports[1].next_arrived().is_none(), "all buffers are held");
    held.pop();
    assert!(matches!(arrival(&mut ports), Arrived::Unposted(_)));

    // One that is larger than any buffer waits until something is posted.
    let long = pattern(PortTuning::default().buffer_bytes + 1);
    let sent = blocks(ports[0].arena(), &[long.len()], &long);
    ports[0].send(sent).unwrap();
    ports[1].progress().unwrap();
    assert!(ports[1].next_arrived().is_none());
    let memory = blocks(ports[1].arena(), &[long.len()], &[]);
    ports[1].post(memory).unwrap();
    let Arrived::Posted(memory, length) = arrival(&mut ports) else {
        panic!("it was posted");
    };
    assert_eq!(gathered(&memory, length), long);
}

#[test]
fn a_request_that_fits_nowhere_holds_up_none_behind_it() {
    let mut ports = pair(&tuned(Mode::Adaptive));
    let long = pattern(PortTuning::default().buffer_bytes + 1);
    let message = pattern(20_000);
    let [posted, unposted] = [pattern(30_000), message.clone()];
    for sent in [&long, &unposted, &posted] {
        let sent = blocks(ports[0].arena(), &[sent.len()], sent);
        ports[0].send(sent).unwrap();
    }
    for expected in [&unposted, &posted] {
        let Arrived::Unposted(slot) = arrival(&mut ports) else {
            panic!("nothing was posted");
        };
        assert_eq!(bytes_of(&slot), *expected, "there are buffers");
    }
    // What is posted is for the first that fits in it.
    let sent = blocks(ports[0].arena(), &[message.len()], &message);
    let memory = blocks(ports[1].arena(), &[message.len()], &[]);
    ports[1].post(memory).unwrap();
    ports[0].send(sent).unwrap();
    let Arrived::Posted(memory, length) = arrival(&mut ports) else {
        panic!("it was posted");
    };
    assert_eq!(gathered(&memory, length), message);
    let memory = blocks(ports[1].arena(), &[long.len()], &[]);
    ports[1].post(memory).unwrap();
    let Arrived::Posted(memory, length) = arrival(&mut ports) else {
        panic!("it was posted");
    };
    assert_eq!(gathered(&memory, length), long);
}

#[test]
fn memory_that_nothing_fits_in_is_not_posted() {
    let mut ports = pair(&tuned(Mode::Polling));
    let empty = ports[1].arena().allocate(0).unwrap();
    assert!(is_misuse(ports[1].post(vec![Block::Arena(empty)])));
    let untaken = ports[1].post(Vec::new()).unwrap_err();
    assert!(matches!(untaken.why, Why::Lane(LaneError::Misuse(_))));
}

#[test]
fn an_arena_is_as_large_as_what_can_be_allocated() {
    for (arena_bytes, capacity) in [(0, 0), (100, 0), (128, 128), ((1 << 20) + 1, 1 << 20)] {
        let tuning = PortTuning {
            arena_bytes,
            ..tuned(Mode::Polling)
        };
        let arena = pair(&tuning)[0].arena().clone();
        assert_eq!(arena.capacity(), capacity);
        let whole = u32::try_from(capacity).unwrap();
        assert_eq!(arena.allocate(whole).is_some(), capacity > 0);
    }
}

#[test]
fn a_port_without_buffers_takes_short_messages() {
    for buffer_bytes in [0, 1 << 20] {
        let tuning = PortTuning {
            buffers: 0,
            buffer_bytes,
            ..tuned(Mode::Polling)
        };
        let mut ports = pair(&tuning);
        assert!(ports[0].send_short(b"carried").unwrap());
        assert!(matches!(arrival(&mut ports), Arrived::Short(_)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "so many requests take it a minute")]
fn a_receiver_that_never_posts_bounds_its_sender() {
    let without_buffers = PortTuning {
        buffers: 0,
        ..PortTuning::default()
    };
    let mut ports = pair(&without_buffers);
    let mut taken = 0;
    loop {
        let message = vec![Block::Other(vec![0; 20_000])];
        match ports[0].send(message) {
            Ok(_) => taken += 1,
            Err(untaken) => {
                assert!(untaken.is_for_want_of_room(), "{untaken}");
                assert_eq!(block::length(&untaken.blocks), 20_000);
                break;
            }
        }
        ports.iter_mut().for_each(|port| port.progress().unwrap());
    }
    assert_eq!(taken, REQUESTS_MAX);
    assert!(ports[0].send_short(b"this still goes").unwrap());
    assert!(matches!(arrival(&mut ports), Arrived::Short(_)));
}

#[test]
#[cfg_attr(miri, ignore = "it knows no process_vm_writev")]
fn memory_outside_of_the_arena_is_written_through_the_kernel() {
    let foreign = PortTuning {
        foreign: true,
        ..PortTuning::default()
    };
    let mut ports = pair(&foreign);
    let message = pattern(100_000);
    let before = crate::hsl::counters();
    ports[1].post(vec![Block::Other(vec![0; 100_000])]).unwrap();
    ports[0].send(vec![Block::Other(message.clone())]).unwrap();
    ports[1].progress().unwrap();
    match ports[0].progress() {
        Ok(()) => {}
        // Some systems forbid it altogether.
        Err(error) if error.to_string().contains("cannot be reached") => return,
        Err(error) => panic!("{error}"),
    }
    let Arrived::Posted(memory, length) = arrival(&mut ports) else {
        panic!("it was posted");
    };
    assert_eq!(gathered(&memory, length), message);
    let after = crate::hsl::counters();
    assert!(after.foreign_puts > before.foreign_puts);

    let mut closed = pair_of(foreign, PortTuning::default());
    let refused = closed[0].post(vec![Block::Other(vec![0; 100_000])]);
    assert!(is_misuse(refused));
}

/// Whether what was posted came back, as it cannot be used so.
pub(in crate::hsl) fn is_misuse(posted: Result<(), Untaken>) -> bool {
    let untaken = posted.unwrap_err();
    assert_eq!(untaken.blocks.len(), 1, "{untaken}");
    matches!(untaken.why, Why::Lane(LaneError::Misuse(_)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever the two lists of segments are, every byte arrives; with more segments than an
    /// answer has room for, too.
    #[test]
    fn segments_need_not_match(
        sent in proptest::collection::vec(1..2000_usize, 1..120),
        posted in proptest::collection::vec(1..2000_usize, 1..120),
    ) {
        let mut ports = pair(&PortTuning { threshold_bytes: 64, ..tuned(Mode::Polling) });
        let room: usize = posted.iter().sum();
        let message = pattern(sent.iter().sum::<usize>().min(room).max(65));
        let memory = blocks(ports[1].arena(), &posted, &[]);
        ports[1].post(memory).unwrap();
        let mut lengths = Vec::new();
        let mut rest = message.len();
        for length in sent.iter().copied().chain([usize::MAX]) {
            let now = length.min(rest);
            lengths.push(now);
            rest -= now;
        }
        let sent = blocks(ports[0].arena(), &lengths, &message);
        ports[0].send(sent).unwrap();
        let arrived = match arrival(&mut ports) {
            Arrived::Posted(memory, length) => gathered(&memory, length),
            Arrived::Unposted(slot) => bytes_of(&slot),
            Arrived::Short(_) => panic!("it is not short"),
        };
        prop_assert_eq!(arrived, message);
    }
}

#[test]
#[cfg_attr(miri, ignore = "its sockets always wait")]
fn the_end_of_a_peer_is_noticed_in_every_mode() {
    for mode in modes() {
        let [mut near, mut far] = pair(&tuned(mode));
        assert!(near.send_short(b"last words").unwrap());
        drop(near);
        let mut heard = 0;
        let error = loop {
            match far.progress() {
                Ok(()) => {
                    while let Some(arrived) = far.next_arrived() {
                        assert!(matches!(arrived, Arrived::Short(_)));
                        heard += 1;
                    }
                }
                Err(error) => break error,
            }
        };
        heard += std::iter::from_fn(|| far.next_arrived()).count();
        assert!(matches!(error, LaneError::Closed), "{mode:?}: {error}");
        assert_eq!(heard, 1, "{mode:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "it knows no epoll that is not edge-triggered")]
fn a_sleeper_is_woken() {
    let [mut near, mut far] = pair(&tuned(Mode::Adaptive));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut poller = Poller::new().unwrap();
            let (descriptor, interest) = far.descriptor();
            poller.add(descriptor, 1, interest).unwrap();
            for _ in 0..100 {
                let arrived = loop {
                    far.progress().unwrap();
                    if let Some(arrived) = far.next_arrived() {
                        break arrived;
                    }
                    if far.arm().unwrap() {
                        poller.wait(Some(crate::conformance::SILENCE)).unwrap();
                        far.acknowledge();
                    }
                };
                drop(arrived);
                assert!(far.send_short(b"back").unwrap());
            }
        });
        for _ in 0..100 {
            assert!(near.send_short(b"there").unwrap());
            while near.next_arrived().is_none() {
                near.progress().unwrap();
                std::thread::yield_now();
            }
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "it knows no sockets")]
fn tunings_that_cannot_be_are_the_callers_mistake() {
    for (impossible, what) in [
        (
            PortTuning {
                threshold_bytes: 0,
                ..tuned(Mode::Polling)
            },
            "control messages have no bytes",
        ),
        (
            PortTuning {
                slots: 1,
                ..tuned(Mode::Polling)
            },
            "2 to 64 control slots",
        ),
        (
            PortTuning {
                slots: 65,
                ..tuned(Mode::Polling)
            },
            "2 to 64 control slots",
        ),
        (
            PortTuning {
                threshold_bytes: usize::MAX,
                ..tuned(Mode::Polling)
            },
            "more than 1 GiB",
        ),
    ] {
        let (socket, _other) = UnixStream::pair().unwrap();
        let error = PortStart::new(socket, true, impossible).unwrap_err();
        assert!(matches!(error, LaneError::Misuse(_)), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}
