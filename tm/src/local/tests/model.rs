//! The ring and the flag against simple oracles.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::armed::{ArmedFlag, ArmedWatch};
use super::super::ring::PHASE_BIT;
use super::super::sync::Word;
use super::{ring, shared_ring, words};

/// Words of an entry, in these tests.
const N: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    Publish([u64; N]),
    Take,
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => any::<[u64; N]>().prop_map(|[first, rest @ ..]| {
            Step::Publish([first & !PHASE_BIT, rest[0], rest[1]])
        }),
        3 => Just(Step::Take),
        1 => Just(Step::Look),
    ];
    proptest::collection::vec(step, 0..400)
}

proptest! {
    /// Both kinds of ring are queues, for any size and any number of wraps.
    #[test]
    fn rings_are_queues(shift in 0_u32..6, steps in steps()) {
        let count = 1 << shift;
        let (mut writer, mut reader) = ring(words(count * N));
        let (shared_writer, mut shared_reader) = shared_ring(words(count * N));
        let mut oracle = VecDeque::new();
        for step in steps {
            match step {
                // Never more than the ring holds: slots are as many.
                Step::Publish(entry) if oracle.len() < count => {
                    writer.publish(entry);
                    shared_writer.publish(entry);
                    oracle.push_back(entry);
                }
                Step::Publish(_) => {}
                Step::Take => {
                    let expected = oracle.pop_front();
                    prop_assert_eq!(reader.next(), expected);
                    prop_assert_eq!(shared_reader.next(), expected);
                }
                Step::Look => {
                    prop_assert_eq!(reader.has_next(), !oracle.is_empty());
                    prop_assert_eq!(shared_reader.has_next(), !oracle.is_empty());
                }
            }
        }
    }

    /// Whatever the words are, reading gives entries or nothing, and advances one word for
    /// each entry.
    #[test]
    fn any_words_can_be_read(
        mut written in proptest::collection::vec(any::<u64>(), 8),
        reads in 0_usize..64,
    ) {
        let memory = words(8);
        let (_, mut reader) = ring::<1>(memory.clone());
        for (word, value) in memory.iter().zip(&written) {
            word.store(*value, std::sync::atomic::Ordering::Relaxed);
        }
        let mut taken = 0;
        for _ in 0..reads {
            let Some([word]) = reader.next() else { break };
            prop_assert!(word & PHASE_BIT == 0);
            taken += 1;
        }
        // The words say how far one comes: a lap while the bit is set, one while it is not.
        written.iter_mut().for_each(|word| *word >>= 63);
        let first = written.iter().take_while(|&&bit| bit == 1).count();
        // A word cannot have both phases, so that nobody reads for ever.
        prop_assert_eq!(taken, first.min(reads));
        prop_assert!(taken <= 8);
    }

    /// Whoever is armed is woken once, by the first publication that finds it so.
    #[test]
    fn one_wake_up_for_each_arming(steps in proptest::collection::vec(0..3_u8, 0..100)) {
        let word = words(1);
        let (mut flag, watch) = (ArmedFlag::new(word.clone()), ArmedWatch::new(word));
        let (mut armed, mut answered) = (false, false);
        for step in steps {
            match step {
                0 => {
                    flag.arm();
                    answered &= armed;
                    armed = true;
                }
                1 => {
                    flag.disarm();
                    armed = false;
                }
                _ => {
                    prop_assert_eq!(watch.must_wake(), armed && !answered);
                    answered |= armed;
                }
            }
        }
    }
}

#[test]
fn an_entry_is_what_the_picture_says() {
    let memory = words(2);
    let (mut writer, _) = ring(memory.clone());
    let seen = || [Word::load(&memory[0]), Word::load(&memory[1])];
    writer.publish([3, 9]);
    assert_eq!(seen(), [1 << 63 | 3, 9], "the first lap has phase 1");
    writer.publish([!PHASE_BIT, 7]);
    assert_eq!(seen(), [u64::MAX >> 1, 7], "the second has phase 0");
}

#[test]
fn threads_that_share_a_ring_lose_nothing() {
    const EACH: u64 = if cfg!(miri) { 25 } else { 1000 };
    // At least as many as are published, which nobody gives back.
    const ENTRIES: usize = if cfg!(miri) { 128 } else { 4096 };
    let (writer, mut reader) = shared_ring(words(2 * ENTRIES));
    let mut seen = std::collections::HashSet::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let writer = &writer;
            scope.spawn(move || {
                for number in 0..EACH {
                    writer.publish([thread, number]);
                }
            });
        }
        let mut next = [0; 4];
        while seen.len() < 4 * usize::try_from(EACH).unwrap() {
            let Some([thread, number]) = reader.next() else {
                std::thread::yield_now();
                continue;
            };
            let next = &mut next[usize::try_from(thread).unwrap()];
            assert_eq!(number, *next, "one thread's entries keep their order");
            *next += 1;
            assert!(seen.insert((thread, number)));
        }
    });
    assert!(reader.next().is_none());
}
