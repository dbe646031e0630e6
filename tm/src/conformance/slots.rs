//! Static lanes: slots are lent, committed, received and given back.

use std::time::Duration;

use bytes::BytesMut;

use super::Rig;
use super::meeting::Pair;
use super::traffic::{sleep_until_arrival, sleep_until_room};
use crate::{
    Lane, LaneClass, LaneError, LaneReceiver, LaneSender, LentSlot, Piece, ReceivedSlot, Room,
    Shape,
};

pub(super) fn static_pair(rig: &Rig, class: LaneClass) -> Option<Pair> {
    let pair = Pair::new(rig, class);
    matches!(pair.dialer.sender.shape(), Shape::Static { .. }).then_some(pair)
}

fn lend_all(sender: &mut dyn LaneSender) -> Vec<LentSlot> {
    let mut lent = Vec::new();
    while let Some(slot) = sender.try_lend().expect("lending") {
        lent.push(slot);
    }
    lent
}

/// Lends `count` slots, as many as there are: those that the other side has given back may still
/// be on their way.
pub(super) fn lend_every(sender: &mut dyn LaneSender, count: usize) -> Vec<LentSlot> {
    let mut lent = lend_all(sender);
    while lent.len() < count {
        sleep_until_room(sender).expect("waiting");
        lent.extend(lend_all(sender));
    }
    assert_eq!(lent.len(), count);
    lent
}

/// Lends a slot, waiting for one if it has to.
fn lend_one(sender: &mut dyn LaneSender) -> LentSlot {
    loop {
        match sender.try_lend().expect("lending") {
            Some(slot) => return slot,
            None => sleep_until_room(sender).expect("waiting"),
        }
    }
}

fn send_copy(sender: &mut dyn LaneSender, unit: &[u8]) {
    while !sender.try_send_copy(unit).expect("sending") {
        sleep_until_room(sender).expect("waiting");
    }
}

pub(super) fn receive_slots(receiver: &mut dyn LaneReceiver, count: usize) -> Vec<ReceivedSlot> {
    let mut received = Vec::new();
    while received.len() < count {
        match receiver.try_receive_slot().expect("receiving") {
            Some(slot) => received.push(slot),
            None => sleep_until_arrival(receiver).expect("waiting"),
        }
    }
    received
}

fn first_byte(slot: &ReceivedSlot) -> u8 {
    let mut byte = [0];
    slot.copy_out(0, &mut byte);
    byte[0]
}

/// Every slot can be lent, and then there is none; slots are committed in any order and
/// keep that order; those that are dropped are there again; a slot may be empty or full.
/// All of that from either end of a lane.
pub fn lent_slots(rig: &Rig) {
    for class in [LaneClass::Urgent, LaneClass::Bulk] {
        let Some(Pair {
            mut dialer,
            mut acceptor,
        }) = static_pair(rig, class)
        else {
            return;
        };
        lend_and_return(&mut dialer, &mut acceptor);
        lend_and_return(&mut acceptor, &mut dialer);
        lend_and_return(&mut dialer, &mut acceptor);
    }
}

