//! What waits for one link of a gateway.

use std::collections::VecDeque;

use super::Lane;
use crate::wire::{FlowKey, HEADER_BYTES};

/// Bytes that a flow may send in one turn: a default fragment with its header.
pub(super) const QUANTUM_BYTES: usize = (64 << 10) + 64;

/// Control frames that wait for a link at most, besides one for every flow that a gateway
/// can have. What is beyond is dropped: sources ask again.
pub(super) const SPARE_CONTROL_FRAMES: usize = 1024;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) control: VecDeque<[u8; HEADER_BYTES]>,
    pub(super) control_limit: usize,
    /// Flows whose newest credit waits to go back on this link; each stands here once.
    pub(super) credits: VecDeque<u32>,
    /// The flow whose frames were last found to be unknown.
    pub(super) last_stray: Option<(FlowKey, u32)>,
    urgent_turns: VecDeque<u32>,
    bulk_turns: VecDeque<u32>,
}

impl Link {
    pub(super) const fn new(control_limit: usize) -> Self {
        Self {
            control: VecDeque::new(),
            control_limit,
            credits: VecDeque::new(),
            last_stray: None,
            urgent_turns: VecDeque::new(),
            bulk_turns: VecDeque::new(),
        }
    }

    /// The flows that have something for `lane`, in the order of their turns.
    pub(super) fn turns(&mut self, lane: Lane) -> &mut VecDeque<u32> {
        match lane {
            Lane::Urgent => &mut self.urgent_turns,
            Lane::Bulk => &mut self.bulk_turns,
        }
    }

    pub(super) const fn turns_ref(&self, lane: Lane) -> &VecDeque<u32> {
        match lane {
            Lane::Urgent => &self.urgent_turns,
            Lane::Bulk => &self.bulk_turns,
        }
    }

    pub(super) fn forget_turns(&mut self, flow: u32) {
        self.urgent_turns.retain(|turn| *turn != flow);
        self.bulk_turns.retain(|turn| *turn != flow);
    }
}
