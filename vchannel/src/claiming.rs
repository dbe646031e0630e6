//! What a receiver waits for: the next message of a channel, from anyone or from one node.

use crate::cluster::{ChannelId, NodeId};
use crate::session::{Core, Sought, WholeMessage};
use crate::unpacking::Unpacking;

/// The next message of a channel, which becomes the one that is being unpacked.
#[derive(Debug)]
pub(crate) struct NextMessage<'u, 'c> {
    pub(crate) channel: ChannelId,
    /// Whose message; anyone's if there is none.
    pub(crate) from: Option<NodeId>,
    /// Not claimed yet. All that it has to know is written while the lock is held: letting go of
    /// that waits for what was written, and moving it need not.
    pub(crate) unpacking: &'u mut Unpacking<'c>,
}

/// Whether something is to be sent, such as credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HasChores(pub(crate) bool);

impl Sought for NextMessage<'_, '_> {
    type Found = HasChores;

    fn look(&mut self, core: &mut Core) -> Option<HasChores> {
        let index = match self.from {
            None => self.next_ready(core),
            Some(from) => self.next_from(core, from),
        }?;
        Some(self.claim(core, index))
    }

    /// What follows from it is [settled](Self::settle) when all that came with it is taken in.
    fn offer(&mut self, core: &mut Core, message: &WholeMessage<'_>) -> Option<HasChores> {
        let flow = &mut core.in_flows[message.flow as usize];
        let is_wanted = flow.channel == self.channel.0
            && match self.from {
                None => core.channels[self.channel.index()].flows.is_empty(),
                Some(from) => flow.source == from.rank(),
            };
        if !is_wanted || flow.is_claimed || !flow.inbox.is_empty() {
            return None;
        }
        core.messages_claimed = core.messages_claimed.wrapping_add(1);
        let early = self.unpacking.claim(message.flow, NodeId(flow.source));
        early.set(message.records);
        flow.flow.consume(message.charge, &mut core.budget);
        Some(HasChores(false))
    }

    /// What has come behind the message counts for what is to be sent.
    fn settle(&mut self, core: &mut Core, found: &mut HasChores) {
        core.offer_due_credit(self.unpacking.flow());
        *found = HasChores(core.has_chores());
    }
}

impl NextMessage<'_, '_> {
    /// The next flow that has a message.
    fn next_ready(&self, core: &mut Core) -> Option<u32> {
        while let Some(index) = core.channels[self.channel.index()].flows.pop_front() {
            let flow = &mut core.in_flows[index as usize];
            flow.is_ready = false;
            if flow.has_message() {
                return Some(index);
            }
        }
        None
    }

    /// The flow from one node, if it has a message.
    fn next_from(&self, core: &Core, from: NodeId) -> Option<u32> {
        let index = core.in_flow(from, self.channel)?;
        // It stays in the list of flows that are ready, where it will be passed over.
        core.in_flows[index as usize].has_message().then_some(index)
    }

    /// Claims a flow for the message that is next on it, or takes that out if it is small.
    fn claim(&mut self, core: &mut Core, index: u32) -> HasChores {
        core.messages_claimed = core.messages_claimed.wrapping_add(1);
        let flow = &mut core.in_flows[index as usize];
        flow.is_claimed = true;
        flow.inbox.begin_message();
        let early = self.unpacking.claim(index, NodeId(flow.source));
        flow.inbox.take_early(early);
        if early.is_some() {
            core.give_back(index);
            core.unclaim(index);
        }
        HasChores(core.has_chores())
    }
}
