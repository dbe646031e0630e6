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
    /// Batches that were never used: their memory is not taken before.
    unused: usize,
    capacity: usize,
}

impl Batches {
    pub(crate) fn new(depth: usize, capacity: usize) -> Self {
        Self {
            idle: Vec::with_capacity(depth),
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
        // The batch that was used last is the one that caches still know.
        for at in (0..self.idle.len()).rev() {
            if self.idle[at].try_reclaim(self.capacity) {
                return Some(self.idle.swap_remove(at));
            }
        }
        self.unused = self.unused.checked_sub(1)?;
        Some(BytesMut::with_capacity(self.capacity))
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
