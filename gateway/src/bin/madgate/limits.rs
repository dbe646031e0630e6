//! Limits of the process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Fewer descriptors than this are warned of.
const FEW: u64 = 256;

/// Allows as many descriptors as the system lets this process have: links and files each
/// need one, and the usual 1024 are few for a service.
pub(crate) fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
    let current = getrlimit(Resource::Nofile).current;
    if let Some(few) = current.filter(|files| *files < FEW) {
        tracing::warn!(
            "this process may have {few} files open, where links and copies need hundreds: raise `ulimit -n`"
        );
    }
}
