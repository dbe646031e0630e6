//! Nodes that can be tuned while they run (`--tunable`).
//!
//! ```text
//!   tuner ──order──> desk ──> Trials ──woken──> Tunable: stop the node, start it with other
//!                     <──answer──┘               values; back to the file's when the lease ends
//! ```
//!
//! A node's values are those that it was started with. To try others, it closes its session
//! and opens it again, as if it had been restarted with another file, in one process. The
//! values are never written anywhere, and last for a lease, which the tuner renews: when that
//! ends, for whatever reason, the node goes back to its file by itself.

#[cfg(test)]
mod tests;
mod trials;
pub(crate) mod wire;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, at, never};
use madgate_vchannel::Cluster;

use crate::failure::Failure;
use crate::knobs::Plan;
use crate::node::read_cluster;
use trials::Change;
pub(crate) use trials::{Received, Trials, processors};

/// How soon it is tried again to go back to the file's values.
const RETRY: Duration = Duration::from_secs(1);

/// A running node.
pub(crate) trait Node: Sized {
    /// Ends in order, so that the node can be started again; or does not, and goes on.
    fn stop(self) -> Result<(), Self>;
}

/// A node, and how it is started with other values.
#[derive(Debug)]
pub(crate) struct Tunable<N, F> {
    /// None while it can be started with nothing.
    node: Option<N>,
    start: F,
    trials: Arc<Trials>,
    /// When to try again to go back to the file.
    retry: Option<Instant>,
}

/// Reads the cluster file of a node, and begins its trials where it can be tuned.
pub(crate) fn read(
    file: &Path,
    node: &str,
    is_tunable: bool,
) -> Result<(Arc<Cluster>, Arc<Trials>), Failure> {
    if !is_tunable {
        let (cluster, _) = read_cluster(file, node)?;
        return Ok((cluster, Trials::new(None)));
    }
    let plan = Plan::read(file)?;
    plan.cluster().find_node(node)?;
    Ok((Arc::clone(plan.cluster()), Trials::new(Some(plan))))
}

impl<N: Node, F: Fn(&Arc<Cluster>) -> Result<N, Failure>> Tunable<N, F> {
    /// Starts the node with the values of its file.
    pub(crate) fn start(
        trials: &Arc<Trials>,
        cluster: &Arc<Cluster>,
        start: F,
    ) -> Result<Self, Failure> {
        Ok(Self {
            node: Some(start(cluster)?),
            start,
            trials: Arc::clone(trials),
            retry: None,
        })
    }

    /// The node, while it runs.
    pub(crate) fn node(&self) -> Option<&N> {
        self.node.as_ref()
    }

    /// The node, to be ended for good.
    pub(crate) fn into_node(self) -> Option<N> {
        self.node
    }

    /// Where it is told to [`look`](Self::look).
    pub(crate) fn woken(&self) -> &Receiver<()> {
        self.trials.woken()
    }

    /// When to look, whoever says anything or not.
    pub(crate) fn timer(&self) -> Receiver<Instant> {
        let next = self.retry.into_iter().chain(self.trials.lease_end()).min();
        next.map_or_else(never, at)
    }

    /// Changes what has to be changed now. Returns whether the node may be another one since.
    pub(crate) fn look(&mut self) -> bool {
        let now = Instant::now();
        if let Some(change) = self.trials.due(now) {
            self.change(&change);
        } else if self.retry.is_some_and(|retry| retry <= now) {
            self.go_back("it could not be done before");
        } else {
            return false;
        }
        true
    }

    fn change(&mut self, change: &Change) {
        self.retry = None;
        if let Some(Err(node)) = self.node.take().map(Node::stop) {
            self.node = Some(node);
            return self.give_up(change, "what it is doing does not end");
        }
        match (self.start)(&change.cluster) {
            Ok(node) => {
                self.node = Some(node);
                self.trials.began(change.trial);
                tracing::info!("{}", change.what);
            }
            Err(why) => {
                self.trials.began(None);
                self.give_up(change, &why.to_string());
                if change.trial.is_some() {
                    self.go_back("a trial could not begin");
                }
            }
        }
    }

    fn give_up(&mut self, change: &Change, why: &str) {
        tracing::warn!("not yet {}: {why}", change.what);
        match change.trial {
            Some(trial) => self.trials.failed(trial, why),
            None => self.retry = Some(Instant::now() + RETRY),
        }
    }

    fn go_back(&mut self, why: &str) {
        if let Some(change) = self.trials.back(why) {
            self.change(&change);
        }
    }
}
