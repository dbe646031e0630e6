//! Sending: from flows to lanes.

use std::sync::Arc;

use bytes::Bytes;
use madgate_bmm::{Buffer, OutboxError};
use madgate_gtm::outgoing::FragmentHead;
use madgate_gtm::wire::{DESCRIPTOR_BYTES, LEAD_BYTES, SMALL_PAYLOAD_BYTES};
use madgate_gtm::{Time, Transmit};
use madgate_tm::LaneClass;
use parking_lot::MutexGuard;

use super::Inner;
use super::core::{Core, GATHER_BYTES, Gathers};
use super::flows::Memory;
use super::links::{Lanes, LinkOutput};

/// Bytes that a flow may put on the link before the next one has its turn.
const TURN_BYTES: usize = 64 << 10;

impl Inner {
    /// Flushes every link that has something to send.
    pub(crate) fn flush_dirty(&self) {
        while self.flush_next_dirty() {}
    }

    /// Flushes the links that have something to send which nobody is about to send, each of
    /// them once. Returns whether any has something to send.
    pub(crate) fn flush_dirty_left(&self) -> bool {
        let (count, now) = (self.lock().dirty.len(), self.now());
        for _ in 0..count {
            let Some(link) = self.lock().take_dirty_left(now) else {
                break;
            };
            self.flush(link);
        }
        count > 0
    }

    /// Flushes the next of the links that have something to send.
    fn flush_next_dirty(&self) -> bool {
        let link = {
            let mut core = self.lock();
            let Some(link) = core.dirty.pop() else {
                return false;
            };
            if let Some(link) = &mut core.links[link as usize] {
                link.is_dirty = false;
            }
            link
        };
        self.flush(link);
        true
    }

    /// Sends what waits for a link, as far as it takes it.
    pub(crate) fn flush(&self, index: u32) {
        self.flush_from(self.lock(), index);
    }

    /// As [`flush`](Self::flush), for callers that know already.
    ///
    /// The sending side is tried, never waited for, while everything is locked.
    pub(crate) fn flush_from<'c>(&'c self, mut core: MutexGuard<'c, Core>, index: u32) {
        if std::mem::take(&mut core.has_first_deadline) {
            self.wake_sleeping_driver();
        }
        loop {
            let Some(output) = core.begin_flush(index) else {
                drop(core);
                self.dial_wanted();
                return;
            };
            let Some(mut lanes) = output.try_lock() else {
                return;
            };
            core = self.flush_locked(core, index, &output, &mut lanes);
            drop(lanes);
            if !output.was_missed() {
                return;
            }
        }
    }

    /// Sends what waits for a link, unless that gathers: the progress thread sends it in a moment then.
    pub(crate) fn flush_unless(&self, gathers: Gathers, core: MutexGuard<'_, Core>, link: u32) {
        match gathers {
            Gathers::Start => {
                drop(core);
                self.start_gathering();
            }
            Gathers::Yes => {}
            Gathers::No => self.flush_from(core, link),
        }
    }

    /// Flushes a link if somebody found its sending side taken, which the caller has let go
    /// of.
    pub(crate) fn flush_if_missed(&self, index: u32, output: &LinkOutput) {
        if output.was_missed() {
            self.flush(index);
        }
    }

    /// Sends until flows have nothing more, or the lanes take no more. Returns with everything
    /// locked, as it came.
    fn flush_locked<'c>(
        &'c self,
        mut core: MutexGuard<'c, Core>,
        index: u32,
        output: &Arc<LinkOutput>,
        lanes: &mut Lanes,
    ) -> MutexGuard<'c, Core> {
        loop {
            let took_all = core.fill(index, lanes, self.now());
            drop(core);
            let flushed = flush_lanes(lanes);
            core = self.lock();
            if std::mem::take(&mut core.has_first_deadline) {
                self.wake_sleeping_driver();
            }
            if let Err(error) = flushed {
                lanes.urgent.is_blocked = true;
                lanes.bulk.is_blocked = true;
                core.note_broken(index, output, error.into());
                self.wake_sleeping_driver();
                return core;
            }
            if lanes.urgent.is_blocked || lanes.bulk.is_blocked {
                core.note_blocked(index, output);
                self.wake_sleeping_driver();
                return core;
            }
            if !core.has_more(index) || (took_all && core.gathers_on(index)) {
                return core;
            }
            if !core.is_output(index, output) {
                // Another connection has taken its place meanwhile.
                return core;
            }
        }
    }

    /// The sending side of a link that is up.
    pub(crate) fn output(&self, index: u32) -> Option<Arc<LinkOutput>> {
        self.lock().output(index)
    }
}

