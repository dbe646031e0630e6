//! The cache over real memory. What a card would translate an address to is the page that is
//! there; here, a mark that the page begins with. A registration that is found must have the
//! marks that the memory has now.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::super::{Registrar, RegistrationCache, RegistrationLimits};
use super::pages::{Pages, mark_at};

/// Registers pages by their marks.
#[derive(Debug, Default)]
struct Marks {
    registered: AtomicU64,
    deregistered: AtomicU64,
}

/// The marks of all pages, hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen(u64);

fn seen(memory: &Range<usize>) -> Seen {
    let pages = memory.clone().step_by(rustix::param::page_size());
    Seen(pages.fold(1, |sum: u64, page| {
        sum.wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(mark_at(page))
    }))
}

impl Registrar for Arc<Marks> {
    type Key = Seen;

    fn register(&self, memory: Range<usize>) -> io::Result<Seen> {
        if memory.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.registered.fetch_add(1, Ordering::Relaxed);
        Ok(seen(&memory))
    }

    fn deregister(&self, _: Seen) {
        self.deregistered.fetch_add(1, Ordering::Relaxed);
    }
}

type Cache = Arc<RegistrationCache<Arc<Marks>>>;

/// A cache, unless this system does not let memory be watched.
fn cache(entries: usize) -> Option<(Cache, Arc<Marks>)> {
    let marks = Arc::new(Marks::default());
    let limits = RegistrationLimits {
        entries,
        ..RegistrationLimits::default()
    };
    let cache = RegistrationCache::new(Arc::clone(&marks), &limits);
    if let Some(why) = cache.why_off() {
        crate::hsl::tests::skip(why);
        return None;
    }
    Some((cache, marks))
}

#[test]
fn what_is_registered_is_found_until_its_memory_goes() {
    type Change = fn(&mut Pages);
    let changes: [(&str, Change, bool); 5] = [
        ("nothing", |_| {}, true),
        ("other pages", |pages| pages.replace(6..8), true),
        ("munmap", |pages| pages.replace(3..4), false),
        ("madvise", |pages| pages.empty(0..1), false),
        ("mremap", Pages::relocate, false),
    ];
    for (name, change, is_found) in changes {
        let Some((cache, marks)) = cache(8) else {
            return;
        };
        let mut pages = Pages::map(8);
        pages.mark(7);
        let page = rustix::param::page_size();
        let start = pages.addresses().start;
        let memory = |pages: &Pages| pages.addresses().start..pages.addresses().start + 5 * page;
        drop(cache.get(memory(&pages)).unwrap());
        let inside = cache.get(start + page + 1..start + 2 * page).unwrap();
        assert_eq!(inside.memory(), memory(&pages), "more was registered");
        drop(inside);
        assert_eq!(marks.registered.load(Ordering::Relaxed), 1, "{name}");

        change(&mut pages);
        pages.mark(if is_found { 7 } else { 8 });
        let again = cache.get(memory(&pages)).unwrap();
        assert_eq!(again.key(), seen(&memory(&pages)), "{name}");
        let registered = marks.registered.load(Ordering::Relaxed);
        assert_eq!(registered, if is_found { 1 } else { 2 }, "{name}");
        drop(again);
        let counters = cache.counters();
        assert_eq!(counters.invalidated, u64::from(!is_found), "{name}");
        drop(cache);
        assert_eq!(marks.deregistered.load(Ordering::Relaxed), registered);
    }
}

/// What is in use when its memory goes is deregistered by its last user, and not found before.
#[test]
fn a_registration_in_use_survives_its_memory() {
    let Some((cache, marks)) = cache(8) else {
        return;
    };
    let mut pages = Pages::map(2);
    let memory = pages.addresses();
    let uses = [cache.get(memory.clone()), cache.get(memory.clone())];
    pages.replace(0..2);
    let [one, other] = uses.map(Result::unwrap);
    let new = cache.get(memory.clone()).unwrap();
    assert_eq!(marks.registered.load(Ordering::Relaxed), 2);
    drop(one);
    assert_eq!(
        marks.deregistered.load(Ordering::Relaxed),
        0,
        "one use is left"
    );
    drop(other);
    assert_eq!(marks.deregistered.load(Ordering::Relaxed), 1);
    drop(new);
    drop(cache.get(memory).unwrap());
    assert_eq!(
        marks.registered.load(Ordering::Relaxed),
        2,
        "the new one is kept"
    );
}

