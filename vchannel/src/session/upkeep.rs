//! The life of links, as the driver sees to it: which are asked for, how their lanes come to be
//! driven, and how they end.

use std::sync::Arc;

use madgate_gtm::{Header, Kind};
use madgate_tm::{Interest, LaneClass, LaneError};

use super::Inner;
use super::driver::{Driver, Token};
use super::input::{Input, InputError};
use super::links::{Link, LinkOutput};
use crate::conductor::{EstablishedLink, LinkKind, LinkRequest, Party};
use crate::topology::DIRECT_FRAGMENT_BYTES;

impl Inner {
    /// Tells the conductor which links are needed, which no longer, and who was heard of.
    pub(crate) fn dial_wanted(&self) {
        // Orders reach the conductor in the order in which they were given.
        let _in_order = self.ordering.lock();
        let (wanted, unwanted, heard) = {
            let mut core = self.lock();
            if core.to_dial.is_empty() && core.to_cancel.is_empty() && core.heard.is_empty() {
                return;
            }
            (
                std::mem::take(&mut core.to_dial),
                std::mem::take(&mut core.to_cancel),
                std::mem::take(&mut core.heard),
            )
        };
        for (peer, incarnation) in heard {
            self.conductor.challenge_answered(peer, incarnation);
        }
        for request in unwanted {
            self.conductor.cancel(Party::Endpoint, request);
        }
        for request in wanted {
            self.conductor.dial(Party::Endpoint, request);
        }
    }

    pub(super) fn links_of(&self, peer: crate::cluster::NodeId, incarnation: u64) -> Vec<u32> {
        let core = self.lock();
        let mut found = Vec::new();
        for (index, link) in core.links.iter().enumerate() {
            if let Some(link) = link
                && link.request.peer == peer
                && link.peer_incarnation == incarnation
                && link.output.is_some()
            {
                found.push(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
        found
    }

    /// Asks a peer whether it is still there: somebody else claims its name.
    pub(super) fn challenge(&self, peer: crate::cluster::NodeId, incarnation: u64) {
        for index in self.links_of(peer, incarnation) {
            let mut core = self.lock();
            if let Some(link) = &mut core.links[index as usize] {
                link.is_challenged = true;
                link.push_control(&Header::echo(Kind::Ping, incarnation));
            }
            core.mark_dirty(index);
        }
    }

    /// A link is up: its lanes are driven from now on.
    pub(super) fn install(&self, driver: &mut Driver, established: EstablishedLink) {
        let EstablishedLink {
            request,
            id,
            peer_incarnation,
            is_dialed,
            urgent,
            bulk,
        } = established;
        let now = self.now();
        let old = self.replaced_by(request, is_dialed);
        if is_dialed && let Some(old) = old {
            self.close_link(driver, old, &InputError::Lane(LaneError::Closed));
        }
        let index = {
            let mut core = self.lock();
            let policy = core.policy();
            let index = match old {
                Some(index) if is_dialed => index,
                _ => core.add_link(Link::new(request, is_dialed)),
            };
            if is_dialed {
                core.dialed.insert(request, index);
                // It is up: whatever was asked for since is answered.
                core.to_dial.retain(|asked| *asked != request);
            }
            if let Some(link) = &mut core.links[index as usize] {
                link.id = id;
                link.peer_incarnation = peer_incarnation;
                let output = LinkOutput::new(urgent.sender, bulk.sender, policy);
                link.output = Some(Arc::new(output));
            }
            index
        };
        let largest = if request.kind == LinkKind::Regular {
            DIRECT_FRAGMENT_BYTES
        } else {
            self.cluster.largest_fragment_bytes(self.node)
        };
        for (class, receiver) in [
            (LaneClass::Urgent, urgent.receiver),
            (LaneClass::Bulk, bulk.receiver),
        ] {
            let mut input = Input::new(index, class, receiver, largest);
            if self.cluster.network(request.network).stays_in_memory() {
                input = match request.kind {
                    LinkKind::Regular => input.within_host(),
                    _ => input.of_gateway(),
                };
            }
            self.add_input(driver, input);
        }
        let mut core = self.lock();
        let was_missed = core.link_is_up(index, now);
        self.wake_waiters(&core);
        let peer = core.cluster.node_name(request.peer);
        if was_missed {
            tracing::info!(peer, "link is there now");
        } else {
            tracing::debug!(peer, kind = ?request.kind, "link up");
        }
        drop(core);
        if !is_dialed && let Some(old) = old {
            // Its flows go over this one.
            self.close_link(driver, old, &InputError::Lane(LaneError::Closed));
        }
    }

    /// The link that a new one of the same peer takes the place of.
    fn replaced_by(&self, request: LinkRequest, is_dialed: bool) -> Option<u32> {
        let core = self.lock();
        if is_dialed {
            return core.dialed.get(&request).copied();
        }
        let is_same = |link: &Link| !link.is_dialed && link.request == request && link.is_up();
        let found = |link: &Option<Link>| link.as_ref().is_some_and(is_same);
        u32::try_from(core.links.iter().position(found)?).ok()
    }

    pub(super) fn add_input(&self, driver: &mut Driver, input: Input) {
        let index = match driver.inputs.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                driver.inputs.push(None);
                driver.inputs.len() - 1
            }
        };
        let (descriptor, interest) = input.receiver.descriptor();
        if let Err(error) = driver.poller.add(
            descriptor,
            Token::Input(index, input.class).to_number(),
            interest,
        ) {
            driver.deaf.push((input.link, InputError::Deaf(error)));
            driver.has_chores = true;
        }
        if input.is_static() {
            driver.static_inputs.push(index);
        }
        driver.inputs[index] = Some(input);
    }

    /// A link failed, or is replaced.
    pub(super) fn close_link(&self, driver: &mut Driver, index: u32, error: &InputError) {
        for at in 0..driver.inputs.len() {
            if driver.inputs[at]
                .as_ref()
                .is_none_or(|input| input.link != index)
            {
                continue;
            }
            if let Some(input) = driver.inputs[at].take() {
                let (descriptor, _) = input.receiver.descriptor();
                // Closing the descriptor takes it out anyway.
                let _ = driver.poller.remove(descriptor);
                driver.static_inputs.retain(|other| *other != at);
                if driver.straight == Some(at) {
                    driver.straight = None;
                }
                driver.small.forget(at);
                driver.bulk.forget(at);
            }
        }
        let output = self.output(index);
        if let Some(output) = output {
            for class in [LaneClass::Urgent, LaneClass::Bulk] {
                if driver.writable.contains(&(index, class)) {
                    let mut lanes = output.lock();
                    let (descriptor, interest) = lanes.lane(class).sender.descriptor();
                    debug_assert_ne!(interest, Interest::None);
                    let _ = driver.poller.remove(descriptor);
                }
            }
        }
        driver.writable.retain(|(link, _)| *link != index);
        driver.deaf.retain(|(link, _)| *link != index);
        let mut core = self.lock();
        let Some(link) = &mut core.links[index as usize] else {
            return;
        };
        link.is_missed |= !error.is_end();
        let (peer, network) = (link.request.peer, link.request.network);
        if error.is_end() {
            tracing::debug!(peer = core.cluster.node_name(peer), "link closed");
        } else {
            tracing::warn!(peer = core.cluster.node_name(peer), "link closed: {error}");
        }
        let why = format!("{}: {error}", self.cluster.place(peer, network));
        let id = core.link_is_lost(index, why, self.now());
        self.wake_waiters(&core);
        drop(core);
        if let Some(id) = id {
            self.conductor.link_closed(id);
        }
    }
}
