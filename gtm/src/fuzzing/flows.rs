//! The two ends of a flow, whose peer sends anything.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::Input;
use crate::budget::Budget;
use crate::incoming::{Incoming, OpenVerdict, Placement};
use crate::outgoing::{Outgoing, Settings, Transmit};
use crate::reassembly::{Reassembly, Record};
use crate::time::Time;
use crate::wire::{
    Coverage, Descriptor, Flags, FlowKey, HEADER_BYTES, Header, Kind, OPENING_BYTES, Opening,
    ReceiveMode, SendMode,
};

/// Memory of the destination.
const BUDGET_BYTES: u64 = 64 << 10;
/// Its incarnation.
const INCARNATION: u64 = 0x0102_0304;

const FLOW: FlowKey = FlowKey {
    channel: 0,
    source: 1,
    destination: 2,
};

/// Frames one after the other, as a destination puts them together.
pub fn reassembly(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut reassembly = Reassembly::default();
    let mut last: Option<Record> = None;
    while input.0.len() >= HEADER_BYTES {
        let Some(header) = input.header() else {
            continue;
        };
        let payload = input.take(header.payload_bytes());
        if header.kind != Kind::Data || payload.len() < header.payload_bytes() {
            continue;
        }
        let before = reassembly;
        let mut look = |record: Record| {
            assert!(record.offset + record.length as u64 <= record.descriptor.length());
            if record.offset > 0 {
                let last = last.expect("a block that goes on has begun");
                assert_eq!((last.message, last.block), (record.message, record.block));
                assert_eq!(last.offset + last.length as u64, record.offset);
            }
            last = Some(record);
        };
        let result = if header.is_small() {
            reassembly.handle_small(&header, payload, |record, part| {
                assert_eq!(record.length, part.len());
                look(record);
            })
        } else {
            let described = header.flags.has(Flags::DESCRIBED);
            let descriptor = payload.first_chunk().copied().filter(|_| described);
            reassembly
                .handle_fragment(&header, descriptor)
                .map(|(record, ends)| {
                    look(record);
                    ends
                })
        };
        match result {
            Ok(true) => assert_eq!(reassembly.message(), None),
            Ok(false) => {}
            // The flow is opened again, or its link closed.
            Err(_) => {
                reassembly = before;
                reassembly.abandon();
            }
        }
    }
}

/// A destination, to which a member sends any frames.
pub fn incoming(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut budget = Budget::new(BUDGET_BYTES);
    let mut incoming = Incoming::new(FLOW, INCARNATION, 32 << 10, Time(0));
    let mut unconsumed = VecDeque::new();
    let mut now = Time(0);
    while let Some(command) = input.byte() {
        match command % 8 {
            0..=4 => {
                let Some(header) = input.header() else {
                    continue;
                };
                handle(
                    &mut incoming,
                    &mut budget,
                    &header,
                    &mut input,
                    &mut unconsumed,
                    now,
                );
            }
            5 => {
                if let Some(charge) = unconsumed.pop_front() {
                    incoming.consume(charge, &mut budget);
                }
            }
            6 => {
                now = now + Duration::from_secs(u64::from(command));
                incoming.handle_timeout(&mut budget, now);
            }
            _ => incoming.suspend(&mut budget, now),
        }
        if let Some(credit) = incoming.poll_credit(&mut budget, now) {
            assert_eq!(Header::parse(&credit.to_bytes()), Ok(credit));
            assert!(credit.offset - credit.position <= BUDGET_BYTES);
        }
        assert!(budget.promised() <= BUDGET_BYTES);
        assert!(incoming.unconsumed() <= budget.promised());
    }
    incoming.close(&mut budget);
    for charge in unconsumed {
        incoming.consume(charge, &mut budget);
    }
    assert_eq!(budget.promised(), 0);
}

