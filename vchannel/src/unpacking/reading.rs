//! What is there of a message that is being unpacked, and how its blocks are filled from that and
//! from what arrives.

use bytes::BytesMut;
use madgate_gtm::wire::ReceiveMode;

use crate::arrived::ArrivedBlock;
use crate::channel::Channel;
use crate::cluster::NodeId;
use crate::error::UnpackError;
use crate::session::{
    Broken, Contents, Core, Early, Inbox, Packed, Parts, Straight, TINY_BLOCK_BYTES, Taken, Wanted,
};

/// A message that is being unpacked: whose it is, and what is there of it.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    channel: &'a Channel,
    flow: u32,
    source: NodeId,
    next_block: u32,
    /// The whole message, where it was small and all there: the flow is claimed no longer.
    early: Early,
    /// Blocks that are filled when the message ends.
    kept: Vec<&'a mut [u8]>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No message yet.
    Unclaimed,
    Unpacking,
    Failed,
    Ended,
}

impl<'a> Reading<'a> {
    /// A message that is still to be [claimed](Self::claim).
    #[inline]
    pub(super) const fn new(channel: &'a Channel) -> Self {
        Self {
            channel,
            flow: 0,
            source: NodeId(0),
            next_block: 0,
            early: Early::none(),
            kept: Vec::new(),
            state: State::Unclaimed,
        }
    }

    /// The message is the next one of this flow. Returns where it goes if it is small and all
    /// there.
    pub(super) const fn claim(&mut self, flow: u32, source: NodeId) -> &mut Early {
        self.flow = flow;
        self.source = source;
        self.state = State::Unpacking;
        &mut self.early
    }

    /// The flow that it is claimed from.
    pub(super) const fn flow(&self) -> u32 {
        self.flow
    }

    pub(super) const fn source(&self) -> NodeId {
        self.source
    }

    #[inline]
    pub(super) fn unpack_express(&mut self, into: &mut [u8]) -> Result<(), UnpackError> {
        self.fill_kept()?;
        self.fill(into, ReceiveMode::Express)
    }

    #[inline]
    pub(super) fn unpack_cheaper(&mut self, into: &'a mut [u8]) -> Result<(), UnpackError> {
        if self.state == State::Failed {
            return Err(self.failed_before());
        }
        if self.kept.is_empty() && self.take_if_there(into) {
            return Ok(());
        }
        self.kept.push(into);
        Ok(())
    }

    pub(super) fn unpack_owned(
        &mut self,
        length: usize,
        receive: ReceiveMode,
    ) -> Result<BytesMut, UnpackError> {
        self.fill_kept()?;
        self.wait_for_block()?;
        let whole = if self.early.is_some() {
            None
        } else {
            let mut core = self.channel.session().inner().lock();
            let whole = core.in_flows[self.flow as usize]
                .inbox
                .take_whole(length as u64, receive);
            if whole.is_some() {
                core.give_back(self.flow);
            }
            whole
        };
        if let Some(whole) = whole {
            self.next_block += 1;
            self.channel.session().inner().flush_dirty();
            return Ok(whole);
        }
        self.check_next(length, receive)?;
        let mut block = BytesMut::zeroed(length);
        self.fill(&mut block, receive)?;
        Ok(block)
    }

    pub(super) fn unpack_arrived(
        &mut self,
        length: usize,
        receive: ReceiveMode,
    ) -> Result<ArrivedBlock, UnpackError> {
        self.fill_kept()?;
        if self.early.is_some() {
            return self.unpack_small(length, receive);
        }
        let (inner, flow, wanted) = (self.channel.session().inner(), self.flow, length as u64);
        let (mut parts, mut filled) = (Parts::default(), 0);
        loop {
            let taken = self.take(|inbox| inbox.take_parts(wanted, receive, filled, &mut parts));
            match taken {
                Taken::Block(_) => break,
                Taken::Some(count) => filled += count as u64,
                Taken::Nothing => {
                    inner.wait(None, None, |core| has_arrived(core, flow));
                }
                other => return Err(self.not_taken(other, filled, wanted, receive)),
            }
        }
        self.next_block += 1;
        Ok(ArrivedBlock::of_parts(parts.into_vec()))
    }

    /// Unpacks a block of a small message that is there as a whole.
    fn unpack_small(
        &mut self,
        length: usize,
        receive: ReceiveMode,
    ) -> Result<ArrivedBlock, UnpackError> {
        if length <= TINY_BLOCK_BYTES {
            return ArrivedBlock::tiny(length, |into| self.fill(into, receive));
        }
        self.check_next(length, receive)?;
        let mut block = vec![0; length];
        self.fill(&mut block, receive)?;
        Ok(ArrivedBlock::of_parts(vec![Contents::Shared(block.into())]))
    }

