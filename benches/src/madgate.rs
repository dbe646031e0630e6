//! madgate's own ends: every message is its own begin, pack and end, and its own unpack.
//!
//! A message of the bench is two blocks: its sequence number, and the rest, which refers to
//! a pattern that is never changed (given away by reference count, so nothing is copied and
//! `end_packing` need not wait). A message of eight bytes is the number alone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use madgate_vchannel::{Channel, Cluster, NodeId, ReceiveMode, Session};
use tempfile::TempDir;

use crate::children::{EndArguments, say};
use crate::contestant::{Point, Stage, Timing};
use crate::ends::MessageEnd;
use crate::pattern::{SEQUENCE_BYTES, SharedPattern, sequence_of};
use crate::process::Process;

/// How long a source may take to deliver its last messages.
pub const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// Which node a madgate end is.
#[derive(Debug, Args)]
pub struct MadgateArguments {
    /// The cluster file.
    cluster: PathBuf,
    /// The node that this is.
    node: String,
    /// The node at the other end.
    peer: String,
    #[command(flatten)]
    end: EndArguments,
}

impl MadgateArguments {
    /// The life of a source.
    ///
    /// # Errors
    ///
    /// What the session fails with.
    pub fn source(&self) -> io::Result<()> {
        let (session, mut end) = self.open()?;
        // The first message and its answer set up all links.
        end.hello()?;
        end.await_hello()?;
        self.end.source(&mut end)?;
        drop(end);
        session.close(CLOSE_WITHIN).map_err(io::Error::other)
    }

    /// The life of a sink.
    ///
    /// # Errors
    ///
    /// What the session fails with, or a message that is not what was sent.
    pub fn sink(&self) -> io::Result<()> {
        let (session, mut end) = self.open()?;
        say("at its place")?;
        end.await_hello()?;
        end.hello()?;
        self.end.sink(&mut end)?;
        drop(end);
        session.close(CLOSE_WITHIN).map_err(io::Error::other)
    }

    fn open(&self) -> io::Result<(Session, MadgateEnd)> {
        let cluster = Arc::new(Cluster::read(&self.cluster).map_err(io::Error::other)?);
        MadgateEnd::open(&cluster, &self.node, &self.peer, self.end.message_bytes())
    }
}

/// A [`MessageEnd`] over a virtual channel.
#[derive(Debug)]
pub struct MadgateEnd {
    channel: Channel,
    peer: NodeId,
    pattern: SharedPattern,
}

impl MadgateEnd {
    /// The end at `node` for messages of up to `message_bytes` to and from `peer`, and the
    /// session that it lives in.
    ///
    /// # Errors
    ///
    /// What opening the session fails with, or if there is no such peer.
    pub fn open(
        cluster: &Arc<Cluster>,
        node: &str,
        peer: &str,
        message_bytes: usize,
    ) -> io::Result<(Session, Self)> {
        let peer = cluster
            .node(peer)
            .ok_or_else(|| io::Error::other(format!("no node {peer}")))?;
        let session = Session::open(Arc::clone(cluster), node).map_err(io::Error::other)?;
        let channel = session.channel("main").map_err(io::Error::other)?;
        let end = Self {
            channel,
            peer,
            pattern: SharedPattern::new(message_bytes),
        };
        Ok((session, end))
    }

    /// Sends a message without blocks.
    ///
    /// # Errors
    ///
    /// What the session fails with.
    pub fn hello(&self) -> io::Result<()> {
        let packing = self
            .channel
            .begin_packing(self.peer)
            .map_err(io::Error::other)?;
        packing.end_packing().map_err(io::Error::other)
    }

    /// Receives it.
    ///
    /// # Errors
    ///
    /// What the session fails with.
    pub fn await_hello(&self) -> io::Result<()> {
        let unpacking = self.channel.begin_unpacking().map_err(io::Error::other)?;
        unpacking.end_unpacking().map_err(io::Error::other)
    }
}

impl MessageEnd for &mut MadgateEnd {
    #[inline]
    fn send(&mut self, message: &mut [u8]) -> io::Result<()> {
        let (number, rest) = message.split_at(SEQUENCE_BYTES);
        let mut packing = self
            .channel
            .begin_packing(self.peer)
            .map_err(io::Error::other)?;
        packing
            .pack_safer(number, ReceiveMode::Cheaper)
            .map_err(io::Error::other)?;
        if !rest.is_empty() {
            let sequence = sequence_of(number).unwrap_or_default();
            let rest: Bytes = self.pattern.rest_of(sequence, message.len());
            packing
                .pack_owned(rest, ReceiveMode::Cheaper)
                .map_err(io::Error::other)?;
        }
        packing.end_packing().map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        // The library sends what gathers by itself.
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
        let (number, rest) = message.split_at_mut(SEQUENCE_BYTES);
        let mut unpacking = self.channel.begin_unpacking().map_err(io::Error::other)?;
        unpacking.unpack_cheaper(number).map_err(io::Error::other)?;
        if !rest.is_empty() {
            unpacking.unpack_cheaper(rest).map_err(io::Error::other)?;
        }
        unpacking.end_unpacking().map_err(io::Error::other)
    }
}

/// Starts a sink `b0`, then what `relay` starts, and a source `a0`, over one cluster file.
///
/// # Errors
///
/// If one of them cannot be started, or they do not find each other.
pub fn stage_madgate(
    point: Point,
    timing: Timing,
    files: TempDir,
    cluster: &Path,
    relay: impl FnOnce() -> io::Result<Option<Process>>,
) -> io::Result<Stage> {
    let start = |role: &str, node: &str, peer: &str| {
        let mut arguments = vec![role.into(), cluster.into(), node.into(), peer.into()];
        arguments.extend(EndArguments::for_child(point, timing));
        Process::again(role, arguments)
    };
    let relay = relay()?;
    let sink = start("madgate-sink", "b0", "a0")?;
    sink.word("at ")?;
    let source = start("madgate-source", "a0", "b0")?;
    source.word("connected")?;
    sink.word("connected")?;
    Ok(Stage {
        source,
        sink,
        relay,
        files: Some(files),
    })
}