fn handle(
    incoming: &mut Incoming,
    budget: &mut Budget,
    header: &Header,
    input: &mut Input<'_>,
    unconsumed: &mut VecDeque<u64>,
    now: Time,
) {
    match header.kind {
        Kind::Data => {}
        Kind::Probe => {
            incoming.handle_probe(header, now);
            return;
        }
        Kind::Close if incoming.is_current(header) => return incoming.close(budget),
        _ => return,
    }
    if header.flags.has(Flags::OPEN) {
        let Ok(opening) = Opening::parse(input.take(OPENING_BYTES)) else {
            return;
        };
        match incoming.handle_opening(header, &opening, budget, now) {
            OpenVerdict::Admitted { .. } | OpenVerdict::Repeated => {}
            OpenVerdict::Stale | OpenVerdict::Refused(_) => return,
        }
        if header.is_bare_opening() {
            return;
        }
    }
    match incoming.placement(header) {
        Ok(Placement::InOrder) => {
            incoming.accept(header, now);
            unconsumed.push_back(header.charge());
        }
        Ok(Placement::Duplicate) => incoming.acknowledge_again(),
        Ok(_) => {}
        Err(_) => incoming.close(budget),
    }
}

/// A source, to which a member sends any answers.
pub fn outgoing(bytes: &[u8]) {
    let coverages = [Coverage::Whole, Coverage::Header, Coverage::Nothing];
    let checksum = coverages[bytes.len() % coverages.len()];
    let mut input = Input(bytes);
    let settings = Settings {
        flow: FLOW,
        incarnation: 5,
        fragment_bytes: if bytes.len().is_multiple_of(3) {
            20_000
        } else {
            5000
        },
        checksum,
        crosses_gateways: bytes.len().is_multiple_of(2),
        bundles: true,
        ramps: true,
        sized_by_speed: true,
        give_up_after: Duration::from_secs(30),
        seed: 0,
    };
    let mut now = Time(0);
    let mut outgoing: Outgoing<Bytes> = Outgoing::new(settings, now);
    outgoing.handle_link_up(now);
    while let Some(command) = input.byte() {
        match command % 8 {
            0..=2 => {
                if let Some(mut header) = input.header() {
                    // Labels are drawn; an answer finds the one in force now and then.
                    if command & 8 != 0 {
                        header.label = outgoing.label();
                    }
                    match header.kind {
                        Kind::Credit => outgoing.handle_credit(&header, now),
                        Kind::Refusal => outgoing.handle_refusal(&header, now),
                        Kind::Held => outgoing.handle_held(&header),
                        _ => {}
                    }
                }
            }
            3 => {
                let message = outgoing.begin_message();
                let length = 128 * usize::from(command);
                if command & 8 == 0 {
                    let flags = Flags::DESCRIBED.with(Flags::END);
                    outgoing.push_frame(flags, message, 0, &[0; 8]);
                } else if let Some(descriptor) =
                    Descriptor::new(length as u64, SendMode::Later, ReceiveMode::Express)
                {
                    let block = Bytes::from(vec![7; length]);
                    outgoing.push_block(message, 0, descriptor, block, command & 16 != 0);
                    if command & 16 == 0 {
                        outgoing.abort_message(message);
                    }
                }
            }
            4 => {
                now = now + Duration::from_millis(10 * u64::from(command));
                outgoing.handle_timeout(now);
            }
            5 => outgoing.handle_link_lost(now),
            6 => outgoing.handle_link_up(now),
            _ => {
                let _ = outgoing.take_failure(now);
            }
        }
        for _ in 0..64 {
            let transmit = if command & 8 == 0 {
                outgoing.poll_transmit(now, 4096)
            } else {
                outgoing.poll_transmit_led(now, 4096)
            };
            let Some(transmit) = transmit else {
                break;
            };
            look_at(&transmit);
        }
        let _ = (outgoing.poll_control(), outgoing.next_deadline());
        assert!(!outgoing.is_drained() || outgoing.retained_bytes() == 0);
    }
}

fn look_at(transmit: &Transmit<Bytes>) {
    match transmit {
        Transmit::Frames(bytes) => {
            let mut rest = &bytes[..];
            while let Some(header) = rest.first_chunk() {
                let header = Header::parse(header).expect("a frame of our own");
                rest = &rest[header.frame_bytes()..];
            }
            assert!(rest.is_empty());
        }
        Transmit::Fragment {
            head,
            data,
            offset,
            length,
        } => {
            assert!(Header::parse(&head.header().to_bytes()).is_ok());
            let end = usize::try_from(*offset).expect("a block in memory") + length;
            assert!(end <= data.len());
        }
    }
}
