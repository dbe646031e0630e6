//! HAProxy on one thread, told to splice.

use std::fs;
use std::io;
use std::net::SocketAddr;

use madgate_benches::children::{Place, any_loopback, free_address, stage_plain};
use madgate_benches::process::is_installed;
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Point, Process, Stage, Timing};

const PROGRAM: &str = "haproxy";

/// HAProxy, between ends that wait so.
#[derive(Debug)]
pub(crate) struct Haproxy(pub(crate) Wait);

impl Contestant for Haproxy {
    fn name(&self) -> &'static str {
        "haproxy"
    }

    fn missing(&self) -> Option<String> {
        (!is_installed(PROGRAM)).then(|| format!("{PROGRAM} is not installed"))
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let files = tempfile::tempdir()?;
        let place = Place::Tcp(any_loopback());
        let stage = stage_plain(point, timing, self.0, &place, |sink| {
            let Place::Tcp(sink) = sink else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let at = free_address()?;
            let file = files.path().join("haproxy.cfg");
            fs::write(&file, configuration(at, sink))?;
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

fn configuration(listen: SocketAddr, sink: SocketAddr) -> String {
    format!(
        "\
global
    nbthread 1
    maxconn 64
defaults
    mode tcp
    option splice-request
    option splice-response
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen relay
    bind {listen}
    server sink {sink}
"
    )
}
