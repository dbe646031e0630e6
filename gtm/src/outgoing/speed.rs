//! How fast a flow is delivered, and how large its fragments are to be.
//!
//! A gateway forwards whole fragments. Large ones cost less for each byte; but what is under way is
//! bounded by the window, and each hop holds a fragment that it has not received whole: on a slow
//! way, a window of a few large ones would leave links idle. So fragments are about as long in
//! *time*, as far as the channel allows them.

use std::time::Duration;

use crate::time::Time;

/// A fragment is as large as what is delivered in this time,
const FRAGMENT_TIME: Duration = Duration::from_millis(1);
/// and this large in any case, where the channel allows it.
const LEAST_BYTES: u64 = 256 << 10;
/// How long is measured at least.
const SAMPLE_TIME: Duration = Duration::from_millis(4);

/// What is delivered while something is under way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Speed {
    /// When the present measurement began, and what was delivered then.
    since: Time,
    from: u64,
    /// Bytes in [`FRAGMENT_TIME`], by the last one.
    bytes: u64,
}

impl Speed {
    /// Nothing was under way until `now`.
    pub(super) const fn begin(&mut self, delivered: u64, now: Time) {
        self.since = now;
        self.from = delivered;
    }

    /// Everything before `delivered` has arrived.
    pub(super) fn note(&mut self, delivered: u64, now: Time) {
        let took = now.since(self.since);
        if took < SAMPLE_TIME {
            return;
        }
        let bytes = u128::from(delivered.saturating_sub(self.from));
        let in_time = bytes * FRAGMENT_TIME.as_nanos() / took.as_nanos();
        self.bytes = u64::try_from(in_time).unwrap_or(u64::MAX);
        self.begin(delivered, now);
    }

    /// The largest fragment: a power of two, so that blocks of such sizes are cut evenly.
    pub(super) const fn fragment_bytes(self) -> u64 {
        match self.bytes.checked_ilog2() {
            Some(power) if 1 << power > LEAST_BYTES => 1 << power,
            _ => LEAST_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time(0) + Duration::from_millis(milliseconds)
    }

    #[test]
    fn fragments_grow_with_what_is_delivered_in_their_time() {
        for (bytes_per_ms, fragment_bytes) in [
            (0, LEAST_BYTES),
            (12_500, LEAST_BYTES),
            (LEAST_BYTES, LEAST_BYTES),
            (511 << 10, LEAST_BYTES),
            (512 << 10, 512 << 10),
            (2_000_000, 1 << 20),
            (1 << 61, 1 << 61),
        ] {
            let mut speed = Speed::default();
            speed.begin(7, at(100));
            speed.note(7 + bytes_per_ms, at(101));
            assert_eq!(speed.fragment_bytes(), LEAST_BYTES, "too short to count");
            speed.note(7 + 4 * bytes_per_ms, at(104));
            assert_eq!(speed.fragment_bytes(), fragment_bytes, "{bytes_per_ms}");
        }
    }

    #[test]
    fn time_in_which_nothing_was_under_way_does_not_count() {
        let mut speed = Speed::default();
        speed.begin(0, at(0));
        speed.note(8 << 20, at(4));
        assert_eq!(speed.fragment_bytes(), 2 << 20);
        speed.begin(8 << 20, at(1000));
        speed.note(9 << 20, at(1001));
        assert_eq!(
            speed.fragment_bytes(),
            2 << 20,
            "the last measurement counts"
        );
        speed.note(12 << 20, at(1004));
        assert_eq!(speed.fragment_bytes(), 1 << 20);
    }
}
