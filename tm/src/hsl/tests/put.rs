//! PUT over two emulated cards, without anything above.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::host::{Connection, HostCard, HostDevice, HostList, ListPlace, Mode};
use super::super::layout::{REGISTERED_AT, receiver_place};
use super::super::put::{
    Address, CARRIED_MOST, Descriptor, Device, Entry, FLUSHED_MOST, MessageId, Name, NodeNumber,
    Notify, Offered, Put, PutError, Reaching, Received, Receiving,
};
use super::modes;
use crate::local::arrivals::Lending;
use crate::local::bell::Bell;
use crate::local::memory::{Mapping, SharedBytes};
use crate::poller::Interest;

const REGISTERED_BYTES: usize = 10_000;
const ENTRIES: usize = 8;

fn place() -> ListPlace {
    receiver_place(ENTRIES, REGISTERED_AT..REGISTERED_AT + REGISTERED_BYTES)
}

struct Side {
    memory: Arc<Mapping>,
    bell: Arc<Bell>,
    far_bell: Arc<Bell>,
    number: u16,
}

/// Two nodes, 3 and 4, that can write each other's memory.
fn sides() -> [Side; 2] {
    let length = REGISTERED_AT + REGISTERED_BYTES;
    let (one, other) = UnixStream::pair().unwrap();
    let bells = [one, other].map(|socket| Arc::new(Bell::new(socket.into())));
    [0, 1].map(|index| {
        let memory = Mapping::for_card(length).unwrap();
        Side {
            memory,
            bell: Arc::clone(&bells[index]),
            far_bell: Arc::clone(&bells[index]),
            number: 3 + u16::try_from(index).unwrap(),
        }
    })
}

impl Side {
    fn halves(&self, peer: &Side, mode: Mode) -> (HostCard, HostList) {
        let to = Connection {
            local_registered: REGISTERED_AT..self.memory.len(),
            node: NodeNumber(self.number),
            peer: NodeNumber(peer.number),
            window: Arc::clone(&peer.memory),
            registered: REGISTERED_AT..peer.memory.len(),
            list: place(),
            bell: Arc::clone(&self.far_bell),
        };
        let card = HostCard::new(Arc::clone(&self.memory), mode, to);
        let other = NodeNumber(peer.number);
        let list = HostList::new(&self.memory, place(), other, mode, Arc::clone(&self.bell));
        (card, list)
    }

    fn put(&self, peer: &Side, mode: Mode) -> Put<HostDevice> {
        let (card, list) = self.halves(peer, mode);
        match mode {
            Mode::Interrupt => Put::with_interrupts(card, list).unwrap(),
            Mode::Polling | Mode::Adaptive => Put::polling(card, list),
        }
    }

    fn bytes(&self) -> SharedBytes {
        SharedBytes::new(Arc::clone(&self.memory))
    }
}

fn descriptor() -> Descriptor {
    Descriptor {
        destination: NodeNumber(4),
        local: Address(REGISTERED_AT as u64),
        remote: Address(REGISTERED_AT as u64 + 100),
        length: 10,
        message: MessageId(77),
        notify: Notify {
            sent: true,
            received: true,
        },
        words: [5, 6],
    }
}

