//! Limits on how fast frames leave, and shares of what is there.
//!
//! Three things can have a [`Rate`] of their own: a *group* of links (a network), a link (a
//! neighbour) and a flow. What leaves is charged to all three, and nothing leaves while one of
//! them is ahead of its rate. Credit follows by itself: what has not left frees no promise, so
//! that the source of a flow that is held back is held back too, and nobody else.
//!
//! Limits are kept over time, not frame by frame: a frame may leave as soon as those before it
//! have been paid for, whatever its own size, and who comes late (because a thread was woken
//! late) makes up for it, as far as [`CATCH_UP`] goes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

use super::{Lane, LinkId};
use crate::time::Time;

/// What was not sent in this time may still be sent, faster than the rate.
pub const CATCH_UP: Duration = Duration::from_nanos(CATCH_UP_NANOS);

/// Bytes that a link sends in its turn, where a group of links is limited.
pub(super) const LINK_QUANTUM_BYTES: usize = 256 << 10;

/// In what time a link takes its turn, or loses it.
const TURN_WITHIN: Duration = Duration::from_millis(2);

const CATCH_UP_NANOS: u64 = 10_000_000;
const NANOS: u128 = 1_000_000_000;

/// Bytes per second: of frames, headers included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// So many bytes per second; `None` for zero.
    #[must_use]
    pub fn from_bytes_per_second(bytes: u64) -> Option<Self> {
        NonZeroU64::new(bytes).map(Self)
    }

    /// Bytes per second.
    #[must_use]
    pub const fn bytes_per_second(self) -> u64 {
        self.0.get()
    }

    /// How long `bytes` take.
    fn time_of(self, bytes: usize) -> Duration {
        let nanos = bytes as u128 * NANOS / u128::from(self.0.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// What the flows of a channel get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// How much of a link each has, beside flows of other channels: a flow with twice the weight
    /// of another sends twice as much while both have something to send. Not 0.
    pub weight: u32,
    /// How fast each of them may be.
    pub rate: Option<Rate>,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            weight: 1,
            rate: None,
        }
    }
}

/// How fast a link may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkLimits {
    /// By itself.
    pub rate: Option<Rate>,
    /// Together with the others of this group.
    pub group: Option<usize>,
}

/// Keeps a rate: since when, or until when, everything that has left is paid for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    rate: Option<Rate>,
    paid_until: Time,
}

impl Meter {
    pub(super) const fn new(rate: Option<Rate>) -> Self {
        Self {
            rate,
            paid_until: Time(0),
        }
    }

    pub(super) const fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// When more may leave, if that is not yet.
    pub(super) fn opens_at(&self, now: Time) -> Option<Time> {
        (self.rate.is_some() && self.paid_until > now).then_some(self.paid_until)
    }

    /// `bytes` leave.
    pub(super) fn charge(&mut self, bytes: usize, now: Time) {
        if let Some(rate) = self.rate {
            let earliest = Time(now.0.saturating_sub(CATCH_UP_NANOS));
            self.paid_until = self.paid_until.max(earliest) + rate.time_of(bytes);
        }
    }
}

/// Links that share a rate: those that were told to wait take turns.
#[derive(Debug)]
pub(super) struct Group {
    meter: Meter,
    /// Links with something to send, the next first.
    waiting: VecDeque<LinkId>,
    /// When the first of them became the first.
    first_since: Time,
}

impl Group {
    pub(super) const fn new(rate: Rate) -> Self {
        Self {
            meter: Meter::new(Some(rate)),
            waiting: VecDeque::new(),
            first_since: Time(0),
        }
    }

    /// Whether `link`, which has something to send, may do so; else when to ask again at the
    /// latest: its turn may come sooner, when others have had theirs.
    pub(super) fn begin_turn(&mut self, link: LinkId, now: Time) -> Result<(), Time> {
        if let Some(at) = self.meter.opens_at(now) {
            self.wait(link, now);
            return Err(at);
        }
        // Whose neighbour takes nothing, or who has nothing any more, does not hold others up.
        let open_since = self.first_since.max(self.meter.paid_until);
        if self.waiting.front().is_some_and(|first| *first != link) {
            if now.since(open_since) < TURN_WITHIN {
                self.wait(link, now);
                return Err(open_since + TURN_WITHIN);
            }
            self.waiting.pop_front();
            self.first_since = now;
        }
        Ok(())
    }

