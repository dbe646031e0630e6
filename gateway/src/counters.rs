//! What the engine has done and does.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a gateway has carried and carries. Counters grow for as long as it runs; the rest
/// says how things are now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Data frames that left.
    pub frames: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Times that the payload of a frame (or of a run of small ones) was copied on its way:
    /// into a static buffer, or out of one.
    pub copies: u64,
    /// Bytes of them.
    pub copied_bytes: u64,
    /// Data frames whose payload has passed from socket to socket without being read.
    pub spliced_frames: u64,
    /// Times that a frame was copied because it had to wait and others needed the memory
    /// that it was in.
    pub parked_copies: u64,
    /// Bytes of them.
    pub parked_bytes: u64,
    /// Flows that were admitted.
    pub flows_opened: u64,
    /// Openings that were refused for want of memory.
    pub refused: u64,
    /// Data frames dropped because they belonged to no opening in force; their sources send
    /// them again.
    pub stale: u64,
    /// Frames dropped because their checksum was wrong.
    pub corrupt: u64,
    /// Links closed because their peer did what it must not.
    pub misbehaved: u64,
    /// Flows that are admitted now.
    pub flows: u32,
    /// Flows that can be admitted at once.
    pub flow_limit: u32,
    /// Links that are up now.
    pub links: usize,
    /// Bytes that wait in flows' queues now.
    pub queued_bytes: u64,
    /// Bytes that are promised now, at most.
    pub promised_bytes: u64,
    /// Per network of this gateway, in the order of the cluster file.
    pub networks: Vec<NetworkCounters>,
}

impl Counters {
    /// Copies per data frame that left; frames that had to wait not counted.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn copies_per_frame(&self) -> f64 {
        if self.frames == 0 {
            0.0
        } else {
            self.copies as f64 / self.frames as f64
        }
    }
}

/// What happened on one network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NetworkCounters {
    /// The network's name.
    pub name: String,
    /// Calls that received something.
    pub receives: u64,
    /// Bytes of it.
    pub received_bytes: u64,
    /// Calls that sent something.
    pub sends: u64,
    /// Bytes of it.
    pub sent_bytes: u64,
    /// Times that a lane took less than there was.
    pub blocked: u64,
    /// Times that the receiver slept.
    pub sleeps: u64,
    /// Times that the receiver left the network to the lookout.
    pub leaves: u64,
}

/// The counters that threads add to, batch by batch.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) copies: AtomicU64,
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) spliced_frames: AtomicU64,
    pub(crate) parked_copies: AtomicU64,
    pub(crate) parked_bytes: AtomicU64,
    pub(crate) corrupt: AtomicU64,
    pub(crate) misbehaved: AtomicU64,
}

impl Tally {
    pub(crate) fn note_copy(&self, copies: u64, bytes: u64) {
        add(&self.copies, copies);
        add(&self.copied_bytes, bytes);
    }

    pub(crate) fn note_parked(&self, bytes: usize) {
        if bytes > 0 {
            add(&self.parked_copies, 1);
            add(&self.parked_bytes, u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }
}

/// The same for one network.
#[derive(Debug, Default)]
pub(crate) struct NetworkTally {
    pub(crate) receives: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) sends: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) blocked: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) leaves: AtomicU64,
}

impl NetworkTally {
    pub(crate) fn counters(&self, name: &str) -> NetworkCounters {
        NetworkCounters {
            name: name.to_owned(),
            receives: read(&self.receives),
            received_bytes: read(&self.received_bytes),
            sends: read(&self.sends),
            sent_bytes: read(&self.sent_bytes),
            blocked: read(&self.blocked),
            sleeps: read(&self.sleeps),
            leaves: read(&self.leaves),
        }
    }
}

/// Counters are only read by people, so that no order is needed.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    if amount > 0 {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
