//! Straight reception: large frames are received into where they leave from. That is a slot of
//! the lane that they leave by, where that is static, so that sending them is only a commit; or
//! a pipe, from socket to socket, so that their bytes stay in the kernel.
//!
//! The header is read first, by itself or with small frames that travel in front of it, and
//! checked; what goes on is what was checked. Through a pipe they go together. (A slot may be in the
//! memory of whom it leads to, who can change it there: that is who gets it.)

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use madgate_bmm::{Body, Buffer};
use madgate_gtm::transit::{Lane, Run};
use madgate_gtm::wire::{AHEAD_BYTES, DESCRIPTOR_BYTES, Flags, HEADER_BYTES};
use madgate_gtm::{Header, Kind};
use madgate_tm::{LaneReceiver, Piece, Pipe, Room};

use super::input::Input;
use super::memory::PARK_AFTER;
use super::{PIPES_MOST, Receiver};
use crate::engine::Touched;
use crate::fault::Fault;
use crate::frame::{LentFrame, Memory};
use crate::held::{Held, Server};
use crate::instruments::Stage;
use crate::intake::Whole;
use crate::link::Link;
use crate::scan::{Item, Scanned, run_of, scan};

/// What of that must be there: the frame's header, and the descriptor that tells how much of its
/// block follows.
const HEAD_BYTES: usize = HEADER_BYTES + DESCRIPTOR_BYTES;

/// How long a frame waits for a slot before it is received the usual way, and copied.
const SLOT_WAIT: Duration = Duration::from_millis(1);

/// Frames that are received straight from one lane before the others have their turn.
const FRAMES_PER_TURN: usize = 32;

/// Bytes that go straight into slots, from one lane, before the others have their turn: who reads them may wait for
/// the processor.
const SLOT_BYTES_PER_TURN: usize = 512 << 10;

/// How long what comes on a lane goes through no pipes after a frame did not fit in one.
const SPILL_REST: Duration = Duration::from_secs(1);

/// Frames in pipes that leave together: each call that sends something ends a segment.
const FRAMES_PER_SERVE: usize = 8;

/// So many pipes are worth to be emptied, with everything else that waits in the engine.
const PIPES_WORTH_COPIES: usize = PIPES_MOST / 4;

/// A frame on its way to where it leaves from.
#[derive(Debug)]
pub(super) struct Straight {
    place: Place,
    filled: usize,
    run: Run,
}

/// Where that is.
#[derive(Debug)]
enum Place {
    Slot(LentFrame),
    Pipe(Pipe),
}

/// What becomes of a frame whose header is here.
#[derive(Debug)]
pub(super) enum Begun {
    /// It is received into where it leaves from.
    Straight,
    /// It would be, without what is in front of it.
    Alone,
    /// It would be, had the lane that it leaves by a slot now.
    NotNow(Arc<Link>),
    /// It is received the usual way.
    Usual,
}

/// What happens to the frame whose header is here.
enum Next {
    /// The rest of it goes straight.
    Straight,
    /// Its header is not whole.
    Unknown,
    /// It waits for a slot.
    Later,
    /// It goes the usual way.
    Usual,
}

/// How a frame leaves.
struct Way {
    link: Arc<Link>,
    /// Whether nothing waits to leave before it.
    is_next: bool,
}

impl Straight {
    fn is_whole(&self) -> bool {
        self.filled == self.run.bytes
    }

    const fn is_in_pipe(&self) -> bool {
        matches!(self.place, Place::Pipe(_))
    }

    /// What it costs in credit.
    pub(super) const fn charge(&self) -> u64 {
        self.run.end - self.run.start
    }
}

impl Receiver {
    /// If a frame can go straight to where it leaves from, it does from now on, and so does the
    /// `lead` in front of it, if there is one. `begun` is what is there, from the first of them
    /// on.
    pub(super) fn begin_straight(
        &mut self,
        input: &mut Input,
        header: &Header,
        lead: Option<&Run>,
        begun: &[u8],
    ) -> Begun {
        let run = join(lead, header);
        let way = self.way_of(input, header, run.end - run.start);
        input.prefers_straight = way.is_some();
        let Some(Way { link, is_next }) = way else {
            return Begun::Usual;
        };
        let place = if link.bulk_slots().is_some() {
            if lead.is_some() {
                return Begun::Alone;
            }
            let Some(mut frame) = is_next
                .then(|| borrow(&link, header, &mut self.touched))
                .flatten()
            else {
                return Begun::NotNow(link);
            };
            frame.room(0).put(Piece::new(begun));
            input.gather.stop(&mut *input.receiver);
            Place::Slot(frame)
        } else {
            if link.is_slow(self.engine.now()) {
                return Begun::Usual;
            }
            let Some(pipe) = self.pipe_with(input, begun, run.bytes) else {
                return Begun::Usual;
            };
            Place::Pipe(pipe)
        };
        input.frame_bytes = None;
        input.refused_at = None;
        input.straight = Some(Straight {
            place,
            filled: begun.len(),
            run,
        });
        Begun::Straight
    }

