//! What it costs a gateway to note what it does: a look at the clock between two stages of a batch,
//! and a count for each piece that leaves.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use madgate_gateway::benching::Instruments;

fn instruments(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("instruments");
    let mut instruments = Instruments::default();
    group.bench_function("a stage of a batch ends", |bencher| {
        bencher.iter(|| instruments.end_stage());
    });
    group.bench_function("a look at the clock", |bencher| bencher.iter(Instant::now));
    group.bench_function("a piece leaves", |bencher| {
        bencher.iter(|| instruments.note_piece(black_box(1), black_box(256 << 10)));
    });
    group.finish();
}

criterion_group!(benches, instruments);
criterion_main!(benches);
