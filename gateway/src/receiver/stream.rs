//! Receiving from sockets: batches of bytes, parsed where they are.

use bytes::BytesMut;
use madgate_gtm::transit::Lane;
use madgate_gtm::wire::{DESCRIPTOR_BYTES, Descriptor, Flags, HEADER_BYTES};
use madgate_gtm::{Header, Time};
use madgate_tm::Room;

use super::input::Input;
use super::straight::Begun;
use super::{MUCH_BYTES, Receiver, UNEASE};
use crate::counters::add;
use crate::fault::Fault;
use crate::instruments::Stage;
use crate::intake::Whole;
use crate::scan::{bytes_of_credit, scan};

/// Calls that receive from one lane before the others have their turn.
const READS_PER_TURN: usize = 4;

/// The block whose fragments come on a lane, so that it is known how much of it is missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Coming {
    header: Header,
    length: u64,
}

impl Receiver {
    /// Receives what is there, a few batches at most. Returns whether anything was.
    pub(super) fn receive_stream(&mut self, input: &mut Input) -> Result<bool, Fault> {
        if input.goes_straight() {
            return self.receive_straight(input);
        }
        if let Some(frame) = input.apart.take() {
            return self.receive_apart(input, frame);
        }
        let mut batch = self.batch_for(input);
        let mut progress = false;
        let mut result = Ok(());
        for _ in 0..READS_PER_TURN {
            let room = batch.capacity() - batch.len();
            let received = match input.receiver.try_receive(Room::default(), &mut batch) {
                Ok(0) => break,
                Ok(received) => received,
                Err(error) => {
                    result = Err(error.into());
                    break;
                }
            };
            progress = true;
            self.note_received(received);
            self.watch.end(Stage::Receiving);
            result = self.parse(input, &mut batch);
            if result.is_err() || received < room || input.straight.is_some() {
                break;
            }
            batch = self.with_room(batch, input.frame_bytes);
            self.watch.end(Stage::HandingOver);
        }
        if progress || result.is_err() || !self.batches.is_untouched(&batch) {
            self.keep(input, batch);
        } else {
            self.batches.give_back_untouched(batch);
        }
        result.map(|()| progress)
    }

    /// Receives the rest of a frame that lost its batch to others into the memory that was made for all
    /// of it: however many pieces it comes in, they are not moved again for that.
    fn receive_apart(&mut self, input: &mut Input, mut frame: BytesMut) -> Result<bool, Fault> {
        let mut progress = false;
        let whole = input.frame_bytes.unwrap_or(frame.capacity());
        for _ in 0..READS_PER_TURN {
            let received = input.receiver.try_receive(Room::default(), &mut frame)?;
            if received == 0 {
                break;
            }
            progress = true;
            self.note_received(received);
            self.watch.end(Stage::Receiving);
            if frame.len() >= whole {
                self.parse(input, &mut frame)?;
                input.small.extend_from_slice(&frame);
                return Ok(true);
            }
        }
        let missing = whole - frame.len();
        input.apart = Some(frame);
        if progress && input.rules.lane == Lane::Bulk {
            self.gather(input, missing, input.rest_of_block());
        }
        Ok(progress)
    }

    /// Takes the whole frames of a batch in; what is left of it is the beginning of one.
    fn parse(&mut self, input: &mut Input, batch: &mut BytesMut) -> Result<(), Fault> {
        self.items.clear();
        let scanned = scan(batch, input.rules, &mut self.items)?;
        self.engine.note_corrupt(&input.link, scanned.corrupt);
        let coming = if input.rules.lane == Lane::Bulk {
            let at_last = |(at, header)| (header, batch.get(at + HEADER_BYTES..).unwrap_or(&[]));
            input.note_coming(scanned.last.map(at_last))
        } else {
            0
        };
        let whole = batch.split_to(scanned.used).freeze();
        let arrived = Whole {
            bytes: &whole,
            at: self.watch.time_of_batch(),
            is_copied: false,
        };
        self.engine
            .take_in(&input.link, &mut self.items, arrived, &mut self.touched)?;
        drop(whole);
        // What came before it leaves first, so that the next frame can go straight.
        self.serve_touched();
        input.frame_bytes = scanned.partial.map(|header| header.frame_bytes());
        // Small frames only come in front of large ones.
        if let (None, Some((_, last))) = (scanned.partial, scanned.last)
            && !last.is_small()
        {
            input.prefers_straight = self.prefers_straight(input, &last);
        }
        if let Some(header) = scanned.partial
            && matches!(
                self.begin_straight(input, &header, None, batch),
                Begun::Straight
            )
        {
            batch.clear();
        }
        if input.straight.is_some() {
            self.expect_rest(input, 0);
        } else if input.rules.lane == Lane::Bulk {
            let of_frame = input.frame_bytes.unwrap_or(0).saturating_sub(batch.len());
            self.gather(input, of_frame, coming);
        }
        Ok(())
    }

