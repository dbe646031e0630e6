//! What a thread keeps for later.

use std::cell::Cell;

/// A few things that are not in use, for `const` memory of a thread: what is dropped there is used again
/// by who asks there next.
///
/// ```
/// # use madgate_tm::Spares;
/// thread_local! {
///     static SPARE: Spares<Vec<u8>, 4> = const { Spares::none() };
/// }
/// SPARE.with(|spare| spare.put(vec![1]));
/// assert_eq!(SPARE.with(Spares::take), Some(vec![1]));
/// assert_eq!(SPARE.with(Spares::take), None);
/// ```
pub struct Spares<T, const MOST: usize>([Cell<Option<T>>; MOST]);

impl<T, const MOST: usize> Spares<T, MOST> {
    /// None so far.
    #[must_use]
    pub const fn none() -> Self {
        Self([const { Cell::new(None) }; MOST])
    }

    /// One of them, if there is any.
    #[inline]
    pub fn take(&self) -> Option<T> {
        self.0.iter().find_map(Cell::take)
    }

    /// Keeps one more, or drops it if there are `MOST` already.
    #[inline]
    pub fn put(&self, one: T) {
        for place in &self.0 {
            match place.take() {
                None => return place.set(Some(one)),
                // It stays there.
                taken => place.set(taken),
            }
        }
    }
}

impl<T, const MOST: usize> std::fmt::Debug for Spares<T, MOST> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Spares").finish_non_exhaustive()
    }
}
