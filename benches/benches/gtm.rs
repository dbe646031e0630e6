//! What the generic transmission module costs per frame: encoding, reading, putting blocks
//! together, keeping the books of credit, and passing through a gateway.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use madgate_gtm::outgoing::{Settings, Transmit};
use madgate_gtm::transit::{Departure, Lane, LinkId, Run};
use madgate_gtm::wire::{
    Coverage, Descriptor, Flags, HEADER_BYTES, Kind, OPENING_BYTES, Opening, ReceiveMode, SendMode,
    checksum,
};
use madgate_gtm::{Budget, FlowKey, Header, Incoming, Outgoing, Reassembly, Time, Transit};

/// Messages in one round of a bench.
const MESSAGES: u64 = 1000;
const NOW: Time = Time(0);
const LABEL: u32 = 7;
/// Position that no bench gets to.
const FAR: u64 = 1 << 60;
const ONE_FRAME: Flags = Flags::DESCRIBED.with(Flags::END);

const fn flow(source: u32) -> FlowKey {
    FlowKey {
        channel: 0,
        source,
        destination: 1000,
    }
}

fn descriptor(bytes: u64) -> Descriptor {
    Descriptor::new(bytes, SendMode::Cheaper, ReceiveMode::Cheaper).expect("a small block")
}

/// Eight bytes, described.
fn small_payload() -> [u8; 16] {
    let mut payload = [7; 16];
    payload[..8].copy_from_slice(&descriptor(8).to_bytes());
    payload
}

/// A flow with all the credit there is.
fn open_source() -> Outgoing<Bytes> {
    let settings = Settings {
        flow: flow(0),
        incarnation: 1,
        fragment_bytes: 64 << 10,
        checksum: Coverage::Whole,
        crosses_gateways: true,
        bundles: false,
        ramps: true,
        sized_by_speed: true,
        give_up_after: Duration::from_secs(30),
        seed: 1,
    };
    let mut source = Outgoing::new(settings, NOW);
    source.handle_link_up(NOW);
    push_small(&mut source);
    black_box(source.poll_transmit(NOW, 1 << 16));
    deliver_all(&mut source);
    source
}

fn push_small(source: &mut Outgoing<Bytes>) {
    let message = source.begin_message();
    source.push_frame(ONE_FRAME, message, 0, black_box(&small_payload()));
}

fn deliver_all(source: &mut Outgoing<Bytes>) {
    let (_, sent, _) = source.positions();
    source.handle_credit(&Header::credit(flow(0), source.label(), sent, FAR, 9), NOW);
}

/// Small frames as they arrive.
fn batch_of_frames() -> Bytes {
    let mut source = open_source();
    for _ in 0..MESSAGES {
        push_small(&mut source);
    }
    let mut batch = BytesMut::new();
    while let Some(transmit) = source.poll_transmit(NOW, usize::MAX) {
        match transmit {
            Transmit::Frames(frames) => batch.extend_from_slice(&frames),
            Transmit::Fragment { .. } => panic!("a small message is no fragment"),
        }
    }
    batch.freeze()
}

/// Cuts a block of 1 MiB into fragments of 64 KiB, sealed: their heads, and what they have of it.
fn for_each_fragment(
    source: &mut Outgoing<Bytes>,
    block: &Bytes,
    mut look: impl FnMut(&[u8], &[u8]),
) {
    let message = source.begin_message();
    source.push_block(message, 0, descriptor(1 << 20), block.clone(), true);
    while let Some(transmit) = source.poll_transmit(NOW, 64 << 10) {
        if let Transmit::Fragment {
            mut head,
            data,
            offset,
            length,
        } = transmit
        {
            let start = usize::try_from(offset).expect("a block in memory");
            let body = &data[start..start + length];
            head.seal([body]);
            look(head.as_bytes(), body);
        }
    }
}