/// What one flow gives in its turn, on its way to the lanes.
struct Turn<'l> {
    lanes: &'l mut Lanes,
    /// Whether the lane of large frames carries small ones in front of them.
    has_leads: bool,
    lead: Option<Lead>,
    bytes: usize,
}

/// Small frames, which go in front of what comes next if that is large and of their message.
enum Lead {
    Frames(Bytes),
    /// The first bytes of a block.
    Fragment {
        message: u32,
        frame: Buffer,
    },
}

impl Lead {
    fn leads(&self, head: &FragmentHead) -> bool {
        match self {
            Self::Frames(frames) => head.may_follow(frames),
            Self::Fragment { message, .. } => *message == head.header().message,
        }
    }

    fn into_buffer(self) -> Buffer {
        match self {
            Self::Frames(frames) => Buffer::shared(frames),
            Self::Fragment { frame, .. } => frame,
        }
    }
}

impl<'l> Turn<'l> {
    const fn new(lanes: &'l mut Lanes, has_leads: bool) -> Self {
        Self {
            lanes,
            has_leads,
            lead: None,
            bytes: 0,
        }
    }

    const fn is_over(&self) -> bool {
        self.bytes >= TURN_BYTES
    }

    fn push(&mut self, transmit: Transmit<Memory>) {
        match transmit {
            Transmit::Frames(frames) => {
                self.bytes += frames.len();
                self.send_lead_alone();
                self.lead = Some(Lead::Frames(frames));
            }
            Transmit::Fragment {
                mut head,
                data,
                offset,
                length,
            } => {
                let Memory::Owned(bytes) = data else {
                    unreachable!("a flow with borrowed memory is served by its borrower alone")
                };
                // The block is in memory, so its offsets fit.
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let body = bytes.slice(start..start + length);
                head.seal([&body[..]]);
                let buffer = Buffer::with_head(head.as_bytes(), body);
                self.bytes += buffer.len();
                let class = class_of(length);
                let is_led = self.has_leads && class == LaneClass::Bulk;
                if let Some(lead) = self.lead.take_if(|lead| is_led && lead.leads(&head)) {
                    self.lanes.bulk.push(lead.into_buffer());
                }
                self.send_lead_alone();
                if self.has_leads && buffer.len() <= LEAD_BYTES {
                    let message = head.header().message;
                    let frame = buffer;
                    self.lead = Some(Lead::Fragment { message, frame });
                } else {
                    self.lanes.lane(class).push(buffer);
                }
            }
        }
    }

    /// Small frames that lead nothing go the way of small ones.
    fn send_lead_alone(&mut self) {
        if let Some(lead) = self.lead.take() {
            self.lanes.urgent.push(lead.into_buffer());
        }
    }
}

/// The lane for a fragment with so many bytes of its block: small ones share the urgent lane with
/// the other small frames.
pub(crate) const fn class_of(length: usize) -> LaneClass {
    if length <= SMALL_PAYLOAD_BYTES - DESCRIPTOR_BYTES {
        LaneClass::Urgent
    } else {
        LaneClass::Bulk
    }
}

fn flush_lanes(lanes: &mut Lanes) -> Result<(), OutboxError> {
    lanes.urgent.flush()?;
    lanes.bulk.flush()?;
    Ok(())
}

impl Core {
    /// The sending side of a link that is up.
    pub(crate) fn output(&self, index: u32) -> Option<Arc<LinkOutput>> {
        self.links.get(index as usize)?.as_ref()?.output.clone()
    }

