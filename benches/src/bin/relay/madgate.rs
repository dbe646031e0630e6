//! madgate: a gateway between two TCP networks, with an endpoint on each.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use madgate_benches::children::say;
use madgate_benches::madgate::{BenchNetwork, stage_madgate, write_cluster};
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Point, Process, Stage, Timing};
use madgate_gateway::Gateway;
use madgate_vchannel::Cluster;

const RELAY: &str = "madgate-relay";

/// A gateway and two endpoints, all of which wait so.
#[derive(Debug)]
pub(crate) struct Madgate(pub(crate) Wait);

impl Contestant for Madgate {
    fn name(&self) -> &'static str {
        "madgate"
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let network = |name, nodes| BenchNetwork {
            name,
            protocol: "tcp",
            keys: "",
            nodes,
        };
        let networks = [
            network("left", &["a0", "gw"]),
            network("right", &["gw", "b0"]),
        ];
        let (files, cluster) = write_cluster(&networks, self.0, "")?;
        stage_madgate(point, timing, files, &cluster, || {
            let relay = Process::again(RELAY, [RELAY.into(), cluster.as_os_str().to_owned()])?;
            relay.word("forwards")?;
            Ok(Some(relay))
        })
    }
}

/// What the process of the gateway must know.
#[derive(Debug, Args)]
pub(crate) struct MadgateRelayArguments {
    /// The cluster file.
    cluster: PathBuf,
}

impl MadgateRelayArguments {
    /// Forwards until the bench kills it.
    pub(crate) fn run(self) -> io::Result<()> {
        let cluster = Cluster::read(&self.cluster).map_err(io::Error::other)?;
        let gateway = Gateway::start(Arc::new(cluster), "gw").map_err(io::Error::other)?;
        say("forwards")?;
        // The bench closes the input when it ends, if it does not kill this first.
        io::copy(&mut io::stdin(), &mut io::sink())?;
        drop(gateway);
        Ok(())
    }
}
