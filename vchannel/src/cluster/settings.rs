//! What can be tuned, with its defaults and its bounds.

use std::ops::RangeInclusive;
use std::time::Duration;

/// How a thread waits for the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Sleeps in the kernel at once: least processor time, longest latency.
    Sleep,
    /// Looks again, yielding, for as long as that has caught something lately, then sleeps: the default.
    /// Sleeps at once where a thread that computes wants the same processor.
    Adaptive {
        /// How long it looks at most before it sleeps.
        spin: Duration,
    },
    /// Never sleeps. For machines with more processors than threads.
    Spin,
}

impl WaitPolicy {
    /// How long it looks at most before it sleeps.
    #[must_use]
    pub const fn longest_spin(self) -> Duration {
        match self {
            Self::Sleep => Duration::ZERO,
            Self::Adaptive { spin } => spin,
            Self::Spin => Duration::MAX,
        }
    }
}

/// How long an adaptive wait looks at most before it sleeps, unless the file says otherwise.
pub const DEFAULT_SPIN: Duration = Duration::from_micros(100);
/// The longest spin of an adaptive wait.
pub const MAX_SPIN: Duration = Duration::from_millis(10);

impl Default for WaitPolicy {
    fn default() -> Self {
        Self::Adaptive { spin: DEFAULT_SPIN }
    }
}

/// What a `rate` may be, in bytes per second: 8 kbit/s to 8 Tbit/s.
pub const RATE_BOUNDS: RangeInclusive<u64> = 1_000..=1_000_000_000_000;
/// What a `weight` may be.
pub const WEIGHT_BOUNDS: RangeInclusive<u64> = 1..=100;

/// How a gateway's receiver gives batches to the sender of the next network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Handover {
    /// The receiver sends by itself while the sender has nothing to do: the default.
    #[default]
    Inline,
    /// Always through the sender's thread.
    Thread,
}

/// The `[gateway]` section: what the forwarding engine may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewaySettings {
    /// Batches in the pipeline between a receiver and a sender; 2 is double buffering.
    /// Default 2, [`DEPTH_BOUNDS`].
    pub depth: usize,
    /// Bytes of one batch. Default 1 MiB, [`BATCH_BOUNDS`].
    pub batch_bytes: usize,
    /// Cap on what the engine promises to keep. Default 1 GiB, [`MEMORY_BOUNDS`].
    pub memory_bytes: u64,
    /// How its threads wait. Default adaptive.
    pub wait: WaitPolicy,
    /// Processors that its threads are pinned to, in turn; empty (the default) pins nothing.
    pub pin: Vec<usize>,
    /// Payloads of at least this size are received straight into where they leave from.
    /// Default 16 KiB, [`DIRECT_BOUNDS`].
    pub direct_bytes: usize,
    /// The engine fills no further bulk slot of a lane to a session while there is so much in those that the
    /// session has not given back; what [`LEAST_AHEAD`](madgate_tm::LEAST_AHEAD) full slots hold at least.
    /// Default 7 MiB, [`AHEAD_BOUNDS`].
    pub ahead_bytes: usize,
    /// Whether payloads pass from one socket to another without being read into memory, where
    /// both networks can do that. Default yes.
    pub splice: bool,
    /// Only those of blocks that are at least this long: shorter ones are read and written in
    /// fewer calls. Default 128 KiB, [`SPLICE_FROM_BOUNDS`].
    pub splice_from_bytes: usize,
    /// Who sends. Default inline.
    pub handover: Handover,
    /// Whether frames that wait for a link leave together, by one call or in one slot. Default yes.
    pub gather: bool,
    /// Whether one receiver looks after the networks of others while little comes. Default yes;
    /// never with `pin`.
    pub lookout: bool,
    /// Whether, while much comes by a network, the receiver of the next one receives by it too where its
    /// own thread waits for a processor. Default yes; never with `pin`.
    pub deputies: bool,
    /// Whether receivers that have much to do leave the processor to those that run when they are woken
    /// (`SCHED_BATCH`). Default yes.
    pub sched_batch: bool,
}

