//! Two nodes of one network, over a virtual channel's regular path.

use std::io;

use madgate_benches::madgate::{BenchNetwork, stage_madgate, write_cluster};
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Point, Stage, Timing};

/// madgate over one network.
#[derive(Debug)]
pub(crate) struct Regular {
    name: &'static str,
    protocol: &'static str,
    wait: Wait,
}

impl Regular {
    pub(crate) const fn tcp(wait: Wait) -> Self {
        Self {
            name: "madgate-tcp",
            protocol: "tcp",
            wait,
        }
    }

    pub(crate) const fn shm(wait: Wait) -> Self {
        Self {
            name: "madgate-shm",
            protocol: "shm",
            wait,
        }
    }

    pub(crate) const fn hsl(wait: Wait) -> Self {
        Self {
            name: "madgate-hsl",
            protocol: "hsl",
            wait,
        }
    }
}

impl Contestant for Regular {
    fn name(&self) -> &'static str {
        self.name
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let network = BenchNetwork {
            name: "net",
            protocol: self.protocol,
            keys: "",
            nodes: &["a0", "b0"],
        };
        let (files, cluster) = write_cluster(&[network], self.wait, "")?;
        stage_madgate(point, timing, files, &cluster, || Ok(None))
    }
}
