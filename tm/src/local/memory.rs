//! Memory that two processes map. Unsafe island: mappings, and the words in them.
//!
//! One side [makes](Mapping::create) a memfd and seals it, the other [checks and maps
//! it](Mapping::of_peer), for reading alone or for writing too, as the protocol has it.

#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::asm;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::sync::{Word, Words};
use crate::copying::copy;

/// Bytes that are fetched ahead: two lines of memory.
pub(crate) const FETCHED_BYTES: usize = 128;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE_BYTES: usize = 64;

/// What both sides require of shared memory: it never changes its size (an access beyond its
/// end would kill the process), and no seal is added or missing later.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// The file system of memfds without huge pages (`TMPFS_MAGIC`). With huge pages, a page
/// that cannot be had kills the reader.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// What the side that did not make a memory may do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerAccess {
    /// Read it: a seal keeps everybody from mapping it for writing any more.
    Read,
    /// Write it as well.
    Write,
}

impl PeerAccess {
    fn seals(self) -> SealFlags {
        match self {
            Self::Read => SEALS.union(SealFlags::FUTURE_WRITE),
            Self::Write => SEALS,
        }
    }

    fn protection(self) -> ProtFlags {
        match self {
            Self::Read => ProtFlags::READ,
            Self::Write => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// A file in memory that can be sealed. Nobody runs it as a program, which has to be said where the
/// system lets nobody have others (`vm.memfd_noexec`), and cannot be said before Linux 6.3.
fn memory_file(name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}

/// A mapping, undone when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Invariant: `start` is page-aligned and valid for reads of `length` bytes (and for
    /// writes, where `is_writable`) until the mapping is dropped; all of it is backed by a
    /// file whose size is sealed, or by anonymous memory.
    start: NonNull<u8>,
    length: usize,
    is_writable: bool,
    /// Whether no other process can write it.
    is_ours_alone: bool,
}

// SAFETY: a mapping belongs to the process, not to a thread; this type only keeps it. What
// is in it is reached through atomics, and through pointers whose users answer for them.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes memory of `length` bytes, zeroed, and seals it; with the descriptor that the
    /// peer gets. Pages are taken from the system when they are first touched.
    pub(crate) fn create(
        name: &CStr,
        length: usize,
        peer: PeerAccess,
    ) -> io::Result<(Arc<Self>, OwnedFd)> {
        Self::sealed(name, length, peer).map_err(|error| {
            let what = format!(
                "this side's memory for the lane, {length} bytes, is not to be had: {error}"
            );
            io::Error::new(error.kind(), what)
        })
    }

    fn sealed(name: &CStr, length: usize, peer: PeerAccess) -> io::Result<(Arc<Self>, OwnedFd)> {
        let file = memory_file(name)?;
        rustix::fs::ftruncate(&file, length as u64)?;
        let mut mapping = Self::new(&file, length, ProtFlags::READ | ProtFlags::WRITE)?;
        // Only now: a seal may forbid mappings for writing, and leaves ours.
        rustix::fs::fcntl_add_seals(&file, peer.seals())?;
        mapping.is_ours_alone = peer == PeerAccess::Read;
        Ok((Arc::new(mapping), file))
    }

    /// Makes memory of `length` bytes, zeroed, that no other process ever sees.
    pub(crate) fn private(length: usize) -> io::Result<Arc<Self>> {
        Self::anonymous(length).map(Arc::new)
    }

    fn anonymous(length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses, replaces nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE)
        }?;
        let mut mapping = Self::of(start.cast(), length, true)?;
        mapping.is_ours_alone = true;
        Ok(mapping)
    }

    /// Makes memory of `length` bytes, zeroed, that a card writes for the other side.
    pub(crate) fn for_card(length: usize) -> io::Result<Arc<Self>> {
        let mut mapping = Self::anonymous(length)?;
        mapping.is_ours_alone = false;
        Ok(Arc::new(mapping))
    }

    /// Checks that a descriptor of the peer's is memory of `length` bytes that was sealed as
    /// agreed, and maps it.
    ///
    /// The error is what is wrong with it.
    pub(crate) fn of_peer(
        file: &OwnedFd,
        length: usize,
        access: PeerAccess,
    ) -> Result<Arc<Self>, String> {
        let seals = rustix::fs::fcntl_get_seals(file)
            .map_err(|error| format!("its memory cannot be sealed: {error}"))?;
        if !seals.contains(access.seals()) {
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
        let mapping = Self::new(file, length, access.protection())
            .map_err(|error| format!("its memory cannot be mapped: {error}"))?;
        Ok(Arc::new(mapping))
    }

    fn new(file: impl AsFd, length: usize, access: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address that the kernel chooses, replaces nothing.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), length, access, MapFlags::SHARED, file, 0)
        }?;
        Self::of(start.cast(), length, access.contains(ProtFlags::WRITE))
    }

    fn of(start: *mut u8, length: usize, is_writable: bool) -> io::Result<Self> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            length,
            is_writable,
            is_ours_alone: false,
        })
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Whether this process can write it.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Whether this process can write it and no other can.
    pub(crate) fn is_ours_alone(&self) -> bool {
        self.is_ours_alone
    }

    /// `length` bytes at `offset`. The pointer is good for reads (and for writes, where the
    /// mapping is) as long as this memory lives.
    pub(crate) fn range(&self, offset: usize, length: usize) -> NonNull<[u8]> {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "{length} bytes at {offset} of a mapping of {}",
            self.length
        );
        // SAFETY: `offset` is within the mapping, which is one allocation.
        let start = unsafe { self.start.add(offset) };
        NonNull::slice_from_raw_parts(start, length)
    }

    /// Fetches the first [`FETCHED_BYTES`] from `offset` on, which another processor is likely to
    /// have written, or to write. A hint: nothing is read, so that nothing is checked.
    pub(crate) fn fetch(&self, offset: usize) {
        let start = self.start.as_ptr().wrapping_add(offset);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for line in [0, LINE_BYTES] {
            let line = start.wrapping_add(line);
            // SAFETY: the instruction changes nothing that a program can see, whatever it points
            // to: of what is not mapped, nothing is fetched.
            unsafe {
                asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = start;
    }

    fn word_range<W>(&self, offset: usize, count: usize) -> NonNull<W> {
        assert!(offset.is_multiple_of(align_of::<AtomicU64>()));
        self.range(offset, count * size_of::<AtomicU64>()).cast()
    }

    /// `count` words at `offset`, to write. Nobody may use these bytes as anything else.
    pub(crate) fn words(self: &Arc<Self>, offset: usize, count: usize) -> OwnWords {
        assert!(self.is_writable);
        OwnWords {
            start: self.word_range(offset, count),
            count,
            _memory: Arc::clone(self),
        }
    }

    /// `count` words at `offset` that the other side writes, to read. Nobody may use these
    /// bytes as anything else.
    pub(crate) fn peer_words(self: &Arc<Self>, offset: usize, count: usize) -> PeerWords {
        PeerWords {
            start: self.word_range(offset, count),
            count,
            _memory: Arc::clone(self),
        }
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

/// Bytes that the other side may write at any time: they are only ever copied, in and out.
#[derive(Debug, Clone)]
pub(crate) struct SharedBytes(Arc<Mapping>);

impl SharedBytes {
    /// The bytes of memory of this side's that the other side may write.
    pub(crate) fn new(memory: Arc<Mapping>) -> Self {
        // What is ours alone is for slots that are lent (`Loans`). Those of the other side are lent
        // too, but only its memory has them, and this is memory of this side's.
        assert!(memory.is_writable && !memory.is_ours_alone);
        Self(memory)
    }

    /// Copies `bytes` to `offset`.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.0.range(offset, bytes.len());
        // SAFETY: bounds: `range` checked them, and `bytes` is as long. The mapping is writable
        // and lives as long as `self`; nothing refers to its bytes (`new`), so they overlap no
        // slice. No other thread of this process accesses them now: they are their owner's alone
        // (a slot of staging, a buffer of an arena), or data that an entry carries, which goes
        // where only the thread may look that reads the list (`ListPlace::carries`), but for what
        // that thread has lent, which is not written (`Lending`). Another process that accesses
        // them meanwhile is outside of this program's memory model, and any mix of old and new
        // bytes is an acceptable outcome.
        unsafe {
            copy(bytes.as_ptr(), to.as_ptr().cast::<u8>(), bytes.len());
        }
    }

    /// Copies `length` bytes from one place to another.
    pub(crate) fn copy_within(&self, from: usize, to: usize, length: usize) {
        let (from, to) = (self.0.range(from, length), self.0.range(to, length));
        // SAFETY: as in `write`, for both ranges; they may overlap.
        unsafe {
            ptr::copy(from.as_ptr().cast::<u8>(), to.as_ptr().cast::<u8>(), length);
        }
    }

    /// Copies the bytes at `offset` to `into`.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.0.range(offset, into.len());
        // SAFETY: as in `write`, the other way round.
        unsafe {
            copy(from.as_ptr().cast::<u8>(), into.as_mut_ptr(), into.len());
        }
    }
}

/// Words that this side alone writes.
#[derive(Debug)]
pub(crate) struct OwnWords {
    /// Invariant: `count` aligned words within the memory that is kept beside it, which is
    /// mapped for writing.
    start: NonNull<AtomicU64>,
    count: usize,
    _memory: Arc<Mapping>,
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
        // atomic; what another process does to it breaks no promise of a reference to
        // atomics.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

/// A word that the other side writes: there is no way to store to it.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct PeerWord(AtomicU64);

impl Word for PeerWord {
    fn load(&self) -> u64 {
        Word::load(&self.0)
    }
}

/// Words that the other side writes.
#[derive(Debug)]
pub(crate) struct PeerWords {
    /// Invariant: `count` aligned words within the memory that is kept beside it.
    start: NonNull<PeerWord>,
    count: usize,
    _memory: Arc<Mapping>,
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

    const LENGTH: usize = 12_288;

    fn create(peer: PeerAccess) -> (Arc<Mapping>, OwnedFd) {
        Mapping::create(c"test", LENGTH, peer).unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "it knows no memory with a descriptor")]
    fn each_side_sees_what_the_other_writes() {
        let (own, file) = create(PeerAccess::Write);
        let peer = Mapping::of_peer(&file, LENGTH, PeerAccess::Write).unwrap();
        drop(file);
        let (ours, theirs) = (own.words(4096, 2), peer.peer_words(4096, 2));
        ours.words()[1].store_release(7);
        peer.words(8192, 1).words()[0].store_release(8);
        assert_eq!(own.peer_words(8192, 1).words()[0].load(), 8);
        drop(own);
        drop(peer);
        assert_eq!(theirs.words()[1].load(), 7);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it knows no memory with a descriptor")]
    fn unsealed_and_misfit_memory_is_refused() {
        let refused = |file: &OwnedFd, access| Mapping::of_peer(file, LENGTH, access).unwrap_err();
        let (_own, file) = create(PeerAccess::Write);
        let misfit = Mapping::of_peer(&file, LENGTH + 1, PeerAccess::Write).unwrap_err();
        assert!(misfit.contains("bytes instead of"));
        assert!(refused(&file, PeerAccess::Read).contains("lacks seals"));

        let open =
            rustix::fs::memfd_create(c"open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .unwrap();
        rustix::fs::ftruncate(&open, LENGTH as u64).unwrap();
        assert!(refused(&open, PeerAccess::Write).contains("lacks seals"));

        let pipe: OwnedFd = std::io::pipe().unwrap().0.into();
        assert!(refused(&pipe, PeerAccess::Read).contains("cannot be sealed"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it knows no memory with a descriptor")]
    fn memory_to_be_read_cannot_be_written_by_its_receiver() {
        let (_own, file) = create(PeerAccess::Read);
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        assert!(Mapping::of_peer(&file, LENGTH, PeerAccess::Write).is_err());
        let peer = Mapping::of_peer(&file, LENGTH, PeerAccess::Read).unwrap();
        assert!(!peer.is_writable);
    }

    #[test]
    #[should_panic(expected = "of a mapping of")]
    fn a_range_beyond_the_end_panics() {
        let _ = Mapping::private(LENGTH).unwrap().range(LENGTH, 1);
    }
}
