//! `RUSTFLAGS="--cfg loom" cargo test -p madgate-tm --release loom`

use loom::sync::{Arc, Notify};
use loom::thread;

use super::super::armed::{ArmedFlag, ArmedWatch};
use super::super::sync::AtomicU64;
use super::{ring, shared_ring, words};

/// Slots of the small world that is explored; as many ring entries.
const SLOTS: usize = 2;
/// Preemptions that are tried where not all can be.
const PREEMPTIONS_MAX: usize = 3;

/// What a slot holds is there when its entry is, across a wrap; a slot that comes back is
/// not touched any more by who had it.
#[test]
fn loom_slots_travel_and_return() {
    const MESSAGES: u64 = 3;
    loom::model(|| {
        let memory: Arc<[loom::cell::UnsafeCell<usize>; SLOTS]> =
            Arc::new(std::array::from_fn(|_| loom::cell::UnsafeCell::new(0)));
        let (mut publish, mut published) = ring(words(SLOTS * 2));
        let (give_back, mut returned) = shared_ring(words(SLOTS));
        let sender = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let mut free: Vec<u64> = (0..2).collect();
                for message in 0..MESSAGES {
                    while free.is_empty() {
                        match returned.next() {
                            Some([slot]) => free.push(slot),
                            None => thread::yield_now(),
                        }
                    }
                    let slot = free.pop().unwrap();
                    memory[slot as usize].with_mut(|_| ());
                    publish.publish([slot, message]);
                }
            })
        };
        for message in 0..MESSAGES {
            let [slot, number] = loop {
                match published.next() {
                    Some(entry) => break entry,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(number, message, "both words of an entry belong together");
            memory[slot as usize].with(|_| ());
            give_back.publish([slot]);
        }
        sender.join().unwrap();
    });
}

/// A receiver that sleeps whenever it finds nothing is always woken.
#[test]
fn loom_no_wake_up_is_lost() {
    const MESSAGES: u64 = 2;
    loom::model(|| {
        let armed: std::sync::Arc<[AtomicU64]> = words(1);
        let (mut flag, watch) = (ArmedFlag::new(armed.clone()), ArmedWatch::new(armed));
        let (mut publish, mut published) = ring(words(SLOTS));
        let bell = Arc::new(Notify::new());
        let sender = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || {
                for slot in 0..MESSAGES {
                    publish.publish([slot]);
                    if watch.must_wake() {
                        bell.notify();
                    }
                }
            })
        };
        let mut next = 0;
        while next < MESSAGES {
            if let Some([slot]) = published.next() {
                assert_eq!(slot, next);
                next += 1;
                flag.disarm();
                continue;
            }
            flag.arm();
            if !published.has_next() {
                // Where a wake-up was lost, loom finds that nobody can go on.
                bell.wait();
            }
            flag.disarm();
        }
        sender.join().unwrap();
    });
}

/// Two threads that give slots back wake a sender that waits for both, whoever is first.
#[test]
fn loom_returns_from_two_threads() {
    // Three threads have too many orders to try them all: those with few preemptions, which
    // find what is to be found.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(|| {
        let armed: std::sync::Arc<[AtomicU64]> = words(1);
        let (mut flag, watch) = (
            ArmedFlag::new(armed.clone()),
            Arc::new(ArmedWatch::new(armed)),
        );
        let (give_back, mut returned) = shared_ring(words(SLOTS));
        let give_back = Arc::new(give_back);
        let bell = Arc::new(Notify::new());
        let threads = [0, 1].map(|slot| {
            let (give_back, watch, bell) = (give_back.clone(), watch.clone(), bell.clone());
            thread::spawn(move || {
                give_back.publish([slot]);
                if watch.must_wake() {
                    bell.notify();
                }
            })
        });
        let mut back = [false; SLOTS];
        while back != [true; SLOTS] {
            if let Some([slot]) = returned.next() {
                assert!(!std::mem::replace(&mut back[slot as usize], true));
                continue;
            }
            flag.arm();
            if !returned.has_next() {
                bell.wait();
            }
            flag.disarm();
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