fn sending(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("source");
    group.throughput(Throughput::Elements(MESSAGES));
    let mut source = open_source();
    let header = Header {
        flags: ONE_FRAME,
        length: 16,
        ..Header::new(Kind::Data, flow(0), LABEL)
    };
    group.bench_function("headers encoded", |bencher| {
        bencher.iter(|| {
            for position in 0..MESSAGES {
                let header = Header { position, ..header };
                black_box(black_box(header).to_bytes());
            }
        });
    });
    group.bench_function("8-byte messages, pushed, cut and delivered", |bencher| {
        bencher.iter(|| {
            for _ in 0..MESSAGES {
                push_small(&mut source);
            }
            while let Some(frames) = source.poll_transmit(NOW, 64 << 10) {
                black_box(&frames);
            }
            deliver_all(&mut source);
        });
    });
    let block = Bytes::from(vec![7; 1 << 20]);
    group.throughput(Throughput::Bytes(1 << 20));
    group.bench_function(
        "a block of 1 MiB in fragments of 64 KiB, sealed",
        |bencher| {
            bencher.iter(|| {
                for_each_fragment(&mut source, &block, |head, _| _ = black_box(head));
                deliver_all(&mut source);
            });
        },
    );
    group.finish();
}

fn for_each_frame(frames: &[u8], mut look: impl FnMut(Header, &[u8])) {
    let mut rest = frames;
    while let Some(bytes) = rest.first_chunk() {
        let header = Header::parse(black_box(bytes)).expect("a frame of our own");
        let (frame, behind) = rest.split_at(header.frame_bytes());
        look(header, &frame[HEADER_BYTES..]);
        rest = behind;
    }
}

fn receiving(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("destination");
    group.throughput(Throughput::Elements(MESSAGES));
    let frames = batch_of_frames();
    group.bench_function("headers read", |bencher| {
        bencher.iter(|| for_each_frame(&frames, |header, _| _ = black_box(header)));
    });
    group.bench_function("8-byte messages read and checked", |bencher| {
        bencher.iter(|| {
            for_each_frame(&frames, |header, payload| {
                assert!(checksum::is_intact(&header, payload));
            });
        });
    });
    group.bench_function("8-byte messages put together", |bencher| {
        let mut reassembly = Reassembly::default();
        bencher.iter(|| {
            for_each_frame(&frames, |header, payload| {
                let ended = reassembly.handle_small(&header, payload, |record, bytes| {
                    black_box((record, bytes));
                });
                assert_eq!(ended, Ok(true));
            });
        });
    });
    let mut fragments = Vec::new();
    let block = Bytes::from(vec![7; 1 << 20]);
    for_each_fragment(&mut open_source(), &block, |head, body| {
        fragments.push((head.to_vec(), body.to_vec()));
    });
    assert!(fragments.len() > 1);
    group.throughput(Throughput::Bytes(1 << 20));
    group.bench_function(
        "a block of 1 MiB in fragments, checked and put together",
        |bencher| {
            let (mut reassembly, mut block) = (Reassembly::default(), vec![0; 1 << 20]);
            bencher.iter(|| {
                let mut filled = 0;
                for (head, body) in &fragments {
                    let (header, rest) = head.split_first_chunk().expect("a frame of our own");
                    let header = Header::parse(black_box(header)).expect("a frame of our own");
                    let mut sum = checksum::Running::start(&header);
                    sum.update(rest);
                    sum.update(body);
                    assert_eq!(sum.finish(), header.checksum);
                    let descriptor = rest.first_chunk().copied();
                    let put = reassembly.handle_fragment(&header, descriptor);
                    let (_, ends) = put.expect("in order");
                    block[filled..filled + body.len()].copy_from_slice(body);
                    filled += body.len();
                    assert_eq!(ends, filled == block.len());
                }
            });
        },
    );
    group.throughput(Throughput::Elements(MESSAGES));
    group.bench_function("credit kept for 8-byte messages", |bencher| {
        let mut budget = Budget::new(1 << 30);
        let mut incoming = Incoming::new(flow(0), 9, 16 << 20, NOW);
        incoming.handle_opening(&opening_header(flow(0)), &opening(), &mut budget, NOW);
        let mut position = 0;
        bencher.iter(|| {
            for _ in 0..MESSAGES {
                let header = Header {
                    flags: ONE_FRAME,
                    length: 16,
                    position,
                    ..Header::new(Kind::Data, flow(0), LABEL)
                };
                black_box(incoming.poll_credit(&mut budget, NOW));
                assert!(incoming.placement(black_box(&header)).is_ok());
                incoming.accept(&header, NOW);
                incoming.consume(header.charge(), &mut budget);
                position = header.end_position();
            }
        });
    });
    group.finish();
}

