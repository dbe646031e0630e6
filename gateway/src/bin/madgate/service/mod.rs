//! What a node answers: copies of files, benches, and trials of a tuner. One thread per channel reads messages;
//! copies have threads of their own.
//!
//! ```text
//!  channel ──> desk ──┬── copies ──queue──> a thread per copy ──> files
//!                     ├── meters: echo, check and count, send, watch the gateway
//!                     └── trials: other values for this node, for a while
//! ```

mod copies;
mod desk;
pub(crate) mod envelope;
mod meters;
pub(crate) mod order;
pub(crate) mod pattern;
mod receiver;
pub(crate) mod seen;
pub(crate) mod talk;
pub(crate) mod under_way;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use madgate_vchannel::Session;
use rustix::fs::{Access, access};

use crate::failure::{Context, Failure};
use crate::files::root::Root;
use crate::files::sweep::sweep;
use crate::tunable::Trials;
use copies::Shared;
use desk::Desk;
use madgate_gateway::Observer;
use meters::Meters;

/// How long the removal of what copies leave behind may take that do not end.
const REMOVE_LIMIT: Duration = Duration::from_secs(1);

/// A running service. [`stop`](Self::stop) it before the session is closed.
#[derive(Debug)]
pub(crate) struct Service {
    stopping: Arc<AtomicBool>,
    shared: Arc<Shared>,
    /// Each desk holds the other side; it disconnects when the last one has ended.
    ended: Receiver<()>,
}

impl Service {
    /// Answers on every channel that the node is in; receives files where there is a folder,
    /// and watches the gateway that the node is.
    pub(crate) fn start(
        session: &Session,
        folder: Option<&Path>,
        gateway: Option<&Observer>,
        trials: &Arc<Trials>,
    ) -> Result<Self, Failure> {
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
                trials: Arc::clone(trials),
                meters: Mutex::new(Meters::new(gateway.cloned(), Arc::clone(trials))),
                hands: AtomicUsize::new(0),
                _alive: alive.clone(),
            };
            thread::Builder::new()
                .name("madgate-desk".into())
                .spawn(move || desk.run())
                .or_fail(|| "cannot start a thread".into())?;
        }
        Ok(Self {
            stopping,
            shared,
            ended,
        })
    }

    /// How many copies are under way.
    pub(crate) fn copies(&self) -> usize {
        self.shared.running()
    }

    /// Ends everything; copies that are not complete break off, and leave nothing behind.
    /// Says whether all of it ended within `limit`.
    pub(crate) fn stop(self, limit: Duration) -> bool {
        self.stopping.store(true, Ordering::Relaxed);
        let has_ended = self.ended.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected);
        if !has_ended {
            // In the middle of a message that does not come, or in a call of a disk.
            self.shared.remove_unfinished(REMOVE_LIMIT);
        }
        has_ended
    }
}

fn open_root(folder: &Path) -> Result<Arc<Root>, Failure> {
    let root = Root::open(folder).or_fail(|| {
        let advice = match fs::metadata(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "; the folder must exist, so make it first"
            }
            Ok(about) if !about.is_dir() => "; name a folder",
            _ => "",
        };
        format!("cannot serve {}{advice}", folder.display())
    })?;
    if let Err(error) = access(folder, Access::WRITE_OK) {
        let (folder, error) = (folder.display(), std::io::Error::from(error));
        tracing::warn!(
            "nothing can be received under {folder}: {error}; let this user write in it"
        );
    }
    let removed = sweep(folder);
    if removed > 0 {
        tracing::info!(removed, "unfinished files of an earlier run are removed");
    }
    Ok(Arc::new(root))
}