    /// Whether a frame like one that was received the usual way had better go straight.
    pub(super) fn prefers_straight(&self, input: &Input, header: &Header) -> bool {
        self.way_of(input, header, header.charge()).is_some()
    }

    /// How a frame leaves, if it can go straight there and was promised a place, with what goes
    /// with it.
    fn way_of(&self, input: &Input, header: &Header, charge: u64) -> Option<Way> {
        // Small parts of a large block come in between where credit was short.
        let bytes = header.payload_bytes().max(input.length_of_block(header));
        let settings = &self.engine.settings;
        let is_large = bytes >= self.engine.straight_from_bytes;
        let is_eligible = header.kind == Kind::Data && !header.flags.has(Flags::OPEN) && is_large;
        let is_longer = header.frame_bytes() > AHEAD_BYTES;
        if !is_eligible || !is_longer || input.rules.lane != Lane::Bulk {
            return None;
        }
        let now = self.engine.rate_time();
        let mut shared = self.engine.lock();
        let transit = &mut shared.transit;
        let passage = transit.passage(input.link.transit, header.flow, header.label, now)?;
        if passage.is_held {
            // It would keep its place until it may leave.
            return None;
        }
        // What its rate held back until now waits for nobody to ask.
        let is_next = !passage.has_queued && !transit.has_queued(passage.to, Lane::Bulk);
        let link = Arc::clone(shared.links.get(&passage.to)?);
        let takes_it = match link.bulk_slots() {
            Some((slot_bytes, _)) => {
                bytes >= settings.direct_bytes && header.frame_bytes() <= slot_bytes
            }
            None => {
                bytes >= settings.splice_from_bytes
                    && input.splices
                    && link.takes_pipes
                    && self.engine.now() >= input.spilled_until
            }
        };
        (takes_it && charge <= passage.promised).then_some(Way { link, is_next })
    }

    /// A pipe that holds the beginning of a frame, if there is one.
    fn pipe_with(&mut self, input: &mut Input, begun: &[u8], bytes: usize) -> Option<Pipe> {
        let mut pipe = match self.pipes.take(bytes) {
            Ok(Some(pipe)) => {
                self.pipeless_since = None;
                pipe
            }
            Ok(None) => {
                self.note_pipeless();
                return None;
            }
            Err(error) => {
                tracing::debug!(%error, "no pipe to be had");
                input.spilled_until = self.engine.now() + SPILL_REST;
                return None;
            }
        };
        let is_written = pipe
            .write(begun)
            .is_ok_and(|written| written == begun.len());
        is_written.then_some(pipe)
    }

    /// All pipes hold frames that wait: after a moment those are copied.
    fn note_pipeless(&mut self) {
        let now = self.engine.now();
        let since = *self.pipeless_since.get_or_insert(now);
        if now.since(since) < PARK_AFTER {
            return;
        }
        self.pipeless_since = None;
        // Those that are being filled, by sources that take their time, are not to be had.
        let fills = |input: &&Input| input.straight.as_ref().is_some_and(Straight::is_in_pipe);
        let filling = self.inputs.iter().filter_map(Option::as_deref);
        if filling.filter(fills).count() < PIPES_MOST - PIPES_WORTH_COPIES {
            self.engine.detach_all();
        }
    }

