//! What a card of the papers has to be told of memory before it can use it: at which physical
//! pages its addresses are. The kernel is asked, as it was then (`/proc/self/pagemap`; whom it
//! does not trust it tells only which pages are there, at the same price).
//!
//! The `host` device needs none of this: it is measured to see what a registration costs, and
//! what a cache of them saves.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use madgate_tm::hsl::registration::{Registrar, RegistrationCache, RegistrationLimits};

use crate::plan::Memory;

/// Bytes of what the kernel says about a page.
const ENTRY_BYTES: usize = 8;

/// The page table, as the kernel shows it.
#[derive(Debug)]
pub(crate) struct PageMap {
    file: File,
    page_bytes: usize,
}

impl PageMap {
    fn open() -> io::Result<Self> {
        Ok(Self {
            file: File::open("/proc/self/pagemap")?,
            page_bytes: rustix::param::page_size(),
        })
    }
}

impl Registrar for PageMap {
    /// How many pages are there.
    type Key = usize;

    fn register(&self, memory: Range<usize>) -> io::Result<usize> {
        let first = memory.start / self.page_bytes;
        let end = memory.end.div_ceil(self.page_bytes);
        let mut entries = vec![0; (end - first) * ENTRY_BYTES];
        self.file
            .read_exact_at(&mut entries, (first * ENTRY_BYTES) as u64)?;
        // The highest bit: the page is there.
        let entries = entries.as_chunks::<ENTRY_BYTES>().0;
        let there = entries
            .iter()
            .filter(|entry| entry[ENTRY_BYTES - 1] & 0x80 != 0);
        Ok(there.count())
    }

    fn deregister(&self, _: usize) {
        // A translation holds nothing.
    }
}

/// How memory is translated.
#[derive(Debug)]
pub(crate) enum Translation {
    /// Nobody needs it.
    No,
    /// For each message.
    Each(PageMap),
    /// Once for the same memory.
    Once(Arc<RegistrationCache<PageMap>>),
}

impl Translation {
    /// What `memory` needs.
    pub(crate) fn of(memory: Memory) -> io::Result<Self> {
        Ok(match memory {
            Memory::Arena | Memory::Other => Self::No,
            Memory::Translated => Self::Each(PageMap::open()?),
            Memory::Cached => {
                let limits = RegistrationLimits::default();
                let cache = RegistrationCache::new(PageMap::open()?, &limits);
                if let Some(why) = cache.why_off() {
                    return Err(io::Error::other(why.to_owned()));
                }
                Self::Once(cache)
            }
        })
    }

    /// Sees to it that `bytes` is translated.
    pub(crate) fn translate(&self, bytes: &[u8]) -> io::Result<()> {
        let start = bytes.as_ptr().addr();
        let memory = start..start + bytes.len();
        match self {
            Self::No => Ok(()),
            Self::Each(map) => map.register(memory).map(|key| map.deregister(key)),
            Self::Once(cache) => cache.get(memory).map(drop),
        }
    }
}