    pub(super) fn next_block(&mut self) -> Result<Option<(u64, ReceiveMode)>, UnpackError> {
        self.fill_kept()?;
        Ok(match self.wait_for_block()? {
            Packed::Block { length, receive } => Some((length, receive)),
            Packed::End => None,
        })
    }

    #[inline]
    pub(super) fn end(&mut self) -> Result<(), UnpackError> {
        self.fill_kept()?;
        if !self.early.is_some() {
            return self.end_claimed();
        }
        let packed = self.early.peek();
        if packed != Packed::End {
            return Err(self.mismatch(packed, Packed::End));
        }
        self.state = State::Ended;
        Ok(())
    }

    /// The end of a message that its flow is claimed for.
    fn end_claimed(&mut self) -> Result<(), UnpackError> {
        let inner = self.channel.session().inner();
        let mut core = inner.lock();
        if core.in_flows[self.flow as usize].inbox.peek() != Some(Ok(Packed::End)) {
            drop(core);
            let packed = self.wait_for_block()?;
            if packed != Packed::End {
                return Err(self.mismatch(packed, Packed::End));
            }
            core = inner.lock();
        }
        core.in_flows[self.flow as usize].inbox.take_end();
        core.give_back(self.flow);
        core.unclaim(self.flow);
        self.state = State::Ended;
        inner.wake_waiters(&core);
        let is_dirty = !core.dirty.is_empty();
        drop(core);
        if is_dirty {
            inner.flush_dirty();
        }
        Ok(())
    }

    // ---- inside -------------------------------------------------------------------------

    /// Fills the blocks that were to be there at the end.
    #[inline]
    fn fill_kept(&mut self) -> Result<(), UnpackError> {
        if !self.kept.is_empty() {
            self.fill_lent()?;
        }
        if self.state == State::Failed {
            Err(self.failed_before())
        } else {
            Ok(())
        }
    }

    #[inline(never)]
    fn fill_lent(&mut self) -> Result<(), UnpackError> {
        let mut blocks = std::mem::take(&mut self.kept).into_iter();
        while let Some(block) = blocks.next() {
            let filled = self.fill(block, ReceiveMode::Cheaper);
            if filled.is_err() && blocks.len() > 0 {
                // The right call would come behind those that were lent after the wrong one.
                self.state = State::Failed;
            }
            filled?;
        }
        Ok(())
    }

    /// Takes a small block that is there already.
    #[inline]
    fn take_if_there(&mut self, into: &mut [u8]) -> bool {
        if !self.early.is_some() {
            return self.take_if_in_flow(into);
        }
        let taken = self.early.take(ReceiveMode::Cheaper, into);
        let is_there = matches!(taken, Taken::Block(_));
        self.next_block += u32::from(is_there);
        is_there
    }

    /// The same, of a message that its flow is claimed for.
    fn take_if_in_flow(&mut self, into: &mut [u8]) -> bool {
        let length = into.len() as u64;
        let mut core = self.channel.session().inner().lock();
        let inbox = &mut core.in_flows[self.flow as usize].inbox;
        let is_there = inbox.has_whole(length, ReceiveMode::Cheaper)
            && matches!(
                inbox.take(length, ReceiveMode::Cheaper, 0, into),
                Taken::Block(_)
            );
        let spent = inbox.take_spent();
        drop(core);
        drop(spent);
        self.next_block += u32::from(is_there);
        is_there
    }

    /// Waits until it is known what the next block is.
    fn wait_for_block(&mut self) -> Result<Packed, UnpackError> {
        if self.early.is_some() {
            return Ok(self.early.peek());
        }
        let flow = self.flow;
        let next = self
            .channel
            .session()
            .inner()
            .wait(None, None, |core| core.in_flows[flow as usize].inbox.peek());
        match next {
            Some(Ok(packed)) => Ok(packed),
            Some(Err(broken)) => Err(self.broken(broken)),
            None => unreachable!("waits without a limit"),
        }
    }

    fn check_next(&mut self, length: usize, receive: ReceiveMode) -> Result<(), UnpackError> {
        let wanted = Packed::Block {
            length: length as u64,
            receive,
        };
        let packed = self.wait_for_block()?;
        if packed == wanted {
            Ok(())
        } else {
            Err(self.mismatch(packed, wanted))
        }
    }

