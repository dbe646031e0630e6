//! Cutting what is pending into frames, as credit allows.

use bytes::{Buf, BytesMut};

use super::queue::{BlockRange, Pending, Sent, SentFrames};
use super::{Outgoing, State, Transmit};
use crate::time::Time;
use crate::wire::{
    CHARGE_PER_FRAME, Coverage, DESCRIPTOR_BYTES, Flags, HEADER_BYTES, Header, Kind, LEAD_BYTES,
    checksum, encoded,
};

/// With less credit than this, a fragment is only cut when nothing else is under way: more
/// credit will come, and larger fragments cost less. While twice as much as the fragment is under
/// way, it is not cut at all: what is cut off would leave in a frame of its own, and credit comes
/// before the way runs dry.
const LEAST_FRAGMENT_BYTES: u64 = 16 << 10;

/// Header of a fragment, with its descriptor if its block starts there.
#[derive(Debug, Clone)]
pub struct FragmentHead {
    header: Header,
    checksum: Coverage,
    bytes: [u8; HEADER_BYTES + DESCRIPTOR_BYTES],
    length: usize,
}

impl FragmentHead {
    fn new(header: Header, descriptor: Option<[u8; DESCRIPTOR_BYTES]>, checksum: Coverage) -> Self {
        let mut bytes = [0; HEADER_BYTES + DESCRIPTOR_BYTES];
        let mut length = HEADER_BYTES;
        if let Some(descriptor) = descriptor {
            bytes[HEADER_BYTES..].copy_from_slice(&descriptor);
            length += DESCRIPTOR_BYTES;
        }
        Self {
            header,
            checksum,
            bytes,
            length,
        }
    }

    /// Completes the frame with the checksum of `payload` (the block's part, in pieces).
    pub fn seal<'a>(&mut self, payload: impl IntoIterator<Item = &'a [u8]>) {
        self.seal_with(|running| payload.into_iter().for_each(|piece| running.update(piece)));
    }

    /// As [`seal`](Self::seal), for a payload that cannot be seen as slices: `update` goes
    /// over it. It is not asked where the checksum does not cover the payload.
    pub fn seal_with(&mut self, update: impl FnOnce(&mut checksum::Running)) {
        if self.checksum != Coverage::Nothing {
            let mut running = checksum::Running::start(&self.header);
            if self.checksum == Coverage::Whole {
                running.update(&self.bytes[HEADER_BYTES..self.length]);
                update(&mut running);
            }
            self.header.checksum = running.finish();
        }
        self.bytes[..HEADER_BYTES].copy_from_slice(&self.header.to_bytes());
    }

    /// What goes on the wire in front of the block's part.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Whether these small frames, which come before it, may lead it: they are short, and of its
    /// message, which is not complete without it, so that nobody waits for them alone.
    #[must_use]
    pub fn may_follow(&self, frames: &[u8]) -> bool {
        let first = frames.first_chunk().map(Header::parse);
        frames.len() <= LEAD_BYTES
            && matches!(first, Some(Ok(first)) if first.message == self.header.message)
    }

    /// The header, for those who look at it.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }
}

/// Bytes of the first and the last fragment of a long block, where larger ones are allowed.
const RAMP_BYTES: u64 = 64 << 10;

/// Bytes of a block in the fragment that leads the rest of it.
const LEADING_BYTES: u64 = 64;

/// Blocks are led that have so many bytes in their first fragment at least: shorter ones are copied
/// faster than a frame is dealt with.
const LED_BYTES: u64 = 16 << 10;

const _: () =
    assert!((HEADER_BYTES + DESCRIPTOR_BYTES) as u64 + LEADING_BYTES <= LEAD_BYTES as u64);

impl<D: Clone> Outgoing<D> {
    /// The next thing to put on the link: small frames up to about `limit` bytes, or one
    /// fragment. `None` when there is nothing, or no credit for it. Nothing is promised to
    /// be there a second time: what is returned counts as sent.
    pub fn poll_transmit(&mut self, now: Time, limit: usize) -> Option<Transmit<D>> {
        self.poll(now, limit, false)
    }

