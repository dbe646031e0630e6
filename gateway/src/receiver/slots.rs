//! Receiving from shared memory: slot by slot.
//!
//! A large frame goes on where it is, and its slot back when it has left. Small frames are
//! copied out, those of many slots together, and go on like those of a socket.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::BytesMut;
use madgate_bmm::Copies;
use madgate_gtm::transit::Lane;
use madgate_gtm::wire::{Flags, HEADER_BYTES};
use madgate_gtm::{Header, Kind};
use madgate_tm::{ReceivedSlot, Shape};

use super::Receiver;
use super::input::Input;
use crate::fault::Fault;
use crate::frame::Memory;
use crate::instruments::Stage;
use crate::intake::{Whole, copies_of};
use crate::scan::{Item, run_of, scan};

/// Slots that are taken from one lane before the others have their turn; what is large
/// [counts as several](COUNTED_BYTES).
const SLOTS_PER_TURN: usize = 64;

/// What counts as one of them holds less than this: a fragment of 64 KiB, its header, and a little. Others have a
/// turn after 4 MiB or so, then, however large slots are.
const COUNTED_BYTES: usize = (64 << 10) + (4 << 10);

/// Times in a turn that large frames let small ones of their link pass.
pub(super) const LEADS_PER_TURN: usize = 8;

/// Bytes of large frames before what they touched is served, and at most half of the lane: what one
/// call sends of them costs less for each than what several do.
const SERVE_BYTES: usize = 1 << 20;

impl Receiver {
    /// Receives the slots that are there. Returns whether any were.
    pub(super) fn receive_slots(&mut self, input: &mut Input) -> Result<bool, Fault> {
        let mut batch: Option<BytesMut> = None;
        let result = self.collect_slots(input, &mut batch);
        if let Some(batch) = batch {
            self.batches.give_back(batch);
        }
        result
    }

    fn collect_slots(
        &mut self,
        input: &mut Input,
        batch: &mut Option<BytesMut>,
    ) -> Result<bool, Fault> {
        let mut progress = false;
        let mut large_bytes = 0;
        let serve_bytes = match input.receiver.shape() {
            Shape::Static { slot_bytes, slots } => SERVE_BYTES.min(slot_bytes * slots / 2),
            Shape::Dynamic { .. } => SERVE_BYTES,
        };
        let mut ended = Ok(());
        let mut left = match std::mem::take(&mut input.left_in_turn) {
            0 => SLOTS_PER_TURN,
            left => left,
        };
        while left > 0 {
            if progress && self.urgent_before(input).is_some() {
                input.left_in_turn = left;
                break;
            }
            left -= 1;
            let slot = match input.receiver.try_receive_slot() {
                Ok(Some(slot)) => slot,
                Ok(None) => break,
                Err(error) => {
                    ended = Err(error.into());
                    break;
                }
            };
            left = left.saturating_sub(slot.len() / COUNTED_BYTES);
            if !progress {
                progress = true;
                self.watch.end(Stage::Waiting);
            }
            self.note_received(slot.len());
            if let Some(header) = self.large_frame(input, &slot)? {
                large_bytes += slot.len();
                self.pass_on(input, header, slot)?;
                if large_bytes >= serve_bytes {
                    large_bytes = 0;
                    self.serve_touched();
                }
                continue;
            }
            if batch
                .as_ref()
                .is_some_and(|batch| batch.capacity() - batch.len() < slot.len())
            {
                self.parse_copied(input, batch)?;
            }
            let copied = batch.get_or_insert_with(|| self.batch_for(input));
            let start = copied.len();
            copied.resize(start + slot.len(), 0);
            slot.copy_out(0, &mut copied[start..]);
        }
        // What came before the end of a lane is taken in, as the lane promises.
        self.parse_copied(input, batch)?;
        if progress {
            let (now, _) = self.watch.end(Stage::HandingOver);
            Self::note_held(input, now);
        }
        ended.map(|()| progress)
    }

    /// The header of the frame that fills a slot, if it is large enough to go on where it is.
    fn large_frame(&self, input: &Input, slot: &ReceivedSlot) -> Result<Option<Header>, Fault> {
        let is_large = slot.len() >= HEADER_BYTES + self.engine.settings.direct_bytes;
        if input.rules.lane != Lane::Bulk || !is_large {
            return Ok(None);
        }
        let mut head = [0; HEADER_BYTES];
        slot.copy_out(0, &mut head);
        let header = Header::check(&head)?;
        input.rules.check(header)?;
        let header = header.read();
        let fills_it = header.frame_bytes() == slot.len();
        let is_plain = header.kind == Kind::Data && !header.flags.has(Flags::OPEN);
        Ok(Some(header).filter(|_| fills_it && is_plain))
    }

    fn pass_on(&mut self, input: &Input, header: Header, slot: ReceivedSlot) -> Result<(), Fault> {
        let payload = HEADER_BYTES..slot.len();
        let counted = Arc::clone(&input.held);
        let memory = Memory::received(&header.to_bytes(), slot, payload, counted);
        let run = run_of(&header, Lane::Bulk);
        let now = self.watch.time_of_batch();
        self.engine
            .take_frame(&input.link, &run, memory, now, &mut self.touched)
    }

    /// Takes the frames of copied slots in.
    fn parse_copied(&mut self, input: &Input, batch: &mut Option<BytesMut>) -> Result<(), Fault> {
        let Some(mut copied) = batch.take() else {
            return Ok(());
        };
        self.watch.end(Stage::Receiving);
        self.items.clear();
        let scanned = scan(&copied, input.rules, &mut self.items);
        let scanned = match scanned {
            Ok(scanned) if scanned.used == copied.len() => scanned,
            other => {
                self.batches.give_back(copied);
                return Err(other.err().unwrap_or(Fault::SplitFrame));
            }
        };
        self.engine.note_corrupt(&input.link, scanned.corrupt);
        let mut copies = Copies::default();
        for item in &self.items {
            if let Item::Run { run, .. } = item {
                copies.add(copies_of(run));
            }
        }
        self.engine.tally.note_copies(copies);
        let whole = copied.split_to(scanned.used).freeze();
        self.batches.give_back(copied);
        let arrived = Whole {
            bytes: &whole,
            at: self.watch.time_of_batch(),
            is_copied: true,
        };
        self.engine
            .take_in(&input.link, &mut self.items, arrived, &mut self.touched)?;
        drop(whole);
        self.serve_touched();
        Ok(())
    }
}
