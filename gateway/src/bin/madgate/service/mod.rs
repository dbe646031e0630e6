//! What a node answers: copies of files, and benches. One thread per channel reads messages
//! and never waits for anything else; copies have threads of their own.
//!
//! ```text
//!  channel ──> desk ──┬── copies ──queue──> a thread per copy ──> files
//!                     └── meters: echo, or check and count
//! ```

pub(crate) mod copies;
pub(crate) mod envelope;
pub(crate) mod meter;
pub(crate) mod pattern;
mod receiver;
pub(crate) mod talk;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use madgate_vchannel::{Channel, Session};

use crate::failure::{Context, Failure};
use crate::files::root::Root;
use crate::files::temporary::sweep;
use crate::files::wire::Request;
use copies::{Copies, Shared};
use meter::{Meters, Order};
use talk::{Incoming, TalkError};

/// How often a desk looks whether the service is to end.
const LOOK: Duration = Duration::from_millis(200);

/// A running service. [`stop`](Self::stop) it before the session is closed.
#[derive(Debug)]
pub(crate) struct Service {
    stopping: Arc<AtomicBool>,
    /// Each desk holds the other side; it disconnects when the last one has ended.
    ended: Receiver<()>,
}

impl Service {
    /// Answers on every channel that the node is in; receives files where there is a folder.
    pub(crate) fn start(session: &Session, folder: Option<&Path>) -> Result<Self, Failure> {
        let root = folder.map(open_root).transpose()?;
        let shared = Shared::new(root);
        let stopping = Arc::new(AtomicBool::new(false));
        let (alive, ended) = bounded(0);
        let cluster = session.cluster();
        for channel in cluster.channel_ids() {
            if !cluster.is_in_channel(session.node(), channel) {
                continue;
            }
            let desk = Desk {
                channel: session.channel(&cluster.channel(channel).name)?,
                shared: Arc::clone(&shared),
                stopping: Arc::clone(&stopping),
                _alive: alive.clone(),
            };
            thread::Builder::new()
                .name("madgate-desk".into())
                .spawn(move || desk.run())
                .or_fail(|| "cannot start a thread".into())?;
        }
        Ok(Self { stopping, ended })
    }

    /// Ends everything; copies that are not complete break off, and leave nothing behind.
    /// Says whether all of it ended within `limit`.
    pub(crate) fn stop(self, limit: Duration) -> bool {
        self.stopping.store(true, Ordering::Relaxed);
        self.ended.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected)
    }
}

fn open_root(folder: &Path) -> Result<Arc<Root>, Failure> {
    let root = Root::open(folder).or_fail(|| format!("cannot serve {}", folder.display()))?;
    let removed = sweep(folder);
    if removed > 0 {
        tracing::info!(removed, "unfinished files of an earlier run are removed");
    }
    Ok(Arc::new(root))
}

/// Reads one channel.
struct Desk {
    channel: Channel,
    shared: Arc<Shared>,
    stopping: Arc<AtomicBool>,
    _alive: Sender<()>,
}

impl Desk {
    fn run(self) {
        thread::scope(|scope| {
            // Dropped before the scope waits for its threads, which end when it is.
            let mut copies = Copies::new(scope, &self.channel, Arc::clone(&self.shared));
            let mut meters = Meters::default();
            while !self.stopping.load(Ordering::Relaxed) {
                if let Err(error) = self.message(&mut copies, &mut meters) {
                    tracing::debug!(%error, "a message is of no use");
                }
            }
        });
    }

    fn message<'env>(
        &'env self,
        copies: &mut Copies<'_, 'env>,
        meters: &mut Meters,
    ) -> Result<(), TalkError> {
        let Some(mut unpacking) = self.channel.begin_unpacking_within(LOOK)? else {
            return Ok(());
        };
        match talk::read(&mut unpacking)? {
            Incoming::Service(head) if Request::is_kind(head.kind) => {
                copies.message(head, unpacking);
            }
            Incoming::Service(head) if Order::is_kind(head.kind) => {
                let source = unpacking.source();
                unpacking.end_unpacking()?;
                if let Some(answer) = meters.order(source, &head)
                    && let Err(error) = talk::answer(&self.channel, source, answer)
                {
                    tracing::debug!(%error, "an answer is dropped");
                }
            }
            // An answer to somebody who is not here any more.
            Incoming::Service(_) => {}
            Incoming::Payload(size) => meters.payload(&self.channel, unpacking, size)?,
        }
        Ok(())
    }
}