    /// Receives the rest of a frame into its place, and what tells where the frame behind it
    /// goes.
    pub(super) fn receive_straight(&mut self, input: &mut Input) -> Result<bool, Fault> {
        let mut progress = false;
        let mut in_pipes = 0;
        let mut in_slots = 0;
        for _ in 0..FRAMES_PER_TURN {
            if input.straight.is_none() && input.small.len() >= HEAD_BYTES {
                match self.begin_next(input)? {
                    Next::Straight | Next::Unknown => {}
                    Next::Later => return Ok(progress),
                    // The usual way, with the header in front.
                    Next::Usual => return Ok(true),
                }
            }
            let received = match &mut input.straight {
                Some(straight) => {
                    self.head
                        .receive(&mut *input.receiver, straight, &mut input.small)?
                }
                None => receive_ahead(&mut *input.receiver, &mut input.small)?,
            };
            if received == 0 {
                if input.straight.is_none() {
                    self.take_leads_alone(input)?;
                }
                return self.wait_for_rest(input, in_pipes, progress);
            }
            progress = true;
            self.note_received(received);
            self.watch.end(Stage::Receiving);
            if input.straight.as_ref().is_some_and(Straight::is_whole)
                && let Some(Straight { place, run, .. }) = input.straight.take()
            {
                match &place {
                    Place::Pipe(_) => in_pipes += 1,
                    Place::Slot(_) => {
                        in_slots += run.bytes;
                        self.filled
                            .add(u64::try_from(run.bytes).unwrap_or(u64::MAX));
                    }
                }
                let memory = self.memory_of(place);
                let now = self.watch.time_of_batch();
                self.engine
                    .take_frame(&input.link, &run, memory, now, &mut self.touched)?;
                if in_pipes.is_multiple_of(FRAMES_PER_SERVE) {
                    self.serve_touched();
                }
                if in_slots >= SLOT_BYTES_PER_TURN {
                    break;
                }
            }
        }
        if input.straight.is_none() && input.small.len() < AHEAD_BYTES {
            // Small frames that came in front of a large one wait for it here, but not if it has yet to come.
            self.take_leads_alone(input)?;
        }
        self.expect_rest(input, in_pipes);
        Ok(progress)
    }

    fn memory_of(&self, place: Place) -> Memory {
        match place {
            Place::Slot(frame) => Memory::Lent(frame),
            Place::Pipe(pipe) => Memory::Buffer(Buffer::of(Body::Piped(pipe))),
        }
    }

    /// Nothing came, or the pipe takes no more.
    fn wait_for_rest(
        &mut self,
        input: &mut Input,
        in_pipes: usize,
        progress: bool,
    ) -> Result<bool, Fault> {
        if let Some(Straight {
            place: Place::Pipe(pipe),
            ..
        }) = &input.straight
            && pipe.is_full()
        {
            return self.spill(input);
        }
        self.expect_rest(input, in_pipes);
        Ok(progress)
    }

    /// Of what goes through pipes, as so many frames did in this turn, more than the next bytes
    /// is worth waiting for.
    pub(super) fn expect_rest(&mut self, input: &mut Input, in_pipes: usize) {
        let of_frame = match &input.straight {
            Some(Straight {
                place: Place::Slot(_),
                ..
            }) => return,
            Some(Straight { filled, run, .. }) => run.bytes - filled,
            None if in_pipes > 0 => 0,
            None => return,
        };
        self.pipes_used_at = self.watch.time_of_batch();
        let of_block = input.rest_of_block();
        self.gather(input, of_frame, of_block);
    }

    /// A frame does not fit in its pipe, as what arrives is cut into small pieces: it goes the
    /// usual way, and so does what comes after it for a while.
    fn spill(&mut self, input: &mut Input) -> Result<bool, Fault> {
        let Some(Straight {
            place: Place::Pipe(mut pipe),
            filled,
            run,
        }) = input.straight.take()
        else {
            return Ok(false);
        };
        tracing::debug!(
            peer = self.engine.cluster.node_name(input.link.request.peer),
            "what arrives does not fit in pipes"
        );
        input.spilled_until = self.engine.now() + SPILL_REST;
        input.prefers_straight = false;
        input.small = vec![0; filled];
        let read = pipe
            .read(&mut input.small)
            .map_err(|error| Fault::Lane(error.into()))?;
        debug_assert_eq!(read, filled);
        self.engine.tally.note_parked(filled);
        // A batch has room for the frame, and not for more.
        self.take_leads_alone(input)?;
        input.frame_bytes = Some(run.bytes - (filled - input.small.len()));
        Ok(true)
    }

    /// The frame whose header is here. One that has to wait for a slot waits where it is, in the
    /// kernel, for a moment.
    fn begin_next(&mut self, input: &mut Input) -> Result<Next, Fault> {
        let mut begun = std::mem::take(&mut input.small);
        let next = self.begin_of(input, &mut begun);
        input.small = begun;
        next
    }

