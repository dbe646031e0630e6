//! Memory that a caller lends to a message, and sending from it.
//!
//! Lent memory is touched inside [`send`] alone, by the thread that lent it: while that
//! thread sends, nobody else takes anything from the flow, and when it returns or unwinds,
//! nothing of the flow refers to the memory.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use madgate_bmm::{Borrowed, Buffer, OutboxError};
use madgate_gtm::outgoing::FragmentHead;
use madgate_gtm::wire::{Descriptor, Flags, checksum};
use madgate_gtm::{Outgoing, Transmit};
use madgate_tm::Piece;

use crate::channel::Channel;
use crate::session::{Copies, Inner, LaneOutput, LinkOutput, Memory, class_of};

/// Bytes of small frames that are taken from the flow at once.
const FRAMES_BYTES: usize = 256 << 10;

/// Bytes of cells that are copied at once to be looked at.
const CHUNK_BYTES: usize = 4 << 10;

/// Memory that the caller lends until the message ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lent<'a> {
    Bytes(&'a [u8]),
    Cells(&'a [Cell<u8>]),
}

/// Something of a message that is not in its flow yet.
#[derive(Debug)]
pub(crate) enum Kept<'a> {
    Small {
        first: u32,
        records: Vec<u8>,
    },
    Owned {
        block: u32,
        descriptor: Descriptor,
        bytes: Bytes,
    },
    Lent {
        block: u32,
        descriptor: Descriptor,
        memory: Lent<'a>,
    },
}

impl<'a> Lent<'a> {
    const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Cells(cells) => cells.len(),
        }
    }

    fn piece(&self, offset: usize, length: usize) -> Piece<'a> {
        match self {
            Self::Bytes(bytes) => Piece::new(&bytes[offset..offset + length]),
            Self::Cells(cells) => Piece::from_cells(&cells[offset..offset + length]),
        }
    }

    fn copy(&self, copies: &mut Copies) -> Bytes {
        match self {
            Self::Bytes(bytes) => copies.of_bytes(bytes),
            Self::Cells(cells) => copies.of_cells(cells),
        }
    }
}

impl<'a> Kept<'a> {
    pub(crate) const fn bytes(&self) -> usize {
        match self {
            Self::Small { records, .. } => records.len(),
            Self::Owned { bytes, .. } => bytes.len(),
            Self::Lent { memory, .. } => memory.len(),
        }
    }

    pub(crate) const fn lent_bytes(&self) -> usize {
        match self {
            Self::Lent { memory, .. } => memory.len(),
            Self::Small { .. } | Self::Owned { .. } => 0,
        }
    }

    /// Pushes this part to the flow; what is lent and not copied is noted in `lent`.
    pub(crate) fn push(
        &self,
        flow: &mut Outgoing<Memory>,
        message: u32,
        ends_message: bool,
        copies: Option<&mut Copies>,
        lent: &mut Vec<Lent<'a>>,
    ) {
        let (block, descriptor, memory) = match self {
            Self::Small { first, records } => {
                let flags = Flags::DESCRIBED.with(Flags::END.when(ends_message));
                flow.push_frame(flags, message, *first, records);
                return;
            }
            Self::Owned {
                block,
                descriptor,
                bytes,
            } => (*block, *descriptor, Memory::Owned(bytes.clone())),
            Self::Lent {
                block,
                descriptor,
                memory,
            } => {
                let memory = match copies {
                    Some(copies) => Memory::Owned(memory.copy(copies)),
                    None => {
                        lent.push(*memory);
                        Memory::Borrowed(lent.len() - 1)
                    }
                };
                (*block, *descriptor, memory)
            }
        };
        flow.push_block(message, block, descriptor, memory, ends_message);
    }
}

