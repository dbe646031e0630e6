//! Straight reception: large frames that leave by a static lane are received into a slot of
//! it, so that sending them is only a commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use madgate_gtm::transit::{Lane, Run};
use madgate_gtm::wire::{Flags, HEADER_BYTES};
use madgate_gtm::{Header, Kind};

use super::Receiver;
use super::input::Input;
use crate::fault::Fault;
use crate::frame::{Frame, LentFrame};
use crate::scan::run_of;

/// A frame on its way into a slot.
#[derive(Debug)]
pub(super) struct Straight {
    frame: LentFrame,
    filled: usize,
    run: Run,
}

impl Receiver {
    /// If a frame can go straight into a slot of the lane that it leaves by, it does from now
    /// on. `begun` is what is there of it, from `header` on. Returns whether it does.
    pub(super) fn begin_straight(&self, input: &mut Input, header: &Header, begun: &[u8]) -> bool {
        input.prefers_straight = false;
        let is_large = header.payload_bytes() >= self.engine.settings.direct_bytes;
        let is_eligible = header.kind == Kind::Data && !header.flags.has(Flags::OPEN) && is_large;
        if !is_eligible || input.rules.lane != Lane::Bulk {
            return false;
        }
        let Some(mut frame) = self.borrow(input, header) else {
            return false;
        };
        let filled = begun.len();
        frame.bytes_mut()[..filled].copy_from_slice(begun);
        input.frame_bytes = None;
        let run = run_of(header, Lane::Bulk);
        input.straight = Some(Straight { frame, filled, run });
        input.prefers_straight = true;
        input.gather.stop(&mut *input.receiver);
        true
    }

    /// Borrows a slot for a frame, if it leaves by a static lane that has nothing to send
    /// before it, and few of whose slots are lent already.
    fn borrow(&self, input: &mut Input, header: &Header) -> Option<LentFrame> {
        let link = {
            let mut shared = self.engine.lock();
            let transit = &mut shared.transit;
            let passage = transit.passage(input.link.transit, header.flow, header.label)?;
            let is_next = !transit.has_queued(passage.to, Lane::Bulk);
            let may_come = header.charge() <= passage.promised;
            let link = shared
                .links
                .get(&passage.to)
                .filter(|_| is_next && may_come)?;
            Arc::clone(link)
        };
        let (slot_bytes, slots) = link.bulk_slots()?;
        input.prefers_straight = true;
        if header.frame_bytes() > slot_bytes
            || link.lent.load(Ordering::Relaxed) >= slots.div_ceil(2)
        {
            return None;
        }
        let mut output = link.try_output()?;
        let lane = &mut output.bulk;
        if lane.is_blocked || !lane.outbox.is_empty() {
            return None;
        }
        // A lane that has failed says so when it is sent on.
        let slot = lane.sender.as_mut()?.try_lend().ok().flatten()?;
        Some(LentFrame::new(
            slot,
            header.frame_bytes(),
            link.transit,
            Arc::clone(&link.lent),
        ))
    }

    /// Receives the rest of a frame into its slot, and the header of the next one; or the
    /// header that tells where the frame behind it goes.
    pub(super) fn receive_straight(&mut self, input: &mut Input) -> Result<bool, Fault> {
        let mut progress = false;
        for _ in 0..FRAMES_PER_TURN {
            let received = self.receive_ahead(input)?;
            if received == 0 {
                return Ok(progress);
            }
            progress = true;
            self.note_received(received);
            let is_whole = input
                .straight
                .as_ref()
                .is_some_and(|straight| straight.filled == straight.frame.len());
            if is_whole && let Some(Straight { frame, run, .. }) = input.straight.take() {
                let frame = Frame::Lent(frame);
                self.engine
                    .take_frame(&input.link, &run, frame, &mut self.touched)?;
                self.serve_touched();
            }
            if input.straight.is_none() && !self.begin_next(input)? {
                // The usual way, with the header in front.
                return Ok(true);
            }
        }
        Ok(progress)
    }

    /// One call: the rest of the frame, if one is on its way, and the next header.
    fn receive_ahead(&mut self, input: &mut Input) -> Result<usize, Fault> {
        let missing = HEADER_BYTES - input.small.len();
        let Some(straight) = &mut input.straight else {
            let mut head = [0; HEADER_BYTES];
            let received = input
                .receiver
                .try_receive(&mut head[..missing], &mut BytesMut::new())?;
            input.small.extend_from_slice(&head[..received]);
            return Ok(received);
        };
        self.head.clear();
        let rest = &mut straight.frame.bytes_mut()[straight.filled..];
        let wanted = rest.len();
        let received = input.receiver.try_receive(rest, &mut self.head)?;
        straight.filled += received.min(wanted);
        input.small.extend_from_slice(&self.head);
        Ok(received)
    }

    /// The frame behind the last one, if its header is here. `false` when it does not go
    /// straight, or when a header's worth of bytes is here that has to go the usual way.
    fn begin_next(&mut self, input: &mut Input) -> Result<bool, Fault> {
        let Some(head) = input.small.first_chunk::<HEADER_BYTES>() else {
            return Ok(true);
        };
        let header = Header::parse(head)?;
        input.rules.check(&header)?;
        let mut begun = std::mem::take(&mut input.small);
        let goes_straight = self.begin_straight(input, &header, &begun);
        if goes_straight {
            begun.clear();
        } else {
            input.frame_bytes = Some(header.frame_bytes());
        }
        input.small = begun;
        Ok(goes_straight)
    }
}

/// Frames that are received straight from one lane before the others have their turn.
const FRAMES_PER_TURN: usize = 16;