    /// As [`poll_transmit`](Self::poll_transmit), where short frames travel in front of large ones: a
    /// message that begins with a large block begins with a short fragment of it. Whoever waits for
    /// the message learns what it begins with before the rest of that comes, and may say where it goes.
    pub fn poll_transmit_led(&mut self, now: Time, limit: usize) -> Option<Transmit<D>> {
        self.poll(now, limit, true)
    }

    fn poll(&mut self, now: Time, limit: usize, leads: bool) -> Option<Transmit<D>> {
        if !self.link_is_up {
            return None;
        }
        match self.state {
            State::Open => {}
            State::Closed { at } if now >= at && self.is_unfinished() => {
                return Some(Transmit::Frames(self.open(now)));
            }
            State::Opening { retry_at } if now >= retry_at => {
                return self.repeat_opening(now).map(Transmit::Frames);
            }
            _ => return None,
        }
        let nothing_under_way = self.sent.is_empty();
        let transmit = match self.pending.front_mut() {
            Some(Pending::Frames(frames)) => {
                let mut frames = std::mem::take(frames);
                let run = self.cut_frames(&mut frames, limit);
                if frames.is_empty() {
                    self.pending.pop_front();
                } else if let Some(Pending::Frames(rest)) = self.pending.front_mut() {
                    *rest = frames;
                }
                run
            }
            Some(Pending::Block(_)) => self.cut_fragment(leads),
            None if self.tail.is_empty() => return None,
            None => {
                let mut tail = std::mem::take(&mut self.tail);
                let run = self.cut_frames(&mut tail, limit);
                self.tail = tail;
                run
            }
        };
        if transmit.is_none() {
            self.ask_for_credit();
        } else if nothing_under_way {
            self.last_progress = now;
            self.waits_since = now;
            // Those of a rest in a message are no sign that this is lost.
            self.probes = 0;
            self.speed.begin(self.delivered, now);
        }
        transmit
    }

    /// Takes whole frames off the front of `frames` while credit lasts.
    fn cut_frames(&mut self, frames: &mut BytesMut, limit: usize) -> Option<Transmit<D>> {
        let start = self.position;
        let mut messages_ended = None;
        let mut ends_message = false;
        let mut taken = 0;
        while taken < frames.len() && taken < limit {
            let rest = &mut frames[taken..];
            let frame_bytes = encoded::frame_bytes(rest);
            let end = self.position + encoded::charge(rest);
            if end > self.granted {
                break;
            }
            let is_under_way = taken > 0 || !self.sent.is_empty();
            if is_under_way && frame_bytes == rest.len() && self.is_lead_early(rest, end) {
                break;
            }
            let (frame, behind) = rest.split_at_mut(frame_bytes);
            let want = self.wants_credit(end, behind);
            encoded::place(frame, self.label, self.position, want);
            self.settings.checksum.seal(frame);
            ends_message = encoded::has_any(frame, Flags::END.with(Flags::ABORT));
            if ends_message {
                messages_ended = Some(encoded::after_message(frame));
            }
            self.position = end;
            taken += frame_bytes;
        }
        if taken == 0 {
            return None;
        }
        let bytes = frames.split_to(taken).freeze();
        self.sent.push_back(Sent {
            positions: start..self.position,
            messages_ended,
            ends_message,
            what: SentFrames::Frames(bytes.clone()),
        });
        Some(Transmit::Frames(bytes))
    }

    /// Whether a small frame that would end at `end`, the last before a block of its message, is to
    /// wait for that: there is no credit for any of it, and alone the frame completes nothing. It
    /// would only wake its destination.
    fn is_lead_early(&self, frame: &[u8], end: u64) -> bool {
        // What is taken from is at the front.
        let Some(Pending::Block(part)) = self.pending.get(1) else {
            return false;
        };
        frame.len() <= LEAD_BYTES
            && encoded::message(frame) == part.message
            && !encoded::has_any(frame, Flags::END.with(Flags::ABORT))
            && self.fragment_length(part, end, true).is_none()
    }

