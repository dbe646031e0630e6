//! The process of a gateway.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use madgate_gateway::Gateway;
use madgate_vchannel::Cluster;

use crate::children::say;
use crate::process::{Process, raise_descriptors};
use crate::stage::{self, Passed};

/// The node that is the gateway of a bench.
pub const GATEWAY: &str = "gw";

/// What the process of a gateway must know.
#[derive(Debug, Args)]
pub struct GatewayArguments {
    /// The cluster file.
    cluster: PathBuf,
    /// Passes of the stage on each side; without any, there is no stage.
    #[arg(long, default_value_t = 0)]
    stage_passes: u32,
}

impl GatewayArguments {
    /// Forwards until the bench ends, or kills it.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn run(&self) -> io::Result<()> {
        raise_descriptors()?;
        let cluster = Arc::new(Cluster::read(&self.cluster).map_err(io::Error::other)?);
        let gateway = match self.stage_passes {
            0 => Gateway::start(cluster, GATEWAY),
            passes => stage::start(cluster, GATEWAY, passes, &Arc::new(Passed::default())),
        };
        let gateway = gateway.map_err(io::Error::other)?;
        say("forwards")?;
        // The bench closes the input when it ends, if it does not kill this first.
        io::copy(&mut io::stdin(), &mut io::sink())?;
        drop(gateway);
        Ok(())
    }
}

/// Starts the gateway of `cluster`, with a stage of so many passes, and waits until it is there.
/// Its program must have [`GatewayArguments`] as the subcommand `gateway`.
///
/// # Errors
///
/// If it cannot be started.
pub fn start_gateway(cluster: &Path, stage_passes: u32) -> io::Result<Process> {
    let gateway = Process::again(
        "gateway",
        [
            "gateway".into(),
            cluster.as_os_str().to_owned(),
            "--stage-passes".into(),
            stage_passes.to_string().into(),
        ],
    )?;
    gateway.word("forwards")?;
    Ok(gateway)
}
