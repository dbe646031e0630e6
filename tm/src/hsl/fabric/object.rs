//! Objects of the library's, and the tables of functions that they bring. Unsafe island: reads
//! the tables, and closes the objects.

#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi::{Fid, Ops};
use super::error::FabricError;

/// An object, closed when dropped: after all that was made from it.
pub(super) struct Object<T> {
    /// Invariant: an object that is open, begins with a [`Fid`], and is what `T` describes.
    raw: NonNull<T>,
    ops: Calls,
    /// What it refers to.
    behind: Vec<Arc<dyn Any + Send + Sync>>,
}

/// What every object can do.
#[derive(Debug, Clone, Copy)]
struct Calls {
    close: unsafe extern "C" fn(*mut Fid) -> c_int,
    bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

impl<T> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.raw).finish()
    }
}

// SAFETY: objects are made in domains that were asked for, and granted, with FI_THREAD_SAFE: any
// thread may call their functions, at any time until they are closed. This type closes them when
// it is dropped, when nobody else has them.
unsafe impl<T> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    /// Takes over an object that a call has just made.
    ///
    /// # Safety
    /// `raw` is null, or an open object that begins with a [`Fid`], is what `T` describes, and is
    /// the caller's to close, in a domain for any thread. What it was made from outlives the result.
    pub(super) unsafe fn new(
        raw: *mut T,
        what: &'static str,
        provider: &str,
    ) -> Result<Self, FabricError> {
        let missing = || FabricError::Interface {
            what,
            provider: provider.to_owned(),
        };
        let raw = NonNull::new(raw).ok_or_else(missing)?;
        // SAFETY: an open object begins with a `Fid` (this function's caller).
        let fid = unsafe { raw.cast::<Fid>().read() };
        // SAFETY: that of an open object is null or such a table.
        let ops: Ops = unsafe { table(fid.ops) }.ok_or_else(missing)?;
        match (ops.close, ops.bind, ops.control) {
            (Some(close), Some(bind), Some(control)) => Ok(Self {
                raw,
                ops: Calls {
                    close,
                    bind,
                    control,
                },
                behind: Vec::new(),
            }),
            _ => Err(missing()),
        }
    }

    /// Keeps `what` until it is closed, and for ever if that fails: it goes on then, and so may whatever
    /// uses what it refers to.
    pub(super) fn keep(&mut self, what: Arc<dyn Any + Send + Sync>) {
        self.behind.push(what);
    }

    /// What it says now.
    pub(super) fn fields(&self) -> T
    where
        T: Copy,
    {
        // SAFETY: it is open, and what `T` describes (invariant).
        unsafe { self.raw.read() }
    }

    pub(super) fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }

    pub(super) fn fid(&self) -> *mut Fid {
        self.raw.as_ptr().cast()
    }

    /// `fi_ep_bind` and the like. The error is the library's.
    ///
    /// # Safety
    /// The other object outlives this one.
    pub(super) unsafe fn bind<U>(&self, other: &Object<U>, flags: u64) -> Result<(), i32> {
        // SAFETY: both are open (invariant), and `other` stays so for long enough (caller).
        match unsafe { (self.ops.bind)(self.fid(), other.fid(), flags) } {
            0 => Ok(()),
            error => Err(error),
        }
    }

    /// `fi_control`.
    ///
    /// # Safety
    /// `argument` is what `command` takes.
    pub(super) unsafe fn control(&self, command: c_int, argument: *mut c_void) -> Result<(), i32> {
        // SAFETY: it is open (invariant), and the argument as the caller says.
        match unsafe { (self.ops.control)(self.fid(), command, argument) } {
            0 => Ok(()),
            error => Err(error),
        }
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: it is open until now (invariant), and what was made from it is closed already
        // (`new`). Where that fails, and this is open still, so is what it was made from, and what it
        // refers to stays where it is (`keep`).
        if unsafe { (self.ops.close)(self.fid()) } != 0 {
            mem::forget(mem::take(&mut self.behind));
        }
    }
}

/// A copy of a table of functions, if it is there and has all of those in `T`.
///
/// # Safety
/// `table` is null, or a table of the library's that `T` describes as far as its size goes: its
/// first word is that size.
pub(super) unsafe fn table<T: Copy>(table: *const T) -> Option<T> {
    if table.is_null() {
        return None;
    }
    // SAFETY: it begins with its size (caller).
    let bytes = unsafe { table.cast::<usize>().read() };
    if bytes < size_of::<T>() {
        return None;
    }
    // SAFETY: it is at least as long as `T`, which describes it (caller).
    Some(unsafe { table.read() })
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn closed(_: *mut Fid) -> c_int {
        0
    }

    unsafe extern "C" fn busy(_: *mut Fid) -> c_int {
        -16
    }

    unsafe extern "C" fn bound(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
        0
    }

    unsafe extern "C" fn controlled(_: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
        0
    }

    #[test]
    fn what_cannot_be_closed_keeps_what_it_refers_to() {
        for (close, kept) in [(closed as _, 0), (busy as _, 1)] {
            let ops = Ops {
                size: size_of::<Ops>(),
                close: Some(close),
                bind: Some(bound),
                control: Some(controlled),
            };
            let mut fid = Fid {
                class: 0,
                context: std::ptr::null_mut(),
                ops: &raw const ops,
            };
            // SAFETY: it begins with a `Fid`, whose functions look at nothing.
            let object = unsafe { Object::new(&raw mut fid, "test", "none") };
            let memory = Arc::new([7; 8]);
            let mut object = object.unwrap();
            object.keep(memory.clone());
            drop(object);
            assert_eq!(Arc::strong_count(&memory), 1 + kept);
        }
    }

    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Two {
        size: usize,
        _one: usize,
    }

    #[test]
    fn a_table_that_is_too_small_is_not_read() {
        let small = [size_of::<usize>(), 0];
        let enough = [size_of::<Two>(), 7];
        // SAFETY: arrays that are as long as `Two`, and begin with a size.
        assert!(unsafe { table::<Two>(small.as_ptr().cast()) }.is_none());
        // SAFETY: as above.
        let read = unsafe { table::<Two>(enough.as_ptr().cast()) };
        assert!(read.is_some_and(|read| read.size == size_of::<Two>()));
        // SAFETY: null is allowed.
        assert!(unsafe { table::<Two>(std::ptr::null()) }.is_none());
    }
}