#[test]
fn the_least_recently_used_goes_for_others() {
    let Some((cache, marks)) = cache(3) else {
        return;
    };
    let pages: Vec<Pages> = (0..4).map(|_| Pages::map(1)).collect();
    let get = |place: usize| cache.get(pages[place].addresses()).unwrap();
    for place in [0, 1, 2, 0, 3] {
        drop(get(place));
    }
    assert_eq!(marks.registered.load(Ordering::Relaxed), 4);
    assert_eq!(marks.deregistered.load(Ordering::Relaxed), 1);
    drop(get(0));
    assert_eq!(marks.registered.load(Ordering::Relaxed), 4, "0 is there");
    let held = [get(0), get(1), get(2)];
    let unkept = cache.counters().unkept;
    drop(get(3));
    assert_eq!(cache.counters().unkept - unkept, 1, "all are used");
    drop(held);
    assert_eq!(
        cache.get(5..5).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}

/// Memory whose changes cannot be told is registered each time.
#[test]
fn what_cannot_be_watched_is_not_kept() {
    let (Some((cache, marks)), Some((other, _))) = (cache(3), cache(3)) else {
        return;
    };
    let pages = Pages::map(1);
    let watched_by_another = other.get(pages.addresses()).unwrap();
    for _ in 0..2 {
        drop(cache.get(pages.addresses()).unwrap());
    }
    assert_eq!(marks.registered.load(Ordering::Relaxed), 2);
    assert_eq!(marks.deregistered.load(Ordering::Relaxed), 2);
    assert_eq!(cache.counters().unkept, 2);
    drop(watched_by_another);
}

#[derive(Debug, Clone)]
enum Step {
    Get(Range<usize>),
    Release(usize),
    Replace(Range<usize>),
    Empty(Range<usize>),
    Relocate,
}

const PAGES: usize = 10;

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..PAGES, 1..=PAGES).prop_map(|(start, count)| start..PAGES.min(start + count));
    prop_oneof![
        6 => range().prop_map(Step::Get),
        4 => (0..8_usize).prop_map(Step::Release),
        2 => range().prop_map(Step::Replace),
        2 => range().prop_map(Step::Empty),
        1 => Just(Step::Relocate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is unmapped, emptied and moved: what is found is of the pages that are there.
    #[test]
    fn registrations_are_never_stale(steps in proptest::collection::vec(step(), 0..80)) {
        let Some((cache, marks)) = cache(4) else {
            return Ok(());
        };
        let mut pages = Pages::map(PAGES);
        pages.mark(u64::MAX);
        let page = rustix::param::page_size();
        let mut held = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Get(range) => {
                    let start = pages.addresses().start;
                    let memory = start + range.start * page..start + range.end * page;
                    let lease = cache.get(memory).unwrap();
                    prop_assert_eq!(lease.key(), seen(&lease.memory()));
                    held.push(lease);
                    continue;
                }
                Step::Release(which) => {
                    if which < held.len() {
                        held.swap_remove(which);
                    }
                    continue;
                }
                Step::Replace(range) => pages.replace(range),
                Step::Empty(range) => pages.empty(range),
                Step::Relocate => pages.relocate(),
            }
            // What was not replaced is registered with the marks that it keeps.
            pages.mark_new(number as u64 + 1);
        }
        drop(held);
        drop(cache);
        let [registered, deregistered] =
            [&marks.registered, &marks.deregistered].map(|count| count.load(Ordering::Relaxed));
        prop_assert_eq!(registered, deregistered);
    }
}

/// Threads whose memory is unmapped by others' side get each other's addresses, at once.
#[test]
fn addresses_that_change_hands_are_not_mistaken() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 3000;
    let Some((cache, marks)) = cache(64) else {
        return;
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut pages = Pages::map(2);
                    pages.mark(round * THREADS + thread + 1);
                    let lease = cache.get(pages.addresses()).unwrap();
                    assert_eq!(lease.key(), seen(&lease.memory()));
                    drop(lease);
                    // A hit, mostly.
                    let lease = cache.get(pages.addresses()).unwrap();
                    assert_eq!(lease.key(), seen(&lease.memory()));
                }
            });
        }
    });
    let counters = cache.counters();
    assert!(
        counters.hits > 0 && counters.invalidated > 0,
        "{counters:?}"
    );
    drop(cache);
    let [registered, deregistered] =
        [&marks.registered, &marks.deregistered].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(registered, deregistered);
}
