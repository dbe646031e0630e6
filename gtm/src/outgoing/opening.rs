//! Asking to be admitted: the first frame of a flow, and the first after an interruption.

use bytes::{Bytes, BytesMut};

use super::queue::{Sent, SentFrames};
use super::{OPENING_RETRY_FIRST, OPENING_RETRY_MOST, Outgoing, State, backoff};
use crate::time::Time;
use crate::wire::header::RAW;
use crate::wire::{CHARGE_PER_FRAME, Flags, HEADER_BYTES, Header, Kind, Opening, checksum};

impl<D: Clone> Outgoing<D> {
    /// Opens the flow: with its first small frame in the opening if everything sent before
    /// is delivered; else bare, because only the answer tells from where to send again.
    pub(super) fn open(&mut self, now: Time) -> Bytes {
        self.label = u32::try_from(self.next_random() >> 32).unwrap_or(0) | 1;
        self.stuck_since.get_or_insert(now);
        // What an opening before this one carried is among what was sent.
        let first = if self.sent.is_empty() {
            self.take_first_small()
        } else {
            None
        };
        let opening = Opening {
            source_incarnation: self.settings.incarnation,
            destination_incarnation: self.destination_incarnation,
            fragment_bytes: self.settings.fragment_bytes,
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
        self.wait_for_answer(now);
        self.opening.clone()
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
        let flags = RAW.flags(&first);
        RAW.place(&mut first, self.label, self.position, true);
        checksum::seal(&mut first, flags & Flags::HEADER_ONLY.bits() != 0);

        let mut frame = BytesMut::with_capacity(first.len() + crate::wire::OPENING_BYTES);
        frame.extend_from_slice(&first[..HEADER_BYTES]);
        frame.extend_from_slice(&opening.to_bytes());
        frame.extend_from_slice(&first[HEADER_BYTES..]);
        RAW.mark_opening(&mut frame, payload_bytes + crate::wire::OPENING_BYTES);
        checksum::seal(&mut frame, flags & Flags::HEADER_ONLY.bits() != 0);

        let ends = flags & (Flags::END.bits() | Flags::ABORT.bits()) != 0;
        let start = self.position;
        self.position += payload_bytes as u64 + CHARGE_PER_FRAME;
        self.sent.push_back(Sent {
            positions: start..self.position,
            messages_ended: ends.then(|| RAW.message(&first).wrapping_add(1)),
            what: SentFrames::Frames(first.freeze()),
        });
        frame.freeze()
    }

    fn bare_opening(&self, opening: &Opening) -> Bytes {
        let mut header = Header::new(Kind::Data, self.settings.flow, self.label);
        header.flags = Flags::OPEN
            .with(Flags::WANT)
            .with(Flags::HEADER_ONLY.when(!self.settings.checksum_payload));
        header.length = 24;
        header.position = self.delivered;
        let mut frame = BytesMut::with_capacity(HEADER_BYTES + crate::wire::OPENING_BYTES);
        frame.extend_from_slice(&header.to_bytes());
        frame.extend_from_slice(&opening.to_bytes());
        checksum::seal(&mut frame, header.flags.has(Flags::HEADER_ONLY));
        frame.freeze()
    }
}
