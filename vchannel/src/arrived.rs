//! A block where it has arrived.

use bytes::Bytes;

use crate::session::Contents;

/// A block that was [unpacked where it had arrived](crate::Unpacking::unpack_arrived): in memory of
/// the network's, if it came over shared memory or remote write between two nodes, and otherwise in
/// memory of this process.
///
/// A node that shares memory with this one could still change it there, though none does that keeps
/// to the protocol. So there is no reference to the bytes: they are [read](Self::read), that is
/// copied, in pieces as small as they are needed, and what was read does not change. Who looks at
/// the same bytes twice may see two different things, if the other node misbehaves.
///
/// The network has the memory back when this is dropped. Of a lane's slots a quarter may be out at
/// once; where they are, blocks that come are copied when they do.
#[derive(Debug)]
pub struct ArrivedBlock {
    parts: Vec<Contents>,
    length: usize,
}

impl ArrivedBlock {
    pub(crate) fn new(parts: Vec<Contents>) -> Self {
        let length = parts.iter().map(Contents::len).sum();
        Self { parts, length }
    }

    pub(crate) fn of(bytes: Bytes) -> Self {
        Self::new(vec![Contents::Shared(bytes)])
    }

    /// Bytes that it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes of it that were copied on this node when they arrived: all, where the network has no
    /// slots or too many of them are out, and those that came in small frames.
    #[must_use]
    pub fn copied_bytes(&self) -> usize {
        let is_copy = |part: &&Contents| matches!(part, Contents::Shared(_));
        let copies = self.parts.iter().filter(is_copy);
        copies.map(Contents::len).sum()
    }

    /// Copies the bytes at `offset` to `into`.
    ///
    /// # Panics
    /// When there are not so many, as indexing a slice does.
    pub fn read(&self, offset: usize, mut into: &mut [u8]) {
        let end = offset.checked_add(into.len());
        assert!(
            end.is_some_and(|end| end <= self.length),
            "{} bytes at {offset} of a block of {}",
            into.len(),
            self.length
        );
        let mut skip = offset;
        for part in &self.parts {
            let skipped = skip.min(part.len());
            let here = (part.len() - skipped).min(into.len());
            let (first, rest) = into.split_at_mut(here);
            if here > 0 {
                part.copy_out(skipped, first);
            }
            into = rest;
            skip -= skipped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_can_be_read(
            lengths in proptest::collection::vec(0..50_usize, 0..6),
            cuts in [0..300_usize, 0..300_usize],
        ) {
            let whole: Vec<u8> = (0..=255).take(lengths.iter().sum()).collect();
            let mut rest = Bytes::from(whole.clone());
            let parts = lengths.iter().map(|length| Contents::Shared(rest.split_to(*length)));
            let block = ArrivedBlock::new(parts.collect());
            prop_assert_eq!(block.len(), whole.len());
            let [start, end] = cuts.map(|cut| cut.min(whole.len()));
            let (start, end) = (start.min(end), start.max(end));
            let mut read = vec![0; end - start];
            block.read(start, &mut read);
            prop_assert_eq!(&read[..], &whole[start..end]);
        }
    }

    #[test]
    #[should_panic(expected = "2 bytes at 2 of a block of 3")]
    fn reading_beyond_the_end_panics() {
        ArrivedBlock::of(Bytes::from_static(b"abc")).read(2, &mut [0; 2]);
    }

    #[test]
    #[should_panic(expected = "of a block of 3")]
    fn an_offset_that_overflows_panics() {
        ArrivedBlock::of(Bytes::from_static(b"abc")).read(usize::MAX, &mut [0; 2]);
    }
}
