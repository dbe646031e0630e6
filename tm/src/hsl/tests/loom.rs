//! `RUSTFLAGS="--cfg loom" cargo test -p madgate-tm --release loom`

use loom::sync::Arc;
use loom::thread;

use super::super::pending::{Pending, Place};

/// Preemptions that are tried where not all can be.
const PREEMPTIONS_MAX: usize = 3;

/// Slots that two threads give back, at once with the owner of the door, are all published, each
/// once, when all of them have returned.
#[test]
fn loom_everything_that_is_given_back_is_published_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(|| {
        let published = [0_u64; 2];
        let pending = Arc::new(Pending::new(64, published));
        let give_back = |pending: &Pending<[u64; 2]>, place, slot| {
            pending.lay_down(place, slot);
            pending.pass(|published, group, words| {
                assert_eq!(group, 0);
                for (published, word) in published.iter_mut().zip(words) {
                    assert_eq!(*published & word, 0, "published twice");
                    *published |= word;
                }
            });
        };
        let other = {
            let pending = Arc::clone(&pending);
            thread::spawn(move || {
                give_back(&pending, Place::Control, 1);
                give_back(&pending, Place::Buffer, 1);
            })
        };
        give_back(&pending, Place::Control, 0);
        other.join().unwrap();
        assert_eq!(pending.published(), [0b11, 0b10]);
    });
}

/// What was written to a slot before it was given back is seen by whoever publishes it.
#[test]
fn loom_what_a_slot_was_used_for_is_over_when_it_is_published() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS_MAX);
    model.check(|| {
        let slot = Arc::new(loom::cell::UnsafeCell::new(0));
        let pending = Arc::new(Pending::new(64, ()));
        let used = Arc::clone(&slot);
        let other = {
            let (pending, slot) = (Arc::clone(&pending), Arc::clone(&slot));
            thread::spawn(move || {
                slot.with(|_| ());
                pending.lay_down(Place::Control, 0);
                pending.pass(|(), _, [control, _]| {
                    if control & 1 == 1 {
                        used.with_mut(|_| ());
                    }
                });
            })
        };
        let used = Arc::clone(&slot);
        pending.lay_down(Place::Control, 1);
        pending.pass(|(), _, [control, _]| {
            if control & 1 == 1 {
                // The other side may write it from here on.
                used.with_mut(|_| ());
            }
        });
        other.join().unwrap();
    });
}
