//! What the engine notes about itself while it works.

use std::sync::Arc;

use crate::instruments::{Arrival, Clock, Pipelines, Spent, Stage, Stay, Stopwatch};

/// A thread's stopwatch, and the pipelines of a gateway with two networks.
#[derive(Debug)]
pub struct Instruments {
    watch: Stopwatch,
    pipelines: Pipelines,
}

impl Default for Instruments {
    fn default() -> Self {
        Self {
            watch: Stopwatch::new(Clock::start(), Arc::new(Spent::default())),
            pipelines: Pipelines::new(2),
        }
    }
}

impl Instruments {
    /// A stage of a batch ends: three times for each batch.
    pub fn end_stage(&mut self) {
        self.watch.end(Stage::Receiving);
    }

    /// A piece of `bytes` leaves: a large frame, or a run of small ones.
    pub fn note_piece(&mut self, frames: u32, bytes: usize) {
        let at = self.watch.time_of_batch();
        let stay = Stay::since(Arrival { network: 0, at });
        self.pipelines.note(&stay, 1, at, frames, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_counts() {
        let mut instruments = Instruments::default();
        instruments.end_stage();
        instruments.note_piece(3, 100);
        assert_eq!(instruments.pipelines.frames_to(1), 3);
    }
}
