//! socat, with the buffer of the bare relay.

use std::io;

use madgate_benches::children::{Place, any_loopback, free_address, stage_plain};
use madgate_benches::process::is_installed;
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Point, Process, Stage, Timing};

const PROGRAM: &str = "socat";

/// Bytes that one read takes at most.
const BUFFER_BYTES: &str = "262144";

/// socat, between ends that wait so.
#[derive(Debug)]
pub(crate) struct Socat(pub(crate) Wait);

impl Contestant for Socat {
    fn name(&self) -> &'static str {
        "socat"
    }

    fn missing(&self) -> Option<String> {
        (!is_installed(PROGRAM)).then(|| format!("{PROGRAM} is not installed"))
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        stage_plain(point, timing, self.0, &Place::Tcp(any_loopback()), |sink| {
            let Place::Tcp(sink) = sink else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let at = free_address()?;
            let listen = format!(
                "TCP4-LISTEN:{},bind={},reuseaddr,nodelay",
                at.port(),
                at.ip()
            );
            let connect = format!("TCP4:{sink},nodelay");
            let relay = Process::program(PROGRAM, ["-b", BUFFER_BYTES, &listen, &connect])?;
            Ok((Some(relay), Place::Tcp(at)))
        })
    }
}
