//! PUT over the providers that need no hardware, in both ways in which order is kept.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;

use crate::conformance::has_card;
use crate::hsl::Card;
use crate::hsl::fabric::domain::{Domain, Wanted};
use crate::hsl::fabric::meeting::{FabricEstablishing, FabricTerms, Halves};
use crate::hsl::host::Mode;
use crate::hsl::layout::REGISTERED_AT;
use crate::hsl::put::{
    Address, Descriptor, MessageId, NodeNumber, Notify, PutError, Received, Receiving, Sending,
};
use crate::lane::LaneClass;
use crate::local::memory::SharedBytes;
use crate::piece::Piece;
use crate::protocol::HslTuning;

const PROVIDERS: [&str; 3] = ["tcp;ofi_rxm", "shm", "sockets"];
/// Who connects, and who accepts.
const NUMBERS: [NodeNumber; 2] = [NodeNumber(0), NodeNumber(1)];

/// Both ends, of which neither ever sleeps.
fn pair(provider: &str, in_any_order: bool) -> Option<[Halves; 2]> {
    let tuning = HslTuning {
        mode: Mode::Polling,
        urgent_slots: 4,
        urgent_slot_bytes: 4096,
        card: Card::Libfabric {
            provider: Some(provider.to_owned()),
            domain: None,
        },
        ..HslTuning::default()
    };
    if !has_card(&tuning.card) {
        return None;
    }
    let wanted = Wanted {
        provider: Some(provider.to_owned()),
        in_any_order,
        ..Wanted::default()
    };
    let _terms = FabricTerms::of(&tuning, wanted.clone()).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let begin = |socket: UnixStream, connects| {
        let class = LaneClass::Urgent;
        FabricEstablishing::begin(socket.into(), connects, class, &tuning, &wanted).unwrap()
    };
    let (mut near, mut far) = (begin(near, true), begin(far, false));
    assert!(near.exchange().unwrap().is_none());
    let far = far.exchange().unwrap().unwrap();
    Some([near.exchange().unwrap().unwrap(), far])
}

fn descriptor(length: u32, message: u32) -> Descriptor {
    Descriptor {
        destination: NUMBERS[1],
        local: Address(0),
        remote: Address(REGISTERED_AT as u64),
        length,
        message: MessageId(message),
        notify: Notify {
            sent: true,
            received: true,
        },
        words: [7, u64::MAX],
    }
}

