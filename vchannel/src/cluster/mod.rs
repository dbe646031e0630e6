//! The cluster file: one TOML file, the same on every node, that describes everything.
//!
//! ```text
//!  text ──toml──> tables ──sections──> networks, nodes, channels ──check──> Cluster
//!                    └── every mistake on the way, with its line ──> ClusterError
//! ```
//!
//! A [`Cluster`] that exists is right: names resolve, addresses parse, and the nodes of each
//! channel reach each other. Every key is described in `docs/cluster-file.md`.
//!
//! Start reading in [`Cluster`]; `node_section.rs` is where ranges become nodes.

mod check;
mod digest;
mod duration;
mod fields;
mod id;
mod mistake;
mod network;
mod node_section;
mod nodes;
mod pattern;
mod rate;
mod sections;
mod settings;
mod size;
mod suggestion;
mod summary;
#[cfg(test)]
pub(crate) mod tests;
mod tuning;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use madgate_gtm::transit::Rate;
use madgate_tm::Endpoint;

pub use duration::{format_duration, parse_duration};
pub use id::{ChannelId, NetworkId, NodeId};
pub use mistake::{ClusterError, MAX_MISTAKES, Mistake};
pub use network::{Channel, Checksum, FRAME_OVERHEAD_BYTES, Network};
pub use rate::{format_rate, parse_rate};
pub use settings::{
    AHEAD_BOUNDS, BATCH_BOUNDS, COST_BOUNDS, DEFAULT_LINK_TIMEOUT, DEFAULT_MTU, DEFAULT_SPIN,
    DEPTH_BOUNDS, DIRECT_BOUNDS, EndpointSettings, GatewaySettings, Handover, LINK_TIMEOUT_BOUNDS,
    MAX_PIN, MAX_SPIN, MEMORY_BOUNDS, MTU_BOUNDS, RATE_BOUNDS, RETENTION_BOUNDS,
    SPLICE_FROM_BOUNDS, WEIGHT_BOUNDS, WINDOW_BOUNDS, WaitPolicy,
};
pub use size::{format_size, parse_size};
pub use suggestion::UnknownName;
pub use summary::compact_names;

use nodes::NodeTable;

/// Most nodes in one file.
pub const MAX_NODES: usize = 1 << 20;
/// Most networks in one file.
pub const MAX_NETWORKS: usize = 1 << 14;
/// Most channels in one file.
pub const MAX_CHANNELS: usize = 1 << 10;
/// Longest name of a session, network, node or channel.
pub const MAX_NAME_BYTES: usize = 64;
/// Largest cluster file.
pub const MAX_FILE_BYTES: u64 = 128 << 20;

/// What a cluster file describes.
///
/// - *make*: [`read`](Self::read), [`parse`](Self::parse)
/// - *nodes*: [`node`](Self::node), [`node_name`](Self::node_name),
///   [`address`](Self::address), [`is_gateway`](Self::is_gateway), …
/// - *networks and channels*: [`networks`](Self::networks), [`channels`](Self::channels), …
/// - *settings*: [`link_timeout`](Self::link_timeout),
///   [`gateway_settings`](Self::gateway_settings), …
#[derive(Debug)]
pub struct Cluster {
    session_name: String,
    key_file: PathBuf,
    link_timeout: Duration,
    networks: Vec<Network>,
    nodes: NodeTable,
    channels: Vec<Channel>,
    gateway_settings: GatewaySettings,
    endpoint_settings: EndpointSettings,
    warnings: Vec<Mistake>,
    digest: OnceLock<[u8; 32]>,
}

