//! How much of a stream is under way. Ends keep what they have sent until it is delivered, megabytes
//! of it: on a slow route that is many times what goes through in the time that is measured, and
//! orders wait behind it. So a stream has no more under way than goes through in some part of that
//! time. Some of its messages are marks, by which it is seen how far it has come.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::files::wire::count;
use crate::units::{float, whole};

/// What may be under way before it is known how fast that goes, or one message more.
const FIRST: u64 = 64 << 10;

/// What a message counts for besides its own bytes: orders wait behind its header too.
const MESSAGE_BYTES: usize = 64;

/// Marks in what may be under way, at least: the oldest is waited for, so that the others go on.
const MARKS: u64 = 4;

/// More is under way nowhere, in bytes.
const MOST: f64 = 1e15;

/// Marks at most.
const MARKS_MOST: usize = 64;

/// How long no mark is made, at most, while there may be more: how finely arrivals are told apart.
const MARK_EVERY: Duration = Duration::from_millis(10);

/// How often it is looked which marks have arrived.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The way that a stream goes.
pub(crate) trait Way {
    /// A message of which it can be known whether it has arrived.
    type Mark;
    /// Why it cannot be known.
    type Error;

    /// Whether it has arrived.
    fn has_arrived(&self, mark: &Self::Mark) -> Result<bool, Self::Error>;

    /// Waits until it has.
    fn arrives(&self, mark: &Self::Mark) -> Result<(), Self::Error>;
}

/// What one stream has under way.
#[derive(Debug)]
pub(crate) struct UnderWay<M> {
    started: Instant,
    /// In which what is under way may go through.
    part: Duration,
    /// What may be under way however slow it goes.
    least: u64,
    most: u64,
    sent: u64,
    delivered: u64,
    /// Messages that are waited for, and how much was sent when they were.
    marks: VecDeque<(M, u64)>,
    marked_at: Instant,
    looked_at: Instant,
}

/// What so many messages count for.
pub(crate) fn weight(messages: usize, message_bytes: usize) -> u64 {
    count(messages * (message_bytes + MESSAGE_BYTES))
}

impl<M> UnderWay<M> {
    /// Of a stream that begins `now`, has no more under way than goes through in `part`, and sends so
    /// much at once.
    pub(crate) fn within(part: Duration, weight: u64, now: Instant) -> Self {
        let least = FIRST.max(weight);
        Self {
            started: now,
            part,
            least,
            most: least,
            sent: 0,
            delivered: 0,
            marks: VecDeque::new(),
            marked_at: now,
            looked_at: now,
        }
    }

    /// Whether the message that is sent next, which is the last of this weight, is to be a mark.
    pub(crate) fn wants_mark(&self, weight: u64, now: Instant) -> bool {
        let last = self.marks.back().map_or(self.delivered, |(_, sent)| *sent);
        let is_due = self.sent + weight - last >= self.most / MARKS
            || now.saturating_duration_since(self.marked_at) >= MARK_EVERY;
        is_due && self.marks.len() < MARKS_MOST
    }

    /// So much was sent, the last of it this message, if it is a mark. Waits until there is room for
    /// more; how much was seen to arrive.
    pub(crate) fn note<W: Way<Mark = M>>(
        &mut self,
        way: &W,
        weight: u64,
        mark: Option<M>,
        now: Instant,
    ) -> Result<u64, W::Error> {
        let before = self.delivered;
        self.sent += weight;
        if let Some(mark) = mark {
            self.marks.push_back((mark, self.sent));
            self.marked_at = now;
        }
        if now.saturating_duration_since(self.looked_at) >= LOOK_EVERY {
            self.looked_at = now;
            self.look(way)?;
        }
        while self.sent - self.delivered > self.most
            && let Some((mark, sent)) = self.marks.pop_front()
        {
            way.arrives(&mark)?;
            self.grow(sent, self.started.elapsed());
        }
        Ok(self.delivered - before)
    }

    /// Nothing more is sent: waits for all of it, and tells `seen` how much has arrived, again and again.
    pub(crate) fn settle<W: Way<Mark = M>>(
        mut self,
        way: &W,
        mut seen: impl FnMut(u64),
    ) -> Result<(), W::Error> {
        for (mark, sent) in std::mem::take(&mut self.marks) {
            way.arrives(&mark)?;
            seen(sent - self.delivered);
            self.delivered = sent;
        }
        Ok(())
    }