/// Tries again while there is no room; both sides go on.
fn add(near: &mut Halves, far: &mut Halves, descriptor: &Descriptor) -> Vec<Received> {
    let mut received = Vec::new();
    loop {
        match near.sending.0.try_add(descriptor) {
            Ok(()) => return received,
            Err(PutError::Full) => {
                received.extend(far.receiving.1.next_received().unwrap());
                assert_eq!(near.sending.1.next_received(), Ok(None));
                while near.sending.0.next_sent().is_some() {}
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn messages_are_told_in_order_with_their_words_however_order_is_kept() {
    for provider in PROVIDERS {
        for in_any_order in [false, true] {
            let Some([mut near, mut far]) = pair(provider, in_any_order) else {
                continue;
            };
            // Several times what the list has room for, so that it says how far it was read.
            let messages = 2000;
            let mut received = Vec::new();
            for message in 0..messages {
                let length = [0, 4096, 33, 1][message as usize % 4];
                let put = descriptor(length, message);
                received.extend(add(&mut near, &mut far, &put));
            }
            while received.len() < messages as usize {
                received.extend(far.receiving.1.next_received().unwrap());
                assert_eq!(near.sending.1.next_received(), Ok(None));
            }
            for (message, received) in (0..).zip(&received) {
                let length = [0, 4096, 33, 1][message as usize % 4];
                let expected = Received {
                    source: NUMBERS[0],
                    message: MessageId(message),
                    length,
                    words: [7, u64::MAX],
                };
                assert_eq!(*received, expected, "{provider}");
            }
        }
    }
}

#[test]
fn data_is_where_it_was_put_and_what_was_sent_is_told() {
    for provider in PROVIDERS {
        let Some([mut near, mut far]) = pair(provider, false) else {
            continue;
        };
        // What a put may name on this side is memory that is sent from: zeros, until it is lent.
        let there = SharedBytes::new(far.own.clone());
        there.write(REGISTERED_AT + 100, &[5; 300]);
        let mut put = descriptor(200, 1);
        put.remote = Address(REGISTERED_AT as u64 + 150);
        near.sending.0.try_add(&put).unwrap();
        // Few bytes travel in the entry, from anywhere.
        let mut small = descriptor(0, 2);
        small.remote = Address(REGISTERED_AT as u64 + 500);
        near.sending
            .0
            .try_add_from(Piece::new(b"few bytes"), &small)
            .unwrap();
        let mut sent = Vec::new();
        let mut received = 0;
        while received < 2 || sent.len() < 2 {
            received += usize::from(far.receiving.1.next_received().unwrap().is_some());
            assert_eq!(near.sending.1.next_received(), Ok(None));
            sent.extend(near.sending.0.next_sent().map(|sent| sent.message));
        }
        sent.sort_by_key(|message| message.0);
        assert_eq!(sent, [MessageId(1), MessageId(2)], "{provider}");
        let mut bytes = [0; 300];
        there.read(REGISTERED_AT + 100, &mut bytes);
        let expected = [[5; 50].as_slice(), &[0; 200], &[5; 50]].concat();
        assert_eq!(bytes.as_slice(), expected, "{provider}");
        there.read(REGISTERED_AT + 500, &mut bytes[..9]);
        assert_eq!(&bytes[..9], b"few bytes");
    }
}

#[test]
fn what_is_not_registered_is_refused_before_anything_is_written() {
    let Some([mut near, mut far]) = pair("tcp;ofi_rxm", false) else {
        return;
    };
    let registered = near.geometries[1].memory_bytes() as u64;
    let refused = |change: &dyn Fn(&mut Descriptor)| {
        let mut put = descriptor(100, 9);
        change(&mut put);
        put
    };
    let wrong = [
        refused(&|put| put.destination = NodeNumber(5)),
        refused(&|put| put.local = Address(u64::MAX)),
        refused(&|put| put.local = Address(near.slots.len() as u64)),
        refused(&|put| put.remote = Address(0)),
        refused(&|put| put.remote = Address(registered - 99)),
        refused(&|put| put.remote = Address(u64::MAX - 50)),
    ];
    for put in wrong {
        let error = near.sending.0.try_add(&put).unwrap_err();
        assert!(
            matches!(
                error,
                PutError::Node(_) | PutError::Local(..) | PutError::Remote(..)
            ),
            "{error}"
        );
    }
    let unregistered = near
        .sending
        .0
        .try_add_from(Piece::new(&[1; 33]), &descriptor(0, 9));
    assert!(matches!(unregistered, Err(PutError::Local(..))));
    // The card goes on, and nothing of that was told.
    near.sending.0.try_add(&descriptor(100, 10)).unwrap();
    let first = loop {
        if let Some(received) = far.receiving.1.next_received().unwrap() {
            break received;
        }
    };
    assert_eq!(first.message, MessageId(10));
}

#[test]
fn who_is_gone_is_noticed_by_either_half() {
    for provider in PROVIDERS {
        let Some([mut near, far]) = pair(provider, false) else {
            continue;
        };
        assert!(near.sending.1.is_peer_there() && near.receiving.1.is_peer_there());
        let Halves {
            mut sending,
            mut receiving,
            ..
        } = far;
        receiving.1.close();
        assert!(!near.sending.1.is_peer_there() && near.receiving.1.is_peer_there());
        sending.1.close();
        while near.receiving.1.is_peer_there() {
            assert_eq!(near.receiving.1.next_received(), Ok(None));
        }
    }
}

/// A provider's list begins with whatever it likes, and for most the name is a hint.
#[test]
fn a_domain_is_taken_that_is_called_so_or_none() {
    let of = |domain: Option<&str>| Wanted {
        provider: Some("tcp;ofi_rxm".to_owned()),
        domain: domain.map(str::to_owned),
        address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ..Wanted::default()
    };
    let card = Card::Libfabric {
        provider: of(None).provider,
        domain: None,
    };
    if !has_card(&card) {
        return;
    }
    Domain::open(&of(Some("lo"))).unwrap();
    let refused = Domain::open(&of(Some("eth9"))).unwrap_err().to_string();
    assert!(refused.contains("has no domain \"eth9\""), "{refused}");
    assert!(refused.ends_with("it has: lo"), "{refused}");
}
