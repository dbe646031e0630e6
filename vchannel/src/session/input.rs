//! One lane's receiver, and the frame that is arriving on it.
//!
//! Frames of the urgent lane are small and come many at a time: they are read in batches
//! and parsed in place. Frames of the bulk lane are large and come one by one: of each, only
//! the head is read first, with small frames that travel in front of it, so that the payload can
//! go straight where it belongs, together with the head of the next. Shorter ones that come one after
//! the other are read in batches too, as a copy costs less than a call. Frames that come in slots need
//! none of that ([`slots`]).

mod slots;
#[cfg(test)]
mod tests;

use std::io;

use bytes::BytesMut;
use madgate_bmm::OutboxError;
use madgate_gtm::wire::{
    AHEAD_BYTES, DESCRIPTOR_BYTES, Flags, HEADER_BYTES, HeaderRef, Kind, SMALL_PAYLOAD_BYTES,
    URGENT_FRAME_BYTES, checksum,
};
use madgate_gtm::{Header, Reassembly, Time};
use madgate_tm::{Gather, LaneClass, LaneError, LaneReceiver, Room, Shape};

use super::Inner;
use super::arrival::{Destination, FrameFault, Wanted};
use super::core::Core;
use super::goal::Goal;
use super::kept::KeptSlots;
use crate::cluster::FRAME_OVERHEAD_BYTES;

/// Bytes of a bulk frame that tell where its payload goes: header and descriptor.
const HEAD_BYTES: usize = HEADER_BYTES + DESCRIPTOR_BYTES;

/// Bytes of the urgent lane that are read at once.
pub(crate) const BATCH_BYTES: usize = 256 << 10;

/// Bytes of a bulk lane that are read at once while its frames are short.
const SHORT_BATCH_BYTES: usize = 64 << 10;

/// Payloads that are shorter are copied faster than received by a call of their own.
const SHORT_PAYLOAD_BYTES: usize = 16 << 10;

/// So many short frames in a row let more be expected.
const SHORT_FRAMES: u32 = 8;

/// Receptions from a bulk lane before other lanes get their turn: a frame each, or a batch of short
/// ones.
const FRAMES_PER_TURN: usize = 16;

/// Why a lane cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error(transparent)]
    Lane(#[from] LaneError),
    #[error("its peer sent what no node of this session sends: {0}")]
    Fault(#[from] FrameFault),
    #[error("a header of a frame is damaged: memory or a card on the way changes bytes")]
    Damaged,
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    #[error("it cannot be waited for: {0}")]
    Deaf(io::Error),
}

impl InputError {
    /// Whether the peer has closed the link, as it may.
    pub(crate) const fn is_end(&self) -> bool {
        matches!(
            self,
            Self::Lane(LaneError::Closed) | Self::Outbox(OutboxError::Lane(LaneError::Closed))
        )
    }
}

/// The block that the driving thread is unpacking: memory that bytes may go straight to.
#[derive(Debug)]
pub(crate) struct Straight<'b> {
    pub(crate) wanted: Wanted,
    pub(crate) into: &'b mut [u8],
}

impl Straight<'_> {
    /// Whether all of the block is there.
    pub(crate) const fn is_filled(&self) -> bool {
        self.wanted.filled == self.wanted.length
    }
}

/// Where frames come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// The link.
    pub(crate) link: u32,
    /// Whether frames may have no checksum, as nothing on their way could have changed them.
    pub(crate) may_lack_checksums: bool,
}

impl Origin {
    /// Whether a frame with this header has no checksum, and needs none.
    pub(super) fn lets_pass(self, header: &Header) -> bool {
        self.may_lack_checksums && checksum::is_absent(header)
    }
}

/// One lane's receiver.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) link: u32,
    pub(crate) class: LaneClass,
    pub(crate) receiver: Box<dyn LaneReceiver>,
    /// Bytes of a frame at most: what claims to be longer is not waited for.
    largest_frame: usize,
    is_static: bool,
    /// Whether frames may have no checksum.
    may_lack_checksums: bool,
    /// Whether the last payload went straight to the block that is being unpacked.
    goes_straight: bool,
    /// Whether the frame whose head is here has waited for those before it.
    has_waited: bool,
    /// How much of that block is waited for at once.
    gather: Gather,
    /// What is there of frames that are not complete: on bulk lanes at most [`AHEAD_BYTES`], or
    /// [`SHORT_BATCH_BYTES`] while their frames are short.
    batch: BytesMut,
    /// Short frames that have come in a row.
    short_frames: u32,
    /// The payload that is arriving.
    arriving: Option<Arriving>,
    /// Slots of the lane that payloads wait in.
    kept: KeptSlots,
}

