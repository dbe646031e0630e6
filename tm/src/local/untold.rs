//! Slots that were read and whose sender has not been told yet: several are told of at once, and
//! the first of them need not hold up what was read from it.

/// Slots that were read before their sender is told of them, at most.
const UNTOLD_MOST: u32 = 8;

/// What was read, in order.
#[derive(Debug)]
pub(crate) struct Untold<T> {
    read: Vec<T>,
    most: usize,
}

impl<T> Untold<T> {
    /// Of a lane with so many slots, a quarter of which at most is kept back: its sender always
    /// finds others, so that nobody waits for these.
    pub(crate) fn new(slots: u32) -> Self {
        let most = UNTOLD_MOST.min(slots / 4).max(1) as usize;
        Self {
            read: Vec::with_capacity(most),
            most,
        }
    }

    /// A slot was read.
    pub(crate) fn add(&mut self, slot: T) {
        self.read.push(slot);
    }

    /// Whether it is time to tell of all of them.
    pub(crate) fn is_due(&self) -> bool {
        self.read.len() >= self.most
    }

    /// Whether there is nothing to tell.
    pub(crate) fn is_empty(&self) -> bool {
        self.read.is_empty()
    }

    /// They are being told of.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> {
        self.read.drain(..)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_slots_is_kept_back_at_most() {
        for (slots, most) in [(1, 1), (4, 1), (8, 2), (31, 7), (32, 8), (1024, 8)] {
            let mut untold = Untold::new(slots);
            for round in 0..3 {
                let mut count = 0;
                while !untold.is_due() {
                    untold.add(round);
                    count += 1;
                }
                assert_eq!(count, most, "of {slots}");
                assert_eq!(untold.take().count(), most);
                assert!(untold.is_empty());
            }
        }
    }
}
