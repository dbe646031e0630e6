//! A checksum of payloads as messages have them, beside the library's alone.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// More than the first caches of a processor hold: payloads come from further away.
const BYTES: usize = 1 << 20;

fn checksums(criterion: &mut Criterion) {
    let bytes: Vec<u8> = (0..=250).cycle().take(BYTES).collect();
    let mut group = criterion.benchmark_group("checksum");
    for piece_bytes in [256, 2 << 10, 8 << 10, 64 << 10] {
        group.throughput(Throughput::Bytes(BYTES as u64));
        let mut bench = |name, sum: fn(&[u8]) -> u32| {
            group.bench_function(BenchmarkId::new(name, piece_bytes), |bencher| {
                bencher.iter(|| {
                    for piece in bytes.chunks_exact(piece_bytes) {
                        black_box(sum(black_box(piece)));
                    }
                });
            });
        };
        bench("madgate", madgate_crc32c::of);
        bench("crc-fast", crc_fast::crc32_iscsi);
    }
    group.finish();
}

criterion_group!(benches, checksums);
criterion_main!(benches);