#[derive(Debug)]
struct Arriving {
    header: Header,
    /// Memory for the whole payload, of which `filled` bytes are there; none, when it goes
    /// straight to its block.
    buffer: Vec<u8>,
    /// The descriptor of a payload that goes straight to its block.
    descriptor: [u8; DESCRIPTOR_BYTES],
    filled: usize,
    straight: Option<(Reassembly, usize, bool)>,
}

impl Input {
    /// A lane of a link; frames of the bulk lane have a fragment of `largest_fragment` bytes at
    /// most.
    pub(crate) fn new(
        link: u32,
        class: LaneClass,
        receiver: Box<dyn LaneReceiver>,
        largest_fragment: u32,
    ) -> Self {
        let shape = receiver.shape();
        let is_static = matches!(shape, Shape::Static { .. });
        Self {
            link,
            class,
            receiver,
            largest_frame: match class {
                LaneClass::Urgent => URGENT_FRAME_BYTES,
                LaneClass::Bulk => largest_fragment as usize + FRAME_OVERHEAD_BYTES,
            },
            is_static,
            may_lack_checksums: false,
            goes_straight: false,
            has_waited: false,
            gather: Gather::new(),
            batch: BytesMut::new(),
            short_frames: 0,
            arriving: None,
            kept: KeptSlots::of(shape, false),
        }
    }

    /// A gateway fills it, within the memory of a host.
    pub(crate) fn of_gateway(mut self) -> Self {
        self.kept = KeptSlots::of(self.receiver.shape(), true);
        self
    }

    /// Nothing that arrives on it has left the memory of this host: frames may come without a checksum.
    pub(crate) const fn within_host(mut self) -> Self {
        self.may_lack_checksums = true;
        self
    }

    /// Where frames of this lane come from.
    const fn origin(&self) -> Origin {
        Origin {
            link: self.link,
            may_lack_checksums: self.may_lack_checksums,
        }
    }

    /// Whether this lane lends slots: looking at it costs no system call.
    pub(crate) const fn is_static(&self) -> bool {
        self.is_static
    }

    /// Whether part of a payload has gone straight into a block, so that the rest must too.
    pub(crate) fn is_straight(&self) -> bool {
        self.arriving
            .as_ref()
            .is_some_and(|arriving| arriving.straight.is_some())
    }

    /// Waits for more of the block that is being unpacked at once than the next bytes: all of
    /// it is on its way, as far as its source was granted. Only while it goes straight there.
    pub(crate) fn gather(&mut self, straight: Option<&Straight<'_>>, now: Time) {
        let coming = match straight {
            Some(straight) if self.goes_straight => {
                let came = self.arriving.as_ref().map_or(0, |arriving| arriving.filled);
                straight.wanted.missing().saturating_sub(came)
            }
            _ => 0,
        };
        self.gather
            .expect(&mut *self.receiver, coming, now.since(Time(0)));
    }

    /// Until when the lane is waited for like that.
    pub(crate) fn gathers_until(&self) -> Option<Time> {
        Some(Time(0) + self.gather.deadline()?)
    }

    /// The lane wakes with the next byte again, if what it is waited for takes too long.
    pub(crate) fn end_gathering(&mut self, now: Time) {
        if self.gathers_until().is_some_and(|at| now >= at) {
            self.gather.give_up(&mut *self.receiver);
        }
    }

    /// The block that a payload goes straight to is given up: the payload is received, to be
    /// dropped.
    pub(crate) fn abandon_straight(&mut self) {
        self.goes_straight = false;
        self.gather.stop(&mut *self.receiver);
        if let Some(arriving) = &mut self.arriving
            && arriving.straight.take().is_some()
        {
            arriving.buffer = vec![0; arriving.header.length as usize];
        }
    }

    /// Receives what is there, about a batch of it. Returns how many bytes came.
    pub(crate) fn receive(
        &mut self,
        inner: &Inner,
        goal: &mut Goal<'_, '_>,
        scratch: &mut BytesMut,
        now: Time,
    ) -> Result<usize, InputError> {
        match (self.is_static, self.class) {
            (true, LaneClass::Urgent) => self.receive_small_slots(inner, goal, scratch, now),
            (true, LaneClass::Bulk) => self.receive_large_slots(inner, goal, now),
            (false, LaneClass::Urgent) => self.receive_batch(inner, goal, scratch, now),
            (false, LaneClass::Bulk) => self.receive_bulk(inner, goal, now),
        }
    }

