//! What a switch of buffers costs between the two threads of a pipeline: the paper's was 50 us
//! (003, 3.3.1). One thread gives a batch to another, which gives it back, each on a processor of
//! its own where there are two; a round is two switches.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::sync::LazyLock;
use std::thread;
use std::time::Instant;

use bytes::BytesMut;
use core_affinity::CoreId;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use madgate_tm::Poller;

/// Batches between the two threads, as `depth` has it by default.
const DEPTH: usize = 2;
const BATCH_BYTES: usize = 1 << 20;

/// The processors that this program may use: asked for before any thread is put on one of them, as
/// threads inherit where they may run.
static PROCESSORS: LazyLock<Vec<CoreId>> =
    LazyLock::new(|| core_affinity::get_core_ids().unwrap_or_default());

/// Puts the calling thread on one of the processors.
fn pin(place: usize) {
    let processors = &*PROCESSORS;
    if let Some(processor) = processors.get(place % processors.len().max(1)) {
        // Where that is refused the figure is that of threads which move.
        let _ = core_affinity::set_for_current(*processor);
    }
}

/// Waits for a batch without sleeping; `None` when the other side has ended.
fn take(from: &Receiver<BytesMut>) -> Option<BytesMut> {
    loop {
        match from.try_recv() {
            Ok(batch) => return Some(batch),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

fn awake(criterion: &mut Criterion) {
    LazyLock::force(&PROCESSORS);
    let mut group = criterion.benchmark_group("hand-over");
    group.throughput(Throughput::Elements(2));
    group.bench_function("a batch there and back, both threads awake", |bencher| {
        bencher.iter_custom(|rounds| {
            let (there, arrived) = bounded(DEPTH);
            let (back, returned) = bounded(DEPTH);
            thread::scope(|scope| {
                scope.spawn(move || {
                    pin(1);
                    while let Some(batch) = take(&arrived) {
                        if back.send(batch).is_err() {
                            break;
                        }
                    }
                });
                pin(0);
                pass_around(&there, &returned, 1);
                let begun = Instant::now();
                pass_around(&there, &returned, rounds);
                let took = begun.elapsed();
                drop(there);
                took
            })
        });
    });
    group.finish();
}

fn pass_around(there: &Sender<BytesMut>, returned: &Receiver<BytesMut>, rounds: u64) {
    let mut batch = BytesMut::with_capacity(BATCH_BYTES);
    for _ in 0..rounds {
        there.send(batch).expect("the other thread runs");
        batch = take(returned).expect("the other thread runs");
    }
}

/// The same where each side sleeps in the kernel until it is woken, as with `wait = "sleep"`.
fn asleep(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hand-over");
    group.throughput(Throughput::Elements(2));
    group.bench_function("a wake-up there and back, both threads asleep", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut near = Poller::new().expect("a poller");
            let mut far = Poller::new().expect("a poller");
            let (near_waker, far_waker) = (near.waker(), far.waker());
            thread::scope(|scope| {
                scope.spawn(move || {
                    pin(1);
                    for _ in 0..rounds {
                        far.wait(None).expect("a poller");
                        near_waker.wake();
                    }
                });
                pin(0);
                let begun = Instant::now();
                for _ in 0..rounds {
                    far_waker.wake();
                    near.wait(None).expect("a poller");
                }
                begun.elapsed()
            })
        });
    });
    group.finish();
}

criterion_group!(benches, awake, asleep);
criterion_main!(benches);
