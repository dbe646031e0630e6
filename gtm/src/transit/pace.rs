//! Limits on how fast frames leave, and shares of what is there.
//!
//! Three things can have a [`Rate`]: all links of a network, those to one neighbour, and a flow. What
//! leaves is charged to all three, and nothing leaves while one of them is ahead of its rate. Credit
//! follows by itself: what has not left frees no promise, so that the source of a flow that is held
//! back is held back too, and nobody else.
//!
//! Links that share a rate take turns: each sends a quantum, and stands behind the others if it has
//! more. Whose turn it is, is asked at once ([`Waits::turns_of`]), and who can send nothing passes it on
//! ([`Transit::pass_turns`]), so that nobody waits for a clock while the rate allows more.
//!
//! Limits are kept over time, not frame by frame: a frame may leave as soon as those before it
//! have been paid for, whatever its own size, and who comes late (because a thread was woken
//! late) makes up for it, as far as [`CATCH_UP`] goes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

#[cfg(doc)]
use super::Transit;
use super::link::Turn;
use super::{Lane, LinkId};
use crate::time::Time;

/// What was not sent in this time may still be sent, faster than the rate.
pub const CATCH_UP: Duration = Duration::from_nanos(CATCH_UP_NANOS);

/// Bytes that a link sends in its turn, where links share a rate.
pub(super) const LINK_QUANTUM_BYTES: usize = 256 << 10;

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

/// With which others a link shares a rate, if these have one (see [`Transit::with_rates`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkLimits {
    /// All links of this network.
    pub network: Option<usize>,
    /// All links to this neighbour.
    pub neighbour: Option<usize>,
}

/// How many rates a link may share.
pub(super) const RATES_OF_LINK: usize = 2;

/// What a link waits for after it was [asked](Transit::poll_transmit).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// When to ask again, if something must not leave now for a rate.
    pub until: Option<Time>,
    /// Whether a rate that the link shares allows nothing now.
    pub is_closed: bool,
    /// Links to ask now: it is their turn.
    pub turns_of: [Option<LinkId>; RATES_OF_LINK],
}

impl Waits {
    /// Whether the link sends nothing more now, and somebody or a clock will have it asked again.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.is_closed || self.turns_of.iter().any(Option::is_some)
    }
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

    /// One that has this to pay for from before.
    pub(super) const fn owing(rate: Option<Rate>, paid_until: Time) -> Self {
        Self { rate, paid_until }
    }

    /// Up to when everything that has left is paid for, if a rate is kept.
    pub(super) fn debt(&self) -> Option<Time> {
        self.rate.map(|_| self.paid_until)
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

/// Links that share a rate, and take turns.
#[derive(Debug)]
pub(super) struct Group {
    meter: Meter,
    /// Links with something to send, the next first.
    waiting: VecDeque<LinkId>,
}

/// Why a link may not send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// More has left than the rate allows, up to this time.
    Rate(Time),
    /// It is the turn of this one.
    Turn(LinkId),
}

impl Group {
    pub(super) const fn new(rate: Rate) -> Self {
        Self {
            meter: Meter::new(Some(rate)),
            waiting: VecDeque::new(),
        }
    }

    /// Whether `link`, which has something to send, may do so; else it waits.
    pub(super) fn begin_turn(&mut self, link: LinkId, now: Time) -> Result<(), Denied> {
        let denied = match (self.meter.opens_at(now), self.waiting.front()) {
            (Some(at), _) => Denied::Rate(at),
            (None, Some(first)) if *first != link => Denied::Turn(*first),
            (None, _) => return Ok(()),
        };
        if !self.waiting.contains(&link) {
            self.waiting.push_back(link);
        }
        Err(denied)
    }

    /// Whether `link` has something to send, and waits until it may.
    pub(super) fn holds(&self, link: LinkId) -> bool {
        self.waiting.contains(&link)
    }

    /// When more may leave, if that is not yet.
    pub(super) fn opens_at(&self, now: Time) -> Option<Time> {
        self.meter.opens_at(now)
    }

    pub(super) fn charge(&mut self, bytes: usize, now: Time) {
        self.meter.charge(bytes, now);
    }

    /// `link` has had its turn. With `has_more` it waits for another. Returns whose turn it is, if
    /// that is somebody else.
    pub(super) fn end_turn(&mut self, link: LinkId, has_more: bool) -> Option<LinkId> {
        self.waiting.retain(|waiting| *waiting != link);
        let next = self.waiting.front().copied();
        if has_more {
            self.waiting.push_back(link);
        }
        next
    }

    /// `link` waits no longer. Returns whose turn it is, if it was that of `link`.
    pub(super) fn pass_turn(&mut self, link: LinkId) -> Option<LinkId> {
        let was_first = self.waiting.front() == Some(&link);
        let next = self.end_turn(link, false);
        next.filter(|_| was_first)
    }
}

/// Flows that wait until they may send again, the next first.
#[derive(Debug, Default)]
pub(super) struct HeldBack(BinaryHeap<Reverse<(Time, Turn, Lane)>>);

impl HeldBack {
    pub(super) fn push(&mut self, until: Time, turn: Turn, lane: Lane) {
        self.0.push(Reverse((until, turn, lane)));
    }

    /// One that may send again.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<(Turn, Lane)> {
        self.next().filter(|at| *at <= now)?;
        let Reverse((_, turn, lane)) = self.0.pop()?;
        Some((turn, lane))
    }

    /// When the next one may.
    pub(super) fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn forget(&mut self, flow: u32) {
        self.0.retain(|Reverse((_, turn, _))| turn.flow != flow);
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