fn wait_for(put: &mut Put<HostDevice>) -> Received {
    loop {
        if let Some(received) = put.received_notify().unwrap() {
            return received;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_put_is_written_and_notified_at_both_ends_in_every_mode() {
    for mode in modes() {
        let sides = sides();
        let mut near = sides[0].put(&sides[1], mode);
        let mut far = sides[1].put(&sides[0], mode);
        sides[0].bytes().write(REGISTERED_AT, b"0123456789");
        near.add_entry(&descriptor()).unwrap();
        assert_eq!(
            wait_for(&mut far),
            Received {
                source: NodeNumber(3),
                message: MessageId(77),
                length: 10,
                words: [5, 6],
            }
        );
        let mut written = [0; 12];
        sides[1].bytes().read(REGISTERED_AT + 99, &mut written);
        assert_eq!(&written, b"\x000123456789\0");
        assert_eq!(near.sent_notify(), Some(MessageId(77)));
        assert_eq!(near.sent_notify(), None);
        assert_eq!(far.received_notify(), Ok(None));
        // The handler may have found the entry before it was woken for it, but is woken then.
        while mode == Mode::Interrupt && far.interrupts() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(far.interrupts() > 0, mode == Mode::Interrupt);
    }
}

#[test]
fn entries_without_notification_are_written_in_order_before_the_one_that_has_it() {
    let sides = sides();
    let (mut near, mut far) = (
        sides[0].put(&sides[1], Mode::Polling),
        sides[1].put(&sides[0], Mode::Polling),
    );
    sides[0].bytes().write(REGISTERED_AT, b"0123456789");
    for (at, received) in [(0, false), (5, true)] {
        near.add_entry(&Descriptor {
            local: Address(REGISTERED_AT as u64 + at),
            remote: Address(REGISTERED_AT as u64 + 20 - 2 * at),
            length: 5,
            notify: Notify {
                sent: false,
                received,
            },
            ..descriptor()
        })
        .unwrap();
    }
    assert_eq!(far.flush_received_list(), Ok(1));
    assert_eq!(near.flush_send_list(), 0);
    let mut written = [0; 15];
    sides[1].bytes().read(REGISTERED_AT + 10, &mut written);
    assert_eq!(&written, b"56789\0\0\0\0\x0001234");
}

/// Entries that name another node, or bytes that are not registered, are refused, counted, and
/// nothing is written or told.
#[test]
fn wrong_entries_are_refused_before_anything_is_written() {
    let end = (REGISTERED_AT + REGISTERED_BYTES) as u64;
    type Change = fn(&mut Descriptor, u64);
    let changes: [Change; 10] = [
        |entry, _| entry.destination = NodeNumber(3),
        |entry, _| entry.destination = NodeNumber(5),
        |entry, end| entry.local = Address(end - 9),
        |entry, _| entry.local = Address(u64::MAX - 5),
        |entry, _| entry.remote = Address(REGISTERED_AT as u64 - 1),
        |entry, _| entry.local = Address(REGISTERED_AT as u64 - 1),
        |entry, _| entry.local = Address(0),
        |entry, end| entry.remote = Address(end - 9),
        |entry, _| entry.remote = Address(u64::MAX),
        |entry, _| entry.length = u32::MAX,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let sides = sides();
        let mut near = sides[0].put(&sides[1], Mode::Polling);
        let mut far = sides[1].put(&sides[0], Mode::Polling);
        sides[0]
            .bytes()
            .write(REGISTERED_AT, &[7; REGISTERED_BYTES]);
        let mut wrong = descriptor();
        change(&mut wrong, end);
        let before = super::super::counters().refused;
        let refused = near.add_entry(&wrong);
        assert!(
            matches!(
                refused,
                Err(PutError::Node(_) | PutError::Local(..) | PutError::Remote(..))
            ),
            "{number}: {refused:?}"
        );
        assert!(super::super::counters().refused > before);
        assert_eq!(far.received_notify(), Ok(None));
        assert_eq!(near.sent_notify(), None);
        let mut all = vec![1; sides[1].memory.len()];
        sides[1].bytes().read(0, &mut all);
        assert!(all == vec![0; all.len()], "{number}: written");
        near.add_entry(&descriptor()).unwrap();
        assert_eq!(far.flush_received_list(), Ok(1), "it goes on");
    }
}

#[test]
fn a_list_that_is_not_read_takes_no_more() {
    let sides = sides();
    let mut near = sides[0].put(&sides[1], Mode::Polling);
    let mut far = sides[1].put(&sides[0], Mode::Polling);
    for round in 0..20 {
        for _ in 0..ENTRIES {
            near.add_entry(&descriptor()).unwrap();
        }
        assert_eq!(
            near.add_entry(&descriptor()),
            Err(PutError::Full),
            "{round}"
        );
        assert_eq!(far.flush_received_list(), Ok(ENTRIES));
        assert_eq!(near.flush_send_list(), ENTRIES);
    }
}

/// The list of a node that writes faster than anybody reads.
#[derive(Debug)]
struct Endless(HostList);

impl Receiving for Endless {
    fn keep_out_of(&mut self, _slots: Arc<dyn Lending>) {}

    fn next_received(&mut self) -> Result<Option<Received>, PutError> {
        Ok(Some(Received {
            source: NodeNumber(3),
            message: MessageId(1),
            length: 0,
            words: [0; 2],
        }))
    }

    fn has_next(&mut self) -> bool {
        true
    }

    fn may_have_next(&self) -> bool {
        true
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        self.0.descriptor()
    }

    fn acknowledge(&mut self) -> bool {
        self.0.acknowledge()
    }

    fn is_peer_there(&mut self) -> bool {
        self.0.is_peer_there()
    }

    fn close(&mut self) {
        self.0.close();
    }
}

/// A card with such a list.
#[derive(Debug)]
struct Flooded;

impl Device for Flooded {
    type Sending = HostCard;
    type Receiving = Endless;

    const SENDS_AT_ONCE: bool = true;
}

#[test]
fn a_flush_ends_whatever_the_other_side_writes() {
    let sides = sides();
    let (card, list) = sides[1].halves(&sides[0], Mode::Polling);
    let mut put: Put<Flooded> = Put::polling(card, Endless(list));
    assert_eq!(put.flush_received_list(), Ok(FLUSHED_MOST));
}

#[test]
fn too_many_offers_are_refused_and_none_of_them_counts() {
    let sides = sides();
    let (mut card, _) = sides[0].halves(&sides[1], Mode::Polling);
    let ranges = |count: u64| {
        (0..count).map(|number| Offered {
            range: number * 10..number * 10 + 5,
            name: Name::default(),
        })
    };
    assert_eq!(card.offer(ranges(64)), Ok(()));
    assert!(matches!(card.offer(ranges(65)), Err(PutError::Peer(_))));
}

#[test]
fn a_reader_that_claims_too_much_is_found_out() {
    let sides = sides();
    let mut near = sides[0].put(&sides[1], Mode::Polling);
    for read in [9, u64::MAX, 1 << 63] {
        sides[1]
            .bytes()
            .write(place().head_at, &u64::to_le_bytes(read));
        let refused = loop {
            match near.add_entry(&descriptor()) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, PutError::Peer(_)), "{refused}");
    }
}

#[test]
fn entries_of_a_node_that_cannot_have_written_them_are_found_out() {
    let sides = sides();
    let (_, mut list) = sides[1].halves(&sides[0], Mode::Polling);
    let entry = Entry {
        received: Received {
            source: NodeNumber(9),
            message: MessageId(1),
            length: 0,
            words: [0; 2],
        },
        carried: None,
    };
    tells(&sides[1], entry);
    assert!(matches!(list.next_received(), Err(PutError::Peer(_))));
}

/// The other side writes an entry by itself.
fn tells(side: &Side, entry: Entry) {
    let mut words = entry.to_words();
    words[0] |= 1 << 63;
    for (at, word) in words.into_iter().enumerate() {
        let place = place().at + at * 8;
        side.bytes().write(place, &word.to_le_bytes());
    }
}

#[test]
fn entries_carry_data_to_registered_memory_only() {
    let end = (REGISTERED_AT + REGISTERED_BYTES) as u64;
    for (at, is_registered) in [
        (REGISTERED_AT as u64, true),
        (end - 20, true),
        (end - 19, false),
        (REGISTERED_AT as u64 - 1, false),
        (0, false),
        ((1 << 56) - 1, false),
    ] {
        let sides = sides();
        let (_, mut list) = sides[1].halves(&sides[0], Mode::Polling);
        let received = Received {
            source: NodeNumber(3),
            message: MessageId(1),
            length: 20,
            words: [0; 2],
        };
        let carried = Some((Address(at), [7; CARRIED_MOST]));
        tells(&sides[1], Entry { received, carried });
        let taken = list.next_received();
        assert_eq!(taken == Ok(Some(received)), is_registered, "{at:#x}");
        let mut seen = vec![1; sides[1].memory.len()];
        sides[1].bytes().read(0, &mut seen);
        // What the lists say is not data.
        for (at, length) in [(place().at, 64), (place().head_at, 8)] {
            seen[at..at + length].fill(0);
        }
        let mut expected = vec![0; seen.len()];
        if is_registered {
            let at = usize::try_from(at).unwrap();
            expected[at..at + 20].fill(7);
        }
        assert!(seen == expected, "{at:#x}");
    }
}

proptest! {
    /// Whatever an entry says, what is not registered is never written.
    #[test]
    fn a_card_writes_registered_memory_only(
        destination in 0..6_u16,
        local in prop_oneof![any::<u64>(), 0..600_000_u64],
        remote in prop_oneof![any::<u64>(), 0..600_000_u64],
        length in prop_oneof![any::<u32>(), 0..12_000_u32],
    ) {
        let sides = sides();
        let mut near = sides[0].put(&sides[1], Mode::Polling);
        sides[0].bytes().write(REGISTERED_AT, &[7; REGISTERED_BYTES]);
        let put = near.add_entry(&Descriptor {
            destination: NodeNumber(destination),
            local: Address(local),
            remote: Address(remote),
            length,
            notify: Notify::default(),
            ..descriptor()
        });
        let mut lists = vec![1; REGISTERED_AT];
        sides[1].bytes().read(0, &mut lists);
        prop_assert!(lists == vec![0; REGISTERED_AT]);
        if put.is_ok() {
            prop_assert_eq!(destination, 4);
            prop_assert!(length == 0 || remote + u64::from(length) <= sides[1].memory.len() as u64);
        }
    }
}
