//! Limits of the process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Allows as many descriptors as the system lets this process have: links and files each
/// need one, and the usual 1024 are few for a service.
pub(crate) fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
