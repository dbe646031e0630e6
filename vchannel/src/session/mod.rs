//! A node's part in the session: its links, its flows, and the threads that drive them.
//!
//! ```text
//!   Packing ──> Core (flows) ──flush──> LinkOutput ──> lanes        callers, or the
//!   Unpacking <── Core (inboxes) <──drive── Input <── lanes         progress thread
//! ```
//!
//! - [`core`] and [`arrival`]: everything that is known, behind one lock, without system
//!   calls;
//! - [`copies`]: where blocks are whose memory was given back; [`flush`]: from flows to lanes, and
//!   [`alone`] for small messages that nothing waits before;
//!   [`driver`], [`followed`] and [`input`]: from lanes to flows;
//! - [`arrival`], and [`whole`] for small messages where all is as usual: what frames change. A
//!   message that somebody waits for goes straight to its receiver ([`goal::Sought`]), all others to
//!   the inbox of their flow;
//! - [`inbox`], with [`crumbs`] and [`early`]: what has arrived of a flow, and how small
//!   messages stay cheap, with [`message_memory`] where they are while they are unpacked; [`kept`]: how large
//!   blocks wait where they have arrived; [`windows`]: how much may be on its way;
//! - [`wait`]: how a caller waits (it drives), and who wakes whom; [`goal`]: what it waits for;
//!   [`background`]: the thread that drives while no caller does; [`ticker`]: who looks whether
//!   callers do; [`progress`]: how far everything has come.

mod alone;
mod arrival;
mod background;
mod copies;
mod core;
mod crumbs;
mod driver;
mod early;
mod failures;
mod flows;
mod flush;
mod followed;
mod goal;
mod inbox;
mod input;
mod kept;
mod links;
mod lost;
mod message_memory;
mod pool;
mod progress;
#[cfg(test)]
mod tests;
mod ticker;
mod upkeep;
mod wait;
mod whole;
mod windows;

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use madgate_gtm::Time;
use madgate_tm::{Poller, Waker};
use parking_lot::{Condvar, Mutex, MutexGuard};

pub(crate) use self::alone::Alone;
pub(crate) use self::arrival::Wanted;
pub(crate) use self::copies::Copies;
pub(crate) use self::core::{Core, Gathers};
use self::driver::Driver;
pub(crate) use self::early::{Early, TINY_BLOCK_BYTES};
pub(crate) use self::failures::Fate;
pub(crate) use self::flows::{Memory, OutFlow};
pub(crate) use self::flush::class_of;
use self::goal::Goal;
pub(crate) use self::goal::Sought;
pub use self::inbox::Packed;
pub(crate) use self::inbox::{Broken, Inbox, Taken};
pub(crate) use self::input::Straight;
pub(crate) use self::kept::{Contents, Parts};
pub(crate) use self::links::{LaneOutput, LinkOutput};
pub use self::progress::Progress;
pub(crate) use self::whole::WholeMessage;
use crate::channel::Channel;
use crate::cluster::{Cluster, NodeId, WaitPolicy};
use crate::conductor::{Conductor, LinkEvent, Party};
use crate::error::{CloseError, OpenError};
use crate::handshake::{SessionKey, draw_incarnation};

/// A node of a session, as applications hold it. Cheap to clone; all clones are the same
/// node, which leaves the session when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Session {
    /// Held by applications alone, so that the progress thread does not keep the node alive.
    handle: Arc<Handle>,
}

/// What goes when the last application lets go of the session.
#[derive(Debug)]
struct Handle {
    inner: Arc<Inner>,
    progress: Mutex<Option<JoinHandle<()>>>,
}

/// What the session's threads share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) node: NodeId,
    conductor: Arc<Conductor>,
    /// Itself, for the ticker to look at.
    this: Weak<Inner>,
    core: Mutex<Core>,
    /// How callers wait.
    wait_policy: WaitPolicy,
    /// Whether payloads go straight to the block that a caller waits for.
    goes_straight: bool,
    /// Whether short payloads are received many at once.
    takes_batches: bool,
    /// Where they sleep.
    changed: Condvar,
    driver: Mutex<Driver>,
    /// Held while the conductor is told which links are wanted, and which no longer.
    ordering: Mutex<()>,
    waker: Waker,
    pool: pool::BufferPool,
    started: Instant,
    /// Callers that wait while somebody else drives. Changed under the core's lock.
    waiters: AtomicUsize,
    /// Whether a driver may be asleep, and has to be woken to notice anything new.
    driver_sleeps: AtomicBool,
    /// Whether that driver is a caller, who waits for something. Set under the core's lock.
    caller_sleeps: AtomicBool,
    /// Whether another thread has changed something that a caller who drives may wait for.
    /// Written under the core's lock.
    has_changed: AtomicBool,
    /// Whether the progress thread drives, and is to make way for callers.
    background_drives: AtomicBool,
    /// Links whose small frames the progress thread flushes.
    gathering: AtomicBool,
    /// Whether the ticker looks at this session.
    is_watched: AtomicBool,
    /// The progress thread, which says so before it looks at anything.
    background_thread: OnceLock<Thread>,
    is_over: AtomicBool,
}

