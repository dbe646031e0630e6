//! A peer that writes what it should not: lanes over real memory, with its side in the hands of
//! the test.

use super::super::HslTerms;
use super::super::attack::{self, Attack, SLOTS};
use super::super::host::HostCard;
use super::super::layout::REGISTERED_AT;
use super::super::message::{Kind, identifier};
use super::super::put::{MessageId, Sending};
use crate::local::memory::{Mapping, PeerAccess, SharedBytes};
use crate::local::stranger::Terms;
use crate::piece::Piece;
use crate::protocol::HslTuning;
use crate::{LaneClass, LaneError, LaneReceiver, LaneSender};

/// What a card of the peer's tells.
fn tell(card: &mut HostCard, message: MessageId, length: u32, words: [u64; 2]) {
    attack::tell(card, message, length, words).unwrap();
}

fn is_violation<T: std::fmt::Debug>(result: &Result<T, LaneError>, what: &str) -> bool {
    matches!(result, Err(LaneError::Peer { what: said, .. }) if said.contains(what))
}

#[test]
fn impossible_messages_are_violations() {
    for (message, length, what) in [
        (identifier(Kind::Short, SLOTS), 1, "no such slot"),
        (identifier(Kind::Short, 0), 101, "smaller"),
        (identifier(Kind::Data, SLOTS), 1, "no such slot"),
        (identifier(Kind::Data, 0), 201, "smaller"),
        (identifier(Kind::Data, u32::MAX >> 4), 1, "no such slot"),
        (identifier(Kind::Request, 0), 0, "no message of a lane"),
        (identifier(Kind::Credit, 0), 0, "no message of a lane"),
        (MessageId(0), 0, "no message of a lane"),
        (MessageId(u32::MAX), 0, "no message of a lane"),
    ] {
        let mut attack = Attack::new();
        tell(
            &mut attack.messages,
            identifier(Kind::Short, 1),
            100,
            [0; 2],
        );
        tell(&mut attack.messages, message, length, [0; 2]);
        tell(&mut attack.messages, identifier(Kind::Short, 2), 1, [0; 2]);
        let good = attack.receiver.try_receive_slot().unwrap().unwrap();
        assert_eq!(good.len(), 100);
        let refused = attack.receiver.try_receive_slot();
        assert!(is_violation(&refused, what), "{message:?}: {refused:?}");
        assert!(
            attack.receiver.try_receive_slot().is_err(),
            "nothing counts after it"
        );
        assert!(attack.receiver.arm().is_err());
    }
}

#[test]
fn parts_that_no_slot_has_room_for_are_violations() {
    for (kind, length, before) in [
        (Kind::Short, 1, 100),
        (Kind::Short, 0, 101),
        (Kind::Data, 100, 101),
        (Kind::Data, 1, u64::from(u32::MAX)),
        (Kind::Data, 0, 1 << 32),
        (Kind::Data, 200, u64::MAX),
    ] {
        let mut attack = Attack::new();
        let id = identifier(kind, 1);
        tell(&mut attack.messages, id, 60, [40, u64::MAX]);
        tell(
            &mut attack.messages,
            identifier(kind, 2),
            length,
            [before, 0],
        );
        let good = attack.receiver.try_receive_slot().unwrap().unwrap();
        assert_eq!(good.len(), 100);
        let refused = attack.receiver.try_receive_slot();
        assert!(is_violation(&refused, "smaller"), "{before}: {refused:?}");
    }
}

#[test]
fn a_slot_that_is_held_cannot_come_again() {
    for kind in [Kind::Short, Kind::Data] {
        let mut attack = Attack::new();
        tell(&mut attack.messages, identifier(kind, 1), 1, [0; 2]);
        tell(&mut attack.messages, identifier(kind, 1), 1, [0; 2]);
        let held = attack.receiver.try_receive_slot().unwrap().unwrap();
        let again = attack.receiver.try_receive_slot();
        assert!(is_violation(&again, "not been returned"), "{again:?}");
        drop(held);
    }
}

/// A put that travels in its entry, as the peer's card writes it.
fn carry(card: &mut HostCard, message: MessageId, to: usize, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap();
    let told = attack::told(message, length, to, [0; 2]);
    card.try_add_from(Piece::new(bytes), &told).unwrap();
}

