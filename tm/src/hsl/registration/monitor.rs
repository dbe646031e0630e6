//! What happens to memory of this process, as the kernel tells it (`userfaultfd`). Unsafe island:
//! the calls are made by number.
//!
//! Memory is registered with the kernel for write protection, but never protected, so that no
//! access to it ever faults for it. What is used are the events: that memory has been unmapped,
//! moved, or is about to be emptied. Since no fault of the kernel's can be waited for either, an
//! ordinary user may do all this (`UFFD_USER_MODE_ONLY`, Linux 5.11).

#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{Setter, Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

/// Lets an ordinary user have one: faults of the kernel's are not waited for.
const USER_MODE_ONLY: u32 = 1;

// As in the kernel's `userfaultfd.h`, which never changes.
const GROUP: u8 = 0xaa;
const API_NUMBER: u8 = 0x3f;
const REGISTER_NUMBER: u8 = 0x00;
const UNREGISTER_NUMBER: u8 = 0x01;
const WRITE_PROTECT_NUMBER: u8 = 0x06;

const API_VERSION: u64 = 0xaa;
const FEATURE_WRITE_PROTECT: u64 = 1 << 0;
const FEATURE_EVENT_REMAP: u64 = 1 << 2;
const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
const MODE_WRITE_PROTECT: u64 = 1 << 1;

const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

/// Bytes of an event: its kind, seven more, and three words.
const EVENT_BYTES: usize = 32;
/// Events that are read at once.
const EVENTS_PER_READ: usize = 16;

#[repr(C)]
struct Api {
    version: u64,
    features: u64,
    calls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    length: u64,
}

#[repr(C)]
struct Register {
    span: Span,
    mode: u64,
    calls: u64,
}

#[repr(C)]
struct WriteProtect {
    span: Span,
    mode: u64,
}

impl Span {
    fn of(pages: &Range<usize>) -> Self {
        Self {
            start: pages.start as u64,
            length: pages.len() as u64,
        }
    }
}

/// Tells what happens to pages that it watches.
#[derive(Debug)]
pub(super) struct Monitor {
    descriptor: OwnedFd,
}

impl Monitor {
    /// One that watches nothing.
    pub(super) fn new() -> io::Result<Self> {
        let only = UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK | only;
        // SAFETY: the descriptor is given to nobody, and this type neither protects, fills nor
        // moves any page with it: no memory is ever changed through it.
        let descriptor = unsafe { userfaultfd(flags) }?;
        let mut api = Api {
            version: API_VERSION,
            features: FEATURE_WRITE_PROTECT
                | FEATURE_EVENT_REMAP
                | FEATURE_EVENT_REMOVE
                | FEATURE_EVENT_UNMAP,
            calls: 0,
        };
        // SAFETY: `Api` is the kernel's `uffdio_api`, which this call reads and writes.
        let request = unsafe {
            Updater::<{ opcode::read_write::<Api>(GROUP, API_NUMBER) }, Api>::new(&mut api)
        };
        // SAFETY: as above; the call says what is wanted of the descriptor.
        unsafe { ioctl(&descriptor, request) }?;
        Ok(Self { descriptor })
    }

    /// Watches `pages` from now on; again, where they are watched already.
    pub(super) fn watch(&self, pages: &Range<usize>) -> io::Result<()> {
        let mut register = Register {
            span: Span::of(pages),
            mode: MODE_WRITE_PROTECT,
            calls: 0,
        };
        // SAFETY: `Register` is the kernel's `uffdio_register`, which this call reads and writes.
        let request = unsafe {
            Updater::<{ opcode::read_write::<Register>(GROUP, REGISTER_NUMBER) }, Register>::new(
                &mut register,
            )
        };
        // SAFETY: as above. The pages are checked by the kernel; nothing that is in them, and
        // no access to them, changes.
        unsafe { ioctl(&self.descriptor, request) }?;
        Ok(())
    }

    /// Watches `pages` no more. Where something else is there meanwhile it may go on, which
    /// only costs time.
    pub(super) fn unwatch(&self, pages: &Range<usize>) {
        // SAFETY: `Span` is the kernel's `uffdio_range`, which this call reads.
        let request = unsafe {
            Setter::<{ opcode::read::<Span>(GROUP, UNREGISTER_NUMBER) }, Span>::new(Span::of(pages))
        };
        // SAFETY: as above. Nothing that is in the pages, and no access to them, changes.
        let _ = unsafe { ioctl(&self.descriptor, request) };
    }

    /// Whether some watched memory is being changed: the change may have been made, but its
    /// event has not been read, or is not even there, or was read just now.
    pub(super) fn is_changing(&self) -> bool {
        // No pages: the kernel looks for changes first and then finds this wrong.
        let mut nothing = WriteProtect {
            span: Span {
                start: 0,
                length: 0,
            },
            mode: 0,
        };
        // SAFETY: `WriteProtect` is the kernel's `uffdio_writeprotect`, which this call reads.
        let request = unsafe {
            Updater::<
                { opcode::read_write::<WriteProtect>(GROUP, WRITE_PROTECT_NUMBER) },
                WriteProtect,
            >::new(&mut nothing)
        };
        // SAFETY: as above; it names no page.
        let answer = unsafe { ioctl(&self.descriptor, request) };
        answer != Err(Errno::INVAL)
    }

    /// Reads events, and says which memory went away. Who changed it goes on then.
    pub(super) fn take_events(&self, mut gone: impl FnMut(Range<usize>)) -> io::Result<()> {
        let mut events = [[0_u8; EVENT_BYTES]; EVENTS_PER_READ];
        let read = match rustix::io::read(&self.descriptor, events.as_flattened_mut()) {
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events.iter().take(read / EVENT_BYTES) {
            gone(went_away(event));
        }
        Ok(())
    }
}

/// Which memory an event is about; all of it, where it is one that was not asked for.
fn went_away(event: &[u8; EVENT_BYTES]) -> Range<usize> {
    let (words, _) = event.as_chunks::<8>();
    let word = |at: usize| {
        let word = words.get(at).copied().unwrap_or_default();
        // Addresses of this process.
        usize::try_from(u64::from_ne_bytes(word)).unwrap_or(usize::MAX)
    };
    match event[0] {
        // From, to, length.
        EVENT_REMAP => word(1)..word(1).saturating_add(word(3)),
        // Start, end.
        EVENT_REMOVE | EVENT_UNMAP => word(1)..word(2),
        _ => 0..usize::MAX,
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