    /// Urgent lane of a stream: whole batches of small frames.
    fn receive_batch(
        &mut self,
        inner: &Inner,
        goal: &mut Goal<'_, '_>,
        scratch: &mut BytesMut,
        now: Time,
    ) -> Result<usize, InputError> {
        scratch.clear();
        scratch.reserve(BATCH_BYTES);
        scratch.extend_from_slice(&self.batch);
        self.batch.clear();
        let received = self.receiver.try_receive(Room::default(), scratch)?;
        if received == 0 {
            self.batch.extend_from_slice(scratch);
            return Ok(0);
        }
        let origin = self.origin();
        let used = inner.with_core_for(goal, |core, goal| {
            handle_frames(core, origin, scratch, now, goal)
        })?;
        let rest = &scratch[used..];
        if let Some(head) = rest.first_chunk::<HEADER_BYTES>() {
            let header = Header::check(head).map_err(FrameFault::from)?;
            if header.frame_bytes() > self.largest_frame {
                return Err(too_long(&header.read()).into());
            }
        }
        self.batch.extend_from_slice(rest);
        Ok(received)
    }

    /// Bulk lane of a stream: a head, then its payload together with the next head; or whole short frames.
    fn receive_bulk(
        &mut self,
        inner: &Inner,
        goal: &mut Goal<'_, '_>,
        now: Time,
    ) -> Result<usize, InputError> {
        let mut total = 0;
        for _ in 0..FRAMES_PER_TURN {
            if self.arriving.is_none()
                && self.batch.len() >= HEAD_BYTES
                && !self.begin_payload(inner, goal.straight.as_deref_mut())?
            {
                break;
            }
            let received = self.receive_some(inner, goal.straight.as_deref_mut())?;
            if received == 0 {
                break;
            }
            total += received;
            self.finish_payload(inner, goal, now)?;
            if self.arriving.is_none() {
                self.take_complete(inner, goal, now)?;
            }
            if goal.is_over() {
                break;
            }
        }
        Ok(total)
    }

    /// Small frames that travel in front of a large one are taken in as soon as they are there:
    /// whoever gets them may say where the rest of the message goes. So are short ones that are there
    /// whole.
    fn take_complete(
        &mut self,
        inner: &Inner,
        goal: &mut Goal<'_, '_>,
        now: Time,
    ) -> Result<(), InputError> {
        let mut complete = 0;
        while let Some(head) = self.batch[complete..].first_chunk::<HEADER_BYTES>() {
            let header = Header::check(head).map_err(FrameFault::from)?;
            self.check_lone(header)?;
            if header.frame_bytes() > self.largest_frame {
                return Err(too_long(&header.read()).into());
            }
            let end = complete + header.frame_bytes();
            if !header.is_data() || end > self.batch.len() {
                break;
            }
            self.note_length(header.payload_bytes());
            complete = end;
        }
        if complete == 0 {
            return Ok(());
        }
        if complete > AHEAD_BYTES {
            // What comes is not the block that was coming.
            self.goes_straight = false;
        }
        let (origin, frames) = (self.origin(), &self.batch[..complete]);
        inner.with_core_for(goal, |core, goal| {
            handle_frames(core, origin, frames, now, goal)
        })?;
        let rest = self.batch.len() - complete;
        self.batch.copy_within(complete.., 0);
        self.batch.truncate(rest);
        Ok(())
    }

    /// A head is there: decides where its payload goes. `false` when that is not yet known: frames
    /// before it come over the other lane, which is to have a turn, one at most.
    fn begin_payload(
        &mut self,
        inner: &Inner,
        straight: Option<&mut Straight<'_>>,
    ) -> Result<bool, InputError> {
        let Some(head) = self.batch.first_chunk::<HEADER_BYTES>() else {
            return Ok(true);
        };
        let header = Header::check(head).map_err(FrameFault::from)?;
        self.check_lone(header)?;
        let header = header.read();
        let rest = &self.batch[HEADER_BYTES..];
        if header.kind != Kind::Data {
            return Err(
                FrameFault::from(madgate_gtm::wire::WireError::Contradiction(
                    "a control frame on the bulk lane",
                ))
                .into(),
            );
        }
        let destination = destination(inner, self.link, &header, rest, straight.as_deref());
        if matches!(destination, Destination::Early) && !self.has_waited {
            self.has_waited = true;
            self.goes_straight = false;
            return Ok(false);
        }
        self.has_waited = false;
        let mut arriving = begin(inner, header, destination);
        // What came with the head belongs to the payload.
        let came = rest.len();
        arriving.place(rest, straight);
        debug_assert_eq!(arriving.filled, came);
        self.batch.clear();
        self.note_length(arriving.header.length as usize);
        self.goes_straight = arriving.straight.is_some();
        self.arriving = Some(arriving);
        Ok(true)
    }