    /// Whether the frame that ends at `end`, with `behind` next to it, asks for credit:
    /// because what follows does not fit, or because somebody waits for the delivery of
    /// the last thing there is.
    fn wants_credit(&mut self, end: u64, behind: &[u8]) -> bool {
        let want = if behind.is_empty() {
            // `behind` was the front of the queue: itself, or the tail behind an empty queue.
            if self.pending.len() > 1 || !self.tail.is_empty() {
                self.runs_short(end, LEAST_FRAGMENT_BYTES)
            } else {
                std::mem::take(&mut self.acknowledgement_wanted)
            }
        } else {
            self.runs_short(end, encoded::charge(behind))
        };
        self.credit_asked |= want;
        want
    }

    /// Whether a frame that ends at `end` is to ask for credit, as `next` bytes behind it do not
    /// fit.
    fn runs_short(&mut self, end: u64, next: u64) -> bool {
        let is_short = end + next > self.granted && self.may_ask(end);
        if is_short {
            self.asked_at = end;
        }
        is_short
    }

    /// Whether it is time to ask for credit at `position`: once in half a window. The destination
    /// grants more by itself while what arrives is consumed; asked with each frame, it would grant
    /// as much as each frame takes, and answer every one. Where it has answered that there is no
    /// more, as a gateway between has not for instance, it is asked less often.
    fn may_ask(&self, position: u64) -> bool {
        let mut window = self.granted.saturating_sub(self.delivered);
        if self.asks_in_vain > 0 {
            let windows = 1 << self.asks_in_vain;
            window = window.max(self.last_window).saturating_mul(windows);
        }
        position.saturating_sub(self.asked_at) >= window / 2
    }

    /// Takes a fragment off the block at the front of the queue, a short one where that `leads` the rest.
    fn cut_fragment(&mut self, leads: bool) -> Option<Transmit<D>> {
        let Some(Pending::Block(part)) = self.pending.front() else {
            return None;
        };
        let descriptor_bytes = part.descriptor_bytes();
        let mut length = self.fragment_length(part, self.position, !self.sent.is_empty())?;
        let is_lead = leads && self.is_led(part, length);
        if is_lead {
            length = LEADING_BYTES;
        }
        let is_last = length == part.range.end - part.range.start;
        let is_alone = is_last && self.pending.len() == 1 && self.tail.is_empty();
        let end = self.position + length + descriptor_bytes + CHARGE_PER_FRAME;
        let want = if is_lead {
            // What it leads fits, and asks for itself.
            false
        } else if is_alone {
            std::mem::take(&mut self.acknowledgement_wanted)
        } else {
            let next = u64::from(self.fragment_bytes).max(LEAST_FRAGMENT_BYTES);
            self.runs_short(end, next)
        };
        self.credit_asked |= want;

        let mut sent = self.take_from_front(length, is_last)?;
        sent.ends_message &= is_last;
        let header = Header {
            flags: Flags::DESCRIBED
                .when(sent.described)
                .with(Flags::END.when(sent.ends_message))
                .with(Flags::WANT.when(want))
                .with(self.settings.checksum.flags()),
            // A fragment is at most `fragment_bytes`, itself 32 bits.
            length: u32::try_from(length + descriptor_bytes).unwrap_or(u32::MAX),
            position: self.position,
            message: sent.message,
            block: sent.block,
            offset: sent.range.start,
            ..Header::new(Kind::Data, self.settings.flow, self.label)
        };
        let descriptor = sent.described.then(|| sent.descriptor.to_bytes());
        let transmit = Transmit::Fragment {
            head: FragmentHead::new(header, descriptor, self.settings.checksum),
            data: sent.memory.clone(),
            offset: sent.range.start,
            length: usize::try_from(length).unwrap_or(usize::MAX),
        };
        self.sent.push_back(Sent {
            positions: self.position..end,
            messages_ended: sent.ends_message.then(|| sent.message.wrapping_add(1)),
            ends_message: sent.ends_message,
            what: SentFrames::Fragment(sent),
        });
        self.position = end;
        Some(transmit)
    }

