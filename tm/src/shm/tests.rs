//! A peer that writes what it should not: lanes over real memory, with its side in the
//! hands of the test.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use super::entry::Entry;
use super::layout::{Geometry, PUBLISH_AT, RETURN_AT};
use super::memory::{OwnMemory, PeerMemory};
use super::receiver::{ShmReceiver, receiver};
use super::sender::ShmSender;
use super::terms::ShmTerms;
use crate::local::bell::Bell;
use crate::local::memory::OwnWords;
use crate::local::ring::RingWriter;
use crate::local::sync::{OwnWord, Words};
use crate::local::tests::threads::{UNIT_BYTES_MAX, units_travel};
use crate::{LaneError, LaneReceiver, LaneSender, ShmTuning};

/// Ours, and the peer's memory and bell ends.
struct Attack {
    sender: ShmSender,
    receiver: ShmReceiver,
    memory: OwnMemory,
    bells: Vec<UnixStream>,
}

const SLOTS: u32 = 4;

/// The memory of one side, and as the other one sees it. Miri knows no memory with a descriptor:
/// there, both are the same mapping.
fn memory() -> (OwnMemory, PeerMemory) {
    let geometry = Geometry::new(SLOTS.into(), 100).unwrap();
    if cfg!(miri) {
        return OwnMemory::without_descriptor(geometry).unwrap();
    }
    let (memory, file) = OwnMemory::new(geometry).unwrap();
    let seen = PeerMemory::new(&file, geometry).unwrap();
    (memory, seen)
}

fn attack() -> Attack {
    let (own, _) = memory();
    let (memory, peer) = memory();
    let (sending, far_sending) = UnixStream::pair().unwrap();
    let (receiving, far_receiving) = UnixStream::pair().unwrap();
    Attack {
        sender: ShmSender::new(
            &own,
            &peer,
            Bell::new(sending.into()),
            &ShmTerms::of(&ShmTuning::default()),
        ),
        receiver: receiver(&own, &peer, Bell::new(receiving.into())),
        memory,
        bells: vec![far_sending, far_receiving],
    }
}

impl Attack {
    fn publisher(&self) -> RingWriter<OwnWords, 1> {
        RingWriter::new(self.memory.words(PUBLISH_AT, SLOTS as usize))
    }

    fn returner(&self) -> RingWriter<OwnWords, 1> {
        RingWriter::new(self.memory.words(RETURN_AT, SLOTS as usize))
    }

    /// The peer is gone. Not by closing alone: a process that another test starts holds what this
    /// one has open until it runs its program.
    fn hang_up(&mut self) {
        for bell in self.bells.drain(..) {
            // Miri does not know it, and starts no processes.
            let _ = bell.shutdown(Shutdown::Both);
        }
    }
}

fn is_violation<T: std::fmt::Debug>(result: &Result<T, LaneError>, what: &str) -> bool {
    matches!(result, Err(LaneError::Peer { what: said, .. }) if said.contains(what))
}

#[test]
fn impossible_publications_are_violations() {
    for (entry, what) in [
        (
            Entry {
                slot: SLOTS,
                length: 1,
            },
            "no such slot",
        ),
        (
            Entry {
                slot: u32::MAX >> 1,
                length: 1,
            },
            "no such slot",
        ),
        (
            Entry {
                slot: 0,
                length: 101,
            },
            "smaller",
        ),
        (
            Entry {
                slot: 0,
                length: u32::MAX,
            },
            "smaller",
        ),
    ] {
        let mut attack = attack();
        let mut publisher = attack.publisher();
        publisher.publish(
            Entry {
                slot: 1,
                length: 100,
            }
            .to_words(),
        );
        publisher.publish(entry.to_words());
        publisher.publish(Entry { slot: 2, length: 1 }.to_words());
        let good = attack.receiver.try_receive_slot().unwrap().unwrap();
        assert_eq!(good.len(), 100);
        let refused = attack.receiver.try_receive_slot();
        assert!(is_violation(&refused, what), "{refused:?}");
        assert!(
            attack.receiver.try_receive_slot().is_err(),
            "nothing counts after it"
        );
        assert!(attack.receiver.arm().is_err());
    }
}