impl Cluster {
    /// Reads a cluster file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ClusterError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let unreadable = |message: String, help: &str| {
            let mut report = mistake::Report::new("");
            report.mistake_of_file(message, help);
            report.into_error(&file)
        };
        let missing = |error: &io::Error| {
            unreadable(
                format!("cannot be read: {error}"),
                "name a cluster file that exists",
            )
        };
        let opened = std::fs::File::open(path).map_err(|error| missing(&error))?;
        let mut text = Vec::new();
        let read = opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut text);
        read.map_err(|error| missing(&error))?;
        if text.len() as u64 > MAX_FILE_BYTES {
            let limit = format_size(MAX_FILE_BYTES);
            return Err(unreadable(
                format!("is larger than {limit}"),
                "write many nodes as ranges, like \"a[0-99]\"",
            ));
        }
        let text = String::from_utf8(text).map_err(|error| {
            unreadable(
                format!("cannot be read: {error}"),
                "it has to be a text file in UTF-8",
            )
        })?;
        let base = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        sections::parse(&text, &file, base.unwrap_or(Path::new(".")))
    }

    /// Reads the text of a cluster file; relative paths in it are relative to `base`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str, base: impl AsRef<Path>) -> Result<Self, ClusterError> {
        sections::parse(text, "cluster.toml", base.as_ref())
    }

    /// The name of the session.
    #[must_use]
    pub fn session_name(&self) -> &str {
        &self.session_name
    }

    /// The file that holds the session key.
    #[must_use]
    pub fn key_file(&self) -> &Path {
        &self.key_file
    }

    /// How long a link may be lost before calls that need it fail.
    #[must_use]
    pub fn link_timeout(&self) -> Duration {
        self.link_timeout
    }

    /// What looks wrong without being a mistake.
    #[must_use]
    pub fn warnings(&self) -> &[Mistake] {
        &self.warnings
    }

    /// How many nodes there are; ranks are 0 to this, exclusive.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The node called `name`.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.nodes.find(name)
    }

    /// The node called `name`, which somebody asks for.
    ///
    /// # Errors
    /// When there is none; says which was probably meant.
    pub fn find_node(&self, name: &str) -> Result<NodeId, UnknownName> {
        let names = || (0..self.nodes.len()).map(|at| self.nodes.name(NodeId::from_index(at)));
        self.node(name)
            .ok_or_else(|| UnknownName::new("node", name, names()))
    }

    /// The node with this rank, if there is one: for ranks from the wire.
    #[must_use]
    pub fn node_with_rank(&self, rank: u32) -> Option<NodeId> {
        Some(NodeId(rank)).filter(|node| node.index() < self.nodes.len())
    }

    /// The name of a node.
    ///
    /// # Panics
    /// When the node is not of this cluster.
    #[must_use]
    pub fn node_name(&self, node: NodeId) -> &str {
        self.nodes.name(node)
    }

    /// The line of the file, from 1, on which the `[[node]]` table of a node begins.
    #[must_use]
    pub fn node_line(&self, node: NodeId) -> usize {
        self.nodes.group(node).line
    }

    /// Every node, in the order of ranks.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> + '_ {
        (0..self.nodes.len()).map(NodeId::from_index)
    }

    /// The gateways, in the order of ranks.
    pub fn gateways(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.gateways()
    }

    /// Whether a node forwards.
    #[must_use]
    pub fn is_gateway(&self, node: NodeId) -> bool {
        self.nodes.group(node).gateway
    }

    /// The networks that a node is on, in the order of their numbers.
    pub fn networks_of(&self, node: NodeId) -> impl ExactSizeIterator<Item = NetworkId> + '_ {
        self.nodes
            .group(node)
            .addresses
            .iter()
            .map(|address| address.network)
    }

    /// Whether a node is on a network.
    #[must_use]
    pub fn is_on(&self, node: NodeId, network: NetworkId) -> bool {
        self.networks_of(node).any(|other| other == network)
    }

    /// The nodes of a network, in the order of ranks.
    pub fn nodes_on(&self, network: NetworkId) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.on_network(network)
    }

    /// Where a node listens on a network; `None` when it is not on it.
    #[must_use]
    pub fn address(&self, node: NodeId, network: NetworkId) -> Option<Endpoint> {
        let text = self.nodes.address(node, network)?;
        // Every address was parsed once already, when the file was read.
        self.network(network).endpoint(&text).ok()
    }

    /// A node on a network, for people: `gw over left at 10.0.0.9:7100`.
    pub(crate) fn place(&self, node: NodeId, network: NetworkId) -> String {
        let name = self.node_name(node);
        let over = &self.network(network).name;
        match self.address(node, network) {
            Some(endpoint) => format!("{name} over {over} at {endpoint}"),
            None => format!("{name} over {over}"),
        }
    }

    /// The networks, in the order of the file.
    #[must_use]
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// A network by its number.
    ///
    /// # Panics
    /// When the network is not of this cluster.
    #[must_use]
    pub fn network(&self, network: NetworkId) -> &Network {
        &self.networks[network.index()]
    }

    /// Every network's number.
    pub fn network_ids(&self) -> impl ExactSizeIterator<Item = NetworkId> + '_ {
        (0..self.networks.len()).map(NetworkId::from_index)
    }

    /// The network called `name`.
    #[must_use]
    pub fn network_named(&self, name: &str) -> Option<NetworkId> {
        let index = self
            .networks
            .iter()
            .position(|network| network.name == name)?;
        Some(NetworkId::from_index(index))
    }

    /// The channels, in the order of the file.
    #[must_use]
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// A channel by its number.
    ///
    /// # Panics
    /// When the channel is not of this cluster.
    #[must_use]
    pub fn channel(&self, channel: ChannelId) -> &Channel {
        &self.channels[channel.index()]
    }

    /// Every channel's number.
    pub fn channel_ids(&self) -> impl ExactSizeIterator<Item = ChannelId> + '_ {
        (0..self.channels.len()).map(ChannelId::from_index)
    }

    /// The channel called `name`.
    #[must_use]
    pub fn channel_named(&self, name: &str) -> Option<ChannelId> {
        let index = self
            .channels
            .iter()
            .position(|channel| channel.name == name)?;
        Some(ChannelId::from_index(index))
    }

    /// The channel called `name`, which somebody asks for.
    ///
    /// # Errors
    /// When there is none; says which was probably meant.
    pub fn find_channel(&self, name: &str) -> Result<ChannelId, UnknownName> {
        let names = || self.channels.iter().map(|channel| &*channel.name);
        self.channel_named(name)
            .ok_or_else(|| UnknownName::new("channel", name, names()))
    }

    /// Whether a node is on one of a channel's networks.
    #[must_use]
    pub fn is_in_channel(&self, node: NodeId, channel: ChannelId) -> bool {
        let channel = self.channel(channel);
        self.networks_of(node)
            .any(|network| channel.networks.contains(&network))
    }

    /// The largest fragment of any channel that a node is in.
    #[must_use]
    pub fn largest_fragment_bytes(&self, node: NodeId) -> u32 {
        let ours = self
            .channel_ids()
            .filter(|channel| self.is_in_channel(node, *channel));
        let fragments = ours.map(|channel| self.channel(channel).mtu);
        fragments.max().unwrap_or(0)
    }

    /// How fast a gateway may send to a node, over each network: the node's own `rate`.
    #[must_use]
    pub fn node_rate(&self, node: NodeId) -> Option<Rate> {
        self.nodes.group(node).rate
    }

    /// What the forwarding engines may use.
    #[must_use]
    pub fn gateway_settings(&self) -> &GatewaySettings {
        &self.gateway_settings
    }

    /// What sessions of applications may use.
    #[must_use]
    pub fn endpoint_settings(&self) -> &EndpointSettings {
        &self.endpoint_settings
    }

    /// The cap on what a gateway's engine promises to keep: the node's own `memory`, or that
    /// of `[gateway]`.
    #[must_use]
    pub fn engine_memory_bytes(&self, node: NodeId) -> u64 {
        self.nodes
            .group(node)
            .memory_bytes
            .unwrap_or(self.gateway_settings.memory_bytes)
    }

    /// The cap on what a node's session promises to keep: that of `[endpoint]`, or the node's
    /// own `memory` where it is not a gateway.
    #[must_use]
    pub fn endpoint_memory_bytes(&self, node: NodeId) -> u64 {
        let group = self.nodes.group(node);
        let own = group.memory_bytes.filter(|_| !group.gateway);
        own.unwrap_or(self.endpoint_settings.memory_bytes)
    }

    /// A digest of what the file means: session, networks, nodes and channels; not comments,
    /// the key file, MTU, rates or tuning. Peers compare it before they talk.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        *self.digest.get_or_init(|| digest::digest(self))
    }
}
