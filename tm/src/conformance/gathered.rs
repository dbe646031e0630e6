//! Static lanes: units gathered from the caller's memory.

use std::cell::Cell;

use super::Rig;
use super::slots::{lend_every, receive_slots, static_pair};
use super::traffic::{pattern_from, sleep_until_room};
use crate::{LaneClass, LaneError, LaneReceiver, LaneSender, Piece, ReceivedSlot, Shape};

/// Bytes in front of a payload, as frames have.
const HEAD_BYTES: usize = 56;

fn send_gathered(sender: &mut dyn LaneSender, pieces: &[Piece<'_>]) {
    while !sender.try_send_gathered(pieces).expect("sending") {
        sleep_until_room(sender).expect("waiting");
    }
}

fn bytes_of(slot: &ReceivedSlot) -> Vec<u8> {
    let mut bytes = vec![0; slot.len()];
    slot.copy_out(0, &mut bytes);
    bytes
}

fn receive_unit(receiver: &mut dyn LaneReceiver) -> Vec<u8> {
    bytes_of(&receive_slots(receiver, 1)[0])
}

/// Units come whole and in order, however many pieces they are gathered from and whatever those
/// are; the memory is the caller's again at once; what does not fit, and what finds no slot, is
/// not begun; and a slot that is lent can be sent all the same.
pub fn gathered_slots(rig: &Rig) {
    for class in [LaneClass::Urgent, LaneClass::Bulk] {
        let Some(mut pair) = static_pair(rig, class) else {
            return;
        };
        let Shape::Static { slot_bytes, slots } = pair.dialer.sender.shape() else {
            return;
        };
        let sender = pair.dialer.sender.as_mut();
        let receiver = pair.acceptor.receiver.as_mut();
        every_size(sender, receiver, slot_bytes);
        odd_pieces(sender, receiver, slot_bytes);
        only_as_many_as_there_are(sender, receiver, slots);
        send_gathered(sender, &[Piece::new(&pattern_from(3, slot_bytes))]);
        let arrived = receive_slots(receiver, 1).remove(0);
        let back = pair.acceptor.sender.as_mut();
        goes_back(arrived, slot_bytes, back, pair.dialer.receiver.as_mut());
    }
}

/// A head and a payload, of sizes at which protocols change their ways.
fn every_size(sender: &mut dyn LaneSender, receiver: &mut dyn LaneReceiver, slot_bytes: usize) {
    let sizes = (0..=80)
        .chain(
            (7..)
                .map(|power| 1 << power)
                .take_while(|size| *size < slot_bytes),
        )
        .flat_map(|size| [size - 1.min(size), size, size + 1])
        .chain([slot_bytes - 1, slot_bytes])
        .filter(|size| *size <= slot_bytes);
    let mut memory = vec![0; slot_bytes];
    for (number, size) in sizes.enumerate() {
        let unit = pattern_from(number, size);
        memory[..size].copy_from_slice(&unit);
        let (head, payload) = memory[..size].split_at(HEAD_BYTES.min(size));
        send_gathered(sender, &[Piece::new(head), Piece::new(payload)]);
        memory[..size].fill(0xEE);
        assert!(receive_unit(receiver) == unit, "{size} bytes");
    }
}

/// None, empty ones, many, cells, and more than a slot holds.
fn odd_pieces(sender: &mut dyn LaneSender, receiver: &mut dyn LaneReceiver, slot_bytes: usize) {
    send_gathered(sender, &[]);
    assert!(receive_unit(receiver).is_empty());
    send_gathered(sender, &[Piece::default(), Piece::default()]);
    assert!(receive_unit(receiver).is_empty());

    let unit = pattern_from(0, slot_bytes);
    let mut pieces = vec![Piece::default()];
    for part in unit.chunks(slot_bytes / 37 + 1) {
        pieces.extend([Piece::new(part), Piece::default()]);
    }
    send_gathered(sender, &pieces);
    assert!(receive_unit(receiver) == unit);

    let cells: Vec<Cell<u8>> = unit.iter().copied().map(Cell::new).collect();
    let (one, other) = cells.split_at(slot_bytes / 3);
    send_gathered(sender, &[Piece::from_cells(one), Piece::from_cells(other)]);
    cells[0].set(!cells[0].get());
    assert!(receive_unit(receiver) == unit);

    pieces.push(Piece::new(b"x"));
    let refused = sender.try_send_gathered(&pieces);
    assert!(matches!(refused, Err(LaneError::Misuse(_))), "{refused:?}");
    let none = receiver.try_receive_slot().expect("receiving");
    assert!(none.is_none(), "something of what was refused");
}

/// As many as there are slots, of which some are lent.
fn only_as_many_as_there_are(
    sender: &mut dyn LaneSender,
    receiver: &mut dyn LaneReceiver,
    slots: usize,
) {
    let mut lent = lend_every(sender, slots);
    assert!(
        !sender
            .try_send_gathered(&[Piece::new(b"none")])
            .expect("sending")
    );
    let kept = lent.pop().expect("some slots");
    drop(lent);
    for number in 0..slots - 1 {
        let number = u8::try_from(number % 251).expect("a byte");
        send_gathered(sender, &[Piece::new(&[number]), Piece::new(b" of many")]);
    }
    let all_sent = sender.try_send_gathered(&[Piece::new(b"one"), Piece::new(b" more")]);
    assert!(!all_sent.expect("sending"), "the last slot is lent");
    sender.commit(kept, 1).expect("a slot that was lent");
    for (number, slot) in receive_slots(receiver, slots).iter().enumerate() {
        let bytes = bytes_of(slot);
        if number == slots - 1 {
            assert_eq!(bytes.len(), 1);
        } else {
            assert_eq!(usize::from(bytes[0]), number % 251);
            assert_eq!(&bytes[1..], b" of many");
        }
    }
}

/// What arrived is sent on from its slot with another head, as gateways do.
fn goes_back(
    arrived: ReceivedSlot,
    slot_bytes: usize,
    sender: &mut dyn LaneSender,
    receiver: &mut dyn LaneReceiver,
) {
    let head_bytes = HEAD_BYTES.min(slot_bytes);
    let mut unit = pattern_from(3, slot_bytes);
    unit[..head_bytes].fill(7);
    let head = [7; HEAD_BYTES];
    let pieces = [Piece::new(&head[..head_bytes]), arrived.piece(head_bytes..)];
    send_gathered(sender, &pieces);
    drop(arrived);
    assert!(receive_unit(receiver) == unit);
}
