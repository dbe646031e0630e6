//! Dynamic buffers: the lane refers to the memory where it is.

use madgate_tm::{LaneSender, Piece};

use crate::buffer::Body;
use crate::outbox::{Borrowed, Flushed, Outbox, OutboxError};

/// Pieces that one send refers to at most, whatever the lane would take: they stand on the
/// stack.
const PIECES_PER_SEND: usize = 64;

impl<T> Outbox<T> {
    pub(crate) fn flush_dynamic(
        &mut self,
        lane: &mut dyn LaneSender,
        gather_limit: usize,
        left: &mut impl FnMut(T),
    ) -> Result<Flushed, OutboxError> {
        let mut flushed = Flushed::default();
        while !self.queue.is_empty() {
            let (offered, sent) = self.send_front(lane, gather_limit)?;
            self.counters.sends += 1;
            flushed.bytes += sent;
            self.pop_sent(sent, left);
            if sent < offered {
                flushed.blocked = true;
                break;
            }
        }
        Ok(flushed)
    }

    /// Offers the front of the queue in one send: how many bytes, and how many were taken.
    fn send_front(
        &self,
        lane: &mut dyn LaneSender,
        gather_limit: usize,
    ) -> Result<(usize, usize), OutboxError> {
        let most = if self.is_eager() {
            2
        } else {
            gather_limit.min(PIECES_PER_SEND)
        };
        let mut pieces = [Piece::default(); PIECES_PER_SEND];
        let mut count = 0;
        let mut offered = 0;
        let mut skip = self.progress;
        'queue: for (buffer, _) in &self.queue {
            if let Body::Lent { .. } = buffer.body {
                return Err(OutboxError::ForeignSlot);
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
    fn pop_sent(&mut self, sent: usize, left: &mut impl FnMut(T)) {
        self.progress += sent;
        while let Some((first, _)) = self.queue.front()
            && first.len() <= self.progress
        {
            self.progress -= first.len();
            if let Some((_, tag)) = self.queue.pop_front() {
                left(tag);
            }
        }
    }

    pub(crate) fn send_borrowed_dynamic(
        &mut self,
        lane: &mut dyn LaneSender,
        unit: &[Piece<'_>],
        tag: T,
    ) -> Result<Borrowed<T>, OutboxError> {
        let unit_bytes: usize = unit.iter().map(Piece::len).sum();
        let sent = lane.try_send(unit)?;
        self.counters.sends += 1;
        self.counters.bytes += sent as u64;
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