    /// A large frame's length is acted on long before all of it is there. Where the checksum covers the
    /// header alone, that can be looked at first.
    fn check_lone(&self, header: HeaderRef<'_>) -> Result<(), InputError> {
        let is_lone = header.flags().has(Flags::HEADER_ONLY)
            && !(self.may_lack_checksums && header.lacks_checksum());
        if is_lone && !header.is_intact_alone() {
            return Err(InputError::Damaged);
        }
        Ok(())
    }

    /// One system call: the rest of the payload, and the head of the next frame, or many short ones.
    fn receive_some(
        &mut self,
        inner: &Inner,
        straight: Option<&mut Straight<'_>>,
    ) -> Result<usize, InputError> {
        // Its capacity is no larger, so no more of the next frame is read.
        let ahead = if inner.takes_batches && self.short_frames >= SHORT_FRAMES {
            SHORT_BATCH_BYTES
        } else {
            AHEAD_BYTES
        };
        if self.batch.is_empty() && self.batch.capacity() != ahead {
            self.batch = BytesMut::with_capacity(ahead);
        }
        match &mut self.arriving {
            Some(arriving) => {
                let target = arriving.rest(straight);
                let wanted = target.len();
                let received = self
                    .receiver
                    .try_receive(Room::new(target), &mut self.batch)?;
                arriving.filled += received.min(wanted);
                Ok(received)
            }
            None => Ok(self
                .receiver
                .try_receive(Room::default(), &mut self.batch)?),
        }
    }

    /// A frame has come whose payload has so many bytes; small frames lead large ones, and say nothing of
    /// how long these are.
    const fn note_length(&mut self, bytes: usize) {
        if bytes >= SHORT_PAYLOAD_BYTES {
            self.short_frames = 0;
        } else if bytes > SMALL_PAYLOAD_BYTES {
            self.short_frames = self.short_frames.saturating_add(1);
        }
    }

    /// If the payload is complete, it is taken in.
    fn finish_payload(
        &mut self,
        inner: &Inner,
        goal: &mut Goal<'_, '_>,
        now: Time,
    ) -> Result<(), InputError> {
        let complete = self
            .arriving
            .as_ref()
            .is_some_and(|arriving| arriving.filled == arriving.header.length as usize);
        if !complete {
            return Ok(());
        }
        let Some(arriving) = self.arriving.take() else {
            return Ok(());
        };
        finish(inner, self.origin(), arriving, goal, now)
    }
}

impl Arriving {
    /// Where the rest of the payload goes.
    fn rest<'s>(&'s mut self, straight: Option<&'s mut Straight<'_>>) -> &'s mut [u8] {
        let length = self.header.length as usize;
        let (filled, descriptor) = (self.filled, self.descriptor_bytes());
        match (&self.straight, straight) {
            (Some((_, offset, _)), Some(straight)) => {
                &mut straight.into[offset + filled - descriptor..offset + length - descriptor]
            }
            _ => &mut self.buffer[filled..length],
        }
    }

    /// Puts bytes that came with the head in their place.
    fn place(&mut self, bytes: &[u8], straight: Option<&mut Straight<'_>>) {
        let skipped = if self.straight.is_some() {
            self.descriptor_bytes().min(bytes.len())
        } else {
            0
        };
        self.descriptor[..skipped].copy_from_slice(&bytes[..skipped]);
        self.filled = skipped;
        let rest = &bytes[skipped..];
        self.rest(straight)[..rest.len()].copy_from_slice(rest);
        self.filled += rest.len();
    }

    /// Bytes of the payload in front of the block's own.
    fn descriptor_bytes(&self) -> usize {
        if self.header.flags.has(Flags::DESCRIBED) {
            DESCRIPTOR_BYTES
        } else {
            0
        }
    }
}

/// Decides where the payload of a large frame goes, which begins with `rest`.
fn destination(
    inner: &Inner,
    link: u32,
    header: &Header,
    rest: &[u8],
    straight: Option<&Straight<'_>>,
) -> Destination {
    let descriptor = rest.first_chunk().copied();
    let descriptor = descriptor.filter(|_| header.flags.has(Flags::DESCRIBED));
    let wanted = straight.map(|straight| &straight.wanted);
    inner.with_core(|core| core.destination(link, header, descriptor, wanted))
}

