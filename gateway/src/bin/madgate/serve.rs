//! `madgate serve`: a node that receives files and answers benches.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::failure::Failure;
use crate::files::temporary::sweep;
use crate::limits;
use crate::node::{join, read_cluster};
use crate::output::print;
use crate::service::Service;
use crate::signals::Endings;

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
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let endings = Endings::listen()?;
    limits::raise_descriptors();
    let (cluster, _) = read_cluster(&arguments.cluster, &arguments.node)?;
    let session = join(&cluster, &arguments.node)?;
    let service = Service::start(&session, Some(&arguments.dir), None)?;
    print(&format!(
        "madgate serve {}: ready, receiving files under {}\n",
        arguments.node,
        arguments.dir.display()
    ))?;

    endings.wait();
    let copies = match service.copies() {
        0 => "no copy is under way".to_owned(),
        1 => "1 copy breaks off".to_owned(),
        copies => format!("{copies} copies break off"),
    };
    // Somebody who does not take this line stops nothing.
    let told = print(&format!(
        "madgate serve {}: leaving, {copies}\n",
        arguments.node
    ));
    if !service.stop(STOP_LIMIT) {
        // A copy is stuck, in a call that waits for its node or for a disk.
        tracing::warn!("a copy does not end; its unfinished file goes when this starts again");
        sweep(&arguments.dir);
    } else if let Err(error) = session.close(STOP_LIMIT) {
        tracing::warn!(%error, "the session is left early");
    }
    told.map(|()| ExitCode::SUCCESS)
}
