//! The ends of a way through the gateway: two processes that send and receive when they are told.
//!
//! They are this test program, of which they run the test that is called `end`. An order is a
//! number of messages in eight bytes on the standard input; when they have passed, a line is the
//! answer, on the standard error, as the standard output is the test harness's.

use std::env;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;

use madgate_vchannel::ReceiveMode::Express;
use madgate_vchannel::{Channel, Cluster, NodeId, Session};

use crate::world::World;

/// Which end a process is, of which cluster, with which load.
const ROLE: &str = "MADGATE_TEST_END";

/// What passes from `a0` to `b0`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    /// Messages as fast as they are taken.
    Stream { bytes: usize },
    /// Messages each of which waits for its answer.
    Asked { bytes: usize },
}

/// The processes of `a0` and `b0`.
pub(crate) struct Ends([End; 2]);

struct End {
    process: Child,
    answers: BufReader<ChildStderr>,
    /// What was read last, kept so that reading allocates nothing.
    line: String,
}

impl Ends {
    pub(crate) fn start(world: &World, load: Load) -> Self {
        world.cluster();
        Self(["a0", "b0"].map(|node| End::start(&world.path(), node, load)))
    }

    /// So many messages pass. This process allocates nothing for it.
    pub(crate) fn pass(&mut self, messages: u64) {
        for end in &mut self.0 {
            let orders = end.process.stdin.as_mut().unwrap();
            orders.write_all(&messages.to_le_bytes()).unwrap();
        }
        for end in &mut self.0 {
            end.line.clear();
            end.answers.read_line(&mut end.line).unwrap();
            assert_eq!(end.line, ANSWER, "an end failed");
        }
    }
}

/// What an end says when all messages of an order have passed.
const ANSWER: &str = "passed\n";

impl End {
    fn start(cluster: &Path, node: &str, load: Load) -> Self {
        let (kind, bytes) = match load {
            Load::Stream { bytes } => ("stream", bytes),
            Load::Asked { bytes } => ("asked", bytes),
        };
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "end", "--ignored", "--nocapture"])
            .env(ROLE, format!("{node} {kind} {bytes} {}", cluster.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(process.stderr.take().unwrap());
        Self {
            process,
            answers,
            line: String::with_capacity(ANSWER.len()),
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // It may wait for one that has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One end, until there are no more orders. Without a role there is nothing to be.
pub(crate) fn run() {
    let Ok(role) = env::var(ROLE) else { return };
    let mut role = role.splitn(4, ' ');
    let mut next = || role.next().unwrap();
    let (node, kind, bytes, cluster) = (next(), next(), next(), next());
    let cluster = Arc::new(Cluster::read(Path::new(cluster)).unwrap());
    let session = Session::open(Arc::clone(&cluster), node).unwrap();
    let channel = session.channel("main").unwrap();
    let is_source = node == "a0";
    let other = cluster.node(if is_source { "b0" } else { "a0" }).unwrap();
    let mut block = vec![7; bytes.parse().unwrap()];
    let mut order = [0; 8];
    while io::Read::read_exact(&mut io::stdin(), &mut order).is_ok() {
        for _ in 0..u64::from_le_bytes(order) {
            match (is_source, kind) {
                (true, "stream") => send(&channel, other, &block),
                (false, "stream") => receive(&channel, &mut block),
                (true, _) => {
                    send(&channel, other, &block);
                    receive(&channel, &mut block);
                }
                (false, _) => {
                    receive(&channel, &mut block);
                    send(&channel, other, &block);
                }
            }
        }
        io::stderr().write_all(ANSWER.as_bytes()).unwrap();
    }
}

fn send(channel: &Channel, to: NodeId, block: &[u8]) {
    let mut packing = channel.begin_packing(to).unwrap();
    packing.pack_cheaper(block, Express).unwrap();
    packing.end_packing().unwrap();
}

fn receive(channel: &Channel, block: &mut [u8]) {
    let mut unpacking = channel.begin_unpacking().unwrap();
    unpacking.unpack_express(block).unwrap();
    unpacking.end_unpacking().unwrap();
}
