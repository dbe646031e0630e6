//! Lanes of slots: frames come whole, one or several in a slot.

use bytes::BytesMut;
use madgate_gtm::wire::{
    DESCRIPTOR_BYTES, Flags, HEADER_BYTES, Kind, SMALL_PAYLOAD_BYTES, WireError,
};
use madgate_gtm::{Header, Time};
use madgate_tm::ReceivedSlot;

use super::super::Inner;
use super::super::arrival::{Destination, FrameFault};
use super::super::core::Core;
use super::super::goal::Goal;
use super::super::kept::KeptSlot;
use super::{
    FRAMES_PER_TURN, HEAD_BYTES, Input, InputError, Origin, begin, destination, finish,
    handle_frames,
};

impl Input {
    /// Urgent lane of slots: each holds some small frames.
    pub(super) fn receive_small_slots(
        &mut self,
        inner: &Inner,
        goal: &mut Goal<'_, '_>,
        scratch: &mut BytesMut,
        now: Time,
    ) -> Result<usize, InputError> {
        scratch.clear();
        if self.receiver.try_receive_copy(scratch)?.is_none() {
            return Ok(0);
        }
        // One slot is the usual case: what tells that there are no more costs little.
        if self.receiver.may_have_arrived() {
            return self.receive_more_slots(inner, goal, scratch, now);
        }
        let origin = self.origin();
        inner.with_core_for(goal, |core, goal| {
            handle_slot(core, origin, scratch, now, goal)
        })?;
        Ok(scratch.len())
    }

    /// One slot was received, and more may have come: takes them in together.
    #[inline(never)]
    fn receive_more_slots(
        &mut self,
        inner: &Inner,
        goal: &mut Goal<'_, '_>,
        scratch: &mut BytesMut,
        now: Time,
    ) -> Result<usize, InputError> {
        let mut ends = [0; FRAMES_PER_TURN];
        ends[0] = scratch.len();
        let mut count = 1;
        // A lane that has ended says so again; what came before is taken in first.
        while count < FRAMES_PER_TURN
            && matches!(self.receiver.try_receive_copy(scratch), Ok(Some(_)))
        {
            ends[count] = scratch.len();
            count += 1;
            if !self.receiver.may_have_arrived() {
                break;
            }
        }
        let origin = self.origin();
        inner.with_core_for(goal, |core, goal| {
            let mut start = 0;
            for &end in &ends[..count] {
                handle_slot(core, origin, &scratch[start..end], now, goal)?;
                start = end;
            }
            Ok::<_, InputError>(())
        })?;
        Ok(scratch.len())
    }

    /// Bulk lane of slots: each holds some large frames.
    pub(super) fn receive_large_slots(
        &mut self,
        inner: &Inner,
        goal: &mut Goal<'_, '_>,
        now: Time,
    ) -> Result<usize, InputError> {
        let mut total = 0;
        for _ in 0..FRAMES_PER_TURN {
            let Some(slot) = self.receiver.try_receive_slot()? else {
                break;
            };
            total += slot.len();
            if let Some(slot) = self.keep_slot(inner, slot, goal, now)? {
                self.receive_large_slot(inner, &slot, goal, now)?;
            }
            if goal.is_over() {
                break;
            }
        }
        Ok(total)
    }

    /// A slot of the bulk lane that may be kept with the one large frame that it holds, until that
    /// is unpacked; it is given back where it may not.
    fn keep_slot(
        &mut self,
        inner: &Inner,
        slot: ReceivedSlot,
        goal: &mut Goal<'_, '_>,
        now: Time,
    ) -> Result<Option<ReceivedSlot>, InputError> {
        if !self.kept.has_room(slot.len()) || slot.len() <= HEAD_BYTES + SMALL_PAYLOAD_BYTES {
            return Ok(Some(slot));
        }
        let mut head = [0; HEAD_BYTES];
        slot.copy_out(0, &mut head);
        let Some((header, descriptor)) = head.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(Some(slot));
        };
        let header = Header::check(header).map_err(FrameFault::from)?;
        self.check_lone(header)?;
        let header = header.read();
        if header.kind != Kind::Data || header.frame_bytes() != slot.len() {
            return Ok(Some(slot));
        }
        let descriptor = descriptor.first_chunk().copied();
        let descriptor = descriptor.filter(|_| header.flags.has(Flags::DESCRIBED));
        let start = HEADER_BYTES + descriptor.map_or(0, |bytes| bytes.len());
        let range = start..slot.len();
        let kept = self.kept.keep(slot, range);
        let wanted = goal.straight.as_deref().map(|straight| straight.wanted);
        let origin = self.origin();
        let back = inner.with_core_for(goal, |core, _| {
            core.keep_fragment(origin, &header, descriptor, kept, wanted.as_ref(), now)
        })?;
        Ok(back.map(KeptSlot::into_slot))
    }

    /// A slot of the bulk lane: large frames, one after the other.
    fn receive_large_slot(
        &mut self,
        inner: &Inner,
        slot: &ReceivedSlot,
        goal: &mut Goal<'_, '_>,
        now: Time,
    ) -> Result<(), InputError> {
        let mut start = 0;
        while start < slot.len() {
            if slot.len() - start < HEAD_BYTES {
                return Err(split_frame().into());
            }
            let mut head = [0; HEAD_BYTES];
            slot.copy_out(start, &mut head);
            let Some((header, rest)) = head.split_first_chunk::<HEADER_BYTES>() else {
                return Err(split_frame().into());
            };
            let header = Header::check(header).map_err(FrameFault::from)?;
            self.check_lone(header)?;
            let header = header.read();
            let is_large = header.kind == Kind::Data && header.length as usize >= DESCRIPTOR_BYTES;
            if !is_large || header.frame_bytes() > slot.len() - start {
                return Err(split_frame().into());
            }
            let destination = match goal.straight.as_deref() {
                // What comes early is there all the same.
                None => Destination::Buffer,
                straight => destination(inner, self.link, &header, rest, straight),
            };
            let mut arriving = begin(inner, header, destination);
            arriving.place(rest, goal.straight.as_deref_mut());
            let target = arriving.rest(goal.straight.as_deref_mut());
            slot.copy_out(start + HEAD_BYTES, target);
            arriving.filled = header.length as usize;
            finish(inner, self.origin(), arriving, goal, now)?;
            start += header.frame_bytes();
        }
        Ok(())
    }
}

/// Takes all frames of a slot in.
#[inline(always)]
fn handle_slot(
    core: &mut Core,
    origin: Origin,
    slot: &[u8],
    now: Time,
    goal: &mut Goal<'_, '_>,
) -> Result<(), InputError> {
    if handle_frames(core, origin, slot, now, goal)? == slot.len() {
        Ok(())
    } else {
        Err(split_frame().into())
    }
}

fn split_frame() -> FrameFault {
    WireError::Contradiction("a frame that does not end where its slot does").into()
}
