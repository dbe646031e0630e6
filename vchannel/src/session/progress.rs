//! How far messages have come, for whoever watches whether anything moves.

use super::Session;
use super::flows::{InFlow, OutFlow};
use crate::channel::Channel;
use crate::cluster::NodeId;

/// How far the messages of a node have come, at one moment. Bytes are those of messages, whole or not, and a
/// part for each frame: a large message moves them with each of its fragments.
///
/// To be compared with an earlier one of the same session: where nothing is different, nothing has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Of what was packed here: what its destinations have.
    pub delivered_bytes: u64,
    /// What has arrived here. Less than before where a source was started again, which counts anew.
    pub received_bytes: u64,
    /// How often gateways have said that something from here waits there for its turn, or for a `rate`, as
    /// they do every two seconds at least: it may be long until the next fragment has left. Not a proof
    /// that its destination lives, whose kernel may still take what it does not read.
    pub holdups: u64,
}

impl Session {
    /// How far all messages have come that go from here or to here. It takes a moment for each node that
    /// this one has talked to: not to be asked for with each message.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let core = self.inner().lock();
        Progress::of(core.out_flows.iter(), core.in_flows.iter())
    }
}

impl Channel {
    /// The same for the messages of this channel that go to one node, or come from it.
    #[must_use]
    pub fn progress(&self, with: NodeId) -> Progress {
        let core = self.session().inner().lock();
        let (there, back) = core.flows_with(with, self.id());
        Progress::of(there.into_iter(), back.into_iter())
    }
}

impl Progress {
    fn of<'a>(
        there: impl Iterator<Item = &'a OutFlow>,
        back: impl Iterator<Item = &'a InFlow>,
    ) -> Self {
        let mut progress = Self::default();
        for OutFlow { flow, .. } in there {
            let (delivered, ..) = flow.positions();
            progress.delivered_bytes = progress.delivered_bytes.wrapping_add(delivered);
            progress.holdups += flow.holdups();
        }
        for InFlow { flow, .. } in back {
            progress.received_bytes = progress.received_bytes.wrapping_add(flow.delivered());
        }
        progress
    }
}
