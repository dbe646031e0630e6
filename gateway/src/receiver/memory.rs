//! Where what arrives finds room, and what happens when there is none.
//!
//! Batches and slots are never parked: a receiver that finds all of its batches (or most of a
//! lane's slots) held by frames that wait has those frames copied, after a moment.

use std::time::Duration;

use bytes::BytesMut;
use madgate_gtm::Time;

use super::Receiver;
use super::input::Input;
use crate::instruments::Stage;

/// How long a receiver waits for frames to leave before it has them copied.
pub(super) const PARK_AFTER: Duration = Duration::from_millis(1);

/// A batch whose room is less than this part of it is not read into, if there is another.
const LEAST_ROOM: usize = 4;

/// The beginning of a frame that is kept in memory of its own rather than with its batch.
const SMALL_BYTES: usize = 4 << 10;

impl Receiver {
    /// A batch with the beginning of the input's frame in front, and room behind it.
    pub(super) fn batch_for(&mut self, input: &mut Input) -> BytesMut {
        if let Some(batch) = input.batch.take() {
            return self.with_room(batch, input.frame_bytes);
        }
        let mut batch = self.batch();
        batch.extend_from_slice(&input.small);
        input.small.clear();
        input.small.shrink_to(SMALL_BYTES);
        batch
    }

    /// An empty batch, as soon as there is one.
    pub(super) fn batch(&mut self) -> BytesMut {
        loop {
            if let Some(batch) = self.batches.take() {
                return batch;
            }
            self.starve();
        }
    }

    /// The batch, or another one that it was moved to, with room for the rest of the frame
    /// that begins in it, and preferably for more.
    pub(super) fn with_room(
        &mut self,
        mut batch: BytesMut,
        frame_bytes: Option<usize>,
    ) -> BytesMut {
        let capacity = self.batches.capacity();
        let length = batch.len();
        let room = batch.capacity() - length;
        // A header that is cut is moved with the little that is there of it.
        let needed = frame_bytes.map_or(1, |bytes| bytes.saturating_sub(length));
        if room >= needed.max(capacity / LEAST_ROOM) {
            return batch;
        }
        loop {
            if batch.try_reclaim(capacity - length) {
                return batch;
            }
            if let Some(mut next) = self.batches.take() {
                next.extend_from_slice(&batch);
                self.batches.give_back(batch);
                self.engine.tally.note_parked(length);
                return next;
            }
            if room >= needed && frame_bytes.is_some() {
                return batch;
            }
            // It may be that nothing refers to the batch any more, and the beginning is only
            // too long to be moved to the front at once. A `depth` of one has no other batch.
            self.beginning.extend_from_slice(&batch);
            batch.clear();
            let is_reclaimed = batch.try_reclaim(capacity);
            batch.extend_from_slice(&self.beginning);
            self.beginning.clear();
            self.beginning.shrink_to(SMALL_BYTES);
            if is_reclaimed {
                self.engine.tally.note_parked(length);
                return batch;
            }
            self.starve();
        }
    }

    /// Keeps the beginning of a frame until the input's next turn.
    pub(super) fn keep(&mut self, input: &mut Input, batch: BytesMut) {
        if batch.len() > SMALL_BYTES {
            input.batch = Some(batch);
            return;
        }
        input.small.extend_from_slice(&batch);
        self.batches.give_back(batch);
    }

    /// No batch is free: sends what was taken in just now, which may free one; then lets go of
    /// those that only hold a frame's beginning, then waits for frames to leave, then has them
    /// copied. One of these at a time.
    fn starve(&mut self) {
        if !self.touched.is_empty() {
            self.serve_touched();
            return;
        }
        let mut has_evicted = false;
        for input in self.inputs.iter_mut().flatten() {
            if let Some(batch) = input.batch.take() {
                input.set_apart(&batch);
                self.engine.tally.note_parked(batch.len());
                self.batches.give_back(batch);
                has_evicted = true;
            }
        }
        if has_evicted {
            return;
        }
        let hub = &self.engine.networks[self.network];
        self.engine.starve(hub, true);
        // Something may have left since the last look: a token that is there already, or an
        // old one, only makes this look once more.
        self.watch.end(Stage::HandingOver);
        let fed = self.freed.recv_timeout(PARK_AFTER).is_ok();
        self.watch.end(Stage::Waiting);
        self.engine.starve(hub, false);
        if !fed {
            self.engine.detach_all();
        }
    }

    // ---- slots ------------------------------------------------------------------------------

    /// Notes whether the lane is short of slots because of frames that wait.
    pub(super) fn note_held(input: &mut Input, now: Time) {
        let is_short = input.held_slots() >= input.slots.div_ceil(2);
        if !is_short {
            input.short_since = None;
        } else if input.short_since.is_none() {
            input.short_since = Some(now);
        }
    }

    // ---- deadlines --------------------------------------------------------------------------

    /// How long nothing is due.
    pub(super) fn next_deadline(&self, now: Time) -> Option<Duration> {
        let due = self.timed.iter().filter_map(|&index| {
            let input = self.inputs[index].as_ref()?;
            let held = input.short_since.map(|since| since + PARK_AFTER);
            let gathered = input.gather.deadline().map(|at| Time(0) + at);
            [held, gathered].into_iter().flatten().min()
        });
        due.min().map(|at| at.since(now))
    }

    /// Does what is due.
    pub(super) fn keep_deadlines(&mut self) {
        if self.timed.is_empty() {
            return;
        }
        let now = self.engine.now();
        let mut at = 0;
        while let Some(&index) = self.timed.get(at) {
            if let Some(input) = &mut self.inputs[index] {
                Self::note_held(input, now);
                if input
                    .short_since
                    .is_some_and(|since| now.since(since) >= PARK_AFTER)
                {
                    self.engine.detach_all();
                    Self::note_held(input, now);
                    // What is being sent at this moment could not be copied.
                    input.short_since = input.short_since.map(|_| now);
                }
                if input
                    .gather
                    .deadline()
                    .is_some_and(|deadline| now.since(Time(0)) >= deadline)
                {
                    input.gather.give_up(&mut *input.receiver);
                }
                if input.short_since.is_some() || input.gather.deadline().is_some() {
                    at += 1;
                    continue;
                }
                input.is_timed = false;
            }
            self.timed.swap_remove(at);
        }
    }

    /// Has deadlines of the input kept, if it has any.
    pub(super) fn note_deadlines(&mut self, index: usize) {
        if let Some(input) = &mut self.inputs[index]
            && !input.is_timed
            && (input.short_since.is_some() || input.gather.deadline().is_some())
        {
            input.is_timed = true;
            self.timed.push(index);
        }
    }
}
