//! HAProxy on one thread, as a relay over TCP.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use crate::Process;
use crate::children::free_address;
use crate::process::is_installed;

const PROGRAM: &str = "haproxy";

/// Connections that it has room for besides those that are asked for.
const SPARE_CONNECTIONS: usize = 63;

/// When HAProxy splices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Splice {
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

/// Why it cannot be measured, if it cannot.
pub fn missing() -> Option<String> {
    (!is_installed(PROGRAM)).then(|| format!("{PROGRAM} is not installed"))
}

/// Starts it between whoever connects, so many of them at once, and `sink`; its configuration goes
/// to `folder`. Returns where it will listen.
///
/// # Errors
///
/// If it cannot be started.
pub fn start(
    splice: Splice,
    connections: usize,
    sink: SocketAddr,
    folder: &Path,
) -> io::Result<(Process, SocketAddr)> {
    let at = free_address()?;
    let file = folder.join("haproxy.cfg");
    fs::write(&file, configuration(splice, connections, at, sink))?;
    let arguments = [
        "-q".into(),
        "-db".into(),
        "-f".into(),
        file.into_os_string(),
    ];
    Ok((Process::program(PROGRAM, arguments)?, at))
}

fn configuration(
    splice: Splice,
    connections: usize,
    listen: SocketAddr,
    sink: SocketAddr,
) -> String {
    let most = connections + SPARE_CONNECTIONS;
    // One for each direction. By itself it has one for every four connections, and copies for who finds none.
    let pipes = 2 * most;
    let (tuning, splice) = (splice.tuning(), splice.options());
    format!(
        "\
global
    nbthread 1
    maxconn {most}
    maxpipes {pipes}
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
