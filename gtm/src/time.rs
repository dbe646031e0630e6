//! Time as this crate is given it.

use std::ops::Add;
use std::time::Duration;

/// A flow that was silent for this long is forgotten wherever it is known: a source that has
/// something to send probes much more often, and one that has nothing closes much sooner, so
/// that what said so must have been lost.
pub const FORGET_AFTER: Duration = Duration::from_secs(60);

/// A source that was in the middle of a message and has been silent for this long will not go on. That is
/// longer, as it may have to open its flow again, and openings wait at gateways, where a rate is low for
/// minutes.
pub const LOST_AFTER: Duration = Duration::from_secs(180);

/// Nanoseconds since some start that the caller chose; it only ever grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// How long after `earlier` this is; nothing if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}