fn lend_and_return(from: &mut Lane, to: &mut Lane) {
    let Shape::Static { slot_bytes, slots } = from.sender.shape() else {
        panic!("one end of a lane is static, the other is not");
    };
    assert_eq!(
        from.sender.shape(),
        to.sender.shape(),
        "both ends send alike"
    );
    assert_eq!(to.receiver.shape(), from.sender.shape());
    let (sender, receiver) = (from.sender.as_mut(), to.receiver.as_mut());
    for round in 0..3 {
        let mut lent = lend_every(sender, slots);
        assert!(
            receiver
                .try_receive_slot()
                .expect("nothing committed")
                .is_none()
        );
        // Every second one unused; the others from the back, from another thread.
        let mut index = 0_u8;
        lent.retain(|_| {
            index = index.wrapping_add(1);
            index.is_multiple_of(2)
        });
        let filled = std::thread::spawn(move || {
            let mut number = round;
            for slot in lent.iter_mut().rev() {
                let unit = vec![number; slot_bytes];
                assert_eq!(slot.capacity(), slot_bytes);
                slot.room(..).put(Piece::new(&unit));
                number = number.wrapping_add(1);
            }
            lent
        });
        let lent = filled.join().expect("filling");
        let count = lent.len();
        for (index, slot) in lent.into_iter().rev().enumerate() {
            let length = if index == 0 { slot_bytes } else { index };
            sender.commit(slot, length).expect("committing");
        }
        let mut number = round;
        for (index, slot) in receive_slots(receiver, count).into_iter().enumerate() {
            let length = if index == 0 { slot_bytes } else { index };
            assert_eq!(slot.len(), length);
            let mut unit = vec![0; length];
            slot.copy_out(0, &mut unit);
            assert!(
                unit.iter().all(|byte| *byte == number),
                "not in the order of their commits"
            );
            number = number.wrapping_add(1);
        }
    }
    let empty = lend_one(sender);
    sender.commit(empty, 0).expect("committing");
    assert!(receive_slots(receiver, 1)[0].is_empty());
    assert!(matches!(
        sender.try_send(&[]),
        Err(LaneError::WrongShape(_))
    ));
    assert!(matches!(
        receiver.try_receive(Room::default(), &mut BytesMut::new()),
        Err(LaneError::WrongShape(_))
    ));
}

