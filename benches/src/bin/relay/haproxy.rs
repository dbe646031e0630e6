//! HAProxy on one thread, which splices: always, or when it thinks that it pays.
//!
//! Always costs the relay less; which of the two is faster depends on the machine.

use std::fs;
use std::io;
use std::net::SocketAddr;

use madgate_benches::children::{Place, any_loopback, free_address, stage_plain};
use madgate_benches::process::is_installed;
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Point, Process, Stage, Timing};

const PROGRAM: &str = "haproxy";

/// When HAProxy splices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Splice {
    /// Always, through pipes as the kernel makes them.
    Always,
    /// Always, through pipes of 1 MiB.
    LargePipes,
    /// As its heuristics say.
    Auto,
}

impl Splice {
    fn options(self) -> &'static str {
        match self {
            Self::Always | Self::LargePipes => "option splice-request\n    option splice-response",
            Self::Auto => "option splice-auto",
        }
    }

    /// What it is told of its pipes.
    fn tuning(self) -> &'static str {
        match self {
            Self::Always | Self::Auto => "",
            Self::LargePipes => "tune.pipesize 1048576",
        }
    }
}

/// HAProxy that splices so, between ends that wait so.
#[derive(Debug)]
pub(crate) struct Haproxy(pub(crate) Splice, pub(crate) Wait);

impl Contestant for Haproxy {
    fn name(&self) -> &'static str {
        match self.0 {
            Splice::Always => "haproxy",
            Splice::LargePipes => "haproxy-pipes",
            Splice::Auto => "haproxy-auto",
        }
    }

    fn missing(&self) -> Option<String> {
        (!is_installed(PROGRAM)).then(|| format!("{PROGRAM} is not installed"))
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let files = tempfile::tempdir()?;
        let place = Place::Tcp(any_loopback());
        let stage = stage_plain(point, timing, self.1, &place, |sink| {
            let Place::Tcp(sink) = sink else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let at = free_address()?;
            let file = files.path().join("haproxy.cfg");
            fs::write(&file, configuration(self.0, at, sink))?;
            let relay = Process::program(
                PROGRAM,
                [
                    "-q".into(),
                    "-db".into(),
                    "-f".into(),
                    file.into_os_string(),
                ],
            )?;
            Ok((Some(relay), Place::Tcp(at)))
        })?;
        Ok(Stage {
            files: Some(files),
            ..stage
        })
    }
}

fn configuration(splice: Splice, listen: SocketAddr, sink: SocketAddr) -> String {
    let (tuning, splice) = (splice.tuning(), splice.options());
    format!(
        "\
global
    nbthread 1
    maxconn 64
    {tuning}
defaults
    mode tcp
    {splice}
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen relay
    bind {listen}
    server sink {sink}
"
    )
}
