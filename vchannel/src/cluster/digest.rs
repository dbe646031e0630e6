//! The digest of what a cluster file means.

use madgate_tm::Protocol;
use madgate_tm::hsl::Card;
use sha2::{Digest, Sha256};

use super::{Cluster, NodeId};

/// Hashes the session's name, the networks, the nodes and the channels, each in its order,
/// each text with its length, so that no two meanings give the same bytes. How nodes are
/// written (one range or many tables) does not matter.
pub(super) fn digest(cluster: &Cluster) -> [u8; 32] {
    let mut hash = Meaning(Sha256::new());
    hash.text("madgate cluster 1");
    hash.text(&cluster.session_name);
    hash.count(cluster.networks.len());
    for network in &cluster.networks {
        hash.text(&network.name);
        hash.text(&network.protocol.to_string());
        let directory = network.written_directory.as_deref();
        hash.text(
            &directory
                .map(|path| path.to_string_lossy())
                .unwrap_or_default(),
        );
        hash.0.update(network.cost.to_le_bytes());
        if network.protocol == Protocol::Hsl {
            let card = &network.tuning.hsl.card;
            hash.text(card.name());
            if let Card::Libfabric { provider, .. } = card {
                hash.text(provider.as_deref().unwrap_or_default());
            }
        }
    }
    hash.count(cluster.nodes.len());
    let mut text = String::new();
    for group in cluster.nodes.groups() {
        for rank in group.ranks.clone() {
            hash.text(cluster.node_name(NodeId(rank)));
            hash.0.update([u8::from(group.gateway)]);
            hash.count(group.addresses.len());
            for address in &group.addresses {
                let index = u64::from(rank - group.ranks.start);
                address.pattern.expand(index, address.alignment, &mut text);
                hash.0.update(address.network.0.to_le_bytes());
                hash.text(&text);
            }
        }
    }
    hash.count(cluster.channels.len());
    for channel in &cluster.channels {
        hash.text(&channel.name);
        hash.count(channel.networks.len());
        for network in &channel.networks {
            hash.0.update(network.0.to_le_bytes());
        }
    }
    hash.0.finalize().into()
}

struct Meaning(Sha256);

impl Meaning {
    fn count(&mut self, count: usize) {
        // Lossless: addresses have at most 64 bits.
        self.0
            .update(u64::try_from(count).unwrap_or(u64::MAX).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text.as_bytes());
    }
}