    /// Whether a fragment of `length` bytes is to be led by the first bytes of its block, as its message
    /// begins with it: only if both may leave.
    fn is_led(&self, part: &BlockRange<D>, length: u64) -> bool {
        let begins_message = part.block == 0 && part.described;
        let charge = LEADING_BYTES + length + part.descriptor_bytes() + 2 * CHARGE_PER_FRAME;
        begins_message && length >= LED_BYTES && self.position + charge <= self.granted
    }

    /// Bytes of the block in its next fragment, if that may leave at `position`.
    fn fragment_length(
        &self,
        part: &BlockRange<D>,
        position: u64,
        is_under_way: bool,
    ) -> Option<u64> {
        let fixed = part.descriptor_bytes() + CHARGE_PER_FRAME;
        let remaining = part.range.end - part.range.start;
        let whole = remaining.min(self.largest_now(part.range.start, remaining));
        let credit = self.granted.saturating_sub(position);
        if whole + fixed <= credit {
            return Some(whole);
        }
        if position - self.delivered >= 2 * whole {
            return None;
        }
        let fits = credit.saturating_sub(fixed);
        let is_worth_it = fits >= LEAST_FRAGMENT_BYTES || (fits > 0 && !is_under_way);
        is_worth_it.then_some(fits)
    }

    /// The largest fragment now, of a block of which so many bytes have been sent and so many
    /// remain. Gateways forward whole fragments: a small one first and a small one last mean
    /// that every hop begins early and ends soon after the one before it (paper 003, section
    /// 3.2.1, names that as missing), and large ones between them that there are few. With
    /// something under way every hop has begun, and with something behind it none ends. How large
    /// they are between depends on how fast the flow is ([`Speed`](super::speed::Speed)).
    fn largest_now(&self, sent: u64, remaining: u64) -> u64 {
        let most = u64::from(self.fragment_bytes);
        if !self.settings.crosses_gateways {
            return most;
        }
        let most = if self.settings.sized_by_speed {
            most.min(self.speed.fragment_bytes())
        } else {
            most
        };
        if !self.settings.ramps {
            return most;
        }
        let is_first = self.position - self.delivered < RAMP_BYTES;
        let is_last = self.pending.len() == 1 && self.tail.is_empty();
        // What leads is no step.
        let sent = if sent <= LEADING_BYTES { 0 } else { sent };
        let rising = if is_first || sent > 0 { sent } else { most };
        let falling = if is_last { remaining / 2 } else { most };
        most.min(rising.min(falling).max(RAMP_BYTES))
    }

    /// There is something to send and no credit for it: says so once, if no frame has said
    /// it already. Progress allows the next asking, so a destination that stands still is
    /// left in peace (probes come then, with backoff).
    fn ask_for_credit(&mut self) {
        if !self.credit_asked && self.may_ask(self.position) {
            self.credit_asked = true;
            self.asked_at = self.position;
            self.control = Some(Kind::Probe);
        }
    }

    /// The first `length` bytes of the block at the front, which is taken off if they are
    /// all that is left of it.
    fn take_from_front(&mut self, length: u64, is_last: bool) -> Option<BlockRange<D>> {
        if is_last {
            return match self.pending.pop_front()? {
                Pending::Block(part) => Some(part),
                Pending::Frames(_) => None,
            };
        }
        let Some(Pending::Block(part)) = self.pending.front_mut() else {
            return None;
        };
        let mut first = part.clone();
        first.range.end = first.range.start + length;
        part.range.start += length;
        part.described = false;
        Some(first)
    }

    /// Takes the first frame off what is pending, if it is a small one, without sending it.
    pub(super) fn take_first_small(&mut self) -> Option<BytesMut> {
        let frames = match self.pending.front_mut() {
            Some(Pending::Frames(frames)) => frames,
            Some(Pending::Block(_)) => return None,
            None if self.tail.is_empty() => return None,
            None => &mut self.tail,
        };
        let frame_bytes = encoded::frame_bytes(frames);
        let first = BytesMut::from(&frames[..frame_bytes]);
        frames.advance(frame_bytes);
        if frames.is_empty() && !self.pending.is_empty() {
            self.pending.pop_front();
        }
        Some(first)
    }
}
