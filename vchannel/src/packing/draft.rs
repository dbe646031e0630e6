//! What has been packed of a message: what it holds until that goes to the flow, and how it gets
//! there.

use bytes::Bytes;
use madgate_gtm::wire::{
    BUNDLED_BYTES, DESCRIPTOR_BYTES, Descriptor, Flags, HEADER_BYTES, ReceiveMode,
    SMALL_PAYLOAD_BYTES, SendMode, bundled_prefix_bytes,
};
use parking_lot::MutexGuard;

use super::COPY_BYTES;
use crate::channel::Channel;
use crate::cluster::NodeId;
use crate::delivery::Delivery;
use crate::error::PackError;
use crate::lending::{self, Kept, Lent};
use crate::session::{Alone, Copies, Core, Gathers, Memory};

/// What has been packed of a message, and is not in its flow yet.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    channel: &'a Channel,
    flow: u32,
    message: u32,
    next_block: u32,
    /// Small blocks that are not in the flow yet, encoded; `first` is the first of them.
    scratch: Vec<u8>,
    first: u32,
    /// An owned block in front of those, which may be the message's last.
    held: Option<(u32, Descriptor, Bytes)>,
    /// What waits behind the first lent block, in order.
    kept: Vec<Kept<'a>>,
    /// Whether part of the message is in the flow.
    has_begun: bool,
    /// Bytes of its frames there that nobody has been asked to send.
    pushed_bytes: usize,
    waits: bool,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Packing,
    Failed,
    Ended,
}

impl<'a> Draft<'a> {
    /// A message on a flow that is claimed for it; `scratch` is empty.
    #[inline]
    pub(super) const fn new(
        channel: &'a Channel,
        flow: u32,
        message: u32,
        scratch: Vec<u8>,
    ) -> Self {
        Self {
            channel,
            flow,
            message,
            next_block: 0,
            scratch,
            first: 0,
            held: None,
            kept: Vec::new(),
            has_begun: false,
            pushed_bytes: 0,
            waits: true,
            state: State::Packing,
        }
    }

    /// The flow may keep more than its retention budget.
    pub(super) const fn never_waits(&mut self) {
        self.waits = false;
    }

    pub(super) fn destination(&self) -> NodeId {
        let core = self.channel.session().inner().lock();
        NodeId(core.out_flows[self.flow as usize].flow.flow().destination)
    }

    /// What tells when the message is delivered.
    pub(super) fn delivery(&self) -> Delivery {
        Delivery::new(self.channel.clone(), self.flow, self.message)
    }

    // ---- blocks -------------------------------------------------------------------------

    #[inline]
    pub(super) fn describe(
        &self,
        length: usize,
        send: SendMode,
        receive: ReceiveMode,
    ) -> Result<Descriptor, PackError> {
        match Descriptor::new(length as u64, send, receive) {
            Some(descriptor) if self.state != State::Failed => Ok(descriptor),
            _ => Err(self.not_described(length)),
        }
    }

    #[cold]
    fn not_described(&self, length: usize) -> PackError {
        if self.state == State::Failed {
            self.failed_before()
        } else {
            let bytes = length as u64;
            PackError::TooLong { bytes }
        }
    }

    #[inline]
    pub(super) fn pack_small(
        &mut self,
        descriptor: Descriptor,
        block: &[u8],
    ) -> Result<(), PackError> {
        let record_bytes = DESCRIPTOR_BYTES + block.len();
        if self.scratch.len() + record_bytes > SMALL_PAYLOAD_BYTES {
            self.push_scratch()?;
        }
        if self.scratch.is_empty() {
            self.first = self.next_block;
        }
        self.scratch.reserve(record_bytes);
        self.scratch.extend_from_slice(&descriptor.to_bytes());
        self.scratch.extend_from_slice(block);
        self.next_block += 1;
        Ok(())
    }

    /// A copy of a block that is not small.
    pub(super) fn copy(&self, block: &[u8]) -> Bytes {
        if block.len() > Copies::LONGEST_BYTES {
            return Bytes::copy_from_slice(block);
        }
        let room = {
            let mut core = self.channel.session().inner().lock();
            let copies = &mut core.out_flows[self.flow as usize].copies;
            copies.room_for(block.len())
        };
        Copies::fill(room, block)
    }

    pub(super) fn pack_bytes(
        &mut self,
        descriptor: Descriptor,
        bytes: Bytes,
    ) -> Result<(), PackError> {
        self.push_scratch()?;
        let block = self.next_block;
        self.next_block += 1;
        if self.kept.is_empty() {
            self.push_held()?;
            self.held = Some((block, descriptor, bytes));
        } else {
            self.kept.push(Kept::Owned {
                block,
                descriptor,
                bytes,
            });
        }
        Ok(())
    }