#[test]
fn a_slot_that_is_held_is_not_written() {
    let attack = Attack::new();
    let geometry = attack.own.geometry;
    let rows = [geometry.control_row(), geometry.buffer_row()];
    for (row, kind) in rows.into_iter().zip([Kind::Short, Kind::Data]) {
        for (at, is_held) in [
            (row.slot_at(1), true),
            (row.slot_at(1) + row.slot_bytes as usize - 1, true),
            (row.slot_at(1) - 1, true),
            (row.slot_at(2), false),
            (row.slot_at(0), false),
        ] {
            let mut attack = Attack::new();
            tell(&mut attack.messages, identifier(kind, 1), 100, [0; 2]);
            let held = attack.receiver.try_receive_slot().unwrap().unwrap();
            carry(&mut attack.messages, identifier(kind, 2), at, &[7; 8]);
            let next = attack.receiver.try_receive_slot();
            assert_eq!(
                is_violation(&next, "not been returned"),
                is_held,
                "{at}: {next:?}"
            );
            let mut read = [1; 100];
            held.copy_out(0, &mut read);
            assert_eq!(read, [0; 100], "nothing is written");

            let mut attack = Attack::new();
            tell(&mut attack.messages, identifier(kind, 1), 100, [0; 2]);
            drop(attack.receiver.try_receive_slot().unwrap().unwrap());
            carry(&mut attack.messages, identifier(kind, 2), at, &[7; 8]);
            assert!(
                attack.receiver.try_receive_slot().is_ok(),
                "it is free again"
            );
        }
    }
}

#[test]
fn an_answer_brings_no_data() {
    let mut attack = Attack::new();
    let free = identifier(Kind::Credit, 0);
    carry(&mut attack.answers, free, REGISTERED_AT, &[7; 8]);
    let refused = attack.sender.try_lend();
    assert!(is_violation(&refused, "may carry"), "{refused:?}");
}

#[test]
fn impossible_answers_are_violations() {
    let all = (1 << SLOTS) - 1;
    for (kind, group, words, what) in [
        (Kind::Credit, 0, [1 << SLOTS, 0], "no such slot"),
        (Kind::Credit, 0, [u64::MAX, 0], "no such slot"),
        (Kind::Credit, 1, [1, 0], "no such group"),
        (Kind::Credit, u32::MAX >> 4, [1, 0], "no such group"),
        (Kind::Response, 0, [0, 1 << SLOTS], "no such slot"),
        (Kind::Response, 7, [0, 1], "no such group"),
        (Kind::Credit, 0, [0, 0], "frees nothing"),
        (Kind::Credit, 0, [0, 1], "frees nothing"),
        (Kind::Response, 0, [0, 0], "frees nothing"),
        (Kind::Short, 0, [0, 0], "no answer"),
        (Kind::Data, 0, [0, 0], "no answer"),
    ] {
        let mut attack = Attack::new();
        tell(&mut attack.answers, identifier(kind, group), 0, words);
        let refused = attack.sender.try_lend();
        assert!(
            is_violation(&refused, what),
            "{kind:?} {group}: {refused:?}"
        );
        assert!(attack.sender.try_lend().is_err());
        assert!(attack.sender.arm().is_err());
    }
    let mut attack = Attack::new();
    for _ in 0..2 {
        tell(
            &mut attack.answers,
            identifier(Kind::Response, 0),
            0,
            [all, all],
        );
    }
    let twice = attack.sender.try_lend();
    assert!(is_violation(&twice, "free already"), "{twice:?}");
}

#[test]
fn a_peer_that_offers_nothing_is_sent_nothing() {
    let mut attack = Attack::new();
    let all = (1 << SLOTS) - 1;
    tell(
        &mut attack.answers,
        identifier(Kind::Credit, 0),
        0,
        [all, 0],
    );
    assert!(attack.sender.try_lend().unwrap().is_none(), "no buffers");
    tell(
        &mut attack.answers,
        identifier(Kind::Response, 0),
        0,
        [0, 0b10],
    );
    let slot = attack.sender.try_lend().unwrap().unwrap();
    assert!(attack.sender.try_lend().unwrap().is_none(), "one buffer");
    attack.sender.commit(slot, 150).unwrap();
    assert!(attack.sender.try_lend().unwrap().is_none());
}

