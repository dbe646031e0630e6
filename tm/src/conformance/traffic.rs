//! Bytes over a lane of either shape: order, sizes, sleeping, back-pressure.

use bytes::BytesMut;

use super::Rig;
use super::meeting::{Pair, wait_for};
use crate::{LaneClass, LaneError, LaneReceiver, LaneSender, Piece, Room, Shape};

/// Bytes of a stream on which every place can be told from its neighbours.
pub(super) fn pattern(position: usize) -> u8 {
    let [low, middle, high, ..] = position.to_le_bytes();
    low ^ middle.rotate_left(3) ^ high.rotate_left(5)
}

pub(super) fn pattern_from(position: usize, length: usize) -> Vec<u8> {
    (position..position + length).map(pattern).collect()
}

/// Sends what goes now of `bytes`, whatever the lane's shape; `None` when nothing does.
pub(super) fn send_some(
    sender: &mut dyn LaneSender,
    bytes: &[u8],
) -> Result<Option<usize>, LaneError> {
    match sender.shape() {
        Shape::Dynamic { .. } => {
            let sent = sender.try_send(&[Piece::new(bytes)])?;
            Ok((sent > 0 || bytes.is_empty()).then_some(sent))
        }
        Shape::Static { .. } => {
            let Some(mut slot) = sender.try_lend()? else {
                return Ok(None);
            };
            let count = bytes.len().min(slot.capacity());
            slot.room(..).put(Piece::new(&bytes[..count]));
            sender.commit(slot, count)?;
            Ok(Some(count))
        }
    }
}

/// Appends what is there now to `into`; how much that is.
pub(super) fn receive_some(
    receiver: &mut dyn LaneReceiver,
    into: &mut Vec<u8>,
) -> Result<usize, LaneError> {
    match receiver.shape() {
        Shape::Dynamic { .. } => {
            let mut batch = BytesMut::with_capacity(256 << 10);
            let count = receiver.try_receive(Room::default(), &mut batch)?;
            into.extend_from_slice(&batch);
            Ok(count)
        }
        Shape::Static { .. } => {
            let Some(slot) = receiver.try_receive_slot()? else {
                return Ok(0);
            };
            let start = into.len();
            into.resize(start + slot.len(), 0);
            slot.copy_out(0, &mut into[start..]);
            Ok(slot.len())
        }
    }
}

/// Sleeps until the lane takes more, or is gone.
pub(super) fn sleep_until_room(sender: &mut dyn LaneSender) -> Result<(), LaneError> {
    if sender.arm()? {
        let (descriptor, interest) = sender.descriptor();
        wait_for(descriptor, interest, sender);
        sender.acknowledge_wake();
    }
    Ok(())
}

/// Sleeps until something arrives, or the lane is gone.
pub(super) fn sleep_until_arrival(receiver: &mut dyn LaneReceiver) -> Result<(), LaneError> {
    if receiver.arm()? {
        let (descriptor, interest) = receiver.descriptor();
        wait_for(descriptor, interest, receiver);
        receiver.acknowledge_wake();
    }
    Ok(())
}

/// Sends all of `bytes`, sleeping whenever nothing goes.
pub(super) fn send_all(sender: &mut dyn LaneSender, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match send_some(sender, bytes).expect("sending") {
            Some(count) => bytes = &bytes[count..],
            None => sleep_until_room(sender).expect("waiting for room"),
        }
    }
}

/// Receives exactly `length` bytes, sleeping whenever nothing comes.
pub(super) fn receive_all(receiver: &mut dyn LaneReceiver, length: usize) -> Vec<u8> {
    let mut received = Vec::with_capacity(length);
    while received.len() < length {
        if receive_some(receiver, &mut received).expect("receiving") == 0 {
            sleep_until_arrival(receiver).expect("waiting for arrivals");
        }
    }
    assert_eq!(received.len(), length, "more came than was sent");
    received
}

/// What is sent in pieces of every small size arrives in order, on each class of lane.
pub fn order(rig: &Rig) {
    for class in [LaneClass::Urgent, LaneClass::Bulk] {
        let Pair {
            mut dialer,
            mut acceptor,
        } = Pair::new(rig, class);
        let (mut sent, mut received) = (0, Vec::new());
        for length in (1..700).chain(1..300) {
            let end = sent + length;
            while sent < end {
                let bytes = pattern_from(sent, end - sent);
                match send_some(dialer.sender.as_mut(), &bytes).expect("sending") {
                    Some(count) => sent += count,
                    None => _ = receive_some(acceptor.receiver.as_mut(), &mut received),
                }
            }
        }
        while received.len() < sent {
            receive_some(acceptor.receiver.as_mut(), &mut received).expect("receiving");
        }
        assert!(
            received == pattern_from(0, sent),
            "{class:?}: not what was sent"
        );
    }
}