/// Received slots can be held, and are given back in any order and from any thread; the
/// sender gets exactly those, and a sender that sleeps is woken by them.
pub fn held_slots(rig: &Rig) {
    let Some(Pair {
        mut dialer,
        mut acceptor,
    }) = static_pair(rig, LaneClass::Urgent)
    else {
        return;
    };
    let Shape::Static { slots, .. } = dialer.sender.shape() else {
        return;
    };
    let (sender, receiver) = (dialer.sender.as_mut(), acceptor.receiver.as_mut());
    for round in 0..50_usize {
        let mut count = 0;
        for mut slot in lend_every(sender, slots) {
            let number = u8::try_from(count).expect("few slots");
            slot.room(..).put(Piece::new(&[number]));
            sender.commit(slot, 1).expect("committing");
            count += 1;
        }
        let mut held = receive_slots(receiver, count);
        for (index, slot) in held.iter().enumerate() {
            assert_eq!(usize::from(first_byte(slot)), index, "a held slot changed");
        }
        assert!(
            sender.try_lend().expect("lending").is_none(),
            "all are held"
        );

        let back = held.split_off(count / 2);
        let returner = std::thread::spawn(move || {
            for slot in back.into_iter().rev() {
                drop(slot);
                if round.is_multiple_of(8) {
                    // Let the sender fall asleep between, sometimes.
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        });
        let mut lent = Vec::new();
        while lent.len() < count - count / 2 {
            match sender.try_lend().expect("lending") {
                Some(slot) => lent.push(slot),
                None => sleep_until_room(sender).expect("waiting"),
            }
        }
        returner.join().expect("returning");
        assert!(
            sender.try_lend().expect("lending").is_none(),
            "the rest is held"
        );
        for (index, slot) in held.iter().enumerate() {
            assert_eq!(usize::from(first_byte(slot)), index, "a held slot changed");
        }
    }
}

/// What is small is copied into slots and out of them, between others that are lent and held:
/// order and bytes are kept, and every slot comes back.
pub fn copied_slots(rig: &Rig) {
    let Some(Pair {
        mut dialer,
        mut acceptor,
    }) = static_pair(rig, LaneClass::Urgent)
    else {
        return;
    };
    let Shape::Static { slot_bytes, slots } = dialer.sender.shape() else {
        return;
    };
    let (sender, receiver) = (dialer.sender.as_mut(), acceptor.receiver.as_mut());
    let mut into = BytesMut::new();
    assert_eq!(receiver.try_receive_copy(&mut into).expect("nothing"), None);
    assert!(matches!(
        sender.try_send_copy(&vec![0; slot_bytes + 1]),
        Err(LaneError::Misuse(_))
    ));
    for round in 0..3_u8 {
        for length in [0, 1, 8, 120, 121, 200, slot_bytes] {
            let unit: Vec<u8> = (0..=u8::MAX)
                .cycle()
                .skip(round.into())
                .take(length)
                .collect();
            // In each of two ways, and out in each of two.
            for sends_copy in [true, false, true, false] {
                if sends_copy {
                    send_copy(sender, &unit);
                } else {
                    let mut slot = lend_one(sender);
                    slot.room(..).put(Piece::new(&unit));
                    sender.commit(slot, length).expect("committing");
                }
            }
            into.clear();
            into.extend_from_slice(b"before");
            for _ in 0..2 {
                assert_eq!(receive_copy(receiver, &mut into), length);
            }
            assert_eq!(&into[..6], b"before");
            assert!(into[6..6 + length] == unit[..] && into[6 + length..] == unit[..]);
            for slot in receive_slots(receiver, 2) {
                assert_eq!(slot.len(), length);
                slot.copy_out(0, &mut into[..length]);
                assert!(into[..length] == unit[..]);
            }
        }
        send_copy(sender, &[round; 100]);
        let held = receive_slots(receiver, 1);
        assert_eq!((held[0].len(), first_byte(&held[0])), (100, round));

        // All but the one that is held; one that finds none free sends nothing.
        for number in 0..slots - 1 {
            let number = u8::try_from(number % 251).expect("a byte");
            send_copy(sender, &[number]);
        }
        assert!(!sender.try_send_copy(b"one more").expect("sending"));
        assert_eq!(first_byte(&held[0]), round, "it is held");
        drop(held);
        into.clear();
        for _ in 0..slots - 1 {
            assert_eq!(receive_copy(receiver, &mut into), 1);
        }
        let in_order = |(at, byte): (usize, &u8)| usize::from(*byte) == at % 251;
        assert!(into.iter().enumerate().all(in_order));
    }
}

/// Slots that were copied out are all free again when nothing more comes, also where the receiver
/// only looks, and never sleeps.
pub fn copied_slots_come_back(rig: &Rig) {
    let Some(mut pair) = static_pair(rig, LaneClass::Urgent) else {
        return;
    };
    let Shape::Static { slots, .. } = pair.dialer.sender.shape() else {
        return;
    };
    let (sender, receiver) = (pair.dialer.sender.as_mut(), pair.acceptor.receiver.as_mut());
    let mut into = BytesMut::new();
    // Not a multiple of how many may be told of at once.
    let count = slots - 1;
    for _ in 0..3 {
        for _ in 0..count {
            send_copy(sender, b"x");
        }
        into.clear();
        while into.len() < count {
            receiver.try_receive_copy(&mut into).expect("receiving");
        }
        for _ in 0..2 {
            let more = receiver.try_receive_copy(&mut into).expect("looking");
            assert_eq!(more, None);
        }
    }
}

fn receive_copy(receiver: &mut dyn LaneReceiver, into: &mut BytesMut) -> usize {
    loop {
        match receiver.try_receive_copy(into).expect("receiving") {
            Some(bytes) => return bytes,
            None => sleep_until_arrival(receiver).expect("waiting"),
        }
    }
}

/// A slot of another lane, or more than a slot holds, cannot be committed, and the lane
/// goes on.
pub fn foreign_slots(rig: &Rig) {
    let Some(mut pair) = static_pair(rig, LaneClass::Urgent) else {
        return;
    };
    let Some(mut other) = static_pair(rig, LaneClass::Urgent) else {
        return;
    };
    let Shape::Static { slot_bytes, slots } = pair.dialer.sender.shape() else {
        return;
    };
    let sender = pair.dialer.sender.as_mut();
    let foreign = lend_one(other.dialer.sender.as_mut());
    assert!(matches!(
        sender.commit(foreign, 1),
        Err(LaneError::Misuse(_))
    ));
    assert!(matches!(
        sender.commit(LentSlot::detached(8), 1),
        Err(LaneError::Misuse(_))
    ));
    let slot = lend_one(sender);
    assert!(matches!(
        sender.commit(slot, slot_bytes + 1),
        Err(LaneError::Misuse(_))
    ));
    // Refused slots went back, and foreign ones too.
    drop(lend_every(sender, slots));
    drop(lend_every(other.dialer.sender.as_mut(), slots));
    assert!(
        pair.acceptor
            .receiver
            .try_receive_slot()
            .expect("receiving")
            .is_none()
    );
}
