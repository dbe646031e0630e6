//! What is registered: which pages, by whom it is used, and in which order it was used last.
//!
//! No system calls, and no memory is allocated or freed after the beginning.

use std::ops::Range;

use super::RegistrationCounters;

/// Entries, the one that was used last first.
#[derive(Debug)]
pub(super) struct Books<K> {
    entries: Vec<Entry<K>>,
    entries_max: usize,
    bytes: usize,
    bytes_max: usize,
    /// The name of the next entry.
    next: u64,
    pub(super) counters: RegistrationCounters,
}

#[derive(Debug)]
struct Entry<K> {
    name: u64,
    /// What is registered,
    memory: Range<usize>,
    /// and the pages that it is in, which are watched.
    pages: Range<usize>,
    leases: usize,
    state: State<K>,
}

#[derive(Debug, Clone, Copy)]
enum State<K> {
    /// It is being registered.
    Pending,
    Ready(K),
    /// Its memory went away. `None`: while it was being registered.
    Gone(Option<K>),
}

/// An entry that is no more.
#[derive(Debug)]
pub(super) struct Removed<K> {
    pub(super) pages: Range<usize>,
    /// What is to be deregistered.
    pub(super) key: Option<K>,
}

/// Whether there is room for one more.
#[derive(Debug)]
pub(super) enum Room<K> {
    There,
    /// This went for it. There may be room now.
    Made(Removed<K>),
    /// All that could go is being used, or never was so much room.
    None,
}

/// A registration that is used.
#[derive(Debug, Clone)]
pub(super) struct Leased<K> {
    pub(super) name: u64,
    pub(super) memory: Range<usize>,
    pub(super) key: K,
}

/// The pages that these addresses are in; `None` where there are none.
pub(super) fn pages_of(memory: &Range<usize>) -> Option<Range<usize>> {
    let page = rustix::param::page_size();
    if memory.is_empty() {
        return None;
    }
    let end = memory.end.checked_next_multiple_of(page)?;
    Some(memory.start - memory.start % page..end)
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

impl<K> Entry<K> {
    /// Whether its pages are to be watched.
    fn is_live(&self) -> bool {
        !matches!(self.state, State::Gone(_))
    }

    fn is_idle(&self) -> bool {
        self.leases == 0
    }
}

impl<K: Copy> Books<K> {
    /// Empty ones.
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self {
            entries: Vec::with_capacity(entries_max),
            entries_max,
            bytes: 0,
            bytes_max,
            next: 0,
            counters: RegistrationCounters::default(),
        }
    }

    fn place_of(&self, name: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name == name)
    }

    fn remove(&mut self, place: usize) -> Removed<K> {
        let Entry { pages, state, .. } = self.entries.remove(place);
        self.bytes -= pages.len();
        let key = match state {
            State::Pending => None,
            State::Ready(key) => Some(key),
            State::Gone(key) => key,
        };
        Removed { pages, key }
    }

    /// Leases a registration that has all of `memory`.
    pub(super) fn find(&mut self, memory: &Range<usize>) -> Option<Leased<K>> {
        let place = self.entries.iter().position(|entry| {
            matches!(entry.state, State::Ready(_))
                && entry.memory.start <= memory.start
                && memory.end <= entry.memory.end
        })?;
        self.entries[..=place].rotate_right(1);
        let entry = &mut self.entries[0];
        let State::Ready(key) = entry.state else {
            return None;
        };
        entry.leases += 1;
        self.counters.hits += 1;
        Some(Leased {
            name: entry.name,
            memory: entry.memory.clone(),
            key,
        })
    }

    /// Makes room for `bytes` more, by one entry less at most: one that is gone, or else the one
    /// whose last use is longest ago.
    pub(super) fn make_room(&mut self, bytes: usize) -> Room<K> {
        if bytes > self.bytes_max {
            return Room::None;
        }
        if self.entries.len() < self.entries_max && bytes <= self.bytes_max - self.bytes {
            return Room::There;
        }
        if let Some(removed) = self.take_gone() {
            return Room::Made(removed);
        }
        match self.entries.iter().rposition(Entry::is_idle) {
            Some(place) => {
                self.counters.evicted += 1;
                Room::Made(self.remove(place))
            }
            None => Room::None,
        }
    }

    /// A place for `memory`, in `pages`, for which there is room, while it is being registered;
    /// leased.
    pub(super) fn reserve(&mut self, memory: Range<usize>, pages: Range<usize>) -> u64 {
        let name = self.next;
        self.next += 1;
        self.bytes += pages.len();
        let entry = Entry {
            name,
            memory,
            pages,
            leases: 1,
            state: State::Pending,
        };
        // Room for as many as there may be was taken at the beginning.
        self.entries.insert(0, entry);
        name
    }

    /// It has been registered. Where it went away meanwhile, nobody finds it.
    pub(super) fn settle(&mut self, name: u64, key: K) {
        let place = self.place_of(name);
        let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) else {
            return;
        };
        entry.state = match entry.state {
            State::Gone(_) => State::Gone(Some(key)),
            State::Pending | State::Ready(_) => State::Ready(key),
        };
        self.counters.misses += 1;
    }

    /// It could not be registered.
    pub(super) fn abandon(&mut self, name: u64) -> Option<Removed<K>> {
        self.place_of(name).map(|place| self.remove(place))
    }

    /// A lease ends; what is to be deregistered, if that was the last of one that is gone.
    pub(super) fn release(&mut self, name: u64) -> Option<Removed<K>> {
        let place = self.place_of(name)?;
        let entry = &mut self.entries[place];
        entry.leases -= 1;
        (entry.is_idle() && !entry.is_live()).then(|| self.remove(place))
    }

    /// The memory of `range` went away; whether something is to be deregistered.
    pub(super) fn invalidate(&mut self, range: &Range<usize>) -> bool {
        let mut any = false;
        for entry in &mut self.entries {
            if entry.is_live() && overlap(&entry.pages, range) {
                entry.state = match entry.state {
                    State::Ready(key) => State::Gone(Some(key)),
                    State::Pending | State::Gone(_) => State::Gone(None),
                };
                self.counters.invalidated += 1;
                any |= entry.is_idle();
            }
        }
        any
    }

    /// Something that is gone and not used any more.
    pub(super) fn take_gone(&mut self) -> Option<Removed<K>> {
        let gone = |entry: &Entry<K>| entry.is_idle() && !entry.is_live();
        let place = self.entries.iter().position(gone)?;
        Some(self.remove(place))
    }

    /// Anything.
    pub(super) fn take_any(&mut self) -> Option<Removed<K>> {
        let last = self.entries.len().checked_sub(1)?;
        Some(self.remove(last))
    }

    /// The first part of `pages` that no entry has.
    pub(super) fn next_uncovered(&self, pages: &Range<usize>) -> Option<Range<usize>> {
        let live = || self.entries.iter().filter(|entry| entry.is_live());
        let mut start = pages.start;
        // Each time round another entry is behind the start.
        while let Some(entry) = live().find(|entry| entry.pages.contains(&start)) {
            start = entry.pages.end;
        }
        let ends = live().map(|entry| entry.pages.start);
        let end = ends.filter(|end| *end > start).min();
        let end = end.unwrap_or(pages.end).min(pages.end);
        (start < end).then_some(start..end)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
impl<K> Books<K> {
    /// How many entries, and bytes, there are.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }
}
