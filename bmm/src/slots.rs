//! Static buffers: what is sent is copied into slots that the lane lends, unless it was put
//! there in the first place, or is large and the lane gathers it from where it is.

use madgate_tm::{LaneError, LaneSender, LentSlot, Piece};

use crate::buffer::{Body, Buffer};
use crate::outbox::{Borrowed, Copies, Outbox, OutboxError, Tagged};

/// Smaller units are copied also where the lane gathers: several share a slot then, and cost its
/// receiver one look.
const GATHERED_LEAST: usize = 4 << 10;

/// A lane that copies units itself may have a faster way for those from this size on. Smaller ones share
/// slots also where two of them do not fit into one: what is left of it may do for others.
const WHOLE_LEAST: usize = 16 << 10;

/// Larger ones have a slot of their own however large slots are: a gateway passes on what fills a slot,
/// and copies what shares one.
const SHARED_MOST: usize = 32 << 10;

/// A slot is filled with units up to here however large it is: the other side has something to do
/// meanwhile, and what is under way of it stays in caches.
const FILLED_MOST: usize = (64 << 10) + 128;

impl<T> Outbox<T> {
    /// Returns whether the lane takes no more now.
    pub(crate) fn flush_static(
        &mut self,
        lane: &mut dyn LaneSender,
        left: &mut impl FnMut(Tagged<T>),
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
        left: &mut impl FnMut(Tagged<T>),
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
        left: &mut impl FnMut(Tagged<T>),
    ) -> Result<(), OutboxError> {
        let Some((buffer, tagged)) = self.queue.remove(place) else {
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
        left(tagged);
        Ok(())
    }

    /// Sends the first buffer of the queue, or copies it into slots, and takes it off; `false`
    /// when it waits for a slot.
    fn fill_first(
        &mut self,
        lane: &mut dyn LaneSender,
        left: &mut impl FnMut(Tagged<T>),
    ) -> Result<bool, OutboxError> {
        let Some((first, mut tagged)) = self.queue.pop_front() else {
            return Ok(true);
        };
        let before = self.counters;
        let filled = self.fill(lane, &first, left);
        tagged.copies.add(Copies {
            times: self.counters.copies - before.copies,
            bytes: self.counters.copied_bytes - before.copied_bytes,
        });
        if let Ok(true) = filled {
            self.progress = 0;
            self.in_slot.push(tagged);
        } else {
            self.queue.push_front((first, tagged));
        }
        filled
    }

    /// Sends the units of `buffer` from `progress` on, or copies them into slots, as far as there
    /// are slots. Returns whether all units found a place.
    fn fill(
        &mut self,
        lane: &mut dyn LaneSender,
        buffer: &Buffer,
        left: &mut impl FnMut(Tagged<T>),
    ) -> Result<bool, OutboxError> {
        let [head, body] = buffer.pieces();
        let total = buffer.len();
        while self.progress < total {
            let unit_bytes = match &buffer.body {
                // Only bytes without a head may hold several units.
                Body::Shared(bytes) if head.is_empty() => self.unit_at(&bytes[self.progress..]),
                _ => total,
            };
            let mut unit = body;
            unit.advance(self.progress);
            let unit = [head, unit.truncated(unit_bytes - head.len())];
            let has_left = if self.leaves_whole(lane, unit_bytes) {
                self.send_whole(lane, &unit, left)?
            } else {
                self.copy(lane, &unit, left)?
            };
            if !has_left {
                return Ok(false);
            }
            self.progress += unit_bytes;
        }
        Ok(true)
    }

    /// Whether a unit is so large that it is left to the lane: beyond what is copied in any case,
    /// or beyond what shares a slot with another like it. The lane may know a faster way.
    fn leaves_whole(&self, lane: &dyn LaneSender, unit_bytes: usize) -> bool {
        let shared_most = if lane.gathers() {
            GATHERED_LEAST - 1
        } else {
            (self.slot_bytes() / 2).clamp(WHOLE_LEAST - 1, SHARED_MOST)
        };
        unit_bytes > shared_most
    }

    /// Sends a unit in a slot of its own, behind the slot being filled: from where it is, if the lane
    /// gathers, and else the lane copies it; `false` when there is no slot for it.
    fn send_whole(
        &mut self,
        lane: &mut dyn LaneSender,
        unit: &[Piece<'_>],
        left: &mut impl FnMut(Tagged<T>),
    ) -> Result<bool, OutboxError> {
        self.commit_filling(lane, left)?;
        let unit_bytes = self.check_size(unit)?;
        let has_left = lane.try_send_gathered(unit)?;
        if has_left {
            if !lane.gathers() {
                self.note_copy(unit_bytes as u64);
            }
            self.note_left(unit_bytes);
            self.counters.sends += 1;
        }
        Ok(has_left)
    }

    /// Copies a unit into a slot, which is sent later; `false` when there is none for it.
    fn copy(
        &mut self,
        lane: &mut dyn LaneSender,
        unit: &[Piece<'_>],
        left: &mut impl FnMut(Tagged<T>),
    ) -> Result<bool, OutboxError> {
        let Some((mut slot, mut filled)) = self.room_for(lane, unit, left)? else {
            return Ok(false);
        };
        let start = filled;
        for piece in unit {
            slot.room(filled..).put(*piece);
            filled += piece.len();
        }
        self.note_copy((filled - start) as u64);
        self.filling = Some((slot, filled));
        Ok(true)
    }

    /// Bytes of a unit, which has to fit in a slot.
    fn check_size(&self, unit: &[Piece<'_>]) -> Result<usize, OutboxError> {
        let unit_bytes = length(unit);
        match self.slot_bytes() {
            slot_bytes if unit_bytes > slot_bytes => Err(OutboxError::TooLarge {
                unit_bytes,
                slot_bytes,
            }),
            _ => Ok(unit_bytes),
        }
    }

    /// The slot being filled if `unit` fits behind what is in it, or a new one; `None` when the
    /// lane lends none.
    fn room_for(
        &mut self,
        lane: &mut dyn LaneSender,
        unit: &[Piece<'_>],
        left: &mut impl FnMut(Tagged<T>),
    ) -> Result<Option<(LentSlot, usize)>, OutboxError> {
        if let Some((slot, filled)) = self.filling.take() {
            if slot.capacity().min(FILLED_MOST) >= filled + length(unit) {
                return Ok(Some((slot, filled)));
            }
            self.filling = Some((slot, filled));
            self.commit_filling(lane, left)?;
        }
        self.check_size(unit)?;
        Ok(lane.try_lend()?.map(|slot| (slot, 0)))
    }

    /// Sends the slot being filled, if there is one, and with it the buffers whose last
    /// units it holds (those without any bytes leave all the same).
    fn commit_filling(
        &mut self,
        lane: &mut dyn LaneSender,
        left: &mut impl FnMut(Tagged<T>),
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
        let unit_bytes = self.check_size(unit)?;
        if !lane.try_send_gathered(unit)? {
            return Ok(Borrowed::NotNow(tag));
        }
        self.note_sent(unit_bytes, !lane.gathers());
        Ok(Borrowed::Left(tag))
    }
}

fn length(unit: &[Piece<'_>]) -> usize {
    unit.iter().map(Piece::len).sum()
}