    /// As [`begin_next`](Self::begin_next), with what is there of it.
    fn begin_of(&mut self, input: &mut Input, begun: &mut Vec<u8>) -> Result<Next, Fault> {
        self.items.clear();
        let scanned = scan(begun, input.rules, &mut self.items)?;
        let Some(header) = scanned.partial else {
            return Ok(Next::Unknown);
        };
        let there = begun.len() - scanned.used;
        // What is as short as that is small, and soon whole.
        if there < HEAD_BYTES || header.frame_bytes() <= AHEAD_BYTES {
            return Ok(Next::Unknown);
        }
        input.note_coming(Some((header, &begun[scanned.used + HEADER_BYTES..])));
        // What was dropped must not go on with them.
        let lead = lead_of(&self.items, &header).filter(|lead| lead.bytes == scanned.used);
        if lead.is_none() {
            self.take_leads(input, begun, scanned)?;
        }
        let mut became = self.begin_straight(input, &header, lead.as_ref(), begun);
        if matches!(became, Begun::Alone) {
            self.take_leads(input, begun, scanned)?;
            became = self.begin_straight(input, &header, None, begun);
        }
        Ok(match became {
            Begun::Straight => {
                begun.clear();
                Next::Straight
            }
            Begun::NotNow(link) if self.may_wait(input, &link) => Next::Later,
            Begun::NotNow(_) | Begun::Alone | Begun::Usual => {
                // What was waited for has come; this frame is another.
                input.gather.stop(&mut *input.receiver);
                input.frame_bytes = Some(begun.len() - there + header.frame_bytes());
                Next::Usual
            }
        })
    }

    /// Takes the small frames in that a scan has found in front of a large one: they leave by
    /// themselves.
    fn take_leads(
        &mut self,
        input: &Input,
        begun: &mut Vec<u8>,
        scanned: Scanned,
    ) -> Result<(), Fault> {
        self.engine.note_corrupt(&input.link, scanned.corrupt);
        if scanned.used == 0 {
            return Ok(());
        }
        let mut batch = self.batch();
        batch.extend_from_slice(&begun[..scanned.used]);
        begun.drain(..scanned.used);
        let whole = batch.split().freeze();
        self.batches.give_back(batch);
        let arrived = Whole {
            bytes: &whole,
            at: self.watch.time_of_batch(),
            is_copied: false,
        };
        self.engine
            .take_in(&input.link, &mut self.items, arrived, &mut self.touched)?;
        drop(whole);
        // The next ones find the batch free.
        self.serve_touched();
        Ok(())
    }

    /// Takes the small frames in that are here, as what they come in front of is not.
    fn take_leads_alone(&mut self, input: &mut Input) -> Result<(), Fault> {
        let mut begun = std::mem::take(&mut input.small);
        self.items.clear();
        let taken = scan(&begun, input.rules, &mut self.items)
            .and_then(|scanned| self.take_leads(input, &mut begun, scanned));
        input.small = begun;
        taken
    }

    /// Whether a frame still waits for a slot of `link`. A link whose peer takes too long to
    /// return one is not waited for like that again for a while.
    fn may_wait(&mut self, input: &mut Input, link: &Link) -> bool {
        let now = self.engine.now();
        if link.is_slow(now) {
            input.refused_at = None;
            return false;
        }
        let since = *input.refused_at.get_or_insert(now);
        if now.since(since) < SLOT_WAIT {
            self.waits_for_slot = true;
            return true;
        }
        link.slow_down(now);
        input.refused_at = None;
        false
    }
}

/// Memory for what is read ahead of a frame while the rest of another is received.
#[derive(Debug)]
pub(super) struct Head(BytesMut);

impl Head {
    pub(super) fn new() -> Self {
        Self(BytesMut::with_capacity(AHEAD_BYTES))
    }

    /// One call: the rest of a frame, and, where that goes to memory, the beginning of the next
    /// one, which is put behind `ahead`.
    fn receive(
        &mut self,
        receiver: &mut dyn LaneReceiver,
        straight: &mut Straight,
        ahead: &mut Vec<u8>,
    ) -> Result<usize, Fault> {
        let wanted = straight.run.bytes - straight.filled;
        let received = match &mut straight.place {
            Place::Pipe(pipe) => receiver.try_receive_pipe(pipe, wanted)?,
            Place::Slot(frame) => {
                self.0.clear();
                let rest = frame.room(straight.filled);
                let received = receiver.try_receive(rest, &mut self.0)?;
                ahead.extend_from_slice(&self.0);
                received
            }
        };
        straight.filled += received.min(wanted);
        Ok(received)
    }
}

