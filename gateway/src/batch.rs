//! The buffers that a receiver reads into.

use bytes::BytesMut;

/// The batches of one receiver: `depth` buffers, used again as soon as nothing refers to them.
///
/// What is read into a batch goes on by reference; the batch is free when the last of it has
/// left, been copied or been dropped. Which batches those are is asked for, not told: it
/// costs one load each.
#[derive(Debug)]
pub(crate) struct Batches {
    idle: Vec<BytesMut>,
    /// One that was taken and came back as it was.
    untouched: Option<BytesMut>,
    /// Batches that were never used: their memory is not taken before.
    unused: usize,
    capacity: usize,
}

impl Batches {
    pub(crate) fn new(depth: usize, capacity: usize) -> Self {
        Self {
            idle: Vec::with_capacity(depth),
            untouched: None,
            unused: depth,
            capacity,
        }
    }

    /// Bytes of one batch.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// An empty batch, if one is free.
    pub(crate) fn take(&mut self) -> Option<BytesMut> {
        if let Some(batch) = self.untouched.take() {
            return Some(batch);
        }
        // The batch that was used last is the one that caches still know.
        for at in (0..self.idle.len()).rev() {
            if self.idle[at].try_reclaim(self.capacity) {
                return Some(self.idle.swap_remove(at));
            }
        }
        self.unused = self.unused.checked_sub(1)?;
        Some(BytesMut::with_capacity(self.capacity))
    }

    /// Whether nothing is in a batch, and nothing of it was used.
    pub(crate) fn is_untouched(&self, batch: &BytesMut) -> bool {
        batch.is_empty() && batch.capacity() >= self.capacity
    }

    /// Takes a batch back that is as it was when it was [taken](Self::take): it is the next one, and
    /// nobody need ask whether anything refers to it.
    pub(crate) fn give_back_untouched(&mut self, batch: BytesMut) {
        debug_assert!(self.is_untouched(&batch));
        match self.untouched {
            None => self.untouched = Some(batch),
            Some(_) => self.idle.push(batch),
        }
    }

    /// Takes a batch back, whatever still refers to it.
    pub(crate) fn give_back(&mut self, mut batch: BytesMut) {
        batch.clear();
        self.idle.push(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_comes_back_as_it_was_is_the_next_one() {
        let mut batches = Batches::new(2, 1000);
        let (first, second) = (batches.take().unwrap(), batches.take().unwrap());
        let memory = [first.as_ptr(), second.as_ptr()];
        batches.give_back_untouched(first);
        batches.give_back_untouched(second);
        let again = [(); 2].map(|()| batches.take().unwrap().as_ptr());
        assert_eq!(again, memory);
        assert!(batches.take().is_none(), "there are two");
    }

    #[test]
    fn a_batch_is_free_when_nothing_refers_to_it() {
        let mut batches = Batches::new(2, 1000);
        let mut first = batches.take().unwrap();
        let memory = first.as_ptr();
        first.extend_from_slice(&[7; 600]);
        let run = first.split_to(500).freeze();
        let tail = first.split_to(100).freeze();
        batches.give_back(first);
        let second = batches.take().unwrap();
        assert!(
            batches.take().is_none(),
            "one is read into, the other is referred to"
        );
        drop(run);
        assert!(batches.take().is_none());
        assert_eq!(tail[..], [7; 100]);
        drop(tail);
        let again = batches.take().unwrap();
        assert_eq!(again.as_ptr(), memory);
        assert_eq!((again.len(), again.capacity()), (0, 1000));
        batches.give_back(second);
        assert!(batches.take().is_some());
    }
}
