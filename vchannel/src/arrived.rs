//! A block where it has arrived.

use crate::session::{Contents, TINY_BLOCK_BYTES};

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
    memory: Memory,
    length: usize,
}

/// Where the bytes are.
#[derive(Debug)]
enum Memory {
    /// Of a tiny message: here, so that none of it is allocated.
    Here([u8; TINY_BLOCK_BYTES]),
    /// One part after the other.
    Parts(Vec<Contents>),
}

impl ArrivedBlock {
    pub(crate) fn of_parts(parts: Vec<Contents>) -> Self {
        Self {
            length: parts.iter().map(Contents::len).sum(),
            memory: Memory::Parts(parts),
        }
    }

    /// A block of `length` bytes, at most [`TINY_BLOCK_BYTES`], that `copy` writes.
    #[inline]
    pub(crate) fn tiny<E>(
        length: usize,
        copy: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut bytes = [0; TINY_BLOCK_BYTES];
        copy(&mut bytes[..length])?;
        Ok(Self {
            memory: Memory::Here(bytes),
            length,
        })
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
        let Memory::Parts(parts) = &self.memory else {
            return self.length;
        };
        let is_copy = |part: &&Contents| matches!(part, Contents::Shared(_));
        let copies = parts.iter().filter(is_copy);
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
        let parts = match &self.memory {
            Memory::Here(bytes) => {
                into.copy_from_slice(&bytes[offset..offset + into.len()]);
                return;
            }
            Memory::Parts(parts) => parts,
        };
        let mut skip = offset;
        for part in parts {
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
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    /// A small block with these bytes.
    fn small(bytes: &[u8]) -> ArrivedBlock {
        let copy = |into: &mut [u8]| {
            into.copy_from_slice(bytes);
            Ok::<(), ()>(())
        };
        ArrivedBlock::tiny(bytes.len(), copy).unwrap()
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(
            lengths in proptest::collection::vec(0..50_usize, 0..6),
            cuts in [0..300_usize, 0..300_usize],
        ) {
            let whole: Vec<u8> = (0..=255).take(lengths.iter().sum()).collect();
            let mut rest = Bytes::from(whole.clone());
            let parts = lengths.iter().map(|length| Contents::Shared(rest.split_to(*length)));
            let mut blocks = vec![ArrivedBlock::of_parts(parts.collect())];
            if whole.len() <= TINY_BLOCK_BYTES {
                blocks.push(small(&whole));
            }
            let [start, end] = cuts.map(|cut| cut.min(whole.len()));
            let (start, end) = (start.min(end), start.max(end));
            for block in blocks {
                prop_assert_eq!((block.len(), block.copied_bytes()), (whole.len(), whole.len()));
                let mut read = vec![0; end - start];
                block.read(start, &mut read);
                prop_assert_eq!(&read[..], &whole[start..end]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "2 bytes at 2 of a block of 3")]
    fn reading_beyond_the_end_panics() {
        small(b"abc").read(2, &mut [0; 2]);
    }

    #[test]
    #[should_panic(expected = "of a block of 3")]
    fn an_offset_that_overflows_panics() {
        small(b"abc").read(usize::MAX, &mut [0; 2]);
    }
}
