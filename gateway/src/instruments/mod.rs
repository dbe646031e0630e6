//! What the engine notes about its own speed, cheap enough to be always on.
//!
//! ```text
//!  network left                    flow table                       network right
//!  receiving │ handing over        (a frame knows when it came)      sending
//!  ──────────┴───────────────────────────────────────────────────────────────────>
//!     a stopwatch per thread: one look at the clock between two stages of a batch
//!     a pipeline per pair of networks: frames, bytes, and how long each stayed
//! ```
//!
//! Nothing is noted per frame: a stage is a batch's, and what leaves together has one time.

mod pipelines;
mod stopwatch;

pub(crate) use pipelines::{Arrival, Pipelines, Stay};
pub use pipelines::{HopLatency, PipelineCounters};
pub use stopwatch::StageTimes;
pub(crate) use stopwatch::{Clock, Spent, Stage, Stopwatch};