/// The payload of a large frame begins to arrive.
fn begin(inner: &Inner, header: Header, destination: Destination) -> Arriving {
    let length = header.length as usize;
    match destination {
        Destination::Straight {
            after,
            record,
            ends_message,
        } => {
            // The block is in memory, so its offsets fit.
            let offset = usize::try_from(record.offset).unwrap_or(usize::MAX);
            Arriving {
                header,
                buffer: Vec::new(),
                descriptor: [0; DESCRIPTOR_BYTES],
                filled: 0,
                straight: Some((after, offset, ends_message)),
            }
        }
        Destination::Buffer | Destination::Early => Arriving {
            header,
            buffer: inner.pool.take(length),
            descriptor: [0; DESCRIPTOR_BYTES],
            filled: 0,
            straight: None,
        },
    }
}

/// Takes a complete payload in.
fn finish(
    inner: &Inner,
    origin: Origin,
    arriving: Arriving,
    goal: &mut Goal<'_, '_>,
    now: Time,
) -> Result<(), InputError> {
    let descriptor_bytes = arriving.descriptor_bytes();
    let Arriving {
        header,
        buffer,
        descriptor,
        straight: went_straight,
        ..
    } = arriving;
    let Some((after, offset, ends_message)) = went_straight else {
        let payload = inner.pool.share(buffer, header.length as usize);
        let intact = origin.lets_pass(&header) || checksum::is_intact(&header, &payload);
        return Ok(inner.with_core_for(goal, |core, _| {
            let touched =
                core.handle_data(origin.link, &header, &payload, Some(&payload), intact, now)?;
            if let Some(flow) = touched {
                core.after_accept(flow, now);
            }
            Ok::<_, FrameFault>(())
        })?);
    };
    let Some(straight) = goal.straight.as_deref_mut() else {
        unreachable!("a payload that goes straight is only received with its block");
    };
    let length = header.length as usize - descriptor_bytes;
    let intact = origin.lets_pass(&header) || {
        let mut running = checksum::Running::start(&header);
        if !header.flags.has(Flags::HEADER_ONLY) {
            running.update(&descriptor[..descriptor_bytes]);
            running.update(&straight.into[offset..offset + length]);
        }
        running.finish() == header.checksum
    };
    let accepted = inner.with_core_for(goal, |core, _| {
        core.accept_straight(origin.link, &header, after, ends_message, intact, now)
    });
    if accepted? && let Some(straight) = goal.straight.as_deref_mut() {
        straight.wanted.filled += length as u64;
    }
    Ok(())
}

/// Takes the whole frames in `bytes` in; returns how many bytes they are. Inlined: where there is one
/// frame most times, a call counts.
#[inline(always)]
pub(super) fn handle_frames(
    core: &mut Core,
    origin: Origin,
    bytes: &[u8],
    now: Time,
    goal: &mut Goal<'_, '_>,
) -> Result<usize, FrameFault> {
    let mut touched = None;
    let used = handle_each_frame(core, origin, bytes, now, goal, &mut touched);
    if let Some(flow) = touched {
        core.after_accept(flow, now);
    }
    used
}

/// As [`handle_frames`], but leaves the flow that was `touched` last to the caller: most
/// batches are of one flow.
#[inline(always)]
fn handle_each_frame(
    core: &mut Core,
    origin: Origin,
    bytes: &[u8],
    now: Time,
    goal: &mut Goal<'_, '_>,
    touched: &mut Option<u32>,
) -> Result<usize, FrameFault> {
    let link = origin.link;
    let mut used = 0;
    while let Some(head) = bytes[used..].first_chunk::<HEADER_BYTES>() {
        let header = Header::check(head)?;
        let Some(frame) = bytes[used..].get(..header.frame_bytes()) else {
            break;
        };
        if !header.is_data() {
            core.handle_control(link, &header.read(), now)?;
        } else if !core.take_whole(origin, header, frame, now, goal) {
            let (header, payload) = (header.read(), &frame[HEADER_BYTES..]);
            let intact = origin.lets_pass(&header) || checksum::is_frame_intact(frame);
            if let Some(flow) = core.handle_data(link, &header, payload, None, intact, now)?
                && let Some(previous) = touched.replace(flow)
                && previous != flow
            {
                core.after_accept(previous, now);
            }
        }
        used += frame.len();
    }
    Ok(used)
}

fn too_long(header: &Header) -> FrameFault {
    madgate_gtm::wire::WireError::TooLong(header.length).into()
}
