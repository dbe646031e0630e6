//! What a switch of buffers costs between the two threads of a pipeline: the paper's was 50 us
//! (003, 3.3.1). One thread gives a batch to another, which gives it back, each on a processor of
//! its own where there are two; a round is two switches. First as the engine does it; beside that
//! bare channels, which carry the buffer itself, and the waking of threads that sleep.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use core_affinity::CoreId;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use madgate_benches::samples::Samples;
use madgate_gateway::benching::{Receiving, Sending, pipeline};
use madgate_tm::Poller;

/// Batches between the two threads, as `depth` has it by default.
const DEPTH: usize = 2;
const BATCH_BYTES: usize = 1 << 20;

/// Rounds of a measurement that counts: in shorter ones the threads are only just there.
const ROUNDS_LEAST: u64 = 1000;

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

/// Measurements of a round, for a median beside what criterion says.
#[derive(Default)]
struct Rounds(Samples);

impl Rounds {
    fn note(&mut self, took: Duration, rounds: u64) {
        if rounds >= ROUNDS_LEAST {
            self.0.push(took.div_f64(rounds as f64).as_secs_f64());
        }
    }

    fn print(&self, what: &str) {
        if let Some(round) = self.0.median() {
            println!("{what}: median of a switch {:.3} us", round / 2.0 * 1e6);
        }
    }
}

/// A receiver hands a link over with a batch, and the sender sends, which frees the batch: with one
/// batch, nobody goes on before the other.
fn engine(criterion: &mut Criterion) {
    LazyLock::force(&PROCESSORS);
    let mut medians = Rounds::default();
    let mut group = criterion.benchmark_group("hand-over");
    group.throughput(Throughput::Elements(2));
    group.bench_function(
        "a batch through the engine's mailbox, and free again",
        |bencher| {
            bencher.iter_custom(|rounds| {
                let (mut receiving, sending) = pipeline(1).expect("a pipeline");
                let is_over = AtomicBool::new(false);
                let took = thread::scope(|scope| {
                    scope.spawn(|| send(&sending, &is_over));
                    pin(0);
                    hand_over(&mut receiving, 1);
                    let begun = Instant::now();
                    hand_over(&mut receiving, rounds);
                    let took = begun.elapsed();
                    is_over.store(true, Ordering::Relaxed);
                    took
                });
                medians.note(took, rounds);
                took
            });
        },
    );
    group.finish();
    medians.print("the engine's mailbox, both threads awake");
}

/// Sends what is handed over until that is over.
fn send(sending: &Sending, is_over: &AtomicBool) {
    pin(1);
    while !is_over.load(Ordering::Relaxed) {
        if !sending.try_send() {
            std::hint::spin_loop();
        }
    }
}

/// Hands a batch over as soon as it is free, so many times, and waits until it is free again.
fn hand_over(receiving: &mut Receiving, rounds: u64) {
    for _ in 0..rounds {
        while !receiving.try_hand_over() {
            std::hint::spin_loop();
        }
    }
    while !receiving.has_batch() {
        std::hint::spin_loop();
    }
}

fn awake(criterion: &mut Criterion) {
    LazyLock::force(&PROCESSORS);
    let mut medians = Rounds::default();
    let mut group = criterion.benchmark_group("hand-over");
    group.throughput(Throughput::Elements(2));
    group.bench_function("a batch there and back, both threads awake", |bencher| {
        bencher.iter_custom(|rounds| {
            let (there, arrived) = bounded(DEPTH);
            let (back, returned) = bounded(DEPTH);
            let took = thread::scope(|scope| {
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
            });
            medians.note(took, rounds);
            took
        });
    });
    group.finish();
    medians.print("a bare channel, both threads awake");
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

criterion_group!(benches, engine, awake, asleep);
criterion_main!(benches);