#[test]
fn a_buffer_that_is_being_filled_is_not_granted_again() {
    let mut attack = Attack::new();
    let offer = |attack: &mut Attack, control| {
        let words = [control, 0b1];
        tell(&mut attack.answers, identifier(Kind::Response, 0), 0, words);
        attack.sender.try_lend()
    };
    let mut slot = offer(&mut attack, 0b01).unwrap().unwrap();
    slot.room(..).put(Piece::new(&[7; 150]));
    let refused = offer(&mut attack, 0b10);
    assert!(is_violation(&refused, "being filled"), "{refused:?}");
    assert!(matches!(
        attack.sender.commit(slot, 150),
        Err(LaneError::Closed)
    ));
}

#[test]
fn a_peer_that_reads_no_answers_does_not_keep_anybody() {
    let mut attack = Attack::new();
    // It uses its slots as if it had been told that they are free, and never reads its list.
    let refused = loop {
        tell(&mut attack.messages, identifier(Kind::Short, 1), 1, [0; 2]);
        match attack.receiver.try_receive_slot() {
            Ok(slot) => drop(slot.unwrap()),
            Err(error) => break error,
        }
        // Looks whether all is well, as who is about to sleep does.
        if let Err(error) = attack.receiver.arm() {
            break error;
        }
    };
    assert!(matches!(refused, LaneError::Closed), "{refused}");
}

#[test]
#[cfg_attr(miri, ignore = "so much noise takes it minutes")]
fn lists_full_of_anything_are_read_without_harm() {
    let mut attack = Attack::new();
    let bytes = SharedBytes::new(attack.own.memory.clone());
    let mut state = 1_u64;
    for _ in 0..200 {
        let noise: Vec<u8> = (0..REGISTERED_AT / 8)
            .flat_map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                state.to_le_bytes()
            })
            .collect();
        bytes.write(0, &noise);
        let _ = attack.receiver.try_receive_slot();
        let _ = attack.receiver.arm();
        let _ = attack.sender.try_lend();
        let _ = attack.sender.arm();
    }
}

#[test]
#[cfg_attr(miri, ignore = "its sockets always wait")]
fn an_endless_bell_does_not_keep_anybody() {
    let mut attack = Attack::new();
    attack.ring();
    attack.receiver.acknowledge_wake();
    attack.sender.acknowledge_wake();
    assert!(attack.receiver.arm().unwrap());
    assert!(attack.receiver.try_receive_slot().unwrap().is_none());
    assert!(attack.sender.try_lend().unwrap().is_none());
}

#[test]
fn what_was_put_before_death_is_received() {
    let mut attack = Attack::new();
    tell(&mut attack.messages, identifier(Kind::Data, 3), 7, [0; 2]);
    attack.hang_up();
    assert!(!attack.receiver.arm().unwrap(), "something is there");
    assert_eq!(
        attack.receiver.try_receive_slot().unwrap().unwrap().len(),
        7
    );
    assert!(matches!(
        attack.receiver.try_receive_slot(),
        Err(LaneError::Closed)
    ));
    assert!(matches!(attack.receiver.arm(), Err(LaneError::Closed)));
    assert!(matches!(attack.sender.arm(), Err(LaneError::Closed)));
    assert!(matches!(attack.sender.try_lend(), Err(LaneError::Closed)));
}

#[test]
#[cfg_attr(miri, ignore = "it knows no memory with a descriptor")]
fn memory_that_is_not_as_agreed_is_refused() {
    let terms = HslTerms::of(&HslTuning::default());
    let (own, _file, said) = terms.prepare(LaneClass::Urgent).unwrap();
    let length = own.geometry.memory_bytes();
    for (length, access, what) in [
        (length - 1, PeerAccess::Write, "bytes instead of"),
        (length, PeerAccess::Read, "cannot be mapped"),
    ] {
        let (_memory, file) = Mapping::create(c"test", length, access).unwrap();
        let refused = terms.meet(&own, &said, &file).unwrap_err();
        assert!(refused.contains(what), "{refused}");
    }
}
