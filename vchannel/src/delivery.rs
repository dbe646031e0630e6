//! The delivery of one message, to be asked for or waited for.

use std::time::{Duration, Instant};

use crate::channel::Channel;
use crate::error::PackError;
use crate::session::Core;

/// What became of a message after [`end_packing_tracked`](crate::Packing::end_packing_tracked).
#[derive(Debug, Clone)]
pub struct Delivery {
    channel: Channel,
    flow: u32,
    message: u32,
}

impl Delivery {
    pub(crate) const fn new(channel: Channel, flow: u32, message: u32) -> Self {
        Self {
            channel,
            flow,
            message,
        }
    }

    /// Whether the destination's node has all of the message.
    ///
    /// # Errors
    /// When it will not be delivered.
    pub fn is_delivered(&self) -> Result<bool, PackError> {
        let inner = self.channel.session().inner();
        self.look(&mut inner.lock())
            .transpose()
            .map(|found| found.is_some())
    }

    /// Waits until the destination's node has all of the message.
    ///
    /// # Errors
    /// When it will not be delivered.
    pub fn wait(&self) -> Result<(), PackError> {
        self.wait_until(None).map(drop)
    }

    /// The same, for so long at most; whether it has.
    ///
    /// # Errors
    /// When it will not be delivered.
    pub fn wait_within(&self, within: Duration) -> Result<bool, PackError> {
        self.wait_until(Instant::now().checked_add(within))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<bool, PackError> {
        let inner = self.channel.session().inner();
        {
            let mut core = inner.lock();
            core.out_flows[self.flow as usize]
                .flow
                .request_acknowledgement();
            core.wake_flow(self.flow);
        }
        match inner.wait(deadline, None, |core| self.look(core)) {
            Some(found) => found.map(|()| true),
            None => Ok(false),
        }
    }

    fn look(&self, core: &mut Core) -> Option<Result<(), PackError>> {
        if let Some(error) = self.channel.failure_of(core, self.flow, self.message) {
            return Some(Err(error));
        }
        let flow = &core.out_flows[self.flow as usize].flow;
        flow.is_delivered(self.message).then_some(Ok(()))
    }
}
