//! The books against a model that keeps everything and remembers when it was used.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::books::{Books, Removed, Room, pages_of};
use std::ops::Range;

const ENTRIES: usize = 5;
const PAGES: usize = 12;

fn page() -> usize {
    rustix::param::page_size()
}

fn bytes_of(pages: &Range<usize>) -> Range<usize> {
    pages.start * page()..pages.end * page()
}

/// What a registration is, for the model.
#[derive(Debug, Clone)]
struct Known {
    pages: Range<usize>,
    leases: usize,
    is_gone: bool,
    used: usize,
    key: u32,
}

#[derive(Debug, Clone)]
enum Step {
    /// Look, and register where nothing is found; memory goes away meanwhile, or not.
    Get(Range<usize>, Option<Range<usize>>),
    Release(usize),
    Unmap(Range<usize>),
    Sweep,
}

fn pages() -> impl Strategy<Value = Range<usize>> {
    (0..20_usize, 1..6_usize).prop_map(|(start, count)| start..start + count)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (pages(), proptest::option::weighted(0.2, pages()))
            .prop_map(|(range, lost)| Step::Get(range, lost)),
        4 => (0..10_usize).prop_map(Step::Release),
        2 => pages().prop_map(Step::Unmap),
        1 => Just(Step::Sweep),
    ]
}

struct Model {
    books: Books<u32>,
    known: BTreeMap<u64, Known>,
    held: Vec<u64>,
    clock: usize,
    keys: u32,
}

impl Model {
    fn live(&self) -> impl Iterator<Item = &Known> {
        self.known.values().filter(|known| !known.is_gone)
    }

    /// It is no more, and was what the books say.
    fn removed(&mut self, removed: &Removed<u32>) -> Known {
        let (name, known) = self
            .known
            .iter()
            .find(|(_, known)| Some(known.key) == removed.key)
            .map(|(name, known)| (*name, known.clone()))
            .expect("it was registered, and not deregistered");
        assert_eq!(removed.pages, bytes_of(&known.pages));
        assert_eq!(known.leases, 0, "nobody uses it");
        self.known.remove(&name);
        known
    }

    fn unmap(&mut self, pages: &Range<usize>) {
        let mut any_idle = false;
        for known in self.known.values_mut().filter(|known| !known.is_gone) {
            if known.pages.clone().any(|page| pages.contains(&page)) {
                known.is_gone = true;
                any_idle |= known.leases == 0;
            }
        }
        assert_eq!(self.books.invalidate(&bytes_of(pages)), any_idle);
    }

    fn get(&mut self, pages: &Range<usize>, lost: Option<&Range<usize>>) {
        self.clock += 1;
        let contains =
            |known: &Known| known.pages.start <= pages.start && pages.end <= known.pages.end;
        if let Some(found) = self.books.find(&bytes_of(pages)) {
            let known = self.known.get_mut(&found.name).expect("it is there");
            assert!(!known.is_gone && contains(known) && known.key == found.key);
            known.leases += 1;
            known.used = self.clock;
            self.held.push(found.name);
            return;
        }
        assert!(!self.live().any(contains), "there is one");
        loop {
            match self.books.make_room(bytes_of(pages).len()) {
                Room::There => break,
                Room::Made(removed) => {
                    let idle = |known: &&Known| known.leases == 0;
                    let any_gone = self.known.values().filter(idle).any(|known| known.is_gone);
                    let oldest = self.live().filter(idle).map(|known| known.used).min();
                    let known = self.removed(&removed);
                    assert_eq!(known.is_gone, any_gone, "what is gone goes first");
                    assert!(any_gone || Some(known.used) == oldest, "the oldest goes");
                }
                Room::None => {
                    let used: usize = self.known.values().map(|known| known.pages.len()).sum();
                    assert!(self.known.values().all(|known| known.leases > 0));
                    assert!(self.known.len() == ENTRIES || used + pages.len() > PAGES);
                    return;
                }
            }
        }
        let name = self.books.reserve(bytes_of(pages), bytes_of(pages));
        let key = self.keys;
        self.keys += 1;
        let known = Known {
            pages: pages.clone(),
            leases: 1,
            is_gone: false,
            used: self.clock,
            key,
        };
        self.known.insert(name, known);
        self.held.push(name);
        if let Some(lost) = lost {
            self.unmap(lost);
        }
        self.books.settle(name, key);
    }

    fn release(&mut self, which: usize) {
        if which >= self.held.len() {
            return;
        }
        let name = self.held.swap_remove(which);
        let known = self.known.get_mut(&name).expect("it is held");
        known.leases -= 1;
        let goes = known.is_gone && known.leases == 0;
        let removed = self.books.release(name);
        assert_eq!(removed.is_some(), goes);
        if let Some(removed) = removed {
            self.removed(&removed);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Get(pages, lost) => self.get(pages, lost.as_ref()),
            Step::Release(which) => self.release(*which),
            Step::Unmap(pages) => self.unmap(pages),
            Step::Sweep => {
                while let Some(removed) = self.books.take_gone() {
                    assert!(self.removed(&removed).is_gone);
                }
                assert!(
                    !self
                        .known
                        .values()
                        .any(|known| known.is_gone && known.leases == 0)
                );
            }
        }
        let pages: usize = self.known.values().map(|known| known.pages.len()).sum();
        assert_eq!(self.books.size(), (self.known.len(), pages * page()));
        assert!(self.known.len() <= ENTRIES && pages <= PAGES);
    }

    /// Which of `pages` nobody has, page by page.
    fn uncovered(&self, pages: &Range<usize>) -> Vec<usize> {
        pages
            .clone()
            .filter(|page| !self.live().any(|known| known.pages.contains(page)))
            .collect()
    }
}

proptest! {
    /// What is found is registered, has the memory and has not gone; what goes is idle, gone or
    /// the oldest, and goes once; limits hold.
    #[test]
    fn the_books_are_right(
        steps in proptest::collection::vec(step(), 0..150),
        looked_at in pages(),
    ) {
        let mut model = Model {
            books: Books::new(ENTRIES, PAGES * page()),
            known: BTreeMap::new(),
            held: Vec::new(),
            clock: 0,
            keys: 0,
        };
        for step in &steps {
            model.step(step);
        }
        let mut rest = bytes_of(&looked_at);
        let mut uncovered = Vec::new();
        while let Some(part) = model.books.next_uncovered(&rest) {
            uncovered.extend(part.start / page()..part.end / page());
            rest.start = part.end;
        }
        prop_assert_eq!(uncovered, model.uncovered(&looked_at));
        while !model.held.is_empty() {
            model.release(0);
        }
        while let Some(removed) = model.books.take_any() {
            model.removed(&removed);
        }
        prop_assert!(model.known.is_empty(), "everything was deregistered");
    }
}

#[test]
fn addresses_are_in_pages() {
    let page = page();
    assert_eq!(pages_of(&(5..5)), None);
    assert_eq!(pages_of(&(0..usize::MAX)), None, "no page ends behind it");
    assert_eq!(pages_of(&(page + 1..page + 2)), Some(page..2 * page));
    assert_eq!(pages_of(&(page - 1..2 * page)), Some(0..2 * page));
}
