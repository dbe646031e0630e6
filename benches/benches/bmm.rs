//! What buffer management costs, by the shape that a lane likes and by policy: what is pushed
//! leaves in one call, in a call each, packed into slots, or in a slot each.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::io::Stdin;
use std::os::fd::{AsFd, BorrowedFd};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use madgate_benches::lanes::{Local, pair};
use madgate_bmm::{Buffer, Outbox, Policy};
use madgate_gtm::wire::HEADER_BYTES;
use madgate_gtm::{FlowKey, Header, Kind};
use madgate_tm::{Interest, Lane, LaneClass, LaneError, LaneSender, LentSlot, Piece, Shape};

/// Units of one round.
const UNITS: usize = 100;
/// Pieces that one call gathers.
const GATHER_LIMIT: usize = 64;
const SMALL_BYTES: usize = 64;
const LARGE_BYTES: usize = 32 << 10;

/// A dynamic lane that takes everything at once, and does nothing with it.
#[derive(Debug)]
struct Nowhere(Stdin);

impl LaneSender for Nowhere {
    fn shape(&self) -> Shape {
        Shape::Dynamic {
            gather_limit: GATHER_LIMIT,
        }
    }

    fn try_send(&mut self, pieces: &[Piece<'_>]) -> Result<usize, LaneError> {
        Ok(black_box(pieces).iter().map(Piece::len).sum())
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        Err(LaneError::WrongShape("slots"))
    }

    fn commit(&mut self, _: LentSlot, _: usize) -> Result<(), LaneError> {
        Err(LaneError::WrongShape("slots"))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(false)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        (self.0.as_fd(), Interest::Writable)
    }

    fn acknowledge_wake(&mut self) {}
}

/// One frame.
fn unit(bytes: usize) -> Bytes {
    let flow = FlowKey {
        channel: 0,
        source: 1,
        destination: 2,
    };
    let length = u32::try_from(bytes - HEADER_BYTES).expect("a small unit");
    let header = Header {
        length,
        ..Header::new(Kind::Data, flow, 7)
    };
    let mut unit = vec![7; bytes];
    unit[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    unit.into()
}

fn unit_length(bytes: &[u8]) -> usize {
    let header = bytes
        .first_chunk()
        .and_then(|head| Header::parse(head).ok());
    header.map_or(bytes.len(), |header| header.frame_bytes())
}

fn policies() -> [(&'static str, Policy); 2] {
    [("gathering", Policy::Gathering), ("eager", Policy::Eager)]
}

fn dynamic(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffers");
    group.throughput(Throughput::Elements(100));
    for (name, policy) in policies() {
        group.bench_function(
            format!("dynamic, {name}: small units referred to"),
            |bencher| {
                let mut lane = Nowhere(std::io::stdin());
                let mut outbox = Outbox::new(lane.shape(), policy, unit_length);
                let unit = unit(SMALL_BYTES);
                bencher.iter(|| {
                    for _ in 0..UNITS {
                        outbox.push(Buffer::shared(black_box(unit.clone())), ());
                    }
                    while !outbox.is_empty() {
                        outbox.flush(&mut lane, |(), _| ()).expect("a lane");
                    }
                });
            },
        );
    }
    group.finish();
}

fn fixed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffers");
    group.throughput(Throughput::Elements(100));
    for (name, policy) in policies() {
        for (words, bytes) in [
            ("small units", SMALL_BYTES),
            ("units of 32 KiB", LARGE_BYTES),
        ] {
            let name = format!("static, {name}: {words} copied into slots");
            group.bench_function(name, |bencher| {
                let (mut near, mut far) = pair(Local::Shm, LaneClass::Bulk);
                let mut outbox = Outbox::new(near.sender.shape(), policy, unit_length);
                let unit = unit(bytes);
                bencher.iter(|| {
                    for _ in 0..UNITS {
                        outbox.push(Buffer::shared(black_box(unit.clone())), ());
                    }
                    while !outbox.is_empty() {
                        outbox.flush(&mut *near.sender, |(), _| ()).expect("a lane");
                        drain(&mut far);
                    }
                });
            });
        }
    }
    group.finish();
}

/// All slots that have come go back.
fn drain(lane: &mut Lane) {
    while let Some(slot) = lane.receiver.try_receive_slot().expect("a lane") {
        black_box(slot.len());
    }
}

criterion_group!(benches, dynamic, fixed);
criterion_main!(benches);
