//! Memory for payloads that arrive before anybody unpacks them, used again and again: fresh
//! memory of that size costs a page fault for every page.

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};

/// Buffers that wait to be used again at most.
const POOLED_BUFFERS: usize = 16;

/// Smaller payloads come in memory of their own.
const LEAST_BYTES: usize = 16 << 10;

/// Buffers that wait to be used again.
#[derive(Debug)]
pub(crate) struct BufferPool {
    back: Sender<Vec<u8>>,
    waiting: Receiver<Vec<u8>>,
}

/// A payload in memory that goes back to its pool when nothing refers to it any more.
#[derive(Debug)]
struct Pooled {
    memory: Vec<u8>,
    length: usize,
    back: Sender<Vec<u8>>,
}

impl BufferPool {
    pub(crate) fn new() -> Self {
        let (back, waiting) = bounded(POOLED_BUFFERS);
        Self { back, waiting }
    }

    /// Memory of `length` bytes at least; what an earlier use left is still there.
    pub(crate) fn take(&self, length: usize) -> Vec<u8> {
        if length < LEAST_BYTES {
            return vec![0; length];
        }
        let mut memory = self.waiting.try_recv().unwrap_or_default();
        if memory.len() < length {
            memory.resize(length, 0);
        }
        memory
    }

    /// The first `length` bytes of memory that was taken, to be kept for as long as somebody
    /// needs them.
    pub(crate) fn share(&self, mut memory: Vec<u8>, length: usize) -> Bytes {
        if length < LEAST_BYTES {
            memory.truncate(length);
            return memory.into();
        }
        let back = self.back.clone();
        Bytes::from_owner(Pooled {
            memory,
            length,
            back,
        })
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // With enough of them waiting, the memory is freed.
        let _ = self.back.try_send(std::mem::take(&mut self.memory));
    }
}