    /// Fills a block from what has arrived and what arrives.
    #[inline]
    fn fill(&mut self, into: &mut [u8], receive: ReceiveMode) -> Result<(), UnpackError> {
        if self.state == State::Failed {
            return Err(self.failed_before());
        }
        if !self.early.is_some() {
            return self.fill_from_flow(into, receive);
        }
        let length = into.len() as u64;
        if let Taken::Mismatch(packed) = self.early.take(receive, into) {
            return Err(self.mismatch(packed, Packed::Block { length, receive }));
        }
        self.next_block += 1;
        Ok(())
    }

    /// The same, of a message that its flow is claimed for.
    fn fill_from_flow(&mut self, into: &mut [u8], receive: ReceiveMode) -> Result<(), UnpackError> {
        let inner = self.channel.session().inner();
        let (flow, length) = (self.flow, into.len() as u64);
        let mut filled = 0;
        loop {
            // What is there of the block fits in it.
            let at = usize::try_from(filled).unwrap_or(usize::MAX);
            let taken = self.take(|inbox| inbox.take(length, receive, filled, &mut into[at..]));
            match taken {
                Taken::Block(_) => break,
                Taken::Some(count) => filled += count as u64,
                Taken::Nothing => {
                    let wanted = Wanted {
                        flow,
                        filled,
                        length,
                        receive,
                    };
                    let mut straight = Straight { wanted, into };
                    // Nothing can go straight to where there is no room, which would look full.
                    let room = (length > 0).then_some(&mut straight);
                    inner.wait(None, room, |core| has_arrived(core, flow));
                    filled = straight.wanted.filled;
                }
                other => return Err(self.not_taken(other, filled, length, receive)),
            }
            if filled == length && length > 0 {
                break;
            }
        }
        self.next_block += 1;
        Ok(())
    }

    /// Takes from the inbox, and does what follows from it.
    fn take(&self, take: impl FnOnce(&mut Inbox) -> Taken) -> Taken {
        let inner = self.channel.session().inner();
        let mut core = inner.lock();
        let inbox = &mut core.in_flows[self.flow as usize].inbox;
        let taken = take(inbox);
        let spent = inbox.take_spent();
        core.give_back(self.flow);
        let is_dirty = !core.dirty.is_empty();
        drop(core);
        drop(spent);
        if is_dirty {
            inner.flush_dirty();
        }
        taken
    }

    /// Why nothing was taken of a block, of which so much is there.
    fn not_taken(
        &mut self,
        taken: Taken,
        filled: u64,
        length: u64,
        receive: ReceiveMode,
    ) -> UnpackError {
        match taken {
            Taken::Mismatch(packed) if filled == 0 => {
                self.mismatch(packed, Packed::Block { length, receive })
            }
            Taken::Broken(broken) => self.broken(broken),
            // The inbox never mixes blocks: reassembly refuses such frames.
            _ => self.broken(Broken::Misbehaved),
        }
    }

    #[cold]
    fn mismatch(&self, packed: Packed, unpacked: Packed) -> UnpackError {
        let source_node = self.channel.name_of(self.source());
        UnpackError::Mismatch {
            source_node,
            block: self.next_block,
            packed,
            unpacked,
        }
    }

    fn broken(&mut self, broken: Broken) -> UnpackError {
        self.state = State::Failed;
        let source_node = self.channel.name_of(self.source());
        match broken {
            Broken::Aborted => UnpackError::Aborted { source_node },
            Broken::SourceRestarted => UnpackError::SourceRestarted { source_node },
            Broken::SourceLost => {
                let within = self.channel.session().cluster().link_timeout();
                UnpackError::SourceLost {
                    source_node,
                    within,
                }
            }
            Broken::Misbehaved => UnpackError::Misbehaved { source_node },
        }
    }

    #[cold]
    fn failed_before(&self) -> UnpackError {
        UnpackError::Failed {
            source_node: self.channel.name_of(self.source()),
        }
    }
}

/// Whether something of the flow is in its inbox, or went straight to where it belongs.
fn has_arrived(core: &mut Core, flow: u32) -> Option<()> {
    let inbox = &core.in_flows[flow as usize].inbox;
    (!inbox.is_empty() || inbox.message_ended()).then_some(())
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        let is_over = matches!(self.state, State::Unclaimed | State::Ended);
        if !is_over && !self.early.is_some() {
            self.give_up();
        }
    }
}

impl Reading<'_> {
    #[cold]
    fn give_up(&mut self) {
        let inner = self.channel.session().inner();
        let mut core = inner.lock();
        core.in_flows[self.flow as usize].is_discarding = true;
        core.drain_discarded(self.flow);
        inner.wake_waiters(&core);
        let is_dirty = !core.dirty.is_empty();
        drop(core);
        if is_dirty {
            inner.flush_dirty();
        }
    }
}
