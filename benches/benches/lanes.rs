//! What a frame costs on lanes of one host: the rings of shared memory, and the puts of remote
//! write. Both ends are one thread, so that nothing is waited for.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use madgate_benches::lanes::{Local, pair};
use madgate_tm::{Lane, LaneClass, Piece};

/// A message of eight bytes with its header and descriptor.
const SMALL_BYTES: usize = 64;
/// A fragment of 64 KiB with its header.
const LARGE_BYTES: usize = (64 << 10) + 48;

fn small(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lane");
    group.throughput(Throughput::Elements(1));
    for protocol in Local::ALL {
        let name = format!("{}: 64 bytes copied in and out", protocol.name());
        group.bench_function(name, |bencher| {
            let (mut near, mut far) = pair(protocol, LaneClass::Urgent);
            let unit = [7; SMALL_BYTES];
            let mut into = BytesMut::with_capacity(SMALL_BYTES);
            bencher.iter(|| {
                while !near.sender.try_send_copy(black_box(&unit)).expect("a lane") {
                    give_back(&mut near);
                }
                into.clear();
                let received = far.receiver.try_receive_copy(&mut into).expect("a lane");
                assert_eq!(received, Some(SMALL_BYTES));
            });
        });
    }
    group.finish();
}

fn large(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lane");
    group.throughput(Throughput::Elements(1));
    for protocol in Local::ALL {
        let name = format!(
            "{}: a slot lent, sent, received, given back, unwritten",
            protocol.name()
        );
        group.bench_function(name, |bencher| {
            let (mut near, mut far) = pair(protocol, LaneClass::Bulk);
            bencher.iter(|| {
                let slot = loop {
                    match near.sender.try_lend().expect("a lane") {
                        Some(slot) => break slot,
                        None => give_back(&mut near),
                    }
                };
                near.sender.commit(slot, LARGE_BYTES).expect("a lane");
                let slot = far.receiver.try_receive_slot().expect("a lane");
                assert_eq!(slot.map(|slot| slot.len()), Some(LARGE_BYTES));
            });
        });
    }
    group.throughput(Throughput::Bytes(LARGE_BYTES as u64));
    for protocol in Local::ALL {
        let name = format!("{}: 64 KiB gathered into a slot", protocol.name());
        group.bench_function(name, |bencher| {
            let (mut near, mut far) = pair(protocol, LaneClass::Bulk);
            let (head, payload) = ([7; 48], vec![8; LARGE_BYTES - 48]);
            bencher.iter(|| {
                let pieces = [Piece::new(&head), Piece::new(black_box(&payload))];
                while !near.sender.try_send_gathered(&pieces).expect("a lane") {
                    give_back(&mut near);
                }
                let slot = far.receiver.try_receive_slot().expect("a lane");
                assert_eq!(slot.map(|slot| slot.len()), Some(LARGE_BYTES));
            });
        });
    }
    group.finish();
}

/// What the other side has given back is noticed by who looks.
fn give_back(lane: &mut Lane) {
    let received = lane.receiver.try_receive_slot().expect("a lane");
    assert!(received.is_none(), "nobody sends this way");
}

criterion_group!(benches, small, large);
criterion_main!(benches);
