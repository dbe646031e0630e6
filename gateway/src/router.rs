//! Where flows come from and go to.

use std::sync::Arc;

use madgate_gtm::Header;
use madgate_gtm::wire::Opening;
use madgate_vchannel::conductor::{LinkKind, LinkRequest};
use madgate_vchannel::topology::Routes;
use madgate_vchannel::{Cluster, NodeId};

use crate::fault::Fault;
use crate::link::Link;

/// Why a flow is not carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unroutable {
    /// No route leads there over this gateway.
    Nowhere,
    /// Its fragments are larger than its way carries.
    TooLarge,
}

/// The routes that cross this gateway, channel by channel.
#[derive(Debug)]
pub(crate) struct Router {
    cluster: Arc<Cluster>,
    node: NodeId,
    /// By channel; `None` for those that this gateway is not in.
    routes: Vec<Option<Routes>>,
    /// The largest fragment that the receivers' batches hold.
    largest_fragment: u32,
}

impl Router {
    pub(crate) fn new(cluster: Arc<Cluster>, node: NodeId) -> Self {
        let is_ours = |channel: &_| cluster.is_in_channel(node, *channel);
        let routes = cluster
            .channel_ids()
            .map(|channel| is_ours(&channel).then(|| Routes::new(Arc::clone(&cluster), channel)))
            .collect();
        let largest_fragment = cluster.largest_fragment_bytes(node);
        Self {
            cluster,
            node,
            routes,
            largest_fragment,
        }
    }

    /// The largest fragment of any channel that this gateway is in.
    pub(crate) const fn largest_fragment(&self) -> u32 {
        self.largest_fragment
    }

    /// Which link the flow of an opening leaves by, or why it leaves by none.
    ///
    /// # Errors
    /// When the flow cannot come over `from`: the member at its other end invented it.
    pub(crate) fn route(
        &self,
        from: &Link,
        header: &Header,
        opening: &Opening,
    ) -> Result<Result<LinkRequest, Unroutable>, Fault> {
        let flow = header.flow;
        let wrong = Fault::WrongSource(flow.source);
        let Some(source) = self.cluster.node_with_rank(flow.source) else {
            return Err(wrong);
        };
        let Some(destination) = self.cluster.node_with_rank(flow.destination) else {
            return Ok(Err(Unroutable::Nowhere));
        };
        let Some(Some(routes)) = self.routes.get(usize::from(flow.channel)) else {
            return Ok(Err(Unroutable::Nowhere));
        };
        let Some(next) = routes.next_hop(self.node, source, destination) else {
            return Ok(Err(Unroutable::Nowhere));
        };
        let comes_this_way = routes
            .previous_hop(self.node, source, destination)
            .is_some_and(|hop| {
                hop.network == from.request.network && hop.node == from.request.peer
            });
        if !comes_this_way {
            return Err(wrong);
        }
        let carried = self.cluster.network(next.network).largest_fragment_bytes();
        if opening.fragment_bytes > carried.min(self.largest_fragment) {
            return Ok(Err(Unroutable::TooLarge));
        }
        let kind = if next.node == destination {
            LinkKind::Deliver
        } else {
            LinkKind::Relay
        };
        Ok(Ok(LinkRequest {
            kind,
            network: next.network,
            peer: next.node,
        }))
    }
}
