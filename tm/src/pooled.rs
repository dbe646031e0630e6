//! A box whose memory comes from its thread, and goes back there: for what lives as long as one
//! message, and is moved about. Unsafe island: it puts values in memory that has no type.
//!
//! To move a structure of a hundred bytes right after it was written takes a processor as long as
//! fifty instructions: what is copied at once was written in parts, which it has to wait for. Behind a
//! box only a pointer is moved, and this one allocates for the first message of a thread alone.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// What every block of memory is good for.
const LAYOUT: Layout = match Layout::from_size_align(256, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("256 bytes can be aligned to 64"),
};

/// Blocks that a thread keeps for later.
const SPARES: usize = 4;

/// Memory of [`LAYOUT`], which is nowhere else.
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
        // SAFETY: it was allocated with this layout, and is nowhere else (its invariant).
        unsafe { dealloc(self.0.as_ptr(), LAYOUT) };
    }
}

thread_local! {
    /// Blocks of this thread that nothing is in.
    static SPARE: [Cell<Option<Block>>; SPARES] = const { [const { Cell::new(None) }; SPARES] };
}

/// A block from this thread's, or a new one.
#[inline]
fn take() -> Block {
    let spare = |spares: &[Cell<Option<Block>>; SPARES]| spares.iter().find_map(Cell::take);
    // A thread that is ending has none any more.
    let spare = SPARE.try_with(spare).ok().flatten();
    spare.unwrap_or_else(Block::allocate)
}

/// Nothing is in a block any more: it becomes one of this thread's, unless that has enough.
#[inline]
fn put(block: Block) {
    let mut block = Some(block);
    let _ = SPARE.try_with(|spares| {
        for spare in spares {
            match spare.take() {
                None => return spare.set(block.take()),
                // It stays there.
                taken => spare.set(taken),
            }
        }
    });
}

/// A value in memory of the thread's that made it, which becomes one's that drops it. As a `Box`
/// otherwise.
///
/// A thread keeps four blocks of memory for later, so as many values at a time cost no allocation.
/// Values of up to 256 bytes fit, which is found out when the program is compiled:
///
/// ```compile_fail,E0080
/// let too_large = madgate_tm::Pooled::new(|| [0; 257]);
/// ```
pub struct Pooled<T> {
    /// Invariant: a value of this type is in it, until this is dropped.
    block: std::mem::ManuallyDrop<Block>,
    value: PhantomData<T>,
}

// SAFETY: it owns its value like a box, and memory may go to another thread's.
unsafe impl<T: Send> Send for Pooled<T> {}
// SAFETY: shared, it gives out shared references to its value alone.
unsafe impl<T: Sync> Sync for Pooled<T> {}

impl<T> Pooled<T> {
    const FITS: () = assert!(
        size_of::<T>() <= LAYOUT.size() && align_of::<T>() <= LAYOUT.align(),
        "it is too large, or has to be aligned too far"
    );

    /// Puts what `make` makes there. It is made where it stays, if `make` is inlined.
    #[inline]
    #[must_use]
    pub fn new(make: impl FnOnce() -> T) -> Self {
        const { Self::FITS };
        // First: a value that is there while this may still panic is made elsewhere.
        let block = take();
        // SAFETY: the memory is valid for writes and as large and as aligned as a `T` needs (above),
        // and nothing is in it.
        unsafe { block.0.cast::<T>().write(make()) };
        Self {
            block: std::mem::ManuallyDrop::new(block),
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
        let block = unsafe { std::mem::ManuallyDrop::take(&mut self.block) };
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
    fn who_ends_with_a_thread_has_no_memory_of_it() {
        thread_local! {
            static LAST: Cell<Option<Pooled<Vec<u8>>>> = const { Cell::new(None) };
        }
        // Whichever of the two goes first.
        for comes_first in [true, false] {
            let in_thread = move || {
                if comes_first {
                    drop(Pooled::new(|| 1));
                }
                LAST.set(Some(Pooled::new(|| vec![1])));
            };
            thread::spawn(in_thread).join().unwrap();
        }
    }

    #[test]
    fn a_panic_leaves_nothing_behind() {
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
