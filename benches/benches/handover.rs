//! What a switch of buffers costs between the two threads of a pipeline: the paper's was 50 us
//! (003, 3.3.1). One thread gives a batch to another, which gives it back, each on a processor of
//! its own where there are two; a round is two switches. First as the engine does it, with all that
//! it does for a batch; beside that the same by one thread, bare channels, which carry the buffer
//! itself, and the waking of threads that sleep.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::mem;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use core_affinity::CoreId;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use madgate_benches::samples::Samples;
use madgate_gateway::benching::{Receiving, Sending, pipeline};
use madgate_tm::Poller;

/// Batches between the two threads, as `depth` has it by default.
const DEPTH: usize = 2;
const BATCH_BYTES: usize = 1 << 20;

/// Rounds that are timed together: far shorter than a turn on a processor.
const FEW_ROUNDS: u64 = 100;

/// Says that it is over; in cache lines of its own, as one thread looks at it all the time, beside what
/// another one writes.
#[derive(Default)]
#[repr(align(128))]
struct Over(AtomicBool);

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

/// How long rounds took, a few at a time: of these the median is what a switch costs while both threads
/// run, however often others take a processor from one of them.
#[derive(Default)]
struct Rounds(Samples);

impl Rounds {
    /// Has so many rounds done, and returns how long they took.
    fn time(&mut self, rounds: u64, mut work: impl FnMut(u64)) -> Duration {
        let begun = Instant::now();
        let (mut left, mut since) = (rounds, begun);
        while left > 0 {
            let few = left.min(FEW_ROUNDS);
            work(few);
            let now = Instant::now();
            if few == FEW_ROUNDS {
                let round = (now - since).as_secs_f64() / FEW_ROUNDS as f64;
                self.0.push(round);
            }
            left -= few;
            since = now;
        }
        since - begun
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
                let over = Over::default();
                thread::scope(|scope| {
                    scope.spawn(|| send(&sending, &over));
                    pin(0);
                    hand_over(&mut receiving, 1);
                    let took = medians.time(rounds, |rounds| hand_over(&mut receiving, rounds));
                    over.0.store(true, Ordering::Relaxed);
                    took
                })
            });
        },
    );
    group.finish();
    medians.print("the engine's mailbox, both threads awake");
}

/// The same work by one thread: what of it is no switch.
fn alone(criterion: &mut Criterion) {
    LazyLock::force(&PROCESSORS);
    let mut medians = Rounds::default();
    let mut group = criterion.benchmark_group("hand-over");
    group.throughput(Throughput::Elements(2));
    group.bench_function(
        "a batch through the engine's mailbox, by one thread",
        |bencher| {
            bencher.iter_custom(|rounds| {
                let (mut receiving, sending) = pipeline(1).expect("a pipeline");
                pin(0);
                medians.time(rounds, |rounds| {
                    for _ in 0..rounds {
                        assert!(receiving.try_hand_over() && sending.try_send());
                    }
                })
            });
        },
    );
    group.finish();
    medians.print("the engine's mailbox, by one thread");
}

/// Sends what is handed over until that is over.
fn send(sending: &Sending, Over(is_over): &Over) {
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
                let mut batch = BytesMut::with_capacity(BATCH_BYTES);
                let mut pass_around = |rounds| {
                    for _ in 0..rounds {
                        there
                            .send(mem::take(&mut batch))
                            .expect("the other thread runs");
                        batch = take(&returned).expect("the other thread runs");
                    }
                };
                pass_around(1);
                let took = medians.time(rounds, pass_around);
                drop(there);
                took
            })
        });
    });
    group.finish();
    medians.print("a bare channel, both threads awake");
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

criterion_group!(benches, engine, alone, awake, asleep);
criterion_main!(benches);