    /// The sending side of a link, to be flushed.
    fn begin_flush(&mut self, index: u32) -> Option<Arc<LinkOutput>> {
        let link = self.links.get_mut(index as usize)?.as_mut()?;
        if link.is_dirty && self.dirty.last() == Some(&index) {
            self.dirty.pop();
            link.is_dirty = false;
        }
        link.output.clone()
    }

    /// Takes from flows what their turns allow and the lanes have room for. Returns whether that
    /// was all they have.
    fn fill(&mut self, index: u32, lanes: &mut Lanes, now: Time) -> bool {
        if !lanes.urgent.has_room() {
            // Credit and answers wait where they are bounded.
            return false;
        }
        self.send_control(index, lanes, now);
        while lanes.urgent.has_room() && lanes.bulk.has_room() {
            let Some(flow) = self.next_waiting(index) else {
                return true;
            };
            let has_leads = self.settings.leads && lanes.bulk.takes_leads();
            let mut turn = Turn::new(lanes, has_leads);
            let emptied = loop {
                let slot = &mut self.out_flows[flow as usize];
                if slot.has_borrower {
                    break true;
                }
                if let Some(header) = slot.flow.poll_control() {
                    let frame = Buffer::copied(&header.to_control_frame());
                    turn.lanes.urgent.push(frame);
                }
                let transmit = if has_leads {
                    slot.flow.poll_transmit_led(now, TURN_BYTES)
                } else {
                    slot.flow.poll_transmit(now, TURN_BYTES)
                };
                let Some(transmit) = transmit else {
                    // It may have asked for credit just now.
                    if let Some(header) = slot.flow.poll_control() {
                        let frame = Buffer::copied(&header.to_control_frame());
                        turn.lanes.urgent.push(frame);
                    }
                    break true;
                };
                turn.push(transmit);
                if turn.is_over() {
                    break false;
                }
            };
            turn.send_lead_alone();
            if !self.out_flows[flow as usize].flow.is_open() {
                // It may just have asked to be admitted.
                self.note_deadline(flow);
            }
            self.end_turn(index, flow, emptied);
        }
        false
    }

    /// Whether flows wait for their turn on a link, or answers and credit for room.
    fn has_more(&self, index: u32) -> bool {
        let link = self.links.get(index as usize).and_then(Option::as_ref);
        link.is_some_and(|link| {
            let has_control = !link.control.is_empty() || !link.credits.is_empty();
            link.is_up() && (has_control || !link.waiting.is_empty())
        })
    }

    /// Whether what has come for a link since it was filled last is to gather, for the progress
    /// thread to send in a moment: sent at once, the messages of a burst would leave a few at a
    /// time.
    fn gathers_on(&self, index: u32) -> bool {
        let link = self.links.get(index as usize).and_then(Option::as_ref);
        link.is_some_and(|link| link.is_gathering && link.gathered < GATHER_BYTES)
    }

    /// Queues the control frames to send on a link, credit included.
    fn send_control(&mut self, index: u32, lanes: &mut Lanes, now: Time) {
        let Some(link) = &mut self.links[index as usize] else {
            return;
        };
        link.last_flush = now;
        link.gathered = 0;
        let control = &mut link.control;
        while let Some(flow) = link.credits.pop_front() {
            let flow = &mut self.in_flows[flow as usize];
            if flow.link != Some(index) {
                // It comes over another link now, and stands in the list of that one.
                continue;
            }
            flow.has_credit = false;
            if let Some(credit) = flow.flow.poll_credit(&mut self.budget, now) {
                control.extend_from_slice(&credit.to_control_frame());
            }
        }
        if !control.is_empty() {
            lanes.urgent.push(Buffer::copied(control));
            control.clear();
        }
    }

    fn next_waiting(&mut self, index: u32) -> Option<u32> {
        self.links[index as usize].as_mut()?.waiting.pop_front()
    }

    fn end_turn(&mut self, link: u32, flow: u32, emptied: bool) {
        if emptied {
            self.out_flows[flow as usize].is_waiting = false;
        } else if let Some(link) = &mut self.links[link as usize] {
            link.waiting.push_back(flow);
        }
    }
}
