//! Static buffers: what is sent is copied into slots that the lane lends, unless it was put
//! there in the first place.

use madgate_tm::{LaneError, LaneSender, LentSlot, Piece};

use crate::buffer::{Body, Buffer};
use crate::outbox::{Borrowed, Outbox, OutboxError};

impl<T> Outbox<T> {
    /// Returns whether the lane takes no more now.
    pub(crate) fn flush_static(
        &mut self,
        lane: &mut dyn LaneSender,
        left: &mut impl FnMut(T),
    ) -> Result<bool, OutboxError> {
        while let Some((first, _)) = self.queue.front() {
            if first.is_lent() {
                self.commit_filling(lane, left)?;
                self.commit_lent(0, lane, left)?;
            } else if self.fill_first(lane, left)? {
                if self.is_eager() {
                    self.commit_filling(lane, left)?;
                }
            } else {
                self.commit_filling(lane, left)?;
                self.pass_lent(lane, left)?;
                return Ok(true);
            }
        }
        self.commit_filling(lane, left)?;
        Ok(false)
    }

    /// Slots that are filled pass what waits for a slot.
    fn pass_lent(
        &mut self,
        lane: &mut dyn LaneSender,
        left: &mut impl FnMut(T),
    ) -> Result<(), OutboxError> {
        let mut place = 0;
        while self.lent > 0 && place < self.queue.len() {
            if self.queue[place].0.is_lent() {
                self.commit_lent(place, lane, left)?;
            } else {
                place += 1;
            }
        }
        Ok(())
    }

    /// Sends the buffer at `place` of the queue, if it is a slot that the lane lent.
    fn commit_lent(
        &mut self,
        place: usize,
        lane: &mut dyn LaneSender,
        left: &mut impl FnMut(T),
    ) -> Result<(), OutboxError> {
        let Some((buffer, tag)) = self.queue.remove(place) else {
            return Ok(());
        };
        let Body::Lent { slot, length } = buffer.body else {
            return Ok(());
        };
        self.lent -= 1;
        let slot_bytes = slot.capacity();
        let committed = if length > slot_bytes {
            Err(OutboxError::TooLarge {
                unit_bytes: length,
                slot_bytes,
            })
        } else {
            lane.commit(slot, length).map_err(|error| match error {
                // Nothing else can be wrong with it.
                LaneError::Misuse(_) | LaneError::WrongShape(_) => OutboxError::ForeignSlot,
                other => other.into(),
            })
        };
        if committed.is_err() {
            self.note_lost(length);
            return committed;
        }
        self.note_left(length);
        self.counters.sends += 1;
        left(tag);
        Ok(())
    }

    /// Copies the first buffer of the queue into slots and takes it off; `false` when it
    /// waits for one.
    fn fill_first(
        &mut self,
        lane: &mut dyn LaneSender,
        left: &mut impl FnMut(T),
    ) -> Result<bool, OutboxError> {
        let Some((first, tag)) = self.queue.pop_front() else {
            return Ok(true);
        };
        let filled = self.fill(lane, &first, left);
        if let Ok(true) = filled {
            self.progress = 0;
            self.in_slot.push(tag);
        } else {
            self.queue.push_front((first, tag));
        }
        filled
    }

    /// Copies the units of `buffer` from `progress` on into slots, as far as there are
    /// slots. Returns whether all units found a place.
    fn fill(
        &mut self,
        lane: &mut dyn LaneSender,
        buffer: &Buffer,
        left: &mut impl FnMut(T),
    ) -> Result<bool, OutboxError> {
        let [head, body] = buffer.pieces();
        let total = buffer.len();
        while self.progress < total {
            let unit_bytes = match &buffer.body {
                // Only bytes without a head may hold several units.
                Body::Shared(bytes) if head.is_empty() => self.unit_at(&bytes[self.progress..]),
                _ => total,
            };
            let Some((mut slot, filled)) = self.room_for(lane, unit_bytes, left)? else {
                return Ok(false);
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
        Ok(true)
    }

    /// The slot being filled if `unit_bytes` more fit in it, or a new one; `None` when the
    /// lane lends none.
    fn room_for(
        &mut self,
        lane: &mut dyn LaneSender,
        unit_bytes: usize,
        left: &mut impl FnMut(T),
    ) -> Result<Option<(LentSlot, usize)>, OutboxError> {
        if let Some((slot, filled)) = self.filling.take() {
            if slot.capacity() - filled >= unit_bytes {
                return Ok(Some((slot, filled)));
            }
            self.filling = Some((slot, filled));
            self.commit_filling(lane, left)?;
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

    /// Sends the slot being filled, if there is one, and with it the buffers whose last
    /// units it holds (those without any bytes leave all the same).
    fn commit_filling(
        &mut self,
        lane: &mut dyn LaneSender,
        left: &mut impl FnMut(T),
    ) -> Result<(), OutboxError> {
        if let Some((slot, filled)) = self.filling.take() {
            lane.commit(slot, filled)
                .inspect_err(|_| self.note_lost(filled))?;
            self.note_left(filled);
            self.counters.sends += 1;
        }
        self.in_slot.drain(..).for_each(left);
        Ok(())
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
        self.note_copied(unit_bytes);
        Ok(Borrowed::Left(tag))
    }
}