    fn wait(&mut self, link: LinkId, now: Time) {
        if self.waiting.is_empty() {
            self.first_since = now;
        }
        if !self.waiting.contains(&link) {
            self.waiting.push_back(link);
        }
    }

    /// Whether `link` has something to send and waits for the rate to allow it.
    pub(super) fn holds(&self, link: LinkId, now: Time) -> bool {
        !self.is_open(now) && self.waiting.contains(&link)
    }

    /// Whether `link` may go on with its turn.
    pub(super) fn is_open(&self, now: Time) -> bool {
        self.meter.opens_at(now).is_none()
    }

    pub(super) fn charge(&mut self, bytes: usize, now: Time) {
        self.meter.charge(bytes, now);
    }

    /// `link` has had its turn. With `has_more` it waits for another: when to ask for it.
    pub(super) fn end_turn(&mut self, link: LinkId, has_more: bool, now: Time) -> Option<Time> {
        self.forget(link);
        self.first_since = now;
        has_more.then(|| {
            self.wait(link, now);
            self.meter.opens_at(now).unwrap_or(now)
        })
    }

    /// `link` waits no longer.
    pub(super) fn forget(&mut self, link: LinkId) {
        self.waiting.retain(|waiting| *waiting != link);
    }
}

/// Flows that wait until they may send again, the next first.
#[derive(Debug, Default)]
pub(super) struct HeldBack(BinaryHeap<Reverse<(Time, u32, Lane)>>);

impl HeldBack {
    pub(super) fn push(&mut self, until: Time, flow: u32, lane: Lane) {
        self.0.push(Reverse((until, flow, lane)));
    }

    /// One that may send again.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<(u32, Lane)> {
        self.next().filter(|at| *at <= now)?;
        let Reverse((_, flow, lane)) = self.0.pop()?;
        Some((flow, lane))
    }

    /// When the next one may.
    pub(super) fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn forget(&mut self, flow: u32) {
        self.0.retain(|Reverse((_, other, _))| *other != flow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rate(bytes: u64) -> Option<Rate> {
        Rate::from_bytes_per_second(bytes)
    }

    #[test]
    fn a_meter_without_a_rate_is_always_open() {
        let mut meter = Meter::new(None);
        meter.charge(usize::MAX, Time(0));
        assert_eq!(meter.opens_at(Time(0)), None);
        assert_eq!(rate(0), None);
    }

    #[test]
    fn what_leaves_is_paid_for_afterwards() {
        let mut meter = Meter::new(rate(1_000_000));
        let now = Time(50 * MS);
        assert_eq!(meter.opens_at(now), None);
        // The time before it began counts, up to a bound: 10 ms are 10,000 bytes.
        meter.charge(30_000, now);
        assert_eq!(meter.opens_at(now), Some(Time(70 * MS)));
        assert_eq!(meter.opens_at(Time(70 * MS)), None);
    }

    #[test]
    fn who_comes_late_catches_up_but_not_for_ever() {
        let mut meter = Meter::new(rate(1_000_000));
        meter.charge(1_000, Time(100 * MS));
        for (now, opens_at) in [(105, 100), (105, 105), (105, 110)] {
            let late = Time(now * MS);
            meter.charge(5_000, late);
            assert_eq!(meter.paid_until, Time(opens_at * MS));
        }
        meter.charge(1_000, Time(1_000 * MS));
        assert_eq!(meter.paid_until, Time(991 * MS));
    }

    #[test]
    fn no_number_overflows() {
        let mut meter = Meter::new(rate(1));
        for _ in 0..3 {
            meter.charge(usize::MAX, Time(u64::MAX - 1));
        }
        assert_eq!(meter.paid_until, Time(u64::MAX));
    }
}
