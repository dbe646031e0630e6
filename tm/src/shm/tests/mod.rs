//! The ring and the armed flag against a model, on plain memory; and under loom, every
//! order in which two threads can run.

use std::sync::Arc;

use super::ring::{RingReader, RingWriter, SharedRingWriter};
use super::sync::{AtomicU64, Word};

#[cfg(not(loom))]
mod hostile;
#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod model;

fn words(count: usize) -> Arc<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// A ring that one thread writes.
fn ring<W: Word>(words: Arc<[W]>) -> (RingWriter<Arc<[W]>>, RingReader<Arc<[W]>>)
where
    W: super::sync::OwnWord,
{
    (RingWriter::new(Arc::clone(&words)), RingReader::new(words))
}

/// A ring that several threads write.
fn shared_ring<W: Word>(words: Arc<[W]>) -> (SharedRingWriter<Arc<[W]>>, RingReader<Arc<[W]>>)
where
    W: super::sync::OwnWord,
{
    (
        SharedRingWriter::new(Arc::clone(&words)),
        RingReader::new(words),
    )
}
