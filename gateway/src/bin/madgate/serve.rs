//! `madgate serve`: a node that receives files and answers benches.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use crossbeam_channel::select;
use madgate_vchannel::{Cluster, Session};

use crate::failure::Failure;
use crate::limits;
use crate::node::join;
use crate::output::print;
use crate::service::Service;
use crate::signals::Endings;
use crate::tunable::{self, Node, Trials, Tunable};

/// How long copies may take to break off, and replies to leave, when the node ends.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// Runs a node that receives files and answers `madgate bench`.
///
/// Prints one line when it is ready. SIGTERM or SIGINT ends it, which it says; copies that are
/// not complete then break off, and leave nothing behind.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The cluster file.
    cluster: PathBuf,
    /// The node that this process is.
    #[arg(long, value_name = "NAME")]
    node: String,
    /// The folder that files are received under; nothing is written anywhere else.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Lets `madgate tune` on any member try other values on this node for a while; every trial
    /// restarts its session.
    #[arg(long)]
    tunable: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let endings = Endings::listen()?;
    limits::raise_descriptors();
    let (cluster, trials) = tunable::read(&arguments.cluster, &arguments.node, arguments.tunable)?;
    let start = |cluster: &Arc<Cluster>| Server::start(cluster, arguments, &trials);
    let mut server = Tunable::start(&trials, &cluster, start)?;
    print(&format!(
        "madgate serve {}: ready, receiving files under {}\n",
        arguments.node,
        arguments.dir.display()
    ))?;

    loop {
        let timer = server.timer();
        select! {
            recv(endings.signals()) -> _ => break,
            recv(server.woken()) -> _ => {}
            recv(timer) -> _ => {}
        }
        server.look();
    }
    let server = server.into_node();
    let copies = match server.as_ref().map_or(0, Server::copies) {
        0 => "no copy is under way".to_owned(),
        1 => "1 copy breaks off".to_owned(),
        copies => format!("{copies} copies break off"),
    };
    // Somebody who does not take this line stops nothing.
    let told = print(&format!(
        "madgate serve {}: leaving, {copies}\n",
        arguments.node
    ));
    if let Some(Err(_)) = server.map(Server::end) {
        tracing::warn!("a copy does not end, as it waits for its node or for a disk: it is left");
    }
    told.map(|()| ExitCode::SUCCESS)
}

/// The node, while it runs.
#[derive(Debug)]
struct Server<'a> {
    session: Session,
    /// None where it was ended, and its desks are not.
    service: Option<Service>,
    folder: &'a Path,
    trials: &'a Arc<Trials>,
}

impl<'a> Server<'a> {
    fn start(
        cluster: &Arc<Cluster>,
        arguments: &'a Arguments,
        trials: &'a Arc<Trials>,
    ) -> Result<Self, Failure> {
        let session = join(cluster, &arguments.node)?;
        if cluster.is_gateway(session.node()) {
            tracing::warn!(
                "{} is a gateway of this cluster, and forwards nothing while it only serves: run \
                 `madgate gateway`, which serves a folder too with --dir",
                arguments.node
            );
        }
        let folder = &arguments.dir;
        let service = Some(Service::start(&session, Some(folder), None, trials)?);
        Ok(Self {
            session,
            service,
            folder,
            trials,
        })
    }

    fn copies(&self) -> usize {
        self.service.as_ref().map_or(0, Service::copies)
    }

    /// Leaves the session; or not, where a copy or a bench does not end.
    fn end(mut self) -> Result<(), Self> {
        if let Some(service) = self.service.take()
            && !service.stop(STOP_LIMIT)
        {
            return Err(self);
        }
        if let Err(error) = self.session.close(STOP_LIMIT) {
            if error.nodes.is_empty() {
                tracing::debug!(%error, "answers to nodes that have gone were lost");
            } else {
                tracing::warn!(%error, "the session is left early");
            }
        }
        Ok(())
    }
}

impl Node for Server<'_> {
    fn stop(self) -> Result<(), Self> {
        self.end().map_err(|mut server| {
            server.service =
                Service::start(&server.session, Some(server.folder), None, server.trials)
                    .inspect_err(|error| tracing::error!(%error, "nothing is answered any more"))
                    .ok();
            server
        })
    }
}
