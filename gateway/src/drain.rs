//! The end of a gateway, in order.

use std::time::{Duration, Instant};

use crate::engine::Engine;

/// Between two looks whether everything has left.
const LOOK: Duration = Duration::from_millis(2);

/// How long acknowledgements may take to come back for what left last and to go on, so that it is not
/// sent again for nothing. Nobody waits longer for a lane that takes nothing else.
const GRACE: Duration = Duration::from_millis(50);

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Bytes that could not be sent in time. Their sources have them still.
    pub dropped_bytes: u64,
    /// Flows that were admitted at the end.
    pub flows: u32,
    /// How long it took.
    pub took: Duration,
}

pub(crate) fn drain(engine: &Engine, deadline: Instant) -> DrainReport {
    let began = Instant::now();
    engine.begin_draining();
    let mut left_since = None;
    let mut waiting = waiting_bytes(engine);
    while Instant::now() < deadline {
        if waiting > 0 {
            left_since = None;
        } else if left_since.get_or_insert_with(Instant::now).elapsed() >= GRACE {
            break;
        }
        std::thread::sleep(LOOK);
        waiting = waiting_bytes(engine);
    }
    let flows = engine.lock().transit.budget().flows();
    DrainReport {
        dropped_bytes: waiting,
        flows,
        took: began.elapsed(),
    }
}

/// Bytes of flows that wait in their queues and for lanes. What nobody would send again, as credit, is
/// none of them.
fn waiting_bytes(engine: &Engine) -> u64 {
    let (queued, links) = {
        let shared = engine.lock();
        let queued = shared.transit.queued_bytes();
        (queued, shared.links.values().cloned().collect::<Vec<_>>())
    };
    let mut waiting = queued;
    for link in links {
        let mut output = engine.hold(&link);
        for lane in output.lanes() {
            let of_flows = lane.outbox.queued_bytes_of(Option::is_some);
            waiting += u64::try_from(of_flows).unwrap_or(u64::MAX);
        }
    }
    waiting
}
