//! The memory of a lane: ours, which we alone write, and the peer's, which we only read.
//! Unsafe island: mappings, and the words and slots in them.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::layout::Geometry;
use super::sync::{Word, Words};

/// What both sides require of a lane's memory: it never changes its size (an access beyond
/// its end would kill the process), and nobody can map it for writing any more.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::FUTURE_WRITE)
    .union(SealFlags::SEAL);

/// The file system of memfds without huge pages (`TMPFS_MAGIC`). With huge pages, a page
/// that cannot be had kills the reader.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A mapping, undone when dropped.
#[derive(Debug)]
struct Mapping {
    /// Invariant: `start` is page-aligned and valid for reads of `length` bytes (and for
    /// writes, when in [`OwnMemory`]) until the mapping is dropped; all of it is backed by a
    /// file whose size is sealed.
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; this type only keeps it. What
// is in it is reached through atomics, and slots that have owners of their own.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: impl AsFd, length: usize, access: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address that the kernel chooses, replaces nothing.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), length, access, MapFlags::SHARED, file, 0)
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// The address of `length` bytes at `offset`.
    fn range(&self, offset: usize, length: usize) -> NonNull<u8> {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "{length} bytes at {offset} of a mapping of {}",
            self.length
        );
        // SAFETY: `offset` is within the mapping, which is one allocation.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped. Everything that points into it
        // (words, slots) holds this mapping alive, so nothing does any more.
        let undone = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(undone.is_ok());
    }
}

/// The memory that this side made and alone writes.
#[derive(Debug)]
pub(super) struct OwnMemory {
    mapping: Mapping,
    geometry: Geometry,
}

impl OwnMemory {
    /// Makes and seals it; with the descriptor that the peer gets. Pages are taken from the
    /// system when they are first touched.
    pub(super) fn new(geometry: Geometry) -> io::Result<(Arc<Self>, OwnedFd)> {
        let length = geometry.memory_bytes();
        let file = rustix::fs::memfd_create(
            c"madgate-lane",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&file, length as u64)?;
        let mapping = Mapping::new(&file, length, ProtFlags::READ | ProtFlags::WRITE)?;
        // Only now: the seal forbids mappings for writing, and leaves ours.
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok((Arc::new(Self { mapping, geometry }), file))
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// `count` words at `offset`, to write.
    pub(super) fn words(self: &Arc<Self>, offset: usize, count: usize) -> OwnWords {
        assert!(offset.is_multiple_of(align_of::<AtomicU64>()));
        let start = self
            .mapping
            .range(offset, count * size_of::<AtomicU64>())
            .cast();
        OwnWords {
            start,
            count,
            _memory: Arc::clone(self),
        }
    }

    /// The memory of slot `slot`. The pointer is good for reads and writes as long as this
    /// memory lives.
    pub(super) fn slot(&self, slot: u32) -> NonNull<[u8]> {
        assert!(slot < self.geometry.slots());
        let length = self.geometry.slot_bytes() as usize;
        let start = self.mapping.range(self.geometry.slot_at(slot), length);
        NonNull::slice_from_raw_parts(start, length)
    }
}

/// The memory that the peer made, mapped for reading.
#[derive(Debug)]
pub(super) struct PeerMemory {
    mapping: Mapping,
    geometry: Geometry,
}

impl PeerMemory {
    /// Checks that the descriptor is memory as agreed, and maps it.
    ///
    /// The error is what is wrong with it.
    pub(super) fn new(file: &OwnedFd, geometry: Geometry) -> Result<Arc<Self>, String> {
        let length = geometry.memory_bytes();
        let seals = rustix::fs::fcntl_get_seals(file)
            .map_err(|error| format!("its memory cannot be sealed: {error}"))?;
        if !seals.contains(SEALS) {
            return Err(format!("its memory lacks seals, it has {seals:?}"));
        }
        let system = rustix::fs::fstatfs(file).map_err(|error| error.to_string())?;
        if u64::try_from(system.f_type) != Ok(TMPFS_MAGIC) {
            return Err("its memory is not made of ordinary pages".to_owned());
        }
        let size = rustix::fs::fstat(file)
            .map_err(|error| error.to_string())?
            .st_size;
        if usize::try_from(size) != Ok(length) {
            return Err(format!("its memory has {size} bytes instead of {length}"));
        }
        let mapping = Mapping::new(file, length, ProtFlags::READ)
            .map_err(|error| format!("its memory cannot be mapped: {error}"))?;
        Ok(Arc::new(Self { mapping, geometry }))
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// `count` words at `offset`, to read.
    pub(super) fn words(self: &Arc<Self>, offset: usize, count: usize) -> PeerWords {
        assert!(offset.is_multiple_of(align_of::<AtomicU64>()));
        let start = self
            .mapping
            .range(offset, count * size_of::<AtomicU64>())
            .cast();
        PeerWords {
            start,
            count,
            _memory: Arc::clone(self),
        }
    }

    /// The first `length` bytes of slot `slot`. The pointer is good for reads as long as
    /// this memory lives.
    pub(super) fn slot(&self, slot: u32, length: u32) -> NonNull<[u8]> {
        assert!(slot < self.geometry.slots() && length <= self.geometry.slot_bytes());
        let start = self
            .mapping
            .range(self.geometry.slot_at(slot), length as usize);
        NonNull::slice_from_raw_parts(start, length as usize)
    }
}

/// Words in our memory.
#[derive(Debug)]
pub(super) struct OwnWords {
    /// Invariant: `count` aligned words within the memory that is kept beside it.
    start: NonNull<AtomicU64>,
    count: usize,
    _memory: Arc<OwnMemory>,
}

// SAFETY: the words are atomics in memory that any thread may access while it is mapped,
// which the `Arc` ensures.
unsafe impl Send for OwnWords {}
// SAFETY: as above.
unsafe impl Sync for OwnWords {}

impl Words for OwnWords {
    type Word = AtomicU64;

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: in bounds, aligned and mapped while `self` is borrowed (invariant). The
        // range holds words and nothing else, so every access to it in this process is
        // atomic; other processes can only read it.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

/// A word in the peer's memory: there is no way to store to it.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct PeerWord(AtomicU64);

impl Word for PeerWord {
    fn load(&self) -> u64 {
        Word::load(&self.0)
    }
}

/// Words in the peer's memory.
#[derive(Debug)]
pub(super) struct PeerWords {
    /// Invariant: `count` aligned words within the memory that is kept beside it.
    start: NonNull<PeerWord>,
    count: usize,
    _memory: Arc<PeerMemory>,
}

// SAFETY: the words are atomics in memory that any thread may read while it is mapped,
// which the `Arc` ensures.
unsafe impl Send for PeerWords {}
// SAFETY: as above.
unsafe impl Sync for PeerWords {}

impl Words for PeerWords {
    type Word = PeerWord;

