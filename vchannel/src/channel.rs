//! A virtual channel: where messages are packed and unpacked.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use bytes::Bytes;
use madgate_gtm::wire::ReceiveMode;

use crate::claiming::{HasChores, NextMessage};
use crate::cluster::{ChannelId, NodeId};
use crate::delivery::Delivery;
use crate::error::{PackError, TrySendError, UnpackError};
use crate::packing::Packing;
use crate::session::{Core, Fate, OutFlow, Session};
use crate::unpacking::Unpacking;

/// A closed world of communication: messages from one node to another over one channel
/// arrive in the order in which they were packed; between channels there is no order.
///
/// Any thread may pack and unpack; two messages to one node are packed one after the other.
#[derive(Debug, Clone)]
pub struct Channel {
    session: Session,
    id: ChannelId,
}

impl Channel {
    pub(crate) const fn new(session: Session, id: ChannelId) -> Self {
        Self { session, id }
    }

    /// The session that it belongs to.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) const fn id(&self) -> ChannelId {
        self.id
    }

    /// Its name in the cluster file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.session.cluster().channel(self.id).name
    }

    // ---- packing ------------------------------------------------------------------------

    /// Begins a message to `to`. Waits while another thread packs one to the same node.
    ///
    /// # Errors
    /// When no route leads there, this thread packs a message to that node already, or
    /// messages that were packed before could not be delivered (said once; the next call
    /// begins anew).
    #[inline]
    pub fn begin_packing(&self, to: NodeId) -> Result<Packing<'_>, PackError> {
        // Made where the caller keeps it, and not moved there.
        let (flow, message, scratch) = self.claim_packing(to)?;
        Ok(Packing::new(self, flow, message, scratch))
    }

    /// The flow to a node, for this thread; the number of a message on it, and memory for small
    /// blocks.
    fn claim_packing(&self, to: NodeId) -> Result<(u32, u32, Vec<u8>), PackError> {
        let inner = self.session.inner();
        let thread = this_thread();
        let mut core = inner.lock();
        let index = self.out_flow(&mut core, to)?;
        loop {
            self.tell_failure(&mut core, index)?;
            let flow = &mut core.out_flows[index as usize];
            match flow.packer {
                None => {
                    flow.packer = Some(thread);
                    let scratch = std::mem::take(&mut flow.scratch);
                    return Ok((index, flow.begin_message(), scratch));
                }
                Some(packer) if packer == thread => {
                    return Err(PackError::AlreadyPacking {
                        node: self.name_of(to),
                    });
                }
                Some(_) => {
                    drop(core);
                    inner.wait(None, None, |core| {
                        core.out_flows[index as usize]
                            .packer
                            .is_none()
                            .then_some(())
                    });
                    core = inner.lock();
                }
            }
        }
    }

    /// Sends a message of owned blocks without waiting for anything.
    ///
    /// # Errors
    /// [`TrySendError::NotNow`] when a message to that node is being packed or the
    /// flow keeps as much as it may; else as [`begin_packing`](Self::begin_packing).
    pub fn try_send(
        &self,
        to: NodeId,
        blocks: &[(Bytes, ReceiveMode)],
    ) -> Result<Delivery, TrySendError> {
        self.send_within(to, blocks, Duration::ZERO)
    }

    /// The same, and waits for `within` at most until the flow takes the message.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send). What this thread itself packs to that node does not end while
    /// it waits: nothing is waited for then.
    pub fn send_within(
        &self,
        to: NodeId,
        blocks: &[(Bytes, ReceiveMode)],
        within: Duration,
    ) -> Result<Delivery, TrySendError> {
        let (index, message, scratch) = self.claim_within(to, within)?;
        let mut packing = Packing::new(self, index, message, scratch).without_waiting();
        for (block, receive) in blocks {
            packing.pack_owned(block.clone(), *receive)?;
        }
        Ok(packing.end_packing_tracked()?)
    }

    /// As [`claim_packing`](Self::claim_packing), of a flow that may keep more, and in so long at most.
    fn claim_within(
        &self,
        to: NodeId,
        within: Duration,
    ) -> Result<(u32, u32, Vec<u8>), TrySendError> {
        let inner = self.session.inner();
        let thread = this_thread();
        let mut core = inner.lock();
        let index = self.out_flow(&mut core, to)?;
        self.tell_failure(&mut core, index)?;
        let limit = core.settings().retention_bytes;
        let flow = &mut core.out_flows[index as usize];
        let is_free = flow.packer.is_none() && flow.flow.backlog_bytes() < limit;
        if !is_free {
            if within.is_zero() || flow.packer == Some(thread) {
                return Err(TrySendError::NotNow);
            }
            drop(core);
            let deadline = Instant::now().checked_add(within);
            // Its turn first, as everybody's who packs: others would fill what room there is again.
            let turn = inner.wait(deadline, None, |core| {
                let packer = &mut core.out_flows[index as usize].packer;
                packer.is_none().then(|| *packer = Some(thread))
            });
            turn.ok_or(TrySendError::NotNow)?;
            let has_room = self.wait_for_room(index, deadline, |flow| flow.failures.has_untold());
            core = inner.lock();
            let told = self.tell_failure(&mut core, index);
            if told.is_err() || !has_room {
                core.out_flows[index as usize].packer = None;
                inner.wake_waiters(&core);
                return Err(told.err().map_or(TrySendError::NotNow, TrySendError::Pack));
            }
        }
        let flow = &mut core.out_flows[index as usize];
        flow.packer = Some(thread);
        let scratch = std::mem::take(&mut flow.scratch);
        Ok((index, flow.begin_message(), scratch))
    }

    /// Waits until a flow keeps less than its retention budget, or `is_over` says that there is nothing
    /// to wait for; whether that was before the `deadline`.
    pub(crate) fn wait_for_room(
        &self,
        index: u32,
        deadline: Option<Instant>,
        is_over: impl Fn(&OutFlow) -> bool,
    ) -> bool {
        let mut has_asked = false;
        let waited = self.session.inner().wait(deadline, None, |core| {
            let limit = core.settings().retention_bytes;
            let flow = &mut core.out_flows[index as usize];
            if flow.flow.backlog_bytes() < limit || is_over(flow) {
                return Some(());
            }
            // What is delivered makes room, and is to be said now.
            if !std::mem::replace(&mut has_asked, true) {
                flow.flow.request_acknowledgement();
                core.wake_flow(index);
            }
            None
        });
        waited.is_some()
    }

    // ---- unpacking ----------------------------------------------------------------------

    /// Waits for the next message from anyone.
    ///
    /// # Errors
    /// None that this version knows; a message that breaks off says so when it is unpacked.
    #[inline]
    pub fn begin_unpacking(&self) -> Result<Unpacking<'_>, UnpackError> {
        let mut unpacking = Unpacking::new(self);
        self.wait_to_claim(None, &mut unpacking, None);
        Ok(unpacking)
    }

    /// Waits for the next message from anyone, for `within` at most.
    ///
    /// # Errors
    /// As [`begin_unpacking`](Self::begin_unpacking).
    pub fn begin_unpacking_within(
        &self,
        within: Duration,
    ) -> Result<Option<Unpacking<'_>>, UnpackError> {
        let mut unpacking = Unpacking::new(self);
        let is_claimed = self.wait_to_claim(None, &mut unpacking, Some(within));
        Ok(is_claimed.then_some(unpacking))
    }

    /// Waits for the next message from one node.
    ///
    /// It waits for a node that has gone, too: it may come back and send. Who waits for an answer
    /// waits for a bounded time ([`begin_unpacking_from_within`](Self::begin_unpacking_from_within)).
    ///
    /// # Errors
    /// When the cluster has no such node, or it is this one.
    pub fn begin_unpacking_from(&self, from: NodeId) -> Result<Unpacking<'_>, UnpackError> {
        self.check_source(from)?;
        let mut unpacking = Unpacking::new(self);
        self.wait_to_claim(Some(from), &mut unpacking, None);
        Ok(unpacking)
    }

    /// Waits for the next message from one node, for `within` at most.
    ///
    /// # Errors
    /// As [`begin_unpacking_from`](Self::begin_unpacking_from).
    pub fn begin_unpacking_from_within(
        &self,
        from: NodeId,
        within: Duration,
    ) -> Result<Option<Unpacking<'_>>, UnpackError> {
        self.check_source(from)?;
        let mut unpacking = Unpacking::new(self);
        let is_claimed = self.wait_to_claim(Some(from), &mut unpacking, Some(within));
        Ok(is_claimed.then_some(unpacking))
    }

    /// The next message from anyone, if there is one now. Looks at memory and at the connections where
    /// something came last, and at everything else every 64 calls at most: who only waits is better off
    /// with [`begin_unpacking_within`](Self::begin_unpacking_within).
    ///
    /// # Errors
    /// As [`begin_unpacking`](Self::begin_unpacking).
    pub fn try_begin_unpacking(&self) -> Result<Option<Unpacking<'_>>, UnpackError> {
        self.begin_unpacking_within(Duration::ZERO)
    }

    // ---- inside -------------------------------------------------------------------------

    /// Whether messages may come from `from`.
    fn check_source(&self, from: NodeId) -> Result<(), UnpackError> {
        if from == self.session.node() {
            let node = self.name_of(from);
            return Err(UnpackError::FromItself { node });
        }
        if self.session.cluster().node_with_rank(from.rank()).is_none() {
            return Err(UnpackError::UnknownNode { rank: from.rank() });
        }
        Ok(())
    }

    fn out_flow(&self, core: &mut Core, to: NodeId) -> Result<u32, PackError> {
        let inner = self.session.inner();
        if let Some(index) = core.out_flow(to, self.id, || inner.now()) {
            return Ok(index);
        }
        if core.cluster.node_with_rank(to.rank()).is_none() {
            return Err(PackError::UnknownNode { rank: to.rank() });
        }
        let node = self.name_of(to);
        if to == core.node {
            return Err(PackError::ToItself { node });
        }
        Err(PackError::NoRoute {
            node,
            channel: self.name().to_owned(),
        })
    }

    /// The failure of messages that were packed before, once.
    #[inline]
    pub(crate) fn tell_failure(&self, core: &mut Core, index: u32) -> Result<(), PackError> {
        match core.out_flows[index as usize].failures.tell() {
            None => Ok(()),
            Some(lost) => Err(core.error_of(index, lost)),
        }
    }

    /// Why `message` is not delivered, if it was given up.
    pub(crate) fn failure_of(&self, core: &Core, index: u32, message: u32) -> Option<PackError> {
        let flow = &core.out_flows[index as usize];
        match flow.failures.of(message) {
            Fate::Kept => None,
            Fate::Lost(lost) => Some(core.error_of(index, lost)),
            Fate::Forgotten => Some(PackError::Failed {
                node: self.name_of(NodeId(flow.flow.flow().destination)),
            }),
        }
    }

    pub(crate) fn name_of(&self, node: NodeId) -> String {
        self.session.cluster().node_name(node).to_owned()
    }

    /// Waits for the next message, from one node or from anyone, for `within` at most. Returns whether one
    /// came.
    fn wait_to_claim(
        &self,
        from: Option<NodeId>,
        unpacking: &mut Unpacking<'_>,
        within: Option<Duration>,
    ) -> bool {
        let inner = self.session.inner();
        let next = NextMessage {
            channel: self.id,
            from,
            unpacking,
        };
        let deadline = || within.and_then(|within| Instant::now().checked_add(within));
        let claimed = inner.wait_for(deadline, None, next);
        if claimed == Some(HasChores(true)) {
            inner.flush_dirty();
        }
        claimed.is_some()
    }
}

/// The calling thread, without counting a reference to it.
fn this_thread() -> ThreadId {
    thread_local! {
        static ID: ThreadId = thread::current().id();
    }
    ID.with(|id| *id)
}