#[test]
fn a_slot_that_is_held_cannot_come_again() {
    let mut attack = attack();
    let mut publisher = attack.publisher();
    publisher.publish(Entry { slot: 1, length: 1 }.to_words());
    publisher.publish(Entry { slot: 1, length: 1 }.to_words());
    let held = attack.receiver.try_receive_slot().unwrap().unwrap();
    let again = attack.receiver.try_receive_slot();
    assert!(is_violation(&again, "not been returned"), "{again:?}");
    drop(held);
}

#[test]
fn impossible_returns_are_violations() {
    for slot in [0, SLOTS, u32::MAX >> 1] {
        let mut attack = attack();
        let mut returner = attack.returner();
        // Slot 0 is lent, not with the peer.
        let lent: Vec<_> = std::iter::from_fn(|| attack.sender.try_lend().unwrap()).collect();
        assert_eq!(lent.len(), SLOTS as usize);
        returner.publish(Entry { slot, length: 0 }.to_words());
        let refused = attack.sender.try_lend();
        assert!(is_violation(&refused, "does not have"), "{refused:?}");
        assert!(attack.sender.try_lend().is_err());
    }
}

#[test]
fn a_slot_that_is_returned_twice_is_a_violation() {
    let mut attack = attack();
    let mut returner = attack.returner();
    for _ in 0..SLOTS {
        let slot = attack.sender.try_lend().unwrap().unwrap();
        attack.sender.commit(slot, 1).unwrap();
    }
    returner.publish(Entry { slot: 2, length: 0 }.to_words());
    returner.publish(Entry { slot: 2, length: 0 }.to_words());
    let refused = attack.sender.try_lend();
    assert!(is_violation(&refused, "slot 2"), "{refused:?}");
}

#[test]
fn phases_that_flip_wildly_end_in_a_violation() {
    let mut attack = attack();
    let memory = attack.memory.words(PUBLISH_AT, SLOTS as usize);
    // Every read finds a new entry of the same slot: at the latest its second use is one
    // too many, unless it was given back, as here.
    for lap in 0..100_u64 {
        for word in memory.words() {
            word.store_release((lap + 1) << 63 | 1);
        }
        for _ in 0..SLOTS {
            drop(attack.receiver.try_receive_slot().unwrap().unwrap());
        }
        assert!(attack.receiver.try_receive_slot().unwrap().is_none());
    }
}

#[test]
#[cfg_attr(miri, ignore = "its sockets always wait")]
fn an_endless_bell_does_not_keep_anybody() {
    let mut attack = attack();
    for bell in &attack.bells {
        bell.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &*bell, &[1; 4096]).is_ok() {}
    }
    attack.receiver.acknowledge_wake();
    attack.sender.acknowledge_wake();
    assert!(attack.receiver.arm().unwrap());
    assert!(attack.receiver.try_receive_slot().unwrap().is_none());
    assert!(attack.sender.try_lend().unwrap().is_some());
}

#[test]
fn what_is_committed_before_death_is_received() {
    let mut attack = attack();
    let mut publisher = attack.publisher();
    publisher.publish(Entry { slot: 3, length: 7 }.to_words());
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
fn death_is_noticed_by_polling_alone() {
    let mut attack = attack();
    let lent: Vec<_> = std::iter::from_fn(|| attack.sender.try_lend().unwrap()).collect();
    attack.hang_up();
    while attack.receiver.try_receive_slot().is_ok() {}
    while attack.sender.try_lend().is_ok() {}
    drop(lent);
}

#[test]
fn units_travel_between_threads() {
    let (near, near_seen) = memory();
    let (far, far_seen) = memory();
    let (bell, far_bell) = UnixStream::pair().unwrap();
    units_travel(
        ShmSender::new(
            &near,
            &far_seen,
            Bell::new(bell.into()),
            &ShmTerms::of(&ShmTuning::default()),
        ),
        receiver(&far, &near_seen, Bell::new(far_bell.into())),
        UNIT_BYTES_MAX,
    );
}