/// The `[endpoint]` section: what a session of an application may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSettings {
    /// Cap on what the endpoint promises to keep for arriving messages. Default 256 MiB,
    /// [`MEMORY_BOUNDS`].
    pub memory_bytes: u64,
    /// What one flow keeps of messages that have been sent and not yet delivered, so that
    /// `end_packing` need not wait. Default 24 MiB, [`RETENTION_BOUNDS`].
    pub retention_bytes: u64,
    /// The largest window that one flow is granted. Default 4 MiB, [`WINDOW_BOUNDS`].
    pub window_bytes: u64,
    /// Whether small blocks travel with a large one that follows them, where the network takes them
    /// so, and a message that begins with a large block begins with a short fragment: its receiver
    /// knows where the rest belongs. Default yes.
    pub leads: bool,
    /// Whether what arrives of a block that is being unpacked is received into the application's
    /// memory, rather than copied there. Default yes.
    pub straight: bool,
    /// Whether payloads of less than 16 KiB that come one after the other are received many at once,
    /// and copied, over streams. Default yes.
    pub batches: bool,
    /// Whether frames that wait for a link leave together, and small messages that come right after
    /// each other wait for each other for a moment. Default yes.
    pub gather: bool,
    /// Whether small messages to one node that wait to be sent share frames. Default yes.
    pub bundles: bool,
    /// Whether a small message that nothing waits before goes straight from its packer to the link.
    /// Default yes.
    pub alone: bool,
    /// Whether a small message that has come as a whole, in order, is taken in in one step, to who
    /// waits for it if somebody does. Default yes.
    pub whole: bool,
    /// Whether frames that never leave the memory of one host are sent without a checksum. Default
    /// yes.
    pub unsealed: bool,
    /// Whether a block that is alone on its way through gateways begins and ends with small
    /// fragments. Default yes.
    pub ramps: bool,
    /// Whether fragments through gateways are the larger, the faster a flow is delivered; else each
    /// is as large as the channel allows. Default yes.
    pub sized_by_speed: bool,
    /// Whether flows are granted two or three windows while their fragments are large, as their way needs it.
    /// Default yes.
    pub wide_windows: bool,
    /// How callers and the progress thread wait. Default adaptive.
    pub wait: WaitPolicy,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Allowed depths of the pipeline.
pub const DEPTH_BOUNDS: RangeInclusive<u64> = 1..=64;
/// Allowed sizes of a batch.
pub const BATCH_BOUNDS: RangeInclusive<u64> = 64 * KIB..=16 * MIB;
/// Allowed caps of a node's promises.
pub const MEMORY_BOUNDS: RangeInclusive<u64> = 8 * MIB..=1024 * GIB;
/// Allowed limits of straight reception.
pub const DIRECT_BOUNDS: RangeInclusive<u64> = KIB..=16 * MIB;
/// Allowed amounts that are filled into slots ahead of their reader.
pub const AHEAD_BOUNDS: RangeInclusive<u64> = 64 * KIB..=GIB;
/// Allowed lengths of the shortest block that is spliced.
pub const SPLICE_FROM_BOUNDS: RangeInclusive<u64> = KIB..=GIB;
/// Allowed retention budgets.
pub const RETENTION_BOUNDS: RangeInclusive<u64> = 64 * KIB..=64 * GIB;
/// Allowed windows.
pub const WINDOW_BOUNDS: RangeInclusive<u64> = 16 * KIB..=GIB;
/// Allowed fragment sizes (MTU), of channels and networks.
pub const MTU_BOUNDS: RangeInclusive<u64> = KIB..=4 * MIB;
/// Allowed costs of a network.
pub const COST_BOUNDS: RangeInclusive<u64> = 1..=1_000_000;
/// Allowed times until a lost link counts as lost for good.
pub const LINK_TIMEOUT_BOUNDS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
/// Most processors that `pin` may name, and the largest number of one.
pub const MAX_PIN: usize = 1024;

/// Fragment size of a channel that does not say.
pub const DEFAULT_MTU: u32 = 1 << 20;
/// How long a link may be lost, unless the file says otherwise.
pub const DEFAULT_LINK_TIMEOUT: Duration = Duration::from_secs(30);

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            depth: 2,
            batch_bytes: 1 << 20,
            memory_bytes: 1024 * MIB,
            wait: WaitPolicy::default(),
            pin: Vec::new(),
            direct_bytes: 16 << 10,
            ahead_bytes: 7 << 20,
            splice: true,
            splice_from_bytes: 128 << 10,
            handover: Handover::default(),
            gather: true,
            lookout: true,
            deputies: true,
            sched_batch: true,
        }
    }
}

impl EndpointSettings {
    /// The fast ways that can be switched off, by their keys in the file, and whether they are on.
    #[must_use]
    pub fn switches(&self) -> [(&'static str, bool); 11] {
        self.clone()
            .switches_mut()
            .map(|(key, is_on)| (key, *is_on))
    }

    pub(super) const fn switches_mut(&mut self) -> [(&'static str, &mut bool); 11] {
        [
            ("leads", &mut self.leads),
            ("straight", &mut self.straight),
            ("batches", &mut self.batches),
            ("gather", &mut self.gather),
            ("bundles", &mut self.bundles),
            ("alone", &mut self.alone),
            ("whole", &mut self.whole),
            ("unsealed", &mut self.unsealed),
            ("ramps", &mut self.ramps),
            ("sized_by_speed", &mut self.sized_by_speed),
            ("wide_windows", &mut self.wide_windows),
        ]
    }
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            memory_bytes: 256 * MIB,
            retention_bytes: 24 * MIB,
            window_bytes: 4 * MIB,
            leads: true,
            straight: true,
            batches: true,
            gather: true,
            bundles: true,
            alone: true,
            whole: true,
            unsealed: true,
            ramps: true,
            sized_by_speed: true,
            wide_windows: true,
            wait: WaitPolicy::default(),
        }
    }
}
