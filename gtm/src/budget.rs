//! The memory behind a node's promises.
//!
//! Every promise (*granted up to*) that a node makes is backed by memory that it has set
//! aside: a **guaranteed** share per admitted flow, so that an admitted flow can always
//! move one small frame, and an **elastic** part for everything above. No flow may hold
//! more elastic memory than is still free (the dynamic threshold of Choudhury and Hahne,
//! with factor 1): N busy flows settle at 1/(N+1) of it each, a newcomer always finds as
//! much free, and a flow that stands still keeps what it had and no more.

#[cfg(test)]
mod tests;

/// What an admitted flow is guaranteed at every hop, in charged bytes.
pub const GUARANTEED_BYTES: u64 = 4096;

/// The memory behind the promises of one node.
#[derive(Debug, Clone)]
pub struct Budget {
    flows: u32,
    flow_limit: u32,
    elastic_total: u64,
    elastic_used: u64,
}

impl Budget {
    /// A budget of `bytes`: a quarter of it guaranteed, the rest elastic.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let guaranteed = bytes / 4;
        let flow_limit = u32::try_from(guaranteed / GUARANTEED_BYTES).unwrap_or(u32::MAX);
        Self {
            flows: 0,
            flow_limit,
            elastic_total: bytes - guaranteed,
            elastic_used: 0,
        }
    }

    /// How many flows can be admitted at once.
    #[must_use]
    pub const fn flow_limit(&self) -> u32 {
        self.flow_limit
    }

    /// How many flows are admitted.
    #[must_use]
    pub const fn flows(&self) -> u32 {
        self.flows
    }

    /// Elastic bytes that are promised now.
    #[must_use]
    pub const fn elastic_used(&self) -> u64 {
        self.elastic_used
    }

    /// Bytes that are promised at most: every admitted flow's share and all elastic memory.
    #[must_use]
    pub fn promised(&self) -> u64 {
        u64::from(self.flows) * GUARANTEED_BYTES + self.elastic_used
    }

    /// Sets a guaranteed share aside; `false` when there is none left.
    pub const fn try_admit(&mut self) -> bool {
        if self.flows == self.flow_limit {
            return false;
        }
        self.flows += 1;
        true
    }

    /// Takes back everything that a flow with `outstanding` promised bytes held.
    pub fn release(&mut self, outstanding: u64) {
        self.flows -= 1;
        self.elastic_used -= elastic(outstanding);
    }

    /// A flow's outstanding promise changes as memory frees, from one size to another.
    pub fn change(&mut self, from: u64, to: u64) {
        self.elastic_used = self.elastic_used - elastic(from) + elastic(to);
    }

    /// How much may be promised to a flow that has `outstanding` bytes promised now: never
    /// less than it has.
    #[must_use]
    pub fn allowance(&self, outstanding: u64) -> u64 {
        let free = self.elastic_total.saturating_sub(self.elastic_used);
        let own = elastic(outstanding);
        // The flow may hold as much as stays free: own + more <= free - more.
        let more = free.saturating_sub(own) / 2;
        outstanding.max(GUARANTEED_BYTES + own + more)
    }
}

/// The part of a promise that is not guaranteed.
fn elastic(outstanding: u64) -> u64 {
    outstanding.saturating_sub(GUARANTEED_BYTES)
}
