//! madgate as a contestant: over one network, or over two with a gateway between them.

use std::io;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::cluster::{BenchNetwork, Setting, check_written, write_cluster};
use crate::gateway::start_gateway;
use crate::madgate::stage_madgate;
use crate::waiting::Wait;
use crate::{Contestant, Point, Stage, Timing};

/// Two nodes of one network, over a virtual channel's regular path.
#[derive(Debug, Clone)]
pub struct Regular {
    /// Its name in tables and JSON.
    pub name: &'static str,
    /// The protocol of the network.
    pub protocol: &'static str,
    /// How the nodes wait.
    pub wait: Wait,
    /// What the cluster file says beside that.
    pub settings: Vec<Setting>,
}

impl Regular {
    /// As nodes are without being asked for anything.
    #[must_use]
    pub const fn new(name: &'static str, protocol: &'static str, wait: Wait) -> Self {
        Self {
            name,
            protocol,
            wait,
            settings: Vec::new(),
        }
    }

    /// Whether nodes take the cluster file.
    ///
    /// # Errors
    ///
    /// What they would refuse it for.
    pub fn check(&self) -> io::Result<()> {
        let (_files, cluster) = self.write()?;
        check_written(&cluster)
    }

    fn write(&self) -> io::Result<(TempDir, PathBuf)> {
        let network = BenchNetwork {
            name: "net",
            protocol: self.protocol,
            keys: "",
            nodes: &["a0", "b0"],
        };
        write_cluster(&[network], self.wait, &self.settings)
    }
}

impl Contestant for Regular {
    fn name(&self) -> &'static str {
        self.name
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let (files, cluster) = self.write()?;
        stage_madgate(point, timing, files, &cluster, || Ok(None))
    }
}

/// A node on each of two networks, and a gateway between them.
#[derive(Debug, Clone)]
pub struct Forwarded {
    /// Its name in tables and JSON.
    pub name: &'static str,
    /// The protocols of the networks that the source and the sink are on.
    pub protocols: [&'static str; 2],
    /// How the nodes and the gateway wait.
    pub wait: Wait,
    /// What the cluster file says beside that.
    pub settings: Vec<Setting>,
    /// Passes of the stage on each side of the gateway, see [`crate::stage`].
    pub stage_passes: u32,
}

impl Forwarded {
    /// As a gateway is without being asked for anything.
    #[must_use]
    pub const fn new(name: &'static str, protocols: [&'static str; 2], wait: Wait) -> Self {
        Self {
            name,
            protocols,
            wait,
            settings: Vec::new(),
            stage_passes: 0,
        }
    }

    /// Whether nodes take the cluster file, and its networks all of the settings.
    ///
    /// # Errors
    ///
    /// What they would refuse it for.
    pub fn check(&self) -> io::Result<()> {
        let idle = |setting: &&Setting| !setting.concerns(&self.protocols);
        if let Some(setting) = self.settings.iter().find(idle) {
            let name = setting.name();
            let why = format!(
                "{name} is for a protocol that no network of {} has",
                self.name
            );
            return Err(io::Error::other(why));
        }
        let (_files, cluster) = self.write()?;
        check_written(&cluster)
    }

    fn write(&self) -> io::Result<(TempDir, PathBuf)> {
        let network = |name, protocol, nodes| BenchNetwork {
            name,
            protocol,
            keys: "",
            nodes,
        };
        let [left, right] = self.protocols;
        let networks = [
            network("left", left, &["a0", "gw"]),
            network("right", right, &["gw", "b0"]),
        ];
        write_cluster(&networks, self.wait, &self.settings)
    }
}

impl Contestant for Forwarded {
    fn name(&self) -> &'static str {
        self.name
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let (files, cluster) = self.write()?;
        stage_madgate(point, timing, files, &cluster, || {
            start_gateway(&cluster, self.stage_passes).map(Some)
        })
    }
}
