//! A box whose memory comes from its thread, and goes back there: for what lives as long as one
//! message, and is moved about. Unsafe island: it puts values in memory that has no type.
//!
//! To move a structure of a hundred bytes right after it was written takes a processor as long as
//! fifty instructions: what is copied at once was written in parts, which it has to wait for. Behind a
//! box only a pointer is moved, and this one allocates only where a thread has more of them at a time
//! than it keeps memory for, or makes what others drop.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::spares::Spares;

/// What every block of memory is good for.
const LAYOUT: Layout = match Layout::from_size_align(256, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("256 bytes can be aligned to 64"),
};

/// Blocks that a thread keeps for later.
const SPARES: usize = 4;

/// Memory of [`LAYOUT`] that nothing else owns.
struct Block(NonNull<u8>);

impl Block {
    #[cold]
    fn allocate() -> Self {
        // SAFETY: the layout has a size.
        let start = unsafe { alloc(LAYOUT) };
        Self(NonNull::new(start).unwrap_or_else(|| handle_alloc_error(LAYOUT)))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nothing else owns it (its invariant).
        unsafe { dealloc(self.0.as_ptr(), LAYOUT) };
    }
}

thread_local! {
    /// Blocks of this thread that nothing is in.
    static SPARE: Spares<Block, SPARES> = const { Spares::none() };
}

/// A block from this thread's, or a new one.
#[inline]
fn take() -> Block {
    // A thread that is ending has none any more.
    let spare = SPARE.try_with(Spares::take).ok().flatten();
    spare.unwrap_or_else(Block::allocate)
}

/// Nothing is in a block any more: it becomes one of this thread's, unless that has enough.
#[inline]
fn put(block: Block) {
    let _ = SPARE.try_with(|spares| spares.put(block));
}

/// A value in memory from the pool of the thread that made it. The thread that drops it keeps the
/// memory for later. Otherwise like a `Box`.
///
/// A thread keeps four blocks of memory: as many values at a time cost no allocation.
/// Values of up to 256 bytes fit, which is found out when the program is compiled:
///
/// ```compile_fail,E0080
/// let too_large = madgate_tm::Pooled::new(|| [0_u8; 257]);
/// ```
///
/// ```compile_fail,E0080
/// #[repr(align(128))]
/// struct Aligned(u8);
/// let too_far_aligned = madgate_tm::Pooled::new(|| Aligned(0));
/// ```
///
/// It goes to other threads where its value may:
///
/// ```compile_fail,E0277
/// let shared = madgate_tm::Pooled::new(|| std::cell::Cell::new(0));
/// std::thread::scope(|scope| {
///     scope.spawn(|| shared.set(1)); // from two threads
/// });
/// ```
pub struct Pooled<T> {
    /// Invariant: a value of this type is in it, until this is dropped.
    block: ManuallyDrop<Block>,
    value: PhantomData<T>,
}

// SAFETY: it owns its value like a box, and a block may go to another thread's pool.
unsafe impl<T: Send> Send for Pooled<T> {}
// SAFETY: shared, it gives out shared references to its value alone.
unsafe impl<T: Sync> Sync for Pooled<T> {}

impl<T> Pooled<T> {
    const FITS: () = assert!(
        size_of::<T>() <= LAYOUT.size() && align_of::<T>() <= LAYOUT.align(),
        "it is too large, or has to be aligned too far"
    );

    /// Puts what `make` makes there. Usually that is made where it stays.
    #[inline]
    #[must_use]
    pub fn new(make: impl FnOnce() -> T) -> Self {
        const { Self::FITS };
        // Before `make`: a value that is there while this may still fail is made elsewhere.
        let block = take();
        let place = block.0.cast::<T>();
        let value = make();
        // SAFETY: the memory is valid for writes and as large and as aligned as a `T` needs (above),
        // and nothing is in it.
        unsafe { place.write(value) };
        Self {
            block: ManuallyDrop::new(block),
            value: PhantomData,
        }
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a `T` is there (invariant), and is borrowed as long as this is.
        unsafe { self.block.0.cast::<T>().as_ref() }
    }
}

impl<T> DerefMut for Pooled<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; nobody else has a reference, as this is borrowed as exclusive.
        unsafe { self.block.0.cast::<T>().as_mut() }
    }
}

