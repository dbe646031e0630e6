//! A small message with nothing before it: encoded, cut and kept in one step.
//!
//! What [`push_frame`](Outgoing::push_frame) and [`poll_transmit`](Outgoing::poll_transmit) do
//! in turn has to allow for everything that may wait. Most messages that anybody waits for are
//! alone, and what is done for each of them is latency.

use bytes::BytesMut;

use super::queue::{Sent, SentFrames};
use super::{Outgoing, State};
use crate::time::Time;
use crate::wire::{CHARGE_PER_FRAME, Flags, HEADER_BYTES, Header, Kind};

/// Bytes of a frame that [`Outgoing::try_transmit_alone`] takes at most.
pub const ALONE_BYTES: usize = 256;

/// Frames that leave alone are kept one after the other in *runs*. One that nothing undelivered
/// is before has this size, and is used again when it is delivered: a flow that waits for an
/// answer to each message needs no other, though these are acknowledged some at a time.
const FIRST_RUN_BYTES: usize = 4 << 10;
/// The size of the runs that follow while the one before is not delivered.
const RUN_BYTES: usize = 16 << 10;

impl<D: Clone> Outgoing<D> {
    /// Sends the last small frame of `message` now, if nothing waits before it and there is
    /// credit: writes it to `frame`, to be put on the link next, and returns its length. It
    /// counts as sent. `payload` and `block` are as for [`push_frame`](Self::push_frame). Who can put
    /// it on the link at once does so when `is_written`: what is left to be done for it is no part of
    /// its way.
    ///
    /// `None`, with nothing changed, when it has to take its turn, or is longer than
    /// [`ALONE_BYTES`].
    pub fn try_transmit_alone(
        &mut self,
        message: u32,
        block: u32,
        payload: &[u8],
        frame: &mut [u8; ALONE_BYTES],
        now: impl FnOnce() -> Time,
        is_written: impl FnOnce(&[u8]),
    ) -> Option<usize> {
        let frame_bytes = HEADER_BYTES + payload.len();
        let end = self.position + payload.len() as u64 + CHARGE_PER_FRAME;
        let goes_now = self.link_is_up
            && self.state == State::Open
            && self.nothing_unsent()
            && end <= self.granted
            && frame_bytes <= ALONE_BYTES;
        if !goes_now {
            return None;
        }
        let want = std::mem::take(&mut self.acknowledgement_wanted);
        self.credit_asked |= want;
        let header = Header {
            flags: Flags::END
                .with(Flags::DESCRIBED.when(!payload.is_empty()))
                .with(self.settings.checksum.flags())
                .with(Flags::WANT.when(want)),
            message,
            block,
            // Bounded above.
            length: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            position: self.position,
            ..Header::new(Kind::Data, self.settings.flow, self.label)
        };
        let frame = &mut frame[..frame_bytes];
        frame[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        frame[HEADER_BYTES..].copy_from_slice(payload);
        self.settings.checksum.seal(frame);
        is_written(frame);
        if self.sent.is_empty() {
            self.last_progress = now();
            self.waits_since = self.last_progress;
            self.probes = 0;
            self.speed.begin(self.delivered, self.last_progress);
        }
        self.keep_alone(frame, message, end);
        Some(frame_bytes)
    }

    /// Keeps a frame that leaves alone behind others of its kind, until it is delivered.
    #[inline]
    fn keep_alone(&mut self, frame: &[u8], message: u32, end: u64) {
        let start = std::mem::replace(&mut self.position, end);
        self.retained_bytes += frame.len() as u64;
        let has_room =
            |run: &BytesMut| run.capacity() - run.len() >= frame.len() && !run.is_empty();
        if let Some(Sent {
            positions,
            messages_ended,
            ends_message,
            what: SentFrames::Run(run),
        }) = self.sent.back_mut()
            && has_room(run)
        {
            run.extend_from_slice(frame);
            positions.end = end;
            *messages_ended = Some(message.wrapping_add(1));
            *ends_message = true;
            return;
        }
        let mut run = if self.sent.is_empty() {
            let mut run = self.spare_run.take().unwrap_or_default();
            run.reserve(FIRST_RUN_BYTES);
            run
        } else {
            BytesMut::with_capacity(RUN_BYTES)
        };
        run.extend_from_slice(frame);
        self.sent.push_back(Sent {
            positions: start..end,
            messages_ended: Some(message.wrapping_add(1)),
            ends_message: true,
            what: SentFrames::Run(run),
        });
    }

    /// A run has been delivered: a small one is used again.
    pub(super) fn keep_run(&mut self, mut run: BytesMut) {
        run.clear();
        // What was cut off its front is its again.
        run.reserve(FIRST_RUN_BYTES);
        if run.capacity() == FIRST_RUN_BYTES {
            self.spare_run = Some(run);
        }
    }
}