    /// Takes in which marks have arrived.
    fn look<W: Way<Mark = M>>(&mut self, way: &W) -> Result<(), W::Error> {
        while let Some((mark, sent)) = self.marks.front() {
            let sent = *sent;
            if !way.has_arrived(mark)? {
                break;
            }
            self.marks.pop_front();
            self.grow(sent, self.started.elapsed());
        }
        Ok(())
    }

    /// So much has arrived, in so much time. What leaves first says little of the way, as a rate lets it
    /// through at once: so what may be under way grows step by step.
    fn grow(&mut self, delivered: u64, took: Duration) {
        self.delivered = delivered;
        let most = most(delivered, took, self.part);
        self.most = most.min(2 * self.most).max(self.least);
    }
}

/// What goes through in a part of the time, where so much did in the time until now.
fn most(delivered: u64, took: Duration, part: Duration) -> u64 {
    let parts = part.as_secs_f64() / took.as_secs_f64().max(f64::MIN_POSITIVE);
    whole((float(delivered) * parts).min(MOST))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A way on which so much has arrived.
    #[derive(Default)]
    struct Arrived(Cell<u64>);

    impl Way for Arrived {
        type Mark = u64;
        type Error = Infallible;

        fn has_arrived(&self, mark: &u64) -> Result<bool, Infallible> {
            Ok(*mark <= self.0.get())
        }

        fn arrives(&self, mark: &u64) -> Result<(), Infallible> {
            self.0.set(self.0.get().max(*mark));
            Ok(())
        }
    }

    #[test]
    fn what_is_under_way_goes_through_in_time() {
        assert_eq!(most(8 << 20, SECOND, SECOND / 4), 2 << 20);
        assert_eq!(most(250_000, SECOND, SECOND / 4), 62_500);
        assert!(most(1 << 20, Duration::ZERO, SECOND) > 1 << 40);
        assert_eq!(most(1 << 20, Duration::ZERO, Duration::ZERO), 0);
    }

    #[test]
    fn what_arrives_at_once_is_not_taken_for_the_speed_of_the_way() {
        let mut under_way = UnderWay::<u64>::within(SECOND / 4, 72, Instant::now());
        under_way.grow(16 << 10, Duration::from_micros(10));
        assert_eq!(under_way.most, 2 * FIRST);
        under_way.grow(144 << 10, 8 * SECOND);
        assert_eq!(under_way.most, FIRST);
    }

    #[test]
    fn marks_are_a_part_of_what_is_under_way() {
        for (weight, least) in [(72, FIRST), (1 << 20, 1 << 20)] {
            let now = Instant::now();
            let under_way = UnderWay::<u64>::within(SECOND / 4, weight, now);
            assert!(!under_way.wants_mark(least / MARKS - 1, now));
            assert!(under_way.wants_mark(least / MARKS, now));
            // However little was sent meanwhile.
            assert!(under_way.wants_mark(1, now + MARK_EVERY));
        }
    }

    #[test]
    fn what_has_arrived_is_known_however_much_may_be_under_way() {
        let (way, began) = (Arrived::default(), Instant::now());
        let mut under_way = UnderWay::within(SECOND, 100, began);
        under_way.most = u64::MAX / 2;
        let mut seen = 0;
        for step in 1..=400_u32 {
            let now = began + step * Duration::from_millis(1);
            let sent = u64::from(step) * 100;
            let mark = under_way.wants_mark(100, now).then_some(sent);
            // What was sent a twentieth of a second ago has arrived.
            way.0.set(sent.saturating_sub(50 * 100));
            under_way.most = u64::MAX / 2;
            seen += under_way.note(&way, 100, mark, now).unwrap();
            let late = way.0.get() - seen;
            assert!(late <= 16 * 100, "{late} of {step} ms");
        }
        let mut rest = 0;
        under_way.settle(&way, |arrived| rest += arrived).unwrap();
        assert!(seen + rest > 38_900, "{seen} and {rest}");
    }

    #[test]
    fn marks_have_a_bound() {
        let (way, began) = (Arrived::default(), Instant::now());
        let mut under_way = UnderWay::within(SECOND, 100, began);
        for step in 1..=10 * count(MARKS_MOST) {
            under_way.most = u64::MAX / 2;
            let now = began + MARK_EVERY * u32::try_from(step).unwrap();
            let mark = under_way.wants_mark(100, now).then_some(step * 100);
            under_way.note(&way, 100, mark, now).unwrap();
        }
        assert_eq!(under_way.marks.len(), MARKS_MOST);
        // Who waits for room waits for the oldest of them.
        under_way.most = 0;
        under_way.note(&way, 100, None, began).unwrap();
        assert_eq!(way.0.get(), 100);
    }
}