impl<T> Drop for Pooled<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the last that is done with it.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        // SAFETY: a `T` is there (invariant), which nobody refers to any more. If that panics, the
        // block goes to the allocator while it unwinds.
        unsafe { block.0.cast::<T>().drop_in_place() };
        put(block);
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;
    use std::thread;

    use super::*;

    fn address<T>(of: &Pooled<T>) -> usize {
        std::ptr::from_ref(&**of).addr()
    }

    #[test]
    fn values_are_there_until_they_are_dropped_once() {
        let counted = Rc::new(());
        let mut pooled = Pooled::new(|| (Rc::clone(&counted), 1));
        pooled.1 += 1;
        assert_eq!((pooled.1, Rc::strong_count(&counted)), (2, 2));
        assert_eq!(format!("{pooled:?}"), "((), 2)");
        let moved = pooled;
        assert_eq!((moved.1, Rc::strong_count(&counted)), (2, 2));
        drop(moved);
        assert_eq!(Rc::strong_count(&counted), 1);
    }

    #[test]
    fn a_thread_uses_its_memory_again() {
        let mut pooled: Vec<_> = (0..SPARES as u64).map(|n| Pooled::new(|| n)).collect();
        let mut before: Vec<_> = pooled.iter().map(address).collect();
        pooled.clear();
        // Of another type, too.
        let again: Vec<_> = (0..SPARES).map(|_| Pooled::new(|| [7u8; 256])).collect();
        let mut after: Vec<_> = again.iter().map(address).collect();
        before.sort_unstable();
        after.sort_unstable();
        assert_eq!(before, after);
        after.dedup();
        assert_eq!(after.len(), SPARES);
        assert!(again.iter().all(|bytes| **bytes == [7; 256]));
    }

    #[test]
    fn what_is_aligned_stays_aligned() {
        #[repr(align(64))]
        struct Line(u8);
        let lines: Vec<_> = (0..10).map(|n| Pooled::new(move || Line(n))).collect();
        for (line, n) in lines.iter().zip(0..) {
            assert_eq!((line.0, address(line) % 64), (n, 0));
        }
    }

    #[test]
    fn more_of_them_than_a_thread_keeps_and_in_any_order() {
        let mut pooled: Vec<_> = (0..3 * SPARES).map(|n| Some(Pooled::new(|| n))).collect();
        for step in [3, 2, 1] {
            for slot in pooled.iter_mut().step_by(step) {
                *slot = None;
            }
            for (n, slot) in pooled.iter_mut().enumerate() {
                assert_eq!(**slot.get_or_insert_with(|| Pooled::new(|| n)), n);
            }
        }
    }

    #[test]
    fn they_may_end_in_another_thread() {
        let pooled = Pooled::new(|| vec![1, 2, 3]);
        thread::spawn(move || assert_eq!(*pooled, [1, 2, 3]))
            .join()
            .unwrap();
    }

    #[test]
    fn who_ends_with_a_thread_may_find_no_memory_of_it() {
        struct MakesAnother(Vec<u8>);
        impl Drop for MakesAnother {
            fn drop(&mut self) {
                assert_eq!(*Pooled::new(|| self.0.len()), 1);
            }
        }
        thread_local! {
            static LAST: Cell<Option<Pooled<MakesAnother>>> = const { Cell::new(None) };
        }
        // What a thread has touched first goes last.
        for goes_last in [true, false] {
            let in_thread = move || {
                if goes_last {
                    LAST.set(None);
                }
                LAST.set(Some(Pooled::new(|| MakesAnother(vec![1]))));
            };
            thread::spawn(in_thread).join().unwrap();
        }
    }

    #[test]
    fn a_value_has_its_memory_until_it_is_dropped() {
        struct Nested([u64; 4]);
        impl Drop for Nested {
            fn drop(&mut self) {
                let other = Pooled::new(|| [0_u8; 256]);
                assert_eq!((self.0, other.len()), ([7; 4], 256));
            }
        }
        for _ in 0..3 {
            drop(Pooled::new(|| Nested([7; 4])));
        }
    }

    #[test]
    fn a_panic_leaves_nothing_behind() {
        // That the memory is freed, only miri sees.
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("as it is asked to");
            }
        }
        let made = catch_unwind(|| Pooled::<u64>::new(|| panic!("as it is asked to")));
        assert!(made.is_err());
        let counted = Rc::new(());
        let pooled = Pooled::new(|| (Panics, Rc::clone(&counted)));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(pooled))).is_err());
        assert_eq!(Rc::strong_count(&counted), 1);
        assert_eq!(*Pooled::new(|| 5), 5);
    }
}
