//! The processes of a soak.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use madgate_benches::children::say;
use madgate_vchannel::{Channel, Cluster, NodeId, Session};

use crate::traffic::{Receiver, Sender};

/// Messages of one visit.
const VISIT: u64 = 50;

/// How long the last messages of a visitor may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(30);

/// A node that stays.
#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    cluster: PathBuf,
    node: String,
    peer: String,
}

/// What has arrived at a node of the one that stays.
#[derive(Debug, Default)]
struct Arrived {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl NodeArguments {
    pub(crate) fn run(self) -> io::Result<()> {
        let (channel, peer) = join(&self.cluster, &self.node, &self.peer)?;
        let arrived = Arc::new(Arrived::default());
        let receives = (channel.clone(), Arc::clone(&arrived));
        thread::spawn(move || give_up(receive_all(&receives.0, peer, &receives.1)));
        say("ready")?;
        let mut lines = io::stdin().lock().lines();
        lines.next().transpose()?;
        thread::spawn(move || give_up(send_all(&channel, peer)));
        for line in lines {
            line?;
            let messages = arrived.messages.load(Ordering::Relaxed);
            let bytes = arrived.bytes.load(Ordering::Relaxed);
            say(&format!("counts {messages} {bytes}"))?;
        }
        Ok(())
    }
}

fn send_all(channel: &Channel, to: NodeId) -> io::Result<()> {
    let mut sender = Sender::new();
    loop {
        sender.send(channel, to).map_err(io::Error::other)?;
    }
}

/// Every other node than `peer` comes and goes.
fn receive_all(channel: &Channel, peer: NodeId, arrived: &Arrived) -> io::Result<()> {
    let mut receiver = Receiver::new();
    let mut next: HashMap<NodeId, u64> = HashMap::new();
    loop {
        let unpacking = channel.begin_unpacking().map_err(io::Error::other)?;
        let from = unpacking.source();
        let (number, bytes) = receiver.receive(unpacking)?;
        let due = next.entry(from).or_default();
        if *due == VISIT && from != peer {
            // The next visit.
            *due = 0;
        }
        if number != *due {
            let name = channel.session().cluster().node_name(from).to_owned();
            let what = format!("message {number} of {name} came where {due} was due");
            return Err(io::Error::other(what));
        }
        *due = number + 1;
        if from != peer {
            continue;
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        arrived.messages.fetch_add(1, Ordering::Relaxed);
        arrived.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The process ends with the first thing that goes wrong in any thread.
fn give_up(result: io::Result<()>) {
    if let Err(error) = result {
        eprintln!("soak: {error}");
        std::process::exit(1);
    }
}

/// A node that comes and goes.
#[derive(Debug, Args)]
pub(crate) struct VisitorArguments {
    cluster: PathBuf,
    node: String,
    peer: String,
}

impl VisitorArguments {
    pub(crate) fn run(self) -> io::Result<()> {
        let (channel, peer) = join(&self.cluster, &self.node, &self.peer)?;
        let mut sender = Sender::new();
        for _ in 0..VISIT {
            sender.send(&channel, peer).map_err(io::Error::other)?;
        }
        let session = channel.session().clone();
        drop(channel);
        session.close(CLOSE_WITHIN).map_err(io::Error::other)?;
        say("sent")
    }
}

fn join(cluster: &Path, node: &str, peer: &str) -> io::Result<(Channel, NodeId)> {
    let cluster = read(cluster)?;
    let peer = cluster
        .node(peer)
        .ok_or_else(|| io::Error::other(format!("no node {peer}")))?;
    let session = Session::open(cluster, node).map_err(io::Error::other)?;
    let channel = session.channel("main").map_err(io::Error::other)?;
    Ok((channel, peer))
}

fn read(cluster: &Path) -> io::Result<Arc<Cluster>> {
    let cluster = Cluster::read(cluster).map_err(io::Error::other)?;
    Ok(Arc::new(cluster))
}
