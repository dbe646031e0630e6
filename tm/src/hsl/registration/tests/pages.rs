//! Pages of memory that tests map, unmap, move and empty. Unsafe island: it does.

#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr;

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

/// Some pages, zeroed at first.
#[derive(Debug)]
pub(super) struct Pages {
    /// Invariant: `length` bytes that are mapped for reading and writing until this is dropped,
    /// and that nothing else uses.
    start: *mut u64,
    length: usize,
}

// SAFETY: memory belongs to the process, and this type is its one owner.
unsafe impl Send for Pages {}

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Pages {
    pub(super) fn map(count: usize) -> Self {
        let length = count * rustix::param::page_size();
        // SAFETY: a new mapping, at an address that the kernel chooses, replaces nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), length, ACCESS, MapFlags::PRIVATE)
        };
        Self {
            start: start.unwrap().cast(),
            length,
        }
    }

    pub(super) fn addresses(&self) -> Range<usize> {
        let start = self.start.expose_provenance();
        start..start + self.length
    }

    /// Writes `mark` at the beginning of each page.
    pub(super) fn mark(&mut self, mark: u64) {
        self.mark_where(mark, |_| true);
    }

    /// Writes `mark` at the beginning of each page that has none.
    pub(super) fn mark_new(&mut self, mark: u64) {
        self.mark_where(mark, |old| old == 0);
    }

    fn mark_where(&mut self, mark: u64, is_meant: impl Fn(u64) -> bool) {
        let page = rustix::param::page_size();
        for at in (0..self.length).step_by(page) {
            // SAFETY: `at` is within the pages (invariant),
            let place = unsafe { self.start.byte_add(at) };
            if is_meant(mark_at(place.expose_provenance())) {
                // SAFETY: which are mapped; pages are aligned.
                unsafe { place.write_volatile(mark) };
            }
        }
    }

    /// Unmaps the pages at `range`, and maps others there.
    pub(super) fn replace(&mut self, range: Range<usize>) {
        let page = rustix::param::page_size();
        assert!(range.end * page <= self.length);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: within the pages (checked), which are this type's.
        let place = unsafe { self.start.byte_add(range.start * page) };
        // SAFETY: as above: it replaces pages of this type's, to which there are no references.
        unsafe { rustix::mm::mmap_anonymous(place.cast(), range.len() * page, ACCESS, flags) }
            .unwrap();
    }

    /// Gives the pages at `range` back; they are zero after it.
    pub(super) fn empty(&mut self, range: Range<usize>) {
        let page = rustix::param::page_size();
        assert!(range.end * page <= self.length);
        // SAFETY: within the pages (checked).
        let place = unsafe { self.start.byte_add(range.start * page) };
        let advice = Advice::LinuxDontNeed;
        // SAFETY: as above; nothing refers to what is in them.
        unsafe { rustix::mm::madvise(place.cast(), range.len() * page, advice) }.unwrap();
    }

    /// Moves all of them somewhere else: one by one, since what is watched in part cannot be
    /// moved at once.
    pub(super) fn relocate(&mut self) {
        let page = rustix::param::page_size();
        let new = Self::map(self.length / page);
        for at in (0..self.length).step_by(page) {
            // SAFETY: `at` is within the pages (invariant),
            let from = unsafe { self.start.byte_add(at) };
            // SAFETY: and within the new ones, which are as many.
            let to = unsafe { new.start.byte_add(at) };
            let (from, to) = (from.cast(), to.cast());
            // SAFETY: one page to the place of another, both of which are this type's and are not
            // referred to.
            unsafe { rustix::mm::mremap_fixed(from, page, page, MremapFlags::MAYMOVE, to) }
                .unwrap();
        }
        // Nothing is left to be unmapped at the old place.
        self.start = new.start;
        std::mem::forget(new);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly what is mapped (invariant), and nothing refers to it.
        unsafe { rustix::mm::munmap(self.start.cast(), self.length) }.unwrap();
    }
}

/// The mark of the page that is at `address`.
///
/// Reads memory that the caller has mapped: each caller in these tests has [`Pages`] there.
pub(super) fn mark_at(address: usize) -> u64 {
    assert!(address.is_multiple_of(rustix::param::page_size()));
    let place: *const u64 = ptr::with_exposed_provenance(address);
    // SAFETY: mapped (see above), and aligned, as it is where a page begins. A thread that writes
    // it is the one that reads it.
    unsafe { place.read_volatile() }
}