    /// The block that was held turns out not to be the last: it goes to the flow.
    fn push_held(&mut self) -> Result<(), PackError> {
        let Some((block, descriptor, bytes)) = self.held.take() else {
            return Ok(());
        };
        let inner = self.channel.session().inner();
        let mut core = self.wait_for_retention()?;
        self.has_begun = true;
        self.pushed_bytes += framed(bytes.len());
        let slot = &mut core.out_flows[self.flow as usize];
        let memory = Memory::Owned(bytes);
        slot.flow
            .push_block(self.message, block, descriptor, memory, false);
        let link = slot.link;
        core.wake_flow(self.flow);
        let pushed_bytes = std::mem::take(&mut self.pushed_bytes);
        let gathers = core.gathers(link, pushed_bytes, || inner.now());
        inner.flush_unless(gathers, core, link);
        Ok(())
    }

    pub(super) fn lend(
        &mut self,
        descriptor: Descriptor,
        memory: Lent<'a>,
    ) -> Result<(), PackError> {
        self.push_held()?;
        self.keep_scratch();
        let block = self.next_block;
        self.next_block += 1;
        self.kept.push(Kept::Lent {
            block,
            descriptor,
            memory,
        });
        Ok(())
    }

    /// Small blocks that gathered go behind what is kept.
    fn keep_scratch(&mut self) {
        if !self.scratch.is_empty() {
            let records = std::mem::take(&mut self.scratch);
            self.kept.push(Kept::Small {
                first: self.first,
                records,
            });
        }
    }

    /// Small blocks that gathered go to the flow, or behind what is kept.
    fn push_scratch(&mut self) -> Result<(), PackError> {
        if self.scratch.is_empty() {
            return Ok(());
        }
        if !self.kept.is_empty() {
            self.keep_scratch();
            return Ok(());
        }
        self.push_held()?;
        let mut core = self.wait_for_retention()?;
        let flow = &mut core.out_flows[self.flow as usize].flow;
        flow.push_frame(Flags::DESCRIBED, self.message, self.first, &self.scratch);
        self.has_begun = true;
        self.pushed_bytes += framed(self.scratch.len());
        self.scratch.clear();
        core.wake_flow(self.flow);
        Ok(())
    }

