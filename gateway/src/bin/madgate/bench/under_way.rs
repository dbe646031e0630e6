//! How much of a stream is under way. Ends keep what they have sent until it is delivered, megabytes
//! of it: on a slow route that is many times what goes through in the time that is measured, and
//! orders wait behind it. So a stream has no more under way than goes through in part of that time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use madgate_vchannel::Delivery;

use super::partner::Partner;
use crate::failure::Failure;
use crate::files::wire::count;
use crate::units::float;

/// What may be under way before it is known how fast that goes, or one message more.
const FIRST: u64 = 64 << 10;

/// What a message counts for besides its own bytes: orders wait behind its header too.
const MESSAGE_BYTES: usize = 64;

/// Part of the time in which what is under way goes through.
const PART: u32 = 4;

/// Marks in what is under way, at most: the oldest is waited for, so that the others go on.
const MARKS: u64 = 4;

/// What one stream has under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    started: Instant,
    /// In which what is under way may go through.
    part: Duration,
    /// What may be under way however slow it goes.
    least: u64,
    most: u64,
    sent: u64,
    delivered: u64,
    /// Messages that are waited for, and how much was sent when they were.
    marks: VecDeque<(Delivery, u64)>,
}

/// What so many messages count for.
pub(super) fn weight(messages: usize, message_bytes: usize) -> u64 {
    count(messages * (message_bytes + MESSAGE_BYTES))
}

impl UnderWay {
    /// Of a stream that is measured for so long, and sends so much at once.
    pub(super) fn of(time: Duration, weight: u64) -> Self {
        let least = FIRST.max(weight);
        Self {
            started: Instant::now(),
            part: time / PART,
            least,
            most: least,
            sent: 0,
            delivered: 0,
            marks: VecDeque::new(),
        }
    }

    /// Whether the message that is sent next, which is the last of this weight, is to be a mark.
    pub(super) fn wants_mark(&self, weight: u64) -> bool {
        let last = self.marks.back().map_or(self.delivered, |(_, sent)| *sent);
        self.sent + weight - last >= self.most / MARKS
    }

    /// So much was sent to `partner`, the last of it this message, if it is a mark. Waits until there is
    /// room for more; how much was seen to arrive.
    pub(super) fn note(
        &mut self,
        partner: Partner<'_>,
        weight: u64,
        mark: Option<Delivery>,
    ) -> Result<u64, Failure> {
        let before = self.delivered;
        self.sent += weight;
        self.marks.extend(mark.map(|mark| (mark, self.sent)));
        while self.sent - self.delivered > self.most
            && let Some((mark, sent)) = self.marks.pop_front()
        {
            if !partner.arrives(&mark)? {
                return Err(partner.silence());
            }
            self.grow(sent, self.started.elapsed());
        }
        Ok(self.delivered - before)
    }
}

impl UnderWay {
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
    // Far below 2^52, or more than anybody keeps.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "as above"
    )]
    {
        (float(delivered) * parts).min(1e15) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_goes_through_in_time() {
        let second = Duration::from_secs(1);
        assert_eq!(most(8 << 20, second, second / 4), 2 << 20);
        assert_eq!(most(250_000, second, second / 4), 62_500);
        assert!(most(1 << 20, Duration::ZERO, second) > 1 << 40);
        assert_eq!(most(1 << 20, Duration::ZERO, Duration::ZERO), 0);
    }

    #[test]
    fn what_arrives_at_once_is_not_taken_for_the_speed_of_the_way() {
        let second = Duration::from_secs(1);
        let mut under_way = UnderWay::of(second, 72);
        under_way.grow(16 << 10, Duration::from_micros(10));
        assert_eq!(under_way.most, 2 * FIRST);
        under_way.grow(144 << 10, 8 * second);
        assert_eq!(under_way.most, FIRST);
    }

    #[test]
    fn marks_are_a_part_of_what_is_under_way() {
        for (weight, least) in [(72, FIRST), (1 << 20, 1 << 20)] {
            let under_way = UnderWay::of(Duration::from_secs(1), weight);
            assert!(!under_way.wants_mark(least / MARKS - 1));
            assert!(under_way.wants_mark(least / MARKS));
        }
    }
}
