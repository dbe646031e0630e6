//! How long flows stand still for want of credit, as a gateway sees it.
//!
//! A source that has used up what it was promised sends nothing until more is promised; all
//! that a gateway sees of that is the last frame that fitted, and the next promise.

use super::Transit;
use super::flow::Flow;
use crate::time::Time;
use crate::wire::CHARGE_PER_FRAME;

/// What a flow waits for that has used up its promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// A hop ahead, in the end its destination, to promise more.
    Ahead,
    /// This gateway to promise what is promised ahead: its memory is in use.
    Memory,
}

impl<B> Flow<B> {
    /// Whether its source can send nothing more, not even a byte. Before the destination has
    /// answered that is how every flow is.
    const fn is_exhausted(&self) -> bool {
        self.has_credit() && self.granted - self.received <= CHARGE_PER_FRAME
    }

    const fn wants(&self) -> Want {
        if self.granted < self.granted_ahead {
            Want::Memory
        } else {
            Want::Ahead
        }
    }
}

impl<B> Transit<B> {
    /// Notes whether a flow has begun or ceased to be parked, after something came of it or
    /// more was promised to it.
    pub(super) fn note_parked(&mut self, index: u32, now: Time) {
        let Some(Some(flow)) = self.flows.get_mut(index as usize) else {
            return;
        };
        match (flow.parked_since, flow.is_exhausted()) {
            (None, true) => {
                flow.parked_since = Some((now, flow.wants()));
                self.counters.parked_flows += 1;
                if let Some(way) = self.ways.at_mut(flow.way) {
                    way.parked_flows += 1;
                }
            }
            (Some(_), false) => self.end_parked(index, now),
            // It waits for something else now.
            (Some((_, want)), true) if want != flow.wants() => {
                self.end_parked(index, now);
                self.note_parked(index, now);
            }
            _ => {}
        }
    }

    /// Counts what has passed until now of the time that flows are still parked for.
    pub fn count_parked(&mut self, now: Time) {
        if self.counters.parked_flows == 0 {
            return;
        }
        for index in 0..u32::try_from(self.flows.len()).unwrap_or(u32::MAX) {
            let flow = self.flows[index as usize].as_ref();
            if flow.is_some_and(|flow| flow.parked_since.is_some()) {
                self.end_parked(index, now);
                self.note_parked(index, now);
            }
        }
    }

    /// A flow is parked no longer, whatever the reason.
    pub(super) fn end_parked(&mut self, index: u32, now: Time) {
        let Some(Some(flow)) = self.flows.get_mut(index as usize) else {
            return;
        };
        let Some((since, want)) = flow.parked_since.take() else {
            return;
        };
        let nanos = now.0.saturating_sub(since.0);
        let way = flow.way;
        self.counters.parked_flows -= 1;
        match want {
            Want::Ahead => self.counters.parked_ahead_ns += nanos,
            Want::Memory => self.counters.parked_memory_ns += nanos,
        }
        if let Some(way) = self.ways.at_mut(way) {
            way.parked_flows -= 1;
            match want {
                Want::Ahead => way.parked_ahead_ns += nanos,
                Want::Memory => way.parked_memory_ns += nanos,
            }
        }
    }
}
