//! A ring of words that one side writes and the other reads, without an index in common.
//!
//! Each entry carries a **phase** bit that flips at each wrap: the reader knows by it
//! whether an entry is new, so that nothing is zeroed and no index is shared. The first lap
//! has phase 1, over words that begin as 0.
//!
//! ```text
//!   63     62 ......... 32   31 .......... 0
//!  phase       slot              length
//! ```
//!
//! A ring never overflows because what travels through it is limited: an entry stands for
//! a slot, there are at most as many slots as entries, and a slot comes again only after
//! the other side has read its entry and sent it back. A peer that ignores this can only
//! spoil what it reads itself, or hand over entries that are checked when they are read.

use super::sync::{AtomicU64, Ordering, OwnWord, Word, Words, fence};

/// What an entry says: this slot, with so many bytes in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Number of the slot; at most [`SLOT_MAX`].
    pub(super) slot: u32,
    /// Bytes in it (zero where a slot is only given back).
    pub(super) length: u32,
}

/// The largest number that an entry has room for.
pub(super) const SLOT_MAX: u32 = u32::MAX >> 1;

const PHASE_BIT: u64 = 1 << 63;

impl Entry {
    fn encode(self, phase: u64) -> u64 {
        debug_assert!(self.slot <= SLOT_MAX);
        phase | u64::from(self.slot & SLOT_MAX) << 32 | u64::from(self.length)
    }

    fn decode(word: u64) -> Self {
        let bytes = word.to_le_bytes();
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let slot = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) & SLOT_MAX;
        Self { slot, length }
    }
}

/// Which word position `position` uses, and the phase that its lap has.
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
pub(super) struct RingWriter<W> {
    words: W,
    /// Where the next entry goes.
    position: u64,
}

impl<W: Words> RingWriter<W>
where
    W::Word: OwnWord,
{
    /// Over words that are zero, a power of two of them.
    pub(super) fn new(words: W) -> Self {
        Self { words, position: 0 }
    }

    /// Hands over `entry` and everything written before.
    pub(super) fn publish(&mut self, entry: Entry) {
        let words = self.words.words();
        let (place, phase) = place_of(self.position, words.len());
        // SYNC POINT A: pairs with the acquire fence in `RingReader::next`.
        words[place].store_release(entry.encode(phase));
        self.position = self.position.wrapping_add(1);
    }
}

/// The writing end of a ring, for any number of threads.
#[derive(Debug)]
pub(super) struct SharedRingWriter<W> {
    words: W,
    /// Where the next entry goes. Its order with other memory does not matter: it only
    /// gives each thread a word of its own.
    position: AtomicU64,
}

impl<W: Words> SharedRingWriter<W>
where
    W::Word: OwnWord,
{
    /// Over words that are zero, a power of two of them.
    pub(super) fn new(words: W) -> Self {
        Self {
            words,
            position: AtomicU64::new(0),
        }
    }

    /// Hands over `entry` and everything written before. The reader takes entries in the
    /// order of their places: one whose writer is held up here holds up those behind it,
    /// which only delays the return of slots.
    pub(super) fn publish(&self, entry: Entry) {
        let words = self.words.words();
        let position = self.position.fetch_add(1, Ordering::Relaxed);
        let (place, phase) = place_of(position, words.len());
        // SYNC POINT A: pairs with the acquire fence in `RingReader::next`.
        words[place].store_release(entry.encode(phase));
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(super) struct RingReader<W> {
    words: W,
    /// Where the next entry is expected.
    position: u64,
}

impl<W: Words> RingReader<W> {
    /// Over words that were zero before the first entry, a power of two of them.
    pub(super) fn new(words: W) -> Self {
        Self { words, position: 0 }
    }

    /// The next entry, or `None` when there is none yet. What it says is the writer's
    /// claim, to be checked.
    pub(super) fn next(&mut self) -> Option<Entry> {
        let word = self.look()?;
        // SYNC POINT A: pairs with the release store in `publish`; what the writer wrote
        // before it is visible from here on.
        fence(Ordering::Acquire);
        self.position = self.position.wrapping_add(1);
        Some(Entry::decode(word))
    }

    /// Whether there is a next entry.
    pub(super) fn has_next(&self) -> bool {
        self.look().is_some()
    }

    fn look(&self) -> Option<u64> {
        let words = self.words.words();
        let (place, phase) = place_of(self.position, words.len());
        let word = words[place].load();
        (word & PHASE_BIT == phase).then_some(word)
    }
}
