//! How attempts to dial begin, and how links come of lanes.

use std::io;
use std::time::Instant;

use madgate_tm::{Lane, LaneClass, Stranger};

use super::agent::Agent;
use super::dials::{Attempt, DialKey, Progressed};
use super::limits::RESOLVING_TIMEOUT;
use super::link::{EstablishedLink, LinkEvent, LinkRequest, Party};
use super::meeting::{Meeting, Role};
use super::resolver::{self, Connections};
use super::twins::PairKey;
use crate::handshake::{HandshakeError, Initiator, LinkHello};

impl Agent {
    /// Begins the attempts that are due.
    pub(super) fn begin_dials(&mut self, now: Instant) {
        while !self.is_clogged()
            && let Some(attempt) = self.dials.poll_due(now, self.patience.handshake)
        {
            if let Err(error) = self.begin_dial(attempt, now) {
                self.fail_attempt(attempt, &error.into(), now);
            }
        }
    }

    fn begin_dial(&mut self, attempt: Attempt, now: Instant) -> io::Result<()> {
        let LinkRequest { network, peer, .. } = attempt.key.request;
        let cluster = self.member.cluster();
        let endpoint = cluster.address(peer, network).ok_or_else(|| {
            let what = format!("{} is not on this network", cluster.node_name(peer));
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        let tuning = cluster.network(network).tuning.clone();
        if resolver::needs_resolving(&endpoint) {
            let until = now + RESOLVING_TIMEOUT;
            self.dials.begin_resolving(attempt, until);
            return self.resolver.start(attempt, until, endpoint, tuning);
        }
        let connections = resolver::connect(&endpoint, &tuning)?;
        self.meet(attempt, connections, now);
        Ok(())
    }

    /// Goes on with the attempts whose host names are resolved.
    pub(super) fn take_resolved(&mut self, now: Instant) {
        while let Some((attempt, result)) = self.resolver.poll() {
            match result {
                Ok(connections) => {
                    let until = now + self.patience.handshake;
                    if self.dials.end_resolving(attempt, until) {
                        self.meet(attempt, connections, now);
                    }
                }
                Err(error) => self.fail_attempt(attempt, &error.into(), now),
            }
        }
    }

    fn meet(&mut self, attempt: Attempt, connections: Connections, now: Instant) {
        let (urgent, bulk) = connections;
        let mut greet = |stranger: Box<dyn Stranger>, class: LaneClass| {
            let hello = LinkHello {
                node: self.member.node(),
                destination: attempt.key.request.peer,
                incarnation: self.member.incarnation(),
                link: attempt.link,
                network: attempt.key.request.network,
                kind: attempt.key.request.kind,
                class,
            };
            let initiator = Initiator::new(self.member.clone(), hello);
            let until = now + self.patience.handshake;
            let token = self.draw_token();
            let meeting = Meeting::dialed(stranger, initiator, attempt, until);
            self.meetings.insert(token, meeting);
            token
        };
        let tokens = [
            greet(urgent, LaneClass::Urgent),
            greet(bulk, LaneClass::Bulk),
        ];
        for token in tokens {
            // The second is gone when the first fails at once.
            self.go_on(token, now);
        }
    }

    /// A meeting has become a lane.
    pub(super) fn lane_ready(&mut self, role: &Role, lane: Lane, now: Instant) {
        match role {
            Role::Accepted(responder) => {
                if let Some(hello) = responder.hello() {
                    self.accepted_lane_ready(hello, lane, now);
                }
            }
            Role::Dialed(initiator, attempt) => {
                if let Some(peer) = initiator.peer() {
                    let class = initiator.hello().class;
                    self.dialed_lane_ready(*attempt, class, peer.incarnation, lane, now);
                }
            }
        }
    }

    fn accepted_lane_ready(&mut self, hello: &LinkHello, lane: Lane, now: Instant) {
        let request = LinkRequest {
            kind: hello.kind,
            network: hello.network,
            peer: hello.node,
        };
        let key = PairKey {
            request,
            incarnation: hello.incarnation,
            link: hello.link,
        };
        let until = now + self.patience.handshake;
        if let Some((urgent, bulk)) = self.pairs.add(key, hello.class, lane, until) {
            let party = Party::that_accepts(hello.kind);
            let lanes = (urgent, bulk);
            if self.link_up(party, request, hello.incarnation, false, lanes) {
                let request = request.back();
                self.dials.served(DialKey { party, request });
                self.dials.heard_of(hello.node, hello.incarnation, now);
            }
        }
    }

    fn dialed_lane_ready(
        &mut self,
        attempt: Attempt,
        class: LaneClass,
        incarnation: u64,
        lane: Lane,
        now: Instant,
    ) {
        let progressed = self
            .dials
            .lane_ready(attempt, class, incarnation, lane, now);
        let is_usable = match progressed {
            Progressed::Half | Progressed::Stale => true,
            Progressed::Torn => false,
            Progressed::Whole(urgent, bulk) => {
                let DialKey { party, request } = attempt.key;
                self.link_up(party, request, incarnation, true, (urgent, bulk))
            }
        };
        if !is_usable {
            let node = self.member.cluster().node_name(attempt.key.request.peer);
            let node = node.to_owned();
            self.fail_attempt(attempt, &HandshakeError::NamePresent { node }, now);
        }
    }

    /// Hands a link over. `false`: another incarnation of the peer was faster.
    fn link_up(
        &mut self,
        party: Party,
        request: LinkRequest,
        peer_incarnation: u64,
        is_dialed: bool,
        (urgent, bulk): (Lane, Lane),
    ) -> bool {
        let id = self.next_link;
        if !self.presence.register(id, request.peer, peer_incarnation) {
            return false;
        }
        self.next_link += 1;
        tracing::debug!(
            id,
            peer = self.member.cluster().node_name(request.peer),
            kind = ?request.kind,
            is_dialed,
            "link up"
        );
        let link = EstablishedLink {
            request,
            id,
            peer_incarnation,
            is_dialed,
            urgent,
            bulk,
        };
        self.tell(party, LinkEvent::Up(Box::new(link)));
        true
    }
}
