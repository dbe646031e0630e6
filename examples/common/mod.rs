//! What every example needs before it can begin: a cluster file and a session key.
//!
//! Outside of examples both are files that are the same on every node; the key is made by
//! `madgate keygen`.

use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use madgate_vchannel::Cluster;
use madgate_vchannel::handshake::SessionKey;
use tempfile::TempDir;

/// Writes a cluster file, and the key that it names as `session.key`, to a temporary
/// folder, and reads it. The folder goes with the first part.
pub(crate) fn make_cluster(text: &str) -> Result<(TempDir, Arc<Cluster>), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("cluster.toml");
    fs::write(&file, text)?;
    SessionKey::generate().write_new(&folder.path().join("session.key"))?;
    let cluster = Cluster::read(&file)?;
    Ok((folder, Arc::new(cluster)))
}

/// A TCP address of this host that nobody listens on. Each is on a loopback address of its
/// own: a port that was found to be free may be found so again, until somebody listens.
#[allow(dead_code, reason = "some examples meet in shared memory alone")]
pub(crate) fn free_address() -> Result<String, Box<dyn Error>> {
    static GIVEN: AtomicU8 = AtomicU8::new(0);
    let own = Ipv4Addr::new(127, 0, 1, GIVEN.fetch_add(1, Ordering::Relaxed));
    let socket = TcpListener::bind((own, 0))?;
    Ok(socket.local_addr()?.to_string())
}
