//! What every command that takes part in a session does first.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use madgate_vchannel::{Channel, Cluster, NodeId, Session};

use crate::failure::{Context, Failure};

/// How long the last acknowledgements may take on their way once everything is answered.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Reads the cluster file, logs its warnings, and checks that it has the node.
pub(crate) fn read_cluster(path: &Path, node: &str) -> Result<(Arc<Cluster>, NodeId), Failure> {
    let cluster = Cluster::read(path)?;
    for warning in cluster.warnings() {
        tracing::warn!("{warning}");
    }
    let node = cluster.find_node(node)?;
    Ok((Arc::new(cluster), node))
}

/// Joins the session.
pub(crate) fn join(cluster: &Arc<Cluster>, node: &str) -> Result<Session, Failure> {
    Session::open(Arc::clone(cluster), node).or_fail(|| format!("cannot start node {node}"))
}

/// The channel to talk to `to` over: the one called `name`, else the first in the file that
/// both ends are in.
pub(crate) fn channel_to(
    session: &Session,
    to: NodeId,
    name: Option<&str>,
) -> Result<Channel, Failure> {
    let cluster = session.cluster();
    let name = match name {
        Some(name) => name,
        None => {
            let shared = cluster.channel_ids().find(|channel| {
                cluster.is_in_channel(session.node(), *channel)
                    && cluster.is_in_channel(to, *channel)
            });
            let shared = shared.ok_or_else(|| {
                Failure::new(format!(
                    "{} and {} have no channel in common; `madgate check` lists the channels",
                    cluster.node_name(session.node()),
                    cluster.node_name(to)
                ))
            })?;
            &cluster.channel(shared).name
        }
    };
    Ok(session.channel(name)?)
}

/// Leaves the session when everything has been answered.
pub(crate) fn leave(session: Session, channel: Channel) {
    drop(channel);
    close(session);
}

/// Leaves a session whose channels are gone.
pub(crate) fn close(session: Session) {
    if let Err(error) = session.close(CLOSE_LIMIT) {
        // Everything is confirmed; only acknowledgements can be missing.
        tracing::debug!(%error, "the session is left early");
    }
}
