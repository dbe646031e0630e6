//! The ring and the armed flag against a model, on plain memory; and under loom, every
//! order in which two threads can run. And both halves of a lane, for the protocols to try theirs.

use std::sync::Arc;

use super::ring::{RingReader, RingWriter, SharedRingWriter};
use super::sync::AtomicU64;

#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod model;
#[cfg(not(loom))]
pub(crate) mod threads;

/// Words that are nobody's but the test's.
pub(crate) type Plain = Arc<[AtomicU64]>;

pub(crate) fn words(count: usize) -> Plain {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// A ring that one thread writes.
pub(crate) fn ring<const N: usize>(words: Plain) -> (RingWriter<Plain, N>, RingReader<Plain, N>) {
    (RingWriter::new(Arc::clone(&words)), RingReader::new(words))
}

/// A ring that several threads write.
fn shared_ring<const N: usize>(words: Plain) -> (SharedRingWriter<Plain, N>, RingReader<Plain, N>) {
    (
        SharedRingWriter::new(Arc::clone(&words)),
        RingReader::new(words),
    )
}
