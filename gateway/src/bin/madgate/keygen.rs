//! `madgate keygen`: a session key in a new file.

use std::path::PathBuf;

use clap::Args;
use madgate_vchannel::handshake::SessionKey;

use crate::failure::Failure;
use crate::output::print;

/// Write a new session key, readable by its owner only, never over an existing file
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file to write; `key_file` of the cluster file names it
    file: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let file = &arguments.file;
    SessionKey::generate().write_new(file)?;
    print(&format!(
        "wrote {}: copy it to every node, over a way that nobody else reads\n",
        file.display()
    ))
}