/// Messages from nothing to several MiB arrive whole, both ways on an urgent lane.
pub fn sizes(rig: &Rig) {
    let sizes = [
        0,
        1,
        7,
        4095,
        4096,
        65_535,
        65_536,
        65_537,
        1 << 20,
        (5 << 20) + 3,
    ];
    let Pair {
        mut dialer,
        mut acceptor,
    } = Pair::new(rig, LaneClass::Bulk);
    let mut back = Pair::new(rig, LaneClass::Urgent);
    for size in sizes {
        let message = pattern_from(size, size);
        for (sender, receiver) in [
            (&mut dialer.sender, &mut acceptor.receiver),
            (&mut back.dialer.sender, &mut back.acceptor.receiver),
            (&mut back.acceptor.sender, &mut back.dialer.receiver),
        ] {
            let (mut rest, mut received) = (&message[..], Vec::new());
            while received.len() < size {
                if let Some(count) = send_some(sender.as_mut(), rest).expect("sending") {
                    rest = &rest[count..];
                }
                receive_some(receiver.as_mut(), &mut received).expect("receiving");
            }
            assert!(received == message, "{size} bytes changed on their way");
        }
    }
}

/// Two sides that sleep whenever they can lose no wake-up.
pub fn sleeping(rig: &Rig) {
    const TOTAL: usize = 8 << 20;
    const ROUNDS: usize = 2000;
    let Pair {
        mut dialer,
        mut acceptor,
    } = Pair::new(rig, LaneClass::Urgent);
    let whole = pattern_from(0, TOTAL);
    std::thread::scope(|scope| {
        scope.spawn({
            let (whole, dialer) = (&whole, &mut dialer);
            move || {
                send_all(dialer.sender.as_mut(), whole);
                // The first round must not run into the whole.
                receive_all(dialer.receiver.as_mut(), 1);
                for round in 0..ROUNDS {
                    send_all(dialer.sender.as_mut(), &[pattern(round)]);
                    assert_eq!(receive_all(dialer.receiver.as_mut(), 1), [pattern(round)]);
                }
            }
        });
        let received = receive_all(acceptor.receiver.as_mut(), TOTAL);
        assert!(received == whole, "not what was sent");
        send_all(acceptor.sender.as_mut(), b"!");
        for round in 0..ROUNDS {
            assert_eq!(receive_all(acceptor.receiver.as_mut(), 1), [pattern(round)]);
            send_all(acceptor.sender.as_mut(), &[pattern(round)]);
        }
    });
}

/// A receiver that does not read stops its sender, after a bounded number of bytes; the
/// sender is woken when there is room again, and nothing is lost.
pub fn back_pressure(rig: &Rig) {
    /// More than any lane may hold.
    const BOUND: usize = 64 << 20;
    for class in [LaneClass::Urgent, LaneClass::Bulk] {
        let Pair {
            mut dialer,
            mut acceptor,
        } = Pair::new(rig, class);
        let block = pattern_from(0, 60_000);
        let mut sent = Vec::new();
        // A stream's kernel buffers may still move: full is when it stays so.
        let mut refusals = 0;
        while refusals < 100 {
            match send_some(dialer.sender.as_mut(), &block).expect("sending") {
                Some(count) => {
                    sent.extend_from_slice(&block[..count]);
                    refusals = 0;
                }
                None => {
                    refusals += 1;
                    std::thread::yield_now();
                }
            }
            assert!(
                sent.len() < BOUND,
                "{class:?}: takes {BOUND} bytes that nobody reads"
            );
        }
        let shape = dialer.sender.shape();
        if let Shape::Static { slot_bytes, slots } = shape {
            assert!(sent.len() <= slot_bytes * slots, "more than its slots hold");
        }
        std::thread::scope(|scope| {
            let (more, filled, acceptor) = (10 * block.len(), sent.len(), &mut acceptor);
            let reader =
                scope.spawn(move || receive_all(acceptor.receiver.as_mut(), filled + more));
            for _ in 0..10 {
                send_all(dialer.sender.as_mut(), &block);
                sent.extend_from_slice(&block);
            }
            assert!(
                reader.join().expect("the reader") == sent,
                "not what was sent"
            );
        });
    }
}
