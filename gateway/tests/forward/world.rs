//! Clusters on one host, for tests: a cluster file and a key in a folder of their own.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use madgate_gateway::Gateway;
use madgate_tm::conformance::has_card;
use madgate_tm::hsl::Card;
use madgate_vchannel::handshake::SessionKey;
use madgate_vchannel::{Channel, Cluster, Session};

/// What a test gives up after: never the measure of anything.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A cluster on this host.
pub(crate) struct World {
    folder: tempfile::TempDir,
    text: String,
}

impl World {
    /// A cluster without networks.
    pub(crate) fn new(settings: &str) -> Self {
        // Says what happens where `RUST_LOG` asks for it; only the first test sets it up.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("session.key");
        SessionKey::generate().write_new(&key).unwrap();
        let text = format!("[session]\nname = \"test\"\nkey_file = \"session.key\"\n{settings}\n");
        Self { folder, text }
    }

    /// Networks with a protocol each: `("left", "tcp")`, or `("left", "hsl shm")` for remote write
    /// with that provider of libfabric's.
    pub(crate) fn networks(mut self, networks: &[(&str, &str)]) -> Self {
        for (name, protocol) in networks {
            let (protocol, provider) = split(protocol);
            let _ = writeln!(
                self.text,
                "[[network]]\nname = {name:?}\nprotocol = {protocol:?}"
            );
            if protocol != "tcp" {
                let directory = self.folder.path().join(name);
                let _ = writeln!(self.text, "directory = {directory:?}");
            }
            if let Some(provider) = provider {
                let _ = writeln!(self.text, "device = \"libfabric\"\nprovider = {provider:?}");
            } else if protocol == "hsl" {
                let _ = writeln!(self.text, "trust = \"memory\"");
            }
        }
        self
    }

    /// More keys of what was described last.
    pub(crate) fn and(mut self, keys: &str) -> Self {
        let _ = writeln!(self.text, "{keys}");
        self
    }

    /// A node on some networks, given with their protocols; one on several is a gateway.
    pub(crate) fn node(mut self, name: &str, networks: &[(&str, &str)]) -> Self {
        let _ = writeln!(
            self.text,
            "[[node]]\nname = {name:?}\ngateway = {}",
            networks.len() > 1
        );
        let addresses: Vec<_> = networks
            .iter()
            .map(|(network, protocol)| match *protocol {
                "tcp" => format!("{network} = \"{}\"", fresh_address()),
                _ => format!("{network} = {name:?}"),
            })
            .collect();
        let _ = writeln!(self.text, "addresses = {{ {} }}", addresses.join(", "));
        self
    }

    /// A channel over all of the networks.
    pub(crate) fn channel(mut self, name: &str, networks: &[&str]) -> Self {
        let _ = writeln!(
            self.text,
            "[[channel]]\nname = {name:?}\nnetworks = {networks:?}"
        );
        self
    }

    /// A TCP network `left` (a0, gw) and another network `right` (gw, b0), one channel.
    pub(crate) fn two(left: &str, right: &str, settings: &str) -> Self {
        Self::new(settings)
            .networks(&[("left", left), ("right", right)])
            .node("a0", &[("left", left)])
            .node("gw", &[("left", left), ("right", right)])
            .node("b0", &[("right", right)])
            .channel("main", &["left", "right"])
    }

    /// Writes the file, and reads it as every node does.
    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        let path = self.path();
        fs::write(&path, &self.text).unwrap();
        match Cluster::read(&path) {
            Ok(cluster) => Arc::new(cluster),
            Err(error) => panic!("{error}"),
        }
    }

    /// Where the file is once it has been read.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("cluster.toml")
    }

    pub(crate) fn gateway(&self, name: &str) -> Gateway {
        Gateway::start(self.cluster(), name).unwrap()
    }

    pub(crate) fn node_of(&self, name: &str) -> Node {
        let session = Session::open(self.cluster(), name).unwrap();
        let channel = session.channel("main").unwrap();
        Node { session, channel }
    }

    /// The gateway's own end.
    pub(crate) fn at_gateway(&self, gateway: &Gateway) -> Node {
        let session = gateway.session().clone();
        let channel = session.channel("main").unwrap();
        Node { session, channel }
    }

    /// Waits until something has come about that nothing tells of.
    pub(crate) fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + LONG;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
            std::thread::yield_now();
        }
    }
}

/// A node with its end of the channel `main`.
pub(crate) struct Node {
    pub(crate) session: Session,
    pub(crate) channel: Channel,
}

/// An address of this host that no other test has: ports could be taken, these cannot.
fn fresh_address() -> SocketAddrV4 {
    static NEXT: AtomicU32 = AtomicU32::new(2);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let [_, _, more, last] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let host = Ipv4Addr::new(127, 64 | (high & 0x3f), low, last);
    SocketAddrV4::new(host, 7100 + u16::from(more))
}

/// Remote write with every device that this host has, as [`World::networks`] wants it.
pub(crate) fn remote_writes() -> Vec<&'static str> {
    [&["hsl"], &fabrics()[..]].concat()
}

/// The same, with those of libfabric's that need no hardware.
pub(crate) fn fabrics() -> Vec<&'static str> {
    let mut all = vec!["hsl tcp;ofi_rxm", "hsl shm", "hsl sockets"];
    all.retain(|protocol| {
        let card = Card::Libfabric {
            provider: split(protocol).1.map(str::to_owned),
            domain: None,
        };
        has_card(&card)
    });
    all
}

/// A protocol, and the provider of libfabric's that it is to be had with.
fn split(protocol: &str) -> (&str, Option<&str>) {
    match protocol.split_once(' ') {
        Some((protocol, provider)) => (protocol, Some(provider)),
        None => (protocol, None),
    }
}