impl Session {
    /// Joins the session as `node`: loads the session key, listens on the node's networks,
    /// and starts the threads that serve it. Links to other nodes are made when they are
    /// first needed.
    ///
    /// # Errors
    /// When the cluster has no such node, the key cannot be used, or an address of the node
    /// cannot be listened on.
    pub fn open(cluster: Arc<Cluster>, node: &str) -> Result<Self, OpenError> {
        let id = cluster.find_node(node).map_err(OpenError::UnknownNode)?;
        let key = SessionKey::load(cluster.key_file())?;
        let incarnation = draw_incarnation();
        let poller = Poller::new().map_err(OpenError::System)?;
        let waker = poller.waker();
        let wake = {
            let waker = waker.clone();
            Arc::new(move || waker.wake()) as Arc<dyn Fn() + Send + Sync>
        };
        let parties = vec![(Party::Endpoint, wake)];
        let (conductor, mut events) =
            Conductor::start(Arc::clone(&cluster), id, incarnation, key, parties)?;
        let (_, events) = events.remove(0);
        Self::with_conductor(
            cluster,
            id,
            incarnation,
            Arc::new(conductor),
            poller,
            events,
        )
    }

    /// Joins the session beside another party of the same process (a gateway's engine),
    /// which started the conductor.
    ///
    /// # Errors
    /// When the progress thread cannot be started.
    pub fn with_conductor(
        cluster: Arc<Cluster>,
        node: NodeId,
        incarnation: u64,
        conductor: Arc<Conductor>,
        poller: Poller,
        events: Receiver<LinkEvent>,
    ) -> Result<Self, OpenError> {
        let waker = poller.waker();
        let core = Core::new(Arc::clone(&cluster), node, incarnation);
        let spin = core.settings().wait.longest_spin();
        let inner = Arc::new_cyclic(|this| Inner {
            cluster,
            node,
            conductor,
            this: this.clone(),
            wait_policy: core.settings().wait,
            goes_straight: core.settings().straight,
            takes_batches: core.settings().batches,
            core: Mutex::new(core),
            changed: Condvar::new(),
            driver: Mutex::new(Driver::new(poller, events, spin)),
            ordering: Mutex::new(()),
            waker,
            pool: pool::BufferPool::new(),
            started: Instant::now(),
            waiters: AtomicUsize::new(0),
            driver_sleeps: AtomicBool::new(false),
            caller_sleeps: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            background_drives: AtomicBool::new(false),
            gathering: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            background_thread: OnceLock::new(),
            is_over: AtomicBool::new(false),
        });
        let progress = background::start(Arc::clone(&inner)).map_err(OpenError::System)?;
        Ok(Self {
            handle: Arc::new(Handle {
                inner,
                progress: Mutex::new(Some(progress)),
            }),
        })
    }

    /// The node that this is.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.inner().node
    }

    /// The cluster that it belongs to.
    #[must_use]
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.inner().cluster
    }

    /// A channel of the cluster file, by name.
    ///
    /// # Errors
    /// When the file has no such channel, or this node is on none of its networks.
    pub fn channel(&self, name: &str) -> Result<Channel, OpenError> {
        let cluster = &self.inner().cluster;
        let id = cluster
            .find_channel(name)
            .map_err(OpenError::UnknownChannel)?;
        if !cluster.is_in_channel(self.node(), id) {
            return Err(OpenError::NotInChannel {
                node: cluster.node_name(self.node()).to_owned(),
                channel: name.to_owned(),
            });
        }
        Ok(Channel::new(self.clone(), id))
    }

    /// Leaves the session once everything that was packed is delivered, or after `within`.
    /// What has arrived here is acknowledged before, so that nobody looks for this node because
    /// of it.
    ///
    /// # Errors
    /// Names what was not delivered in time, and what was lost before that no call has told.
    pub fn close(self, within: Duration) -> Result<(), CloseError> {
        let inner = self.inner();
        {
            let mut core = inner.lock();
            for flow in &mut core.out_flows {
                flow.flow.request_acknowledgement();
            }
            let flows = 0..u32::try_from(core.out_flows.len()).unwrap_or(u32::MAX);
            for index in flows {
                core.wake_flow(index);
            }
            core.acknowledge_all();
        }
        inner.flush_dirty();
        let deadline = Instant::now().checked_add(within);
        inner.wait(deadline, None, |core| core.is_drained().then_some(()));
        // And what has come meanwhile.
        inner.lock().acknowledge_all();
        inner.flush_dirty();
        let mut core = inner.lock();
        let lost = core.tell_all();
        // The last may have been delivered since the time was over.
        let late = core.out_flows.iter().filter(|it| !it.flow.is_drained());
        let mut nodes: Vec<_> = late.map(|flow| core.destination_of(flow)).collect();
        nodes.sort();
        nodes.dedup();
        if nodes.is_empty() && lost.is_empty() {
            return Ok(());
        }
        Err(CloseError {
            nodes,
            within,
            lost,
        })
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.handle.inner
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.end();
        let progress = self.progress.lock().take();
        if let Some(progress) = progress
            && progress.join().is_err()
        {
            tracing::error!("the progress thread of a session panicked");
        }
        ticker::forget(&self.inner);
    }
}

impl Inner {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// Does something to what is known, of which callers may wait for the result.
    pub(crate) fn with_core<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = self.lock();
        let result = action(&mut core);
        self.wake_waiters(&core);
        result
    }

    /// As [`with_core`](Self::with_core), for the driver, who looks for what it waits for
    /// before anything else changes.
    fn with_core_for<R>(
        &self,
        goal: &mut Goal<'_, '_>,
        action: impl FnOnce(&mut Core, &mut Goal<'_, '_>) -> R,
    ) -> R {
        let mut core = self.lock();
        let result = action(&mut core, goal);
        self.wake_others();
        goal.look(&mut core);
        result
    }

    /// The time, as flows are given it.
    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
