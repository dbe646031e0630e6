//! Buffers of the other side that are lent: what is put there is there, and only to be told of.

use super::super::attack::{Attack, CONTROL_BYTES, tell};
use super::super::message::{Kind, identifier};
use crate::LaneSender;
use crate::local::loans::Row;
use crate::local::memory::SharedBytes;
use crate::piece::Piece;

/// An attack of which the peer offers all control slots, and these buffers.
fn offered(buffers: u64) -> Attack {
    let mut attack = Attack::new();
    let message = identifier(Kind::Response, 0);
    tell(&mut attack.answers, message, 0, [0b1111, buffers]).unwrap();
    attack
}

/// What the peer has in a slot.
fn read(attack: &Attack, row: Row, slot: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SharedBytes::new(attack.peer.memory.clone()).read(row.slot_at(slot), &mut bytes);
    bytes
}

#[test]
fn what_is_put_into_a_slot_is_where_it_goes() {
    let mut attack = offered(0b1010);
    let buffers = attack.peer.geometry.buffer_row();
    for (place, mark) in [(1, 7), (3, 8)] {
        let mut slot = attack.sender.try_lend().unwrap().unwrap();
        slot.room(..).put(Piece::new(&[mark; 150]));
        assert_eq!(read(&attack, buffers, place, 150), [mark; 150]);
        // What comes after it is left alone.
        slot.room(120..).put(Piece::new(&[9; 30]));
        attack.sender.commit(slot, 120).unwrap();
        assert_eq!(read(&attack, buffers, place, 120), [mark; 120]);
        assert_eq!(read(&attack, buffers, place, 121)[120], 9);
    }
    assert!(attack.sender.try_lend().unwrap().is_none());
}

#[test]
fn what_is_short_goes_to_a_control_slot_and_its_buffer_is_the_next_again() {
    let mut attack = offered(0b0110);
    let control = attack.peer.geometry.control_row();
    let buffers = attack.peer.geometry.buffer_row();
    let length = CONTROL_BYTES as usize;
    for (place, mark) in [(0, 7), (1, 8), (2, 9)] {
        let mut slot = attack.sender.try_lend().unwrap().unwrap();
        slot.room(..).put(Piece::new(&vec![mark; length]));
        attack.sender.commit(slot, length).unwrap();
        assert_eq!(read(&attack, control, place, length), vec![mark; length]);
        assert_eq!(read(&attack, buffers, 1, length), vec![mark; length]);
    }
    drop(attack.sender.try_lend().unwrap());
    let mut slot = attack.sender.try_lend().unwrap().unwrap();
    slot.room(..).put(Piece::new(&[6]));
    assert_eq!(
        read(&attack, buffers, 1, 1),
        [6],
        "as is one that was dropped"
    );
}