    /// Waits for what is certain to come: the rest of a frame that has begun, and of its
    /// block as far as the source may send it.
    pub(super) fn gather(&mut self, input: &mut Input, of_frame: usize, of_block: u64) {
        let mut certain = of_frame;
        if of_block > 0
            && let Some(coming) = &input.coming
        {
            let Coming { header, .. } = coming;
            let now = self.engine.rate_time();
            let transit = &mut self.engine.lock().transit;
            let passage = transit.passage(input.link.transit, header.flow, header.label, now);
            // What a frame that has begun costs is still counted as promised.
            let begun = match &input.straight {
                Some(straight) => straight.charge(),
                None if of_frame > 0 => coming.header.charge(),
                None => 0,
            };
            let promised = passage.map_or(0, |passage| passage.promised.saturating_sub(begun));
            let fragment = coming.header.payload_bytes();
            let may_come = bytes_of_credit(promised, fragment);
            certain += may_come.min(usize::try_from(of_block).unwrap_or(usize::MAX));
        }
        let now = self.watch.time_of_batch().since(Time(0));
        input.gather.expect(&mut *input.receiver, certain, now);
    }

    pub(super) fn note_received(&mut self, bytes: usize) {
        if bytes >= MUCH_BYTES {
            self.much_until = Some(self.watch.time_of_batch() + UNEASE);
        }
        let tally = &self.engine.networks[self.network].tally;
        add(&tally.receives, 1);
        add(
            &tally.received_bytes,
            u64::try_from(bytes).unwrap_or(u64::MAX),
        );
    }
}

impl Input {
    /// Keeps the beginning of a frame that is in a batch which others need.
    pub(super) fn set_apart(&mut self, begun: &[u8]) {
        match self.frame_bytes {
            Some(bytes) => {
                let mut frame = BytesMut::with_capacity(bytes);
                frame.extend_from_slice(begun);
                self.apart = Some(frame);
            }
            None => self.small.extend_from_slice(begun),
        }
    }

    /// Notes the last data frame that is here, with the part of its payload that is. Returns
    /// how many bytes of its block come after it.
    pub(super) fn note_coming(&mut self, last: Option<(Header, &[u8])>) -> u64 {
        let Some((header, begun)) = last else {
            return 0;
        };
        let described = header.flags.has(Flags::DESCRIBED);
        let length = if header.flags.has(Flags::BUNDLE) {
            // Its messages are whole.
            None
        } else if described {
            begun
                .first_chunk::<DESCRIPTOR_BYTES>()
                .and_then(|bytes| Descriptor::parse(*bytes).ok())
                .map(|found| found.length())
        } else {
            let is_same = |known: &Coming| {
                let (a, b) = (&known.header, &header);
                (a.flow, a.label, a.message, a.block) == (b.flow, b.label, b.message, b.block)
            };
            self.coming.filter(is_same).map(|known| known.length)
        };
        self.coming = length.map(|length| Coming { header, length });
        self.rest_of_block()
    }

    /// How long the block is that a frame which was noted last is part of, as far as is known.
    pub(super) fn length_of_block(&self, header: &Header) -> usize {
        let of_it = self.coming.filter(|known| known.header == *header);
        of_it.map_or(0, |known| {
            usize::try_from(known.length).unwrap_or(usize::MAX)
        })
    }

    /// How many bytes of the block that is coming come after the last frame that was noted.
    pub(super) fn rest_of_block(&self) -> u64 {
        let Some(Coming { header, length }) = &self.coming else {
            return 0;
        };
        let mut payload = header.payload_bytes();
        if header.flags.has(Flags::DESCRIBED) {
            payload = payload.saturating_sub(DESCRIPTOR_BYTES);
        }
        let payload = u64::try_from(payload).unwrap_or(u64::MAX);
        length.saturating_sub(header.offset.saturating_add(payload))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use crossbeam_channel::never;
    use madgate_tm::Poller;

    use super::*;
    use crate::batch::Batches;
    use crate::fixture::Fixture;

    /// What the test gives up after: never the measure of anything.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn receiver() -> Receiver {
        let fixture = Fixture::new();
        let (engine, network) = (Arc::clone(&fixture.engine), fixture.link().network);
        let (poller, batches) = (Poller::new().unwrap(), Batches::new(2, 1 << 16));
        Receiver::new(engine, network, poller, never(), batches)
    }

    #[test]
    fn a_receiver_by_whose_network_much_left_sleeps_as_long_as_it_can_when_that_is_over() {
        let (told, tells) = channel();
        thread::spawn(move || {
            let mut receiver = receiver();
            add(
                &receiver.hub().tally.sent_bytes,
                u64::try_from(MUCH_BYTES).unwrap(),
            );
            receiver.left.1 = Time(u64::MAX);
            assert!(receiver.has_much_leaving() && receiver.longest_sleep(None).is_some());
            while receiver.has_much_leaving() {
                receiver.sleep(None);
            }
            told.send(receiver.longest_sleep(None)).unwrap();
        });
        assert_eq!(tells.recv_timeout(PATIENCE).unwrap(), None);
    }

    #[test]
    fn a_receiver_to_which_much_came_wakes_when_that_is_over_though_nothing_comes() {
        let (told, tells) = channel();
        thread::spawn(move || {
            let mut receiver = receiver();
            receiver.note_received(MUCH_BYTES - 1);
            assert!(receiver.much_until.is_none());
            receiver.much_until = Some(receiver.engine.now() + UNEASE);
            receiver.sleep(None);
            while receiver.has_much() {
                receiver.sleep(None);
            }
            receiver.note_received(MUCH_BYTES);
            assert!(receiver.much_until.is_some());
            told.send(()).unwrap();
        });
        tells.recv_timeout(PATIENCE).unwrap();
    }
}
