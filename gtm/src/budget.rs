//! The memory behind a node's promises.
//!
//! Every promise (*granted up to*) that a node makes is backed by memory that it has set
//! aside: a **guaranteed** share per admitted flow, so that an admitted flow can always
//! move one small frame, and an **elastic** part for everything above. No flow may hold
//! more elastic memory than a factor times what is still free (the dynamic threshold of
//! Choudhury and Hahne): a newcomer always finds as much free, and a flow that stands still
//! keeps what it had and no more.
//!
//! The factor is 1 for up to [`SHARES_FREE`] flows that hold elastic memory: N of them settle at
//! 1/(N+1) of it each. With more it is `SHARES_FREE` / N, so that a fifth of it stays free, however
//! many they are. Flows take turns, at a source that has few processors always in the same order;
//! if no more than one share were free, each would get what the one before it has just given
//! back: what the first had grabbed before the others came would only creep from one to the
//! next. Of many free shares each takes its part, whoever was there before.

#[cfg(test)]
mod tests;

/// What an admitted flow is guaranteed at every hop, in charged bytes.
pub const GUARANTEED_BYTES: u64 = 4096;

/// How many shares of busy flows stay free, where there are more flows than that.
pub const SHARES_FREE: u64 = 4;

/// The memory behind the promises of one node.
#[derive(Debug, Clone)]
pub struct Budget {
    flows: u32,
    /// Those that hold elastic memory.
    busy: u32,
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
            busy: 0,
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
        self.change(outstanding, 0);
    }

    /// A flow's outstanding promise changes as memory frees, from one size to another.
    pub fn change(&mut self, from: u64, to: u64) {
        let (from, to) = (elastic(from), elastic(to));
        self.elastic_used = self.elastic_used - from + to;
        self.busy = self.busy - u32::from(from > 0) + u32::from(to > 0);
    }

    /// How much may be promised to a flow that has `outstanding` bytes promised now: never
    /// less than it has.
    #[must_use]
    pub fn allowance(&self, outstanding: u64) -> u64 {
        let free = self.elastic_total.saturating_sub(self.elastic_used);
        let own = elastic(outstanding);
        // With `factor` = SHARES_FREE / N, at most 1: own + more <= factor * (free - more).
        let others = self.busy.saturating_sub(u32::from(own > 0));
        let flows = (u64::from(others) + 1).max(SHARES_FREE);
        let most = free.saturating_mul(SHARES_FREE);
        let more = most.saturating_sub(own.saturating_mul(flows)) / (SHARES_FREE + flows);
        outstanding.max(GUARANTEED_BYTES + own + more)
    }
}

/// The part of a promise that is not guaranteed.
fn elastic(outstanding: u64) -> u64 {
    outstanding.saturating_sub(GUARANTEED_BYTES)
}
