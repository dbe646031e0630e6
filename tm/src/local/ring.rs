//! A ring of entries that one side writes and the other reads, without an index in common.
//!
//! An entry is `N` words. The first carries a **phase** bit that flips at each wrap: the
//! reader knows by it whether an entry is new, so that nothing is zeroed and no index is
//! shared. The first lap has phase 1, over words that begin as 0.
//!
//! ```text
//!   63     62 ................... 0
//!  phase     what the entry says        (and N - 1 words more, written before)
//! ```
//!
//! A ring never overflows because what travels through it is limited: an entry stands for
//! something of which there is as much as entries at most (a slot, a request), and that
//! comes again only after the other side has read its entry and answered. A peer that
//! ignores this can only spoil what it reads itself, or hand over entries that are checked
//! when they are read.

use super::sync::{AtomicU64, Ordering, OwnWord, Word, Words, fence};

/// The bit of an entry's first word that is the ring's.
pub(crate) const PHASE_BIT: u64 = 1 << 63;

/// Where an end of a ring stands that takes one entry after the other: what [`place_of`] says,
/// without being asked anew for each.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    /// Which entry is next.
    place: usize,
    /// The phase of this lap.
    phase: u64,
}

impl Cursor {
    const fn new() -> Self {
        Self {
            place: 0,
            phase: PHASE_BIT,
        }
    }

    /// Steps to the next of `count` entries.
    const fn step(&mut self, count: usize) {
        self.place += 1;
        if self.place == count {
            self.place = 0;
            self.phase ^= PHASE_BIT;
        }
    }
}

/// Which entry position `position` uses of `count`, and the phase that its lap has.
fn place_of(position: u64, count: usize) -> (usize, u64) {
    debug_assert!(count.is_power_of_two());
    // The mask keeps the part that any `usize` holds.
    #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
    let place = position as usize & (count - 1);
    let lap = position >> count.trailing_zeros();
    let phase = if lap.is_multiple_of(2) { PHASE_BIT } else { 0 };
    (place, phase)
}

/// The writing end of a ring, for one owner.
#[derive(Debug)]
pub(crate) struct RingWriter<W, const N: usize> {
    words: W,
    /// Where the next entry goes.
    next: Cursor,
}

impl<W: Words, const N: usize> RingWriter<W, N>
where
    W::Word: OwnWord,
{
    /// Over words that are zero, a power of two of entries.
    pub(crate) fn new(words: W) -> Self {
        Self {
            words,
            next: Cursor::new(),
        }
    }

    /// Hands over `entry` and everything written before.
    #[inline(always)]
    pub(crate) fn publish(&mut self, entry: [u64; N]) {
        let words = self.words.words();
        write(words, self.next.place, with_phase(entry, self.next.phase));
        self.next.step(words.len() / N);
    }
}

/// The writing end of a ring, for any number of threads.
#[derive(Debug)]
pub(crate) struct SharedRingWriter<W, const N: usize> {
    words: W,
    /// Where the next entry goes. Its order with other memory does not matter: it only
    /// gives each thread a word of its own.
    position: AtomicU64,
}

impl<W: Words, const N: usize> SharedRingWriter<W, N>
where
    W::Word: OwnWord,
{
    /// Over words that are zero, a power of two of entries.
    pub(crate) fn new(words: W) -> Self {
        Self {
            words,
            position: AtomicU64::new(0),
        }
    }

    /// Hands over `entry` and everything written before. The reader takes entries in the
    /// order of their places: one whose writer is held up here holds up those behind it,
    /// which only delays the return of slots.
    pub(crate) fn publish(&self, entry: [u64; N]) {
        let position = self.position.fetch_add(1, Ordering::Relaxed);
        let words = self.words.words();
        let (place, entry) = entry_at(position, words.len() / N, entry);
        write(words, place, entry);
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(crate) struct RingReader<W, const N: usize> {
    words: W,
    /// Where the next entry is expected.
    next: Cursor,
}

impl<W: Words, const N: usize> RingReader<W, N> {
    /// Over words that were zero before the first entry, a power of two of entries.
    pub(crate) fn new(words: W) -> Self {
        Self {
            words,
            next: Cursor::new(),
        }
    }

    /// The next entry, or `None` when there is none yet; its phase bit is zero. What it says
    /// is the writer's claim, to be checked.
    pub(crate) fn next(&mut self) -> Option<[u64; N]> {
        let (words, first) = self.look()?;
        // SYNC POINT A: pairs with the release store in `write`; what the writer wrote
        // before it is visible from here on.
        fence(Ordering::Acquire);
        let mut entry = [first & !PHASE_BIT; N];
        // Of arrays, so that no bounds are looked at.
        for at in 1..N {
            entry[at] = words[at].load();
        }
        self.next.step(self.words.words().len() / N);
        Some(entry)
    }

    /// Whether there is a next entry.
    pub(crate) fn has_next(&self) -> bool {
        self.look().is_some()
    }

    /// The words of the next entry, and what the first of them says, if it is there.
    fn look(&self) -> Option<(&[W::Word; N], u64)> {
        let words = words_of(self.words.words(), self.next.place);
        let first = words.first()?.load();
        (first & PHASE_BIT == self.next.phase).then_some((words, first))
    }
}

/// Which of `entries` entries one at `position` uses, and what is written there.
pub(crate) fn entry_at<const N: usize>(
    position: u64,
    entries: usize,
    entry: [u64; N],
) -> (usize, [u64; N]) {
    let (place, phase) = place_of(position, entries);
    (place, with_phase(entry, phase))
}

/// An entry as it is written in a lap of this phase.
fn with_phase<const N: usize>(mut entry: [u64; N], phase: u64) -> [u64; N] {
    if let Some(first) = entry.first_mut() {
        debug_assert!(*first & PHASE_BIT == 0);
        *first = *first & !PHASE_BIT | phase;
    }
    entry
}

/// The words of the entry at `place`.
fn words_of<W, const N: usize>(words: &[W], place: usize) -> &[W; N] {
    &words.as_chunks().0[place]
}

/// Hands over `entry`, which has the phase of its lap, at `place`, and everything written before.
fn write<W: OwnWord, const N: usize>(words: &[W], place: usize, entry: [u64; N]) {
    let words: &[W; N] = words_of(words, place);
    // A reader that looks too early sees the phase of the lap before.
    for at in 1..N {
        words[at].store(entry[at]);
    }
    if let (Some(there), Some(first)) = (words.first(), entry.first()) {
        // SYNC POINT A: pairs with the acquire fence in `RingReader::next`.
        there.store_release(*first);
    }
}
