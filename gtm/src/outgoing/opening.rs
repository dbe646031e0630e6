//! Asking to be admitted: the first frame of a flow, and the first after an interruption.

use bytes::{Bytes, BytesMut};

use super::clock::backoff;
use super::queue::{Sent, SentFrames};
use super::{OPENING_RETRY_FIRST, OPENING_RETRY_MOST, Outgoing, State};
use crate::time::Time;
use crate::wire::{Flags, HEADER_BYTES, Header, Kind, OPENING_BYTES, Opening, encoded};

impl<D: Clone> Outgoing<D> {
    /// Opens the flow: with its first small frame in the opening if everything sent before
    /// is delivered; else bare, because only the answer tells from where to send again.
    pub(super) fn open(&mut self, now: Time) -> Bytes {
        self.label = self.next_label();
        self.stuck_since.get_or_insert(now);
        // It replaces whatever the hops know of the flow: a close or a probe that waits to
        // be sent was about that.
        self.control = None;
        self.credit_asked = true;
        self.last_progress = now;
        self.is_retargetable = self.sent.is_empty() && !self.is_inside_message;
        // What an opening before this one carried is among what was sent.
        let first = if self.sent.is_empty() {
            self.take_first_small()
        } else {
            None
        };
        let opening = Opening {
            source_incarnation: self.settings.incarnation,
            destination_incarnation: self.destination_incarnation,
            fragment_bytes: self.fragment_bytes,
        };
        let frame = match first {
            Some(first) => self.opening_with(&opening, first),
            None => self.bare_opening(&opening),
        };
        self.opening = Some(frame.clone());
        self.wait_for_answer(now);
        frame
    }

    /// The opening again, its answer being overdue.
    pub(super) fn repeat_opening(&mut self, now: Time) -> Option<Bytes> {
        // Somebody may have taken in what the first one carried, and be gone now.
        self.is_retargetable &= self.sent.is_empty();
        self.wait_for_answer(now);
        self.opening.clone()
    }

    /// The destination that the flow was opened to is gone, `incarnation` is there now.
    /// Returns whether the messages can go to that one: only if nobody can have seen any
    /// part of what is not delivered.
    pub(super) fn retarget(&mut self, incarnation: u64, now: Time) -> bool {
        let is_news = incarnation != 0 && incarnation != self.destination_incarnation;
        if !self.is_retargetable || !is_news {
            return false;
        }
        self.rewind(self.delivered);
        self.destination_incarnation = incarnation;
        self.state = State::Closed { at: now };
        true
    }

    /// Labels grow from one opening to the next, so that an old one is known for what it is.
    fn next_label(&mut self) -> u32 {
        let label = match self.label {
            0 => u32::try_from(self.next_random() >> 32).unwrap_or(0),
            label => label.wrapping_add(1),
        };
        label.max(1)
    }

    fn wait_for_answer(&mut self, now: Time) {
        let wait = backoff(OPENING_RETRY_FIRST, OPENING_RETRY_MOST, self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        let wait = wait + self.spread(wait);
        self.state = State::Opening {
            retry_at: now + wait,
        };
    }

    fn opening_with(&mut self, opening: &Opening, mut first: BytesMut) -> Bytes {
        let payload_bytes = first.len() - HEADER_BYTES;
        encoded::place(&mut first, self.label, self.position, true);

        let mut frame = BytesMut::with_capacity(first.len() + OPENING_BYTES);
        frame.extend_from_slice(&first[..HEADER_BYTES]);
        frame.extend_from_slice(&opening.to_bytes());
        frame.extend_from_slice(&first[HEADER_BYTES..]);
        encoded::mark_opening(&mut frame, payload_bytes + OPENING_BYTES);
        encoded::seal(&mut frame);

        let ends_message = encoded::has_any(&first, Flags::END.with(Flags::ABORT));
        let start = self.position;
        self.position += encoded::charge(&first);
        self.sent.push_back(Sent {
            positions: start..self.position,
            messages_ended: ends_message.then(|| encoded::after_message(&first)),
            ends_message,
            what: SentFrames::Frames(first.freeze()),
        });
        frame.freeze()
    }

    fn bare_opening(&self, opening: &Opening) -> Bytes {
        let mut header = Header::new(Kind::Data, self.settings.flow, self.label);
        header.flags = Flags::OPEN.with(Flags::WANT);
        header.position = self.delivered;
        let mut frame = BytesMut::with_capacity(HEADER_BYTES + OPENING_BYTES);
        frame.extend_from_slice(&header.to_bytes());
        frame.extend_from_slice(&opening.to_bytes());
        encoded::mark_opening(&mut frame, OPENING_BYTES);
        encoded::seal(&mut frame);
        frame.freeze()
    }
}
