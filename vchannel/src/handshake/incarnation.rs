//! What tells one start of a node from the next.

use std::time::{SystemTime, UNIX_EPOCH};

use super::random::fill_random;

/// Draws the incarnation of this start: never zero, different at each start, and larger for
/// a later one (as far as the host's clock goes forwards).
#[must_use]
pub fn draw_incarnation() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    // 56 bits of microseconds last for 2,283 years.
    let micros = u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX);
    let mut chance = [0];
    fill_random(&mut chance);
    (micros << u8::BITS | u64::from(chance[0])).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_starts_are_larger() {
        let first = draw_incarnation();
        let microsecond = |incarnation: u64| incarnation >> u8::BITS;
        // The clock goes on meanwhile.
        while microsecond(draw_incarnation()) == microsecond(first) {}
        assert!(draw_incarnation() > first);
    }
}
