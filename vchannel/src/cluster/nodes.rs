//! The nodes, kept as the file writes them: one group per `[[node]]` table.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use madgate_gtm::transit::Rate;

use super::id::{NetworkId, NodeId};
use super::pattern::{Alignment, Pattern};

/// The nodes of one `[[node]]` table.
#[derive(Debug)]
pub(crate) struct NodeGroup {
    /// Ranks of its nodes.
    pub(crate) ranks: Range<u32>,
    pub(crate) gateway: bool,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) rate: Option<Rate>,
    /// In the order of networks.
    pub(crate) addresses: Box<[GroupAddress]>,
    /// Where the table stands in the file.
    pub(crate) span: Range<usize>,
    /// The line that it begins on, from 1.
    pub(crate) line: usize,
}

/// Where the nodes of a group listen on one network.
#[derive(Debug)]
pub(crate) struct GroupAddress {
    pub(crate) network: NetworkId,
    pub(crate) pattern: Pattern,
    pub(crate) alignment: Alignment,
}

/// All nodes.
#[derive(Debug, Default)]
pub(crate) struct NodeTable {
    names: Vec<Arc<str>>,
    by_name: HashMap<Arc<str>, NodeId>,
    groups: Vec<NodeGroup>,
    /// Per network, the groups that are on it.
    groups_on: Vec<Vec<u32>>,
}

impl NodeTable {
    pub(crate) fn new(networks: usize) -> Self {
        Self {
            groups_on: vec![Vec::new(); networks],
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Adds the next node's name; its rank, or the rank of the node that has the name already.
    pub(crate) fn push_name(&mut self, name: &str) -> Result<NodeId, NodeId> {
        if let Some(taken) = self.by_name.get(name) {
            return Err(*taken);
        }
        let node = NodeId::from_index(self.names.len());
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.by_name.insert(name, node);
        Ok(node)
    }

    /// Adds the group of the names that were pushed last.
    pub(crate) fn push_group(&mut self, group: NodeGroup) {
        let index = u32::try_from(self.groups.len()).expect("groups are at most MAX_NODES");
        for address in &group.addresses {
            self.groups_on[address.network.index()].push(index);
        }
        self.groups.push(group);
    }

    pub(crate) fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn name(&self, node: NodeId) -> &str {
        &self.names[node.index()]
    }

    pub(crate) fn groups(&self) -> &[NodeGroup] {
        &self.groups
    }

    pub(crate) fn group(&self, node: NodeId) -> &NodeGroup {
        let index = self
            .groups
            .partition_point(|group| group.ranks.end <= node.rank());
        &self.groups[index]
    }

    pub(crate) fn groups_on(&self, network: NetworkId) -> impl Iterator<Item = &NodeGroup> {
        self.groups_on[network.index()].iter().map(|index| {
            // Indices come from `push_group`.
            &self.groups[NodeId(*index).index()]
        })
    }

    pub(crate) fn on_network(&self, network: NetworkId) -> impl Iterator<Item = NodeId> {
        self.groups_on(network)
            .flat_map(|group| group.ranks.clone().map(NodeId))
    }

    pub(crate) fn gateways(&self) -> impl Iterator<Item = NodeId> {
        let groups = self.groups.iter().filter(|group| group.gateway);
        groups.flat_map(|group| group.ranks.clone().map(NodeId))
    }

    /// The text of a node's address on a network.
    pub(crate) fn address(&self, node: NodeId, network: NetworkId) -> Option<String> {
        let group = self.group(node);
        let address = group
            .addresses
            .iter()
            .find(|address| address.network == network)?;
        let mut text = String::new();
        let index = u64::from(node.rank() - group.ranks.start);
        address.pattern.expand(index, address.alignment, &mut text);
        Some(text)
    }
}
