//! Straight reception: large frames that leave by a static lane are received into a slot of
//! it, so that sending them is only a commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use madgate_gtm::transit::{Lane, Run};
use madgate_gtm::wire::{Flags, HEADER_BYTES};
use madgate_gtm::{Header, Kind};

use super::Receiver;
use super::input::Input;
use crate::fault::Fault;
use crate::frame::{Frame, LentFrame};
use crate::link::Link;
use crate::scan::run_of;

/// A frame on its way into a slot.
#[derive(Debug)]
pub(super) struct Straight {
    frame: LentFrame,
    filled: usize,
    run: Run,
}

/// What becomes of a frame whose header is here.
#[derive(Debug)]
pub(super) enum Begun {
    /// It is received into a slot.
    Straight,
    /// It would be, had the lane that it leaves by a slot now.
    NotNow(Arc<Link>),
    /// It is received the usual way.
    Usual,
}

impl Receiver {
    /// If a frame can go straight into a slot of the lane that it leaves by, it does from now
    /// on. `begun` is what is there of it, from `header` on.
    pub(super) fn begin_straight(&self, input: &mut Input, header: &Header, begun: &[u8]) -> Begun {
        input.prefers_straight = false;
        let is_large = header.payload_bytes() >= self.engine.settings.direct_bytes;
        let is_eligible = header.kind == Kind::Data && !header.flags.has(Flags::OPEN) && is_large;
        if !is_eligible || input.rules.lane != Lane::Bulk {
            return Begun::Usual;
        }
        let Some((link, is_next)) = self.static_way(input, header) else {
            return Begun::Usual;
        };
        input.prefers_straight = true;
        let Some(mut frame) = is_next.then(|| borrow(&link, header)).flatten() else {
            return Begun::NotNow(link);
        };
        let filled = begun.len();
        frame.bytes_mut()[..filled].copy_from_slice(begun);
        input.frame_bytes = None;
        input.refused_at = None;
        let run = run_of(header, Lane::Bulk);
        input.straight = Some(Straight { frame, filled, run });
        input.gather.stop(&mut *input.receiver);
        Begun::Straight
    }

    /// The link that a frame leaves by, if its bulk lane is static and has a slot that is large
    /// enough; and whether nothing waits to leave before it.
    fn static_way(&self, input: &Input, header: &Header) -> Option<(Arc<Link>, bool)> {
        let mut shared = self.engine.lock();
        let transit = &mut shared.transit;
        let passage = transit.passage(input.link.transit, header.flow, header.label)?;
        let is_next = !transit.has_queued(passage.to, Lane::Bulk);
        let link = shared.links.get(&passage.to)?;
        let (slot_bytes, _) = link.bulk_slots()?;
        let fits = header.frame_bytes() <= slot_bytes && header.charge() <= passage.promised;
        fits.then(|| (Arc::clone(link), is_next))
    }

    /// Receives the rest of a frame into its slot, and the header of the next one; or the
    /// header that tells where the frame behind it goes.
    pub(super) fn receive_straight(&mut self, input: &mut Input) -> Result<bool, Fault> {
        let mut progress = false;
        for _ in 0..FRAMES_PER_TURN {
            if input.straight.is_none() && input.small.len() == HEADER_BYTES {
                match self.begin_next(input)? {
                    Next::Straight => {}
                    Next::Later => return Ok(progress),
                    // The usual way, with the header in front.
                    Next::Usual => return Ok(true),
                }
            }
            let received = self.receive_ahead(input)?;
            if received == 0 {
                return Ok(progress);
            }
            progress = true;
            self.note_received(received);
            let is_whole = input
                .straight
                .as_ref()
                .is_some_and(|straight| straight.filled == straight.frame.len());
            if is_whole && let Some(Straight { frame, run, .. }) = input.straight.take() {
                let frame = Frame::Lent(frame);
                self.engine
                    .take_frame(&input.link, &run, frame, &mut self.touched)?;
                self.serve_touched();
            }
        }
        Ok(progress)
    }

    /// One call: the rest of the frame, if one is on its way, and the next header.
    fn receive_ahead(&mut self, input: &mut Input) -> Result<usize, Fault> {
        let missing = HEADER_BYTES - input.small.len();
        let Some(straight) = &mut input.straight else {
            let mut head = [0; HEADER_BYTES];
            let received = input
                .receiver
                .try_receive(&mut head[..missing], &mut BytesMut::new())?;
            input.small.extend_from_slice(&head[..received]);
            return Ok(received);
        };
        self.head.clear();
        let rest = &mut straight.frame.bytes_mut()[straight.filled..];
        let wanted = rest.len();
        let received = input.receiver.try_receive(rest, &mut self.head)?;
        straight.filled += received.min(wanted);
        input.small.extend_from_slice(&self.head);
        Ok(received)
    }

    /// The frame whose header is here. One that has to wait for a slot waits where it is, in the
    /// kernel, for a moment.
    fn begin_next(&mut self, input: &mut Input) -> Result<Next, Fault> {
        let Some(head) = input.small.first_chunk::<HEADER_BYTES>() else {
            return Ok(Next::Later);
        };
        let header = Header::parse(head)?;
        input.rules.check(&header)?;
        let mut begun = std::mem::take(&mut input.small);
        let next = match self.begin_straight(input, &header, &begun) {
            Begun::Straight => {
                begun.clear();
                Next::Straight
            }
            Begun::NotNow(link) if self.may_wait(input, &link) => Next::Later,
            Begun::NotNow(_) | Begun::Usual => {
                input.frame_bytes = Some(header.frame_bytes());
                Next::Usual
            }
        };
        input.small = begun;
        Ok(next)
    }

    /// Whether a frame still waits for a slot of `link`. A link whose peer takes too long to
    /// return one is not waited for like that again for a while.
    fn may_wait(&self, input: &mut Input, link: &Link) -> bool {
        let now = self.engine.now();
        if link.is_slow(now) {
            input.refused_at = None;
            return false;
        }
        let since = *input.refused_at.get_or_insert(now);
        if now.since(since) < SLOT_WAIT {
            return true;
        }
        link.slow_down(now);
        input.refused_at = None;
        false
    }
}

/// What happens to the frame whose header is here.
enum Next {
    /// The rest of it goes straight.
    Straight,
    /// It waits for a slot.
    Later,
    /// It goes the usual way.
    Usual,
}

/// Borrows a slot for a frame, if the lane has one to lend.
fn borrow(link: &Arc<Link>, header: &Header) -> Option<LentFrame> {
    let (_, slots) = link.bulk_slots()?;
    if link.lent.load(Ordering::Relaxed) >= slots.div_ceil(2) {
        return None;
    }
    let mut output = link.try_output()?;
    let lane = &mut output.bulk;
    if lane.is_blocked || !lane.outbox.is_empty() {
        return None;
    }
    // A lane that has failed says so when it is sent on.
    let slot = lane.sender.as_mut()?.try_lend().ok().flatten()?;
    Some(LentFrame::new(
        slot,
        header.frame_bytes(),
        link.transit,
        Arc::clone(&link.lent),
    ))
}

/// How long a frame waits for a slot before it is received the usual way, and copied.
const SLOT_WAIT: Duration = Duration::from_millis(1);

/// Frames that are received straight from one lane before the others have their turn.
const FRAMES_PER_TURN: usize = 16;