/// Sends everything of a flow whose last message, `message`, has lent blocks, until that is
/// delivered. `false` when the flow failed.
pub(crate) fn send(channel: &Channel, flow: u32, message: u32, lent: &[Lent<'_>]) -> bool {
    let inner = channel.session().inner();
    let _borrowing = Borrowing { inner, flow };
    let mut held_back = None;
    loop {
        let (link, output, transmit, seen) = {
            let mut core = inner.lock();
            let now = inner.now();
            let slot = &mut core.out_flows[flow as usize];
            let link = slot.link;
            if slot.flow.next_deadline().is_some_and(|at| now >= at) {
                slot.flow.handle_timeout(now);
            }
            if slot.flow.is_delivered(message) {
                return true;
            }
            if slot.flow.has_failed() {
                return false;
            }
            let transmit = held_back
                .take()
                .or_else(|| slot.flow.poll_transmit(now, FRAMES_BYTES));
            let seen = (slot.flow.changes(), slot.flow.interruptions());
            if let Some(control) = slot.flow.poll_control() {
                core.push_control(link, &control);
            }
            core.note_deadline(flow);
            (link, core.output(link), transmit, seen)
        };
        inner.flush_dirty();
        match transmit {
            None => {
                inner.wait(None, None, |core| {
                    let flow = &core.out_flows[flow as usize].flow;
                    let is_due = flow.next_deadline().is_some_and(|at| inner.now() >= at);
                    (is_due || flow.changes() != seen.0).then_some(())
                });
            }
            Some(transmit) => {
                // A link that is lost takes nothing: the flow sends again when it is back.
                if let Some(output) = output {
                    held_back = send_one(inner, link, &output, transmit, lent);
                    inner.flush_if_missed(link, &output);
                }
                if held_back.is_some() {
                    inner.wait(None, None, |core| {
                        let slot = &core.out_flows[flow as usize];
                        let is_due = slot
                            .flow
                            .next_deadline()
                            .is_some_and(|at| inner.now() >= at);
                        let has_changed = slot.flow.changes() != seen.0;
                        (is_due || has_changed || core.takes_more(link)).then_some(())
                    });
                    // What was held back is not sent twice: a flow that was interrupted
                    // sends again by itself.
                    if inner.lock().out_flows[flow as usize].flow.interruptions() != seen.1 {
                        held_back = None;
                    }
                }
            }
        }
    }
}

/// Puts one frame (or some small ones) on the link; gives it back if the link takes
/// nothing now.
fn send_one(
    inner: &Inner,
    link: u32,
    output: &Arc<LinkOutput>,
    transmit: Transmit<Memory>,
    lent: &[Lent<'_>],
) -> Option<Transmit<Memory>> {
    let mut lanes = output.lock();
    let length = match &transmit {
        Transmit::Frames(_) => 0,
        Transmit::Fragment { length, .. } => *length,
    };
    let lane = lanes.lane(class_of(length));
    let sent = lane.flush().and_then(|_| send_on(lane, &transmit, lent));
    match sent {
        Ok(Borrowed::Left(())) => {
            lane.is_blocked = false;
            None
        }
        Ok(Borrowed::Queued) => {
            lane.is_blocked = true;
            inner.lock().note_blocked(link, output);
            None
        }
        Ok(Borrowed::NotNow(())) => {
            lane.is_blocked = true;
            inner.lock().note_blocked(link, output);
            Some(transmit)
        }
        // The driver closes the link, and the flow sends again when it is back.
        Err(error) => {
            drop(lanes);
            inner.lock().note_broken(link, output, error.into());
            None
        }
    }
}

/// Sends what the lane takes of one frame (or some small ones) now, if nothing waits in
/// front of it.
fn send_on(
    lane: &mut LaneOutput,
    transmit: &Transmit<Memory>,
    lent: &[Lent<'_>],
) -> Result<Borrowed<()>, OutboxError> {
    match transmit {
        Transmit::Frames(_) if !lane.has_room() => Ok(Borrowed::NotNow(())),
        // They are in memory of the flow's, and can wait there.
        Transmit::Frames(bytes) => {
            lane.push(Buffer::shared(bytes.clone()));
            Ok(if lane.flush()?.blocked {
                Borrowed::Queued
            } else {
                Borrowed::Left(())
            })
        }
        Transmit::Fragment {
            head,
            data,
            offset,
            length,
        } => {
            // The block is in memory, so its offsets fit.
            let start = usize::try_from(*offset).unwrap_or(usize::MAX);
            let body = match data {
                Memory::Owned(bytes) => Piece::new(&bytes[start..start + length]),
                Memory::Borrowed(block) => lent[*block].piece(start, *length),
            };
            let mut head: FragmentHead = head.clone();
            head.seal_with(|running| update(running, body));
            let unit = [Piece::new(head.as_bytes()), body];
            lane.outbox.send_borrowed(&mut *lane.sender, &unit, ())
        }
    }
}

/// Goes over memory that may be cells, which cannot be seen as a slice.
fn update(running: &mut checksum::Running, mut body: Piece<'_>) {
    let mut chunk = [0; CHUNK_BYTES];
    while !body.is_empty() {
        let copied = body.copy_to(&mut chunk);
        running.update(&chunk[..copied]);
        body.advance(copied);
    }
}

/// Ends the loan, however the call that sends from it ends.
struct Borrowing<'i> {
    inner: &'i Inner,
    flow: u32,
}

impl Drop for Borrowing<'_> {
    fn drop(&mut self) {
        let mut core = self.inner.lock();
        let slot = &mut core.out_flows[self.flow as usize];
        slot.has_borrower = false;
        if !slot.flow.is_drained() {
            // Failed, or unwinding: nothing may refer to the memory any more.
            slot.flow.give_up();
            core.note_failure(self.flow, self.inner.now());
        }
        self.inner.wake_waiters(&core);
    }
}
