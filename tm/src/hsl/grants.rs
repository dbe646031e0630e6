//! Numbered places at the other side that this one may write: control slots, or buffers.

use super::message::GROUP;
use crate::local::free::{FreeSlots, Reuse};

/// The places that were granted and not used since.
#[derive(Debug)]
pub(super) struct Grants {
    count: u32,
    free: FreeSlots,
    /// A bit for each that is free.
    granted: Box<[u64]>,
}

impl Grants {
    /// None of `count` places yet.
    pub(super) fn new(count: u32) -> Self {
        Self {
            count,
            free: FreeSlots::none_of(count, Reuse::InTurn),
            granted: vec![0; count.div_ceil(GROUP) as usize].into_boxed_slice(),
        }
    }

    /// How many may be written.
    pub(super) fn len(&self) -> usize {
        self.free.len()
    }

    /// Takes one to write.
    pub(super) fn take(&mut self) -> Option<u32> {
        let place = self.free.take()?;
        self.granted[(place / GROUP) as usize] &= !(1 << (place % GROUP));
        Some(place)
    }

    /// The places of `group` whose bits are set may be written; or what is wrong with that,
    /// and then none of them.
    pub(super) fn grant(&mut self, group: u32, mask: u64) -> Result<(), &'static str> {
        let places = places(group, mask, self.count)?;
        if let Some(granted) = self.granted.get_mut(group as usize) {
            if *granted & mask != 0 {
                return Err("the slot was free already");
            }
            *granted |= mask;
        }
        places.for_each(|place| self.free.put(place));
        Ok(())
    }
}

/// The places of `group`, of `count` in all, whose bits are set; or what is wrong with them.
pub(super) fn places(
    group: u32,
    mask: u64,
    count: u32,
) -> Result<impl Iterator<Item = u32>, &'static str> {
    let first = group.checked_mul(GROUP).filter(|first| *first < count);
    // To give back nothing is no mistake, wherever it is.
    let first = match first {
        Some(first) => first,
        None if mask == 0 => 0,
        None => return Err("there is no such group"),
    };
    if mask
        .checked_ilog2()
        .is_some_and(|last| last >= count - first)
    {
        return Err("there is no such slot");
    }
    let mut rest = mask;
    Ok(std::iter::from_fn(move || {
        let place = rest
            .checked_ilog2()
            .map(|_| first + rest.trailing_zeros())?;
        rest &= rest - 1;
        Some(place)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Whatever is granted, each place is there once, and only those that exist.
        #[test]
        fn grants_are_a_set(
            count in 1..200_u32,
            steps in proptest::collection::vec((0..5_u32, any::<u64>(), any::<bool>()), 0..200),
        ) {
            let mut grants = Grants::new(count);
            let mut oracle = BTreeSet::new();
            for (group, mask, takes) in steps {
                if takes {
                    let taken = grants.take();
                    prop_assert_eq!(taken.is_some(), !oracle.is_empty());
                    prop_assert!(taken.is_none_or(|place| oracle.remove(&place)));
                    continue;
                }
                // Few bits, so that some of them are new.
                let mask = mask & mask.rotate_left(17) & mask.rotate_left(31);
                let places: Vec<u32> = (0..GROUP)
                    .filter(|bit| mask >> bit & 1 == 1)
                    .map(|bit| group * GROUP + bit)
                    .collect();
                let fits = places.iter().all(|place| *place < count && !oracle.contains(place));
                prop_assert_eq!(grants.grant(group, mask).is_ok(), fits);
                if fits {
                    oracle.extend(places);
                }
                prop_assert_eq!(grants.len(), oracle.len());
            }
        }
    }

    #[test]
    fn groups_that_cannot_be_are_refused() {
        assert!(Grants::new(64).grant(u32::MAX, 1).is_err());
        assert!(Grants::new(64).grant(1, 1).is_err());
    }
}
