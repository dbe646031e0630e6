//! Sleeping and waking across processes: only who says that it sleeps is woken.
//!
//! ```text
//!  sleeper                         other side
//!  armed = odd number              publish
//!  full fence                      full fence
//!  look again; nothing: sleep      armed odd, and not answered yet? ring
//! ```
//!
//! Whichever fence comes first in the order of all fences, the side behind the other one
//! sees what was written before it: either the sleeper finds the entry, or the other side
//! finds it armed. The number grows with each arming, so that the other side rings at most
//! once for each.

use super::sync::{AtomicU64, Ordering, OwnWord, Word, Words, fence};

/// This side's word: odd while it sleeps, or is about to.
#[derive(Debug)]
pub(crate) struct ArmedFlag<W> {
    word: W,
    number: u64,
}

impl<W: Words> ArmedFlag<W>
where
    W::Word: OwnWord,
{
    /// Over one word that is zero.
    pub(crate) fn new(word: W) -> Self {
        Self { word, number: 0 }
    }

    /// Says that this side is about to sleep. Look once more after it, then sleep.
    pub(crate) fn arm(&mut self) {
        if !self.is_armed() {
            self.step();
        }
        // SYNC POINT B: pairs with the fence in `ArmedWatch::must_wake`.
        fence(Ordering::SeqCst);
    }

    /// Says that it is awake. Nothing depends on when the other side sees it.
    pub(crate) fn disarm(&mut self) {
        if self.is_armed() {
            self.step();
        }
    }

    fn is_armed(&self) -> bool {
        self.number % 2 == 1
    }

    fn step(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.word.words()[0].store_release(self.number);
    }
}

/// The other side's word, seen by those who publish for it.
#[derive(Debug)]
pub(crate) struct ArmedWatch<W> {
    word: W,
    /// The last arming that was answered.
    answered: AtomicU64,
}

impl<W: Words> ArmedWatch<W> {
    /// Over the other side's word.
    pub(crate) fn new(word: W) -> Self {
        Self {
            word,
            answered: AtomicU64::new(0),
        }
    }

    /// Whether the other side sleeps and the caller is the one to wake it. Ask after each
    /// publication.
    pub(crate) fn must_wake(&self) -> bool {
        // SYNC POINT B: pairs with the fence in `ArmedFlag::arm`.
        fence(Ordering::SeqCst);
        let number = self.word.words()[0].load();
        number % 2 == 1
            && self.answered.load(Ordering::Relaxed) != number
            && self.answered.swap(number, Ordering::Relaxed) != number
    }
}
