//! Clusters for scenarios: a cluster file and a key in a folder of their own.

use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use madgate_vchannel::Cluster;
use madgate_vchannel::handshake::SessionKey;

use super::process::Process;
use crate::support::netns::Host;

/// Where all nodes listen: nodes of one host have addresses of their own, or other ports.
const PORT: u16 = 7100;

/// What a network that needs no cable is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    /// Remote write with the card `host`. Its nodes meet in a folder and map each other's memory,
    /// which hosts made of network namespaces do not keep from them: such a network has no cable
    /// wherever its nodes are, and nothing that a test does to cables happens to it.
    RemoteWrite,
}

/// A gateway with TCP on one side and remote write on the other: before it, and beyond it.
pub(crate) const MIXED: [[Protocol; 2]; 2] = [
    [Protocol::RemoteWrite, Protocol::Tcp],
    [Protocol::Tcp, Protocol::RemoteWrite],
];

/// The description of a cluster, and the folder that its file is in.
pub(crate) struct Plan {
    folder: tempfile::TempDir,
    text: String,
    networks: Vec<String>,
    /// Of these, those whose nodes are called by their names.
    named: Vec<String>,
}

impl Plan {
    /// A cluster without networks, with some keys of `[session]`.
    pub(crate) fn new(session: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("session.key");
        SessionKey::generate().write_new(&key).unwrap();
        let text = format!("[session]\nname = \"test\"\nkey_file = \"session.key\"\n{session}\n");
        Self {
            folder,
            text,
            networks: Vec::new(),
            named: Vec::new(),
        }
    }

    /// TCP networks.
    pub(crate) fn networks(self, names: &[&str]) -> Self {
        self.networks_with(names, "")
    }

    /// The same, with further keys, a line each.
    pub(crate) fn networks_with(mut self, names: &[&str], keys: &str) -> Self {
        for name in names {
            let _ = writeln!(
                self.text,
                "[[network]]\nname = \"{name}\"\nprotocol = \"tcp\"\n{keys}"
            );
            self.networks.push((*name).to_owned());
        }
        self
    }

    /// A network of remote write within this host.
    pub(crate) fn remote_write(mut self, name: &str) -> Self {
        let folder = self.folder.path().join(name);
        let _ = writeln!(
            self.text,
            "[[network]]\nname = \"{name}\"\nprotocol = \"hsl\"\ndevice = \"host\"\n\
             trust = \"memory\"\ndirectory = {folder:?}"
        );
        self.networks.push(name.to_owned());
        self.named.push(name.to_owned());
        self
    }

    /// Networks with a protocol each.
    pub(crate) fn networks_of(self, networks: &[(&str, Protocol)]) -> Self {
        networks
            .iter()
            .fold(self, |plan, (name, protocol)| match protocol {
                Protocol::Tcp => plan.networks(&[name]),
                Protocol::RemoteWrite => plan.remote_write(name),
            })
    }

    /// A network of remote write with a provider of libfabric's, whose nodes meet over TCP.
    pub(crate) fn fabric(mut self, name: &str, provider: &str) -> Self {
        let _ = writeln!(
            self.text,
            "[[network]]\nname = \"{name}\"\nprotocol = \"hsl\"\ndevice = \"libfabric\"\n\
             provider = \"{provider}\""
        );
        self.networks.push(name.to_owned());
        self
    }

    /// A node with its addresses on networks, which is its name where nodes meet in a folder; one on
    /// several is a gateway.
    pub(crate) fn node(self, name: &str, addresses: &[(&str, Ipv4Addr)]) -> Self {
        self.node_at(name, PORT, addresses)
    }

    /// The same, with a port of its own.
    pub(crate) fn node_at(mut self, name: &str, port: u16, addresses: &[(&str, Ipv4Addr)]) -> Self {
        let addresses: Vec<_> = addresses
            .iter()
            .map(|(network, address)| {
                if self.named.iter().any(|named| named == network) {
                    return format!("{network} = {name:?}");
                }
                format!("{network} = \"{address}:{port}\"")
            })
            .collect();
        let _ = writeln!(
            self.text,
            "[[node]]\nname = \"{name}\"\ngateway = {}\naddresses = {{ {} }}",
            addresses.len() > 1,
            addresses.join(", ")
        );
        self
    }

    /// A channel over all networks.
    pub(crate) fn channel(mut self, name: &str) -> Self {
        let _ = writeln!(
            self.text,
            "[[channel]]\nname = \"{name}\"\nnetworks = {:?}",
            self.networks
        );
        self
    }

    /// Text at the end of the file: `[gateway]` and `[endpoint]`.
    pub(crate) fn settings(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self.text.push('\n');
        self
    }

    /// A network `left` (a0, gw), a network `right` (gw, b0) and a channel `main`, on this
    /// host, over TCP.
    pub(crate) fn pair(session: &str) -> Self {
        Self::pair_of([Protocol::Tcp; 2], session)
    }

    /// The same, with a protocol for each side.
    pub(crate) fn pair_of([left, right]: [Protocol; 2], session: &str) -> Self {
        Self::new(session)
            .networks_of(&[("left", left), ("right", right)])
            .node("a0", &[("left", loopback())])
            .node("gw", &[("left", loopback()), ("right", loopback())])
            .node("b0", &[("right", loopback())])
            .channel("main")
    }

    /// Where the file is, written as it stands now.
    pub(crate) fn path(&self) -> PathBuf {
        let path = self.folder.path().join("cluster.toml");
        fs::write(&path, &self.text).unwrap();
        path
    }

    /// The cluster as every node reads it.
    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        match Cluster::read(self.path()) {
            Ok(cluster) => Arc::new(cluster),
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts a node of this host.
    pub(crate) fn start(&self, name: &str) -> Process {
        Process::start(&self.path(), name, None)
    }

    /// Starts a node of another host.
    pub(crate) fn start_on(&self, host: &Host, name: &str) -> Process {
        Process::start(&self.path(), name, Some(host))
    }

    /// Starts a node of another host, with settings of its own.
    pub(crate) fn start_tuned(&self, host: &Host, name: &str, settings: &str) -> Process {
        let path = self.folder.path().join(format!("{name}.toml"));
        fs::write(&path, format!("{}\n{settings}\n", self.text)).unwrap();
        Process::start(&path, name, Some(host))
    }
}

/// An address of this host that no other test has: ports could be taken, these cannot.
pub(crate) fn loopback() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let place = NEXT.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let (more, last) = (place / 250 % 2, 2 + place % 250);
    let second = 128 | (high & 0x3f) | u8::try_from(more).unwrap() << 6;
    Ipv4Addr::new(127, second, low, u8::try_from(last).unwrap())
}
