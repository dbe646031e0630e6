//! How far a list has been read, which is its writer's credit: no entry is written over one that
//! may still be read.
//!
//! ```text
//!  reader                      writer
//!  read an entry               look at the head
//!  release: the head           acquire fence
//!                              room? write an entry
//! ```

use crate::hsl::put::PutError;
use crate::local::sync::{Ordering, OwnWord, Word, Words, fence};

/// The reader's word.
#[derive(Debug)]
pub(super) struct Head<W>(W);

impl<W: Words> Head<W>
where
    W::Word: OwnWord,
{
    /// Over one word that is zero.
    pub(super) fn new(word: W) -> Self {
        Self(word)
    }

    /// `read` entries have been read since the beginning.
    pub(super) fn tell(&self, read: u64) {
        // SYNC POINT C: pairs with the acquire fence in `ListRoom::is_any`; the entries before it
        // are read no more.
        self.0.words()[0].store_release(read);
    }
}

/// What the writer knows of it.
#[derive(Debug)]
pub(super) struct ListRoom<W> {
    head: W,
    /// Entries that the list holds.
    entries: u64,
    /// Entries that were written to it.
    written: u64,
    /// Entries of it that were read, as far as is known.
    read: u64,
}

impl<W: Words> ListRoom<W> {
    /// Over the reader's word, for a list of so many entries.
    pub(super) fn new(head: W, entries: usize) -> Self {
        Self {
            head,
            entries: entries as u64,
            written: 0,
            read: 0,
        }
    }

    /// Whether there is room for an entry.
    pub(super) fn is_any(&mut self) -> Result<bool, PutError> {
        if self.written.wrapping_sub(self.read) < self.entries {
            return Ok(true);
        }
        let read = self.head.words()[0].load();
        // SYNC POINT C: pairs with the release store in `Head::tell`; what is written from here
        // on is behind what was read.
        fence(Ordering::Acquire);
        if self.written.wrapping_sub(read) > self.entries {
            return Err(PutError::Peer("it has read what was not written"));
        }
        self.read = read;
        Ok(self.written.wrapping_sub(read) < self.entries)
    }

    /// An entry is being written.
    pub(super) fn take(&mut self) {
        self.written = self.written.wrapping_add(1);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    use super::*;
    use crate::local::armed::{ArmedFlag, ArmedWatch};
    use crate::local::tests::{ring, words};

    const ENTRIES: usize = 2;
    /// The last one goes where the first one was.
    const MESSAGES: usize = ENTRIES + 1;
    /// Preemptions that are tried: all orders are too many.
    const PREEMPTIONS_MAX: usize = 3;

    /// No entry is written while it is read, each is read once and in order, and a reader that
    /// sleeps whenever it finds nothing is woken.
    #[test]
    fn loom_a_list_is_written_no_further_than_it_was_read() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS_MAX);
        model.check(|| {
            // What an entry says: memory for one to write, or for one to read.
            let said: Arc<[UnsafeCell<()>; ENTRIES]> =
                Arc::new(std::array::from_fn(|_| UnsafeCell::new(())));
            let (armed, told) = (words(1), words(1));
            let (mut flag, watch) = (ArmedFlag::new(armed.clone()), ArmedWatch::new(armed));
            let (head, mut room) = (Head::new(told.clone()), ListRoom::new(told, ENTRIES));
            let (mut list, mut received) = ring::<1>(words(ENTRIES));
            let bell = Arc::new(Notify::new());
            let writer = {
                let (said, bell) = (Arc::clone(&said), Arc::clone(&bell));
                thread::spawn(move || {
                    for message in 0..MESSAGES {
                        while !room.is_any().unwrap() {
                            thread::yield_now();
                        }
                        said[message % ENTRIES].with_mut(|_| ());
                        list.publish([message as u64]);
                        room.take();
                        if watch.must_wake() {
                            bell.notify();
                        }
                    }
                })
            };
            let mut read = 0;
            while read < MESSAGES {
                if let Some([message]) = received.next() {
                    assert_eq!(message, read as u64);
                    said[read % ENTRIES].with(|_| ());
                    read += 1;
                    head.tell(read as u64);
                    flag.disarm();
                    continue;
                }
                flag.arm();
                if !received.has_next() {
                    // Where a wake-up was lost, loom finds that nobody can go on, or that the writer
                    // waits for room without end.
                    bell.wait();
                }
                flag.disarm();
            }
            writer.join().unwrap();
        });
    }
}
