//! Shared memory: static buffers in sealed memfd rings.

use std::io;
use std::path::{Path, PathBuf};

use crate::lane::{Listener, Stranger};
use crate::protocol::ShmTuning;

/// Longest path that a Unix socket can have.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where the node `name` listens.
pub(crate) fn socket_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.sock"))
}

pub(crate) fn listen(_: &Path, _: &str, _: &ShmTuning) -> io::Result<Box<dyn Listener>> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn connect(_: &Path, _: &str, _: &ShmTuning) -> io::Result<Box<dyn Stranger>> {
    Err(io::ErrorKind::Unsupported.into())
}