/// One call: what tells where the next frame goes, put behind `ahead`.
fn receive_ahead(receiver: &mut dyn LaneReceiver, ahead: &mut Vec<u8>) -> Result<usize, Fault> {
    let mut head = [0; AHEAD_BYTES];
    let missing = AHEAD_BYTES - ahead.len();
    let received = receiver.try_receive(Room::new(&mut head[..missing]), &mut BytesMut::new())?;
    ahead.extend_from_slice(&head[..received]);
    Ok(received)
}

/// The small frames in `items`, if they lead the frame that `header` begins: they are of its flow,
/// one after the other, and it is the next.
fn lead_of(items: &[Item], header: &Header) -> Option<Run> {
    let mut lead: Option<Run> = None;
    for item in items {
        let Item::Run { run, .. } = item else {
            return None;
        };
        lead = Some(match lead {
            None => *run,
            Some(before) => follow(&before, run)?,
        });
    }
    lead.filter(|lead| follow(lead, &run_of(header, Lane::Bulk)).is_some())
}

/// Two runs as one, if the second follows the first.
fn follow(first: &Run, second: &Run) -> Option<Run> {
    let is_next = (first.flow, first.label, first.end) == (second.flow, second.label, second.start);
    is_next.then(|| Run {
        end: second.end,
        bytes: first.bytes + second.bytes,
        largest: first.largest.max(second.largest),
        frames: first.frames + second.frames,
        ..*first
    })
}

/// A large frame with what leads it.
fn join(lead: Option<&Run>, header: &Header) -> Run {
    let frame = run_of(header, Lane::Bulk);
    lead.and_then(|lead| follow(lead, &frame)).unwrap_or(frame)
}

/// Borrows a slot for a frame, if the lane has one to lend.
fn borrow(link: &Arc<Link>, header: &Header, touched: &mut Touched) -> Option<LentFrame> {
    let (_, slots) = link.bulk_slots()?;
    if link.lent.load(Ordering::Relaxed) >= slots.div_ceil(2) {
        return None;
    }
    // What others want to send meanwhile leaves at the end of this turn.
    let mut output = Held::new(link.try_output()?, link, Server::Caller(touched));
    let lane = &mut output.bulk;
    if lane.is_blocked || !lane.outbox.is_empty() {
        return None;
    }
    // A lane that has failed says so when it is sent on.
    let slot = lane.sender.as_mut()?.try_lend().ok().flatten()?;
    Some(LentFrame::new(
        slot,
        header,
        link.transit,
        Arc::clone(&link.lent),
    ))
}

#[cfg(test)]
mod tests {
    use madgate_gtm::FlowKey;

    use super::super::arrived::receiver_of;
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn others_have_their_turn_when_much_has_gone_into_slots() {
        let fixture = Fixture::new();
        let mut receiver = receiver_of(&fixture, &[60 << 10; 20]);
        for frames in [9, 18, 20] {
            assert!(receiver.turn(0));
            assert_eq!(receiver.filled.frames, frames);
        }
        assert!(!receiver.turn(0));
        assert!(receiver.filled.bytes > 20 * (60 << 10));
    }

    #[test]
    fn a_small_frame_that_ends_a_turn_waits_for_nothing() {
        let fixture = Fixture::new();
        let mut lengths = [60 << 10; 10];
        lengths[9] = 100;
        let mut receiver = receiver_of(&fixture, &lengths);
        assert!(receiver.turn(0));
        let input = receiver.inputs[0].as_ref().unwrap();
        assert!(input.straight.is_none() && input.small.is_empty());
    }

    #[test]
    fn what_others_want_to_send_while_a_slot_is_borrowed_leaves() {
        let fixture = Fixture::new();
        let (link, mut touched) = (fixture.link(), Touched::default());
        let flow = FlowKey {
            channel: 0,
            source: 0,
            destination: 2,
        };
        let header = Header::new(Kind::Data, flow, 1);
        // Asked for a slot, the lane finds somebody who wants to send.
        assert!(borrow(&link, &header, &mut touched).is_some());
        assert!(touched.next().is_some_and(|one| Arc::ptr_eq(&one, &link)));
    }
}
