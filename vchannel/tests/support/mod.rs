//! Sessions of one cluster, all in this process.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use madgate_vchannel::handshake::SessionKey;
use madgate_vchannel::{Channel, Cluster, NodeId, ReceiveMode, Session};
use tempfile::TempDir;

/// What the nodes of a test are connected by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Shm,
    Hsl,
}

pub(crate) const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Shm, Protocol::Hsl];

/// Nodes `n0`, `n1` … on one network, with channels `main` and `other`.
pub(crate) struct Nodes {
    pub(crate) cluster: Arc<Cluster>,
    sessions: Vec<Option<Session>>,
    _folder: TempDir,
}

impl Nodes {
    /// All nodes of a new cluster, with these lines added to its file.
    pub(crate) fn open(protocol: Protocol, count: usize, more: &str) -> Self {
        Self::patient(protocol, count, "2s", more)
    }

    /// The same, with another time for which a link may be lost.
    pub(crate) fn patient(
        protocol: Protocol,
        count: usize,
        link_timeout: &str,
        more: &str,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut text = String::from("[session]\nname = \"test\"\nkey_file = \"key\"\n");
        writeln!(text, "link_timeout = \"{link_timeout}\"").expect("strings take everything");
        text += "[[network]]\nname = \"net\"\n";
        text += match protocol {
            Protocol::Tcp => "protocol = \"tcp\"\n",
            Protocol::Shm => "protocol = \"shm\"\ndirectory = \"shm\"\n",
            Protocol::Hsl => "protocol = \"hsl\"\ndirectory = \"hsl\"\ntrust = \"memory\"\n",
        };
        for node in 0..count {
            let address = match protocol {
                Protocol::Tcp => loopback_address(),
                Protocol::Shm | Protocol::Hsl => format!("n{node}"),
            };
            write!(
                text,
                "[[node]]\nname = \"n{node}\"\naddresses = {{ net = \"{address}\" }}\n"
            )
            .expect("strings take everything");
        }
        for channel in ["main", "other"] {
            write!(
                text,
                "[[channel]]\nname = \"{channel}\"\nnetworks = [\"net\"]\n"
            )
            .expect("strings take everything");
        }
        text += more;
        SessionKey::generate()
            .write_new(&folder.path().join("key"))
            .expect("the key is written");
        let cluster = Cluster::parse(&text, folder.path()).expect("the cluster file is right");
        let mut nodes = Self {
            cluster: Arc::new(cluster),
            sessions: (0..count).map(|_| None).collect(),
            _folder: folder,
        };
        for node in 0..count {
            nodes.start(node);
        }
        nodes
    }

    /// Starts a node that was stopped.
    pub(crate) fn start(&mut self, node: usize) {
        let session = Session::open(Arc::clone(&self.cluster), &format!("n{node}"));
        self.sessions[node] = Some(session.expect("the session opens"));
    }

    /// Stops a node at once.
    pub(crate) fn stop(&mut self, node: usize) -> Session {
        self.sessions[node].take().expect("it runs")
    }

    pub(crate) fn session(&self, node: usize) -> &Session {
        self.sessions[node].as_ref().expect("it runs")
    }

    pub(crate) fn channel(&self, node: usize) -> Channel {
        self.session(node)
            .channel("main")
            .expect("it has the channel")
    }

    pub(crate) fn id(&self, node: usize) -> NodeId {
        self.cluster
            .node(&format!("n{node}"))
            .expect("it has the node")
    }
}

/// An address that nobody else has: tests of several processes run at once.
fn loopback_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let process = std::process::id() % 64_000;
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(
        "127.{}.{}.{}:{}",
        1 + process / 256,
        process % 256,
        1 + next % 250,
        7100 + next / 250
    )
}

/// Bytes that say where they are.
pub(crate) fn pattern(seed: u32, length: usize) -> Vec<u8> {
    let seed = seed.to_le_bytes().into_iter().cycle();
    seed.zip((0..=250_u8).cycle())
        .map(|(seed, place)| seed.wrapping_mul(31) ^ place)
        .take(length)
        .collect()
}

/// Sends one message from a thread of its own: large blocks wait for their delivery.
pub(crate) fn send(
    nodes: &Nodes,
    from: usize,
    to: usize,
    blocks: Vec<(Vec<u8>, ReceiveMode)>,
) -> JoinHandle<()> {
    let (channel, to) = (nodes.channel(from), nodes.id(to));
    thread::spawn(move || {
        let mut packing = channel.begin_packing(to).expect("begins");
        for (block, receive) in &blocks {
            packing.pack_cheaper(block, *receive).expect("packs");
        }
        packing.end_packing().expect("ends");
    })
}

/// Unpacks one message, whatever its blocks are.
pub(crate) fn receive(channel: &Channel) -> (NodeId, Vec<(Vec<u8>, ReceiveMode)>) {
    let mut unpacking = channel.begin_unpacking().expect("begins");
    let mut blocks = Vec::new();
    while let Some((length, receive)) = unpacking.next_block().expect("is known") {
        let length = usize::try_from(length).expect("fits");
        let block = unpacking.unpack_owned(length, receive).expect("unpacks");
        blocks.push((block.to_vec(), receive));
    }
    let source = unpacking.source();
    unpacking.end_unpacking().expect("ends");
    (source, blocks)
}