    /// Waits until the flow keeps less than its retention budget. What is returned is locked since
    /// the look that found that the message goes on: more of it may be pushed.
    fn wait_for_retention(&mut self) -> Result<MutexGuard<'a, Core>, PackError> {
        if self.waits {
            let message = self.message;
            self.channel
                .wait_for_room(self.flow, None, |flow| flow.is_given_up(message));
        }
        self.lock_to_push()
    }

    /// Locks the flow to push more of the message, unless that was given up.
    #[inline]
    fn lock_to_push(&mut self) -> Result<MutexGuard<'a, Core>, PackError> {
        let core = self.channel.session().inner().lock();
        if core.out_flows[self.flow as usize].is_given_up(self.message) {
            return Err(self.fail(core));
        }
        Ok(core)
    }

    /// The flow has failed: the message is given up, and this says why.
    #[cold]
    fn fail(&mut self, mut core: MutexGuard<'_, Core>) -> PackError {
        self.state = State::Failed;
        // Somebody else may have been told already.
        let told = self.channel.tell_failure(&mut core, self.flow).err();
        let of_this = || self.channel.failure_of(&core, self.flow, self.message);
        if let Some(error) = told.or_else(of_this) {
            return error;
        }
        drop(core);
        self.failed_before()
    }

    #[cold]
    fn failed_before(&self) -> PackError {
        PackError::Failed {
            node: self.channel.name_of(self.destination()),
        }
    }

    pub(super) fn end(&mut self, wait_for_delivery: bool) -> Result<(), PackError> {
        if self.state == State::Failed {
            return Err(self.failed_before());
        }
        if self.kept.is_empty() {
            self.end_small(wait_for_delivery)
        } else {
            self.end_kept()
        }
    }

    /// The end of a message of which nothing is lent: it goes with the last small blocks.
    fn end_small(&mut self, wait_for_delivery: bool) -> Result<(), PackError> {
        let inner = self.channel.session().inner();
        let mut core = self.lock_to_push()?;
        let limit = core.settings().retention_bytes;
        if core.out_flows[self.flow as usize].flow.backlog_bytes() >= limit {
            drop(core);
            core = self.wait_for_retention()?;
        }
        let is_alone = !self.has_begun && self.held.is_none();
        self.state = State::Ended;
        let slot = &mut core.out_flows[self.flow as usize];
        slot.packer = None;
        let link = slot.link;
        inner.wake_waiters(&core);
        let bytes = self.frames_bytes(is_alone && core.settings().bundles);
        let gathers = core.gathers(link, bytes, || inner.now());
        if is_alone && gathers == Gathers::No && !wait_for_delivery {
            let message = Alone {
                flow: self.flow,
                message: self.message,
                first: self.first,
                records: &mut self.scratch,
            };
            match inner.try_send_alone(core, message) {
                Ok(()) => return Ok(()),
                Err(back) => core = back,
            }
        }
        self.push_end(&mut core, wait_for_delivery);
        core.wake_flow(self.flow);
        inner.flush_unless(gathers, core, link);
        Ok(())
    }

    /// Bytes of the message's frames that are still to be sent, where nothing is lent; of one that
    /// `may_share` a frame what it adds to that.
    fn frames_bytes(&self, may_share: bool) -> usize {
        if may_share && (1..=BUNDLED_BYTES).contains(&self.scratch.len()) {
            return bundled_prefix_bytes(self.scratch.len()) + self.scratch.len();
        }
        let held = self
            .held
            .as_ref()
            .map_or(0, |(.., bytes)| framed(bytes.len()));
        let last = match self.held {
            Some(_) => framed(self.scratch.len()),
            None => HEADER_BYTES + self.scratch.len(),
        };
        self.pushed_bytes + held + last
    }

    /// The last blocks go to the flow, and the end of the message with them.
    fn push_end(&mut self, core: &mut Core, wait_for_delivery: bool) {
        let slot = &mut core.out_flows[self.flow as usize];
        let mut has_ended = false;
        if let Some((block, descriptor, bytes)) = self.held.take() {
            has_ended = self.scratch.is_empty();
            let memory = Memory::Owned(bytes);
            slot.flow
                .push_block(self.message, block, descriptor, memory, has_ended);
        }
        if !has_ended {
            let flags = Flags::END.with(Flags::DESCRIBED.when(!self.scratch.is_empty()));
            let first = if self.scratch.is_empty() {
                self.next_block
            } else {
                self.first
            };
            slot.flow
                .push_frame(flags, self.message, first, &self.scratch);
        }
        if wait_for_delivery {
            slot.flow.request_acknowledgement();
        }
        self.scratch.clear();
        slot.scratch = std::mem::take(&mut self.scratch);
    }

    /// The end of a message with lent blocks: everything that is kept goes to the flow, in
    /// order, and what is too large to be copied is sent before this returns.
    fn end_kept(&mut self) -> Result<(), PackError> {
        self.keep_scratch();
        let kept = std::mem::take(&mut self.kept);
        let lent_bytes: usize = kept.iter().map(Kept::lent_bytes).sum();
        let inner = self.channel.session().inner();
        let mut lent = Vec::new();
        let mut core = if lent_bytes <= COPY_BYTES {
            self.wait_for_retention()?
        } else {
            self.lock_to_push()?
        };
        let limit = core.settings().retention_bytes;
        let slot = &mut core.out_flows[self.flow as usize];
        let copies = lent_bytes <= COPY_BYTES && slot.flow.backlog_bytes() < limit;
        for (place, part) in kept.iter().enumerate() {
            let ends = place + 1 == kept.len();
            let copies = copies.then_some(&mut slot.copies);
            part.push(&mut slot.flow, self.message, ends, copies, &mut lent);
        }
        slot.has_borrower = !lent.is_empty();
        let link = slot.link;
        if lent.is_empty() {
            slot.packer = None;
            self.state = State::Ended;
        } else {
            slot.flow.request_acknowledgement();
        }
        core.wake_flow(self.flow);
        inner.wake_waiters(&core);
        if lent.is_empty() {
            let kept_bytes: usize = kept.iter().map(|part| framed(part.bytes())).sum();
            let bytes = self.pushed_bytes + kept_bytes;
            let gathers = core.gathers(link, bytes, || inner.now());
            inner.flush_unless(gathers, core, link);
            return Ok(());
        }
        drop(core);
        // All of it is in the flow. Where this unwinds, that has been given up.
        self.state = State::Failed;
        if lending::send(self.channel, self.flow, self.message, &lent) {
            self.state = State::Ended;
            self.release();
            return Ok(());
        }
        Err(self.fail(inner.lock()))
    }

    /// The next message may begin.
    fn release(&self) {
        let inner = self.channel.session().inner();
        let mut core = inner.lock();
        core.out_flows[self.flow as usize].packer = None;
        inner.wake_waiters(&core);
    }
}

/// Bytes of a frame with such a payload; nothing needs none.
const fn framed(payload_bytes: usize) -> usize {
    if payload_bytes == 0 {
        0
    } else {
        HEADER_BYTES + payload_bytes
    }
}

impl Drop for Draft<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.state != State::Ended {
            self.give_up();
        }
    }
}

impl Draft<'_> {
    #[cold]
    fn give_up(&mut self) {
        let inner = self.channel.session().inner();
        let mut core = inner.lock();
        let flow = &mut core.out_flows[self.flow as usize];
        if self.state == State::Packing && !flow.is_given_up(self.message) {
            flow.flow.abort_message(self.message);
        }
        flow.packer = None;
        core.wake_flow(self.flow);
        inner.wake_waiters(&core);
        drop(core);
        inner.flush_dirty();
    }
}
