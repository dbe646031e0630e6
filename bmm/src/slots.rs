//! Static buffers: what is sent is copied into slots that the lane lends, unless it was put
//! there in the first place.

use madgate_tm::{LaneSender, LentSlot, Piece};

use crate::buffer::{Body, Buffer};
use crate::outbox::{Borrowed, Flushed, Outbox, OutboxError};

impl<T> Outbox<T> {
    pub(crate) fn flush_static(
        &mut self,
        lane: &mut dyn LaneSender,
        left: &mut impl FnMut(T),
    ) -> Result<Flushed, OutboxError> {
        let mut flushed = Flushed::default();
        while let Some((first, tag)) = self.queue.pop_front() {
            match first.body {
                Body::Lent { slot, length } => {
                    flushed.bytes += self.commit_filling(lane, left)?;
                    lane.commit(slot, length).map_err(|error| match error {
                        madgate_tm::LaneError::WrongShape(_) => OutboxError::ForeignSlot,
                        other => other.into(),
                    })?;
                    self.counters.sends += 1;
                    flushed.bytes += length;
                    left(tag);
                }
                _ => {
                    let (bytes, done) = self.fill(lane, &first, left)?;
                    flushed.bytes += bytes;
                    if !done {
                        self.queue.push_front((first, tag));
                        flushed.blocked = true;
                        break;
                    }
                    self.progress = 0;
                    self.in_slot.push(tag);
                    if self.is_eager() {
                        flushed.bytes += self.commit_filling(lane, left)?;
                    }
                }
            }
        }
        flushed.bytes += self.commit_filling(lane, left)?;
        Ok(flushed)
    }

    /// Copies the units of `buffer` from `progress` on into slots. Returns the bytes of
    /// slots that were committed, and whether all units found a place.
    fn fill(
        &mut self,
        lane: &mut dyn LaneSender,
        buffer: &Buffer,
        left: &mut impl FnMut(T),
    ) -> Result<(usize, bool), OutboxError> {
        let mut committed = 0;
        let [head, body] = buffer.pieces();
        let total = buffer.len();
        while self.progress < total {
            let unit_bytes = match &buffer.body {
                // Only bytes without a head may hold several units.
                Body::Shared(bytes) if head.is_empty() => self.unit_at(&bytes[self.progress..]),
                _ => total,
            };
            let Some((mut slot, filled)) = self.room_for(lane, unit_bytes, &mut committed, left)?
            else {
                return Ok((committed, false));
            };
            let target = &mut slot.bytes_mut()[filled..filled + unit_bytes];
            let (head_part, body_part) = target.split_at_mut(head.len());
            head.copy_to(head_part);
            let mut unit = body;
            unit.advance(self.progress);
            unit.copy_to(body_part);
            self.counters.copies += 1;
            self.counters.copied_bytes += unit_bytes as u64;
            self.filling = Some((slot, filled + unit_bytes));
            self.progress += unit_bytes;
        }
        Ok((committed, true))
    }

    /// The slot being filled if `unit_bytes` more fit in it, or a new one; `None` when the
    /// lane lends none.
    fn room_for(
        &mut self,
        lane: &mut dyn LaneSender,
        unit_bytes: usize,
        committed: &mut usize,
        left: &mut impl FnMut(T),
    ) -> Result<Option<(LentSlot, usize)>, OutboxError> {
        if let Some((slot, filled)) = self.filling.take() {
            if slot.capacity() - filled >= unit_bytes {
                return Ok(Some((slot, filled)));
            }
            self.filling = Some((slot, filled));
            *committed += self.commit_filling(lane, left)?;
        }
        let Some(slot) = lane.try_lend()? else {
            return Ok(None);
        };
        if slot.capacity() < unit_bytes {
            return Err(OutboxError::TooLarge {
                unit_bytes,
                slot_bytes: slot.capacity(),
            });
        }
        Ok(Some((slot, 0)))
    }

    /// Sends the slot being filled; returns its bytes.
    fn commit_filling(
        &mut self,
        lane: &mut dyn LaneSender,
        left: &mut impl FnMut(T),
    ) -> Result<usize, OutboxError> {
        let Some((slot, filled)) = self.filling.take() else {
            return Ok(0);
        };
        lane.commit(slot, filled)?;
        self.counters.sends += 1;
        self.in_slot.drain(..).for_each(left);
        Ok(filled)
    }

    pub(crate) fn send_borrowed_static(
        &mut self,
        lane: &mut dyn LaneSender,
        unit: &[Piece<'_>],
        tag: T,
    ) -> Result<Borrowed<T>, OutboxError> {
        let unit_bytes: usize = unit.iter().map(Piece::len).sum();
        let Some(mut slot) = lane.try_lend()? else {
            return Ok(Borrowed::NotNow(tag));
        };
        if slot.capacity() < unit_bytes {
            return Err(OutboxError::TooLarge {
                unit_bytes,
                slot_bytes: slot.capacity(),
            });
        }
        let mut rest = slot.bytes_mut();
        for piece in unit {
            let copied = piece.copy_to(rest);
            rest = &mut rest[copied..];
        }
        lane.commit(slot, unit_bytes)?;
        self.counters.sends += 1;
        self.counters.copies += 1;
        self.counters.copied_bytes += unit_bytes as u64;
        self.counters.bytes += unit_bytes as u64;
        Ok(Borrowed::Left(tag))
    }
}