    fn words(&self) -> &[PeerWord] {
        // SAFETY: in bounds, aligned and mapped while `self` is borrowed (invariant).
        // `PeerWord` is an `AtomicU64`, so that a process that changes the memory meanwhile
        // breaks no promise of the reference; it only offers relaxed loads, which are
        // defined for memory that is mapped for reading alone.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::sync::OwnWord;
    use super::*;

    fn geometry() -> Geometry {
        Geometry::new(2, 100).unwrap()
    }

    #[test]
    fn the_peer_sees_what_we_write() {
        let (own, file) = OwnMemory::new(geometry()).unwrap();
        let peer = PeerMemory::new(&file, geometry()).unwrap();
        drop(file);
        let (ours, theirs) = (own.words(4096, 2), peer.words(4096, 2));
        ours.words()[1].store_release(7);
        drop(own);
        drop(peer);
        assert_eq!(theirs.words()[1].load(), 7);
    }

    #[test]
    fn unsealed_and_misfit_memory_is_refused() {
        let (_own, file) = OwnMemory::new(geometry()).unwrap();
        let other = Geometry::new(3, 100).unwrap();
        assert!(
            PeerMemory::new(&file, other)
                .unwrap_err()
                .contains("bytes instead of")
        );

        let open =
            rustix::fs::memfd_create(c"open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .unwrap();
        rustix::fs::ftruncate(&open, geometry().memory_bytes() as u64).unwrap();
        assert!(
            PeerMemory::new(&open, geometry())
                .unwrap_err()
                .contains("lacks seals")
        );

        let pipe: OwnedFd = std::io::pipe().unwrap().0.into();
        assert!(
            PeerMemory::new(&pipe, geometry())
                .unwrap_err()
                .contains("cannot be sealed")
        );
    }

    #[test]
    fn sealed_memory_cannot_be_written_by_its_receiver() {
        let (_own, file) = OwnMemory::new(geometry()).unwrap();
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        let length = geometry().memory_bytes();
        assert!(Mapping::new(&file, length, ProtFlags::READ | ProtFlags::WRITE).is_err());
    }
}
