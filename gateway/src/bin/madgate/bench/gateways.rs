//! The gateways on the way, which watch themselves while something is measured.

use std::sync::Arc;
use std::time::Duration;

use madgate_vchannel::cluster::NetworkId;
use madgate_vchannel::topology::Routes;
use madgate_vchannel::{Channel, NodeId};

use super::partner::Partner;
use crate::failure::Failure;
use crate::output::say;
use crate::service::order::{Answer, Order};
use crate::service::seen::Seen;
use crate::units::duration;

/// How long a gateway may take to answer. One in an application of its own answers nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who has not answered so often in a row is not asked again.
const ASKED_AT_MOST: u32 = 2;

/// The gateways of one route.
#[derive(Debug)]
pub(super) struct Gateways<'a> {
    watched: Vec<Watched<'a>>,
}

#[derive(Debug)]
struct Watched<'a> {
    partner: Partner<'a>,
    /// The networks on both sides of it.
    networks: [NetworkId; 2],
    tag: Option<u64>,
    /// How often in a row it has not answered.
    misses: u32,
}

impl<'a> Gateways<'a> {
    /// Those between this node and `to`.
    pub(super) fn between(channel: &'a Channel, to: NodeId) -> Result<Self, Failure> {
        let session = channel.session();
        let cluster = session.cluster();
        let Some(id) = cluster.channel_named(channel.name()) else {
            return Ok(Self {
                watched: Vec::new(),
            });
        };
        let route = Routes::new(Arc::clone(cluster), id).route(session.node(), to)?;
        let pairs = route.hops.windows(2);
        let watched = pairs.map(|pair| Watched {
            partner: Partner::new(channel, pair[0].node),
            networks: [pair[0].network, pair[1].network],
            tag: None,
            misses: 0,
        });
        Ok(Self {
            watched: watched.collect(),
        })
    }

    /// Which nodes they are.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.watched.iter().map(|one| one.partner.node)
    }

    /// They watch from now on.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        for one in &mut self.watched {
            one.tag = one.partner.order_within(Order::Watch, PATIENCE)?;
            if one.tag.is_some() {
                one.misses = 0;
                continue;
            }
            one.misses += 1;
            say(&format!(
                "madgate: {} does not say what it does: it is no `madgate gateway`, or has not \
                 answered in {}",
                one.partner.name(),
                duration(PATIENCE)
            ));
        }
        self.watched.retain(|one| one.misses < ASKED_AT_MOST);
        Ok(())
    }

    /// What they have done, on the way that was measured, and why what was measured may not be trusted:
    /// one has gone meanwhile.
    pub(super) fn end(&mut self) -> Result<(Vec<Seen>, Vec<String>), Failure> {
        let (mut all, mut doubts) = (Vec::new(), Vec::new());
        for one in &mut self.watched {
            let Some(tag) = one.tag.take() else {
                continue;
            };
            let mut seen = match one.partner.stop_within(tag, PATIENCE)? {
                Some(Answer::Seen(seen)) => seen,
                Some(_) => return Err(one.partner.nonsense()),
                None => {
                    doubts.push(format!(
                        "{} does not say what it did: it was restarted meanwhile, or cannot be reached",
                        one.partner.name()
                    ));
                    continue;
                }
            };
            let cluster = one.partner.channel.session().cluster();
            let names = one.networks.map(|network| &cluster.network(network).name);
            seen.gateway = one.partner.name().to_owned();
            seen.pipelines
                .retain(|way| names.contains(&&way.from) && names.contains(&&way.to));
            all.push(*seen);
        }
        Ok((all, doubts))
    }
}
