//! A small cluster for tests, on addresses that no other test has.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tempfile::TempDir;

use crate::cluster::{Cluster, NetworkId, NodeId};
use crate::conductor::Party;
use crate::handshake::{Member, SessionKey};

/// Two clusters and a gateway: `a0`, `a1` and `gw` on `left` (TCP), `gw` and `b0` on `right`
/// (shared memory); `g2` is a second gateway. `a1` is known by its host name.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) key: SessionKey,
    text: String,
    folder: TempDir,
}

pub(crate) const BOTH: [Party; 2] = [Party::Endpoint, Party::Engine];

impl Fixture {
    pub(crate) fn new() -> Self {
        // Loopback has 2^24 addresses: one is enough to be alone, ports tell nodes apart.
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let [second, third] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let host = Ipv4Addr::new(127, high ^ second, low, third);
        let text = format!(
            r#"
            [session]
            name = "test"
            key_file = "session.key"
            [gateway]
            ahead = "64KiB"
            [[network]]
            name = "left"
            protocol = "tcp"
            [[network]]
            name = "right"
            protocol = "shm"
            directory = "right"
            [[node]]
            name = "a0"
            addresses = {{ left = "{host}:7100" }}
            [[node]]
            name = "a1"
            addresses = {{ left = "localhost:{port}" }}
            [[node]]
            name = "gw"
            gateway = true
            addresses = {{ left = "{host}:7102", right = "gw" }}
            [[node]]
            name = "b0"
            addresses = {{ right = "b0" }}
            [[node]]
            name = "g2"
            gateway = true
            addresses = {{ left = "{host}:7103", right = "g2" }}
            [[channel]]
            name = "main"
            networks = ["left", "right"]
            "#,
            port = free_port(),
        );
        let folder = tempfile::tempdir().unwrap();
        let key = SessionKey::generate();
        key.write_new(&folder.path().join("session.key")).unwrap();
        let cluster = Arc::new(Cluster::parse(&text, folder.path()).unwrap());
        Self {
            cluster,
            key,
            text,
            folder,
        }
    }

    /// Where the nodes of network `right` meet.
    pub(crate) fn right(&self) -> PathBuf {
        self.folder.path().join("right")
    }

    /// The same nodes at the same addresses, in a session of another name.
    pub(crate) fn other_cluster(&self) -> Arc<Cluster> {
        let text = self.text.replace("\"test\"", "\"other\"");
        Arc::new(Cluster::parse(&text, self.folder.path()).unwrap())
    }

    pub(crate) fn node(&self, name: &str) -> NodeId {
        self.cluster.node(name).unwrap()
    }

    pub(crate) fn network(&self, name: &str) -> NetworkId {
        self.cluster.network_named(name).unwrap()
    }

    pub(crate) fn member(&self, name: &str, incarnation: u64) -> Arc<Member> {
        self.member_with(name, incarnation, &self.key, &BOTH)
    }

    pub(crate) fn member_with(
        &self,
        name: &str,
        incarnation: u64,
        key: &SessionKey,
        parties: &[Party],
    ) -> Arc<Member> {
        let cluster = Arc::clone(&self.cluster);
        let node = self.node(name);
        let (key, parties) = (key.clone(), parties.to_vec());
        Arc::new(Member::new(cluster, node, incarnation, key, parties))
    }
}

/// A port that nobody listens on: `localhost` is not ours alone.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("localhost", 0)).unwrap();
    listener.local_addr().unwrap().port()
}
