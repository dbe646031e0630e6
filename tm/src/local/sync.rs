//! The atomics of the shared rings, in one place so that `--cfg loom` can put loom's there.

#[cfg(loom)]
pub(crate) use loom::sync::Mutex;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::TryLockError;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A word that another process, or another thread, may be writing.
pub(crate) trait Word: Send + Sync {
    /// A relaxed load: the only access that is also defined for memory that is mapped for
    /// reading alone. Follow it with a fence where it must acquire.
    fn load(&self) -> u64;
}

/// A word that this side writes, and nobody else.
pub(crate) trait OwnWord: Word {
    /// Writes `value`, in no order with anything else.
    fn store(&self, value: u64);

    /// Publishes everything before it with `value`.
    fn store_release(&self, value: u64);
}

impl Word for std::sync::atomic::AtomicU64 {
    fn load(&self) -> u64 {
        self.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl OwnWord for std::sync::atomic::AtomicU64 {
    fn store(&self, value: u64) {
        self.store(value, std::sync::atomic::Ordering::Relaxed);
    }

    fn store_release(&self, value: u64) {
        self.store(value, std::sync::atomic::Ordering::Release);
    }
}

#[cfg(loom)]
impl Word for AtomicU64 {
    fn load(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
}

#[cfg(loom)]
impl OwnWord for AtomicU64 {
    fn store(&self, value: u64) {
        self.store(value, Ordering::Relaxed);
    }

    fn store_release(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

/// Words in a row, wherever they are.
pub(crate) trait Words {
    /// What they are.
    type Word: Word;

    /// All of them.
    fn words(&self) -> &[Self::Word];
}

#[cfg(test)]
impl<W: Word> Words for std::sync::Arc<[W]> {
    type Word = W;

    fn words(&self) -> &[W] {
        self
    }
}
