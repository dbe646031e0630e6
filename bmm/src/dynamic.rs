//! Dynamic buffers: the lane refers to the memory where it is, or takes what a pipe holds.

use madgate_tm::{LaneSender, Piece};

use crate::buffer::Body;
use crate::outbox::{Borrowed, Copies, Outbox, OutboxError, Tagged};

/// Pieces that one send refers to at most, whatever the lane would take: they stand on the
/// stack.
const PIECES_PER_SEND: usize = 64;

impl<T> Outbox<T> {
    /// Returns whether the lane takes no more now.
    pub(crate) fn flush_dynamic(
        &mut self,
        lane: &mut dyn LaneSender,
        gather_limit: usize,
        left: &mut impl FnMut(Tagged<T>),
    ) -> Result<bool, OutboxError> {
        loop {
            // Buffers that are empty leave without a call.
            self.pop_sent(left);
            if self.queue.is_empty() {
                return Ok(false);
            }
            let (offered, sent) = match self.send_pipe(lane)? {
                Some(sent) => sent,
                None => self.send_front(lane, gather_limit)?,
            };
            self.counters.sends += 1;
            self.progress += sent;
            self.note_left(sent);
            if sent < offered {
                self.pop_sent(left);
                return Ok(true);
            }
        }
    }

    /// Offers the pipe at the front of the queue, if there is one: how many bytes, and how
    /// many were taken.
    fn send_pipe(
        &mut self,
        lane: &mut dyn LaneSender,
    ) -> Result<Option<(usize, usize)>, OutboxError> {
        let has_more = self.queue.len() > 1;
        let Some((first, tagged)) = self.queue.front_mut() else {
            return Ok(None);
        };
        if let Body::Piped(pipe) = &mut first.body {
            if lane.takes_pipes() {
                let offered = pipe.len();
                return Ok(Some((offered, lane.try_send_pipe(pipe, has_more)?)));
            }
            let bytes = first.detach() as u64;
            tagged.copies.add(Copies::one(bytes));
            self.note_copy(bytes);
        }
        Ok(None)
    }

    /// Offers the front of the queue in one send: how many bytes, and how many were taken.
    fn send_front(
        &self,
        lane: &mut dyn LaneSender,
        gather_limit: usize,
    ) -> Result<(usize, usize), OutboxError> {
        let most = gather_limit.clamp(1, PIECES_PER_SEND);
        let mut pieces = [Piece::default(); PIECES_PER_SEND];
        let mut count = 0;
        let mut offered = 0;
        let mut skip = self.progress;
        'queue: for (place, (buffer, _)) in self.queue.iter().enumerate() {
            if buffer.is_lent() {
                if place == 0 {
                    return Err(OutboxError::ForeignSlot);
                }
                break;
            }
            if buffer.is_piped() {
                break;
            }
            for mut piece in buffer.pieces() {
                let skipped = skip.min(piece.len());
                piece.advance(skipped);
                skip -= skipped;
                if piece.is_empty() {
                    continue;
                }
                if count == most {
                    break 'queue;
                }
                offered += piece.len();
                pieces[count] = piece;
                count += 1;
            }
            if self.is_eager() {
                break;
            }
        }
        Ok((offered, lane.try_send(&pieces[..count])?))
    }

    /// Takes buffers off the front that have left entirely.
    fn pop_sent(&mut self, left: &mut impl FnMut(Tagged<T>)) {
        while let Some((first, _)) = self.queue.front()
            && first.len() <= self.progress
            && !first.is_lent()
        {
            self.progress -= first.len();
            if let Some((_, tagged)) = self.queue.pop_front() {
                left(tagged);
            }
        }
    }

    pub(crate) fn send_borrowed_dynamic(
        &mut self,
        lane: &mut dyn LaneSender,
        gather_limit: usize,
        unit: &[Piece<'_>],
        tag: T,
    ) -> Result<Borrowed<T>, OutboxError> {
        let unit_bytes: usize = unit.iter().map(Piece::len).sum();
        let mut sent = 0;
        for pieces in unit.chunks(gather_limit.max(1)) {
            let offered: usize = pieces.iter().map(Piece::len).sum();
            if offered == 0 {
                continue;
            }
            let taken = lane.try_send(pieces)?;
            self.counters.sends += 1;
            self.counters.bytes += taken as u64;
            sent += taken;
            if taken < offered {
                break;
            }
        }
        if sent == unit_bytes {
            return Ok(Borrowed::Left(tag));
        }
        if sent == 0 {
            return Ok(Borrowed::NotNow(tag));
        }
        let mut rest = vec![0; unit_bytes - sent];
        let mut skip = sent;
        let mut at = 0;
        for mut piece in unit.iter().copied() {
            let skipped = skip.min(piece.len());
            piece.advance(skipped);
            skip -= skipped;
            at += piece.copy_to(&mut rest[at..]);
        }
        self.queue_rest(rest, tag);
        Ok(Borrowed::Queued)
    }
}