const fn opening() -> Opening {
    Opening {
        source_incarnation: 1,
        destination_incarnation: 0,
        fragment_bytes: 64 << 10,
    }
}

fn opening_header(flow: FlowKey) -> Header {
    Header {
        flags: Flags::OPEN.with(Flags::WANT),
        length: u32::try_from(OPENING_BYTES).unwrap_or(0),
        ..Header::new(Kind::Data, flow, LABEL)
    }
}

/// A gateway with open flows, and how far each has come.
struct Gateway {
    transit: Transit<()>,
    near: LinkId,
    far: LinkId,
    positions: Vec<(FlowKey, u64)>,
    departures: Vec<Departure>,
    /// What each destination has granted beyond what it was sent.
    granted: u64,
}

impl Gateway {
    /// With flows whose destinations have granted 1 MiB each: more than is sent.
    fn new(flows: u32) -> Self {
        let mut transit = Transit::new(Budget::new(1 << 30));
        let (near, far) = (transit.add_link(), transit.add_link());
        let positions: Vec<_> = (0..flows).map(|source| (flow(source), 0)).collect();
        for (key, _) in &positions {
            let header = opening_header(*key);
            let _ = transit.handle_opening(near, &header, &opening(), Ok(far), (), NOW);
        }
        let mut gateway = Self {
            transit,
            near,
            far,
            positions,
            departures: Vec::with_capacity(usize::try_from(MESSAGES).unwrap_or(0)),
            granted: 0,
        };
        gateway.forward();
        gateway.grant();
        gateway
    }

    /// A credit of each flow's destination for another MiB, on its way to the source.
    fn grant(&mut self) {
        self.granted += 1 << 20;
        for (key, position) in &self.positions {
            let credit = Header::credit(*key, LABEL, *position, position + self.granted, 9);
            let _ = self.transit.handle_control(self.far, &credit, NOW);
        }
        let mut credits = Vec::new();
        self.transit
            .poll_control(self.near, &mut credits, usize::MAX);
        black_box(credits);
    }

    fn forward(&mut self) {
        let departures = &mut self.departures;
        self.transit
            .poll_transmit(self.far, Lane::Urgent, usize::MAX, NOW, |(), departure| {
                departures.push(departure);
            });
        for departure in departures.drain(..) {
            black_box(self.transit.handle_departure(&departure, NOW));
        }
    }

    fn pass_messages(&mut self) {
        let flows = self.positions.len();
        for message in 0..MESSAGES {
            let turn = usize::try_from(message).unwrap_or(0) % flows;
            let (key, position) = &mut self.positions[turn];
            let run = Run {
                flow: *key,
                label: LABEL,
                start: *position,
                end: *position + 144,
                bytes: 64,
                largest: 64,
                frames: 1,
                lane: Lane::Urgent,
            };
            *position = run.end;
            let passed = self.transit.handle_run(self.near, black_box(&run), (), NOW);
            assert!(passed.is_ok());
        }
        self.forward();
    }
}

fn forwarding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gateway");
    group.throughput(Throughput::Elements(MESSAGES));
    for flows in [1, 64, 1024] {
        group.bench_function(
            format!("8-byte messages of {flows} flows, each alone"),
            |bencher| {
                bencher.iter_batched_ref(
                    || Gateway::new(flows),
                    Gateway::pass_messages,
                    BatchSize::LargeInput,
                );
            },
        );
    }
    for flows in [1, 1024] {
        group.throughput(Throughput::Elements(flows.into()));
        group.bench_function(format!("credit of {flows} flows, one each"), |bencher| {
            bencher.iter_batched_ref(
                || Gateway::new(flows),
                Gateway::grant,
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, sending, receiving, forwarding);
criterion_main!(benches);
