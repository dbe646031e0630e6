//! What the conductor's thread does: one step after another, so that a test can do it too.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use madgate_tm::{Interest, Poller, Ready};

use super::complaints::Complaints;
use super::dials::{Attempt, DialKey, Dials};
use super::doorway::Doorway;
use super::limits::{Patience, RESOLVING_TIMEOUT, REST};
use super::link::{LinkEvent, Party};
use super::meeting::{Meeting, Strangeness};
use super::orders::Door;
use super::outlet::Outlet;
use super::presence::{Outcome, Presence};
use super::resolver::Resolver;
use super::twins::Pairs;
use crate::handshake::{HandshakeError, Member};

/// Everything that the conductor's thread has.
///
/// The parts are files of their own: who comes in is in `doorway.rs`, how meetings go on in
/// `meetings.rs`, how dialling begins and how links come of lanes in `linking.rs`.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) member: Arc<Member>,
    pub(super) patience: Patience,
    pub(super) poller: Poller,
    door: Arc<Door>,
    pub(super) doorways: Vec<Doorway>,
    /// By token; who came first has the smallest.
    pub(super) meetings: BTreeMap<u64, Meeting>,
    next_token: u64,
    pub(super) dials: Dials,
    pub(super) resolver: Resolver,
    pub(super) pairs: Pairs,
    pub(super) presence: Presence,
    pub(super) outlets: Vec<Outlet>,
    pub(super) next_link: u64,
    pub(super) complaints: Complaints,
    ready: Vec<Ready>,
}

impl Agent {
    /// Begins with doorways that are open already; their tokens are their places.
    pub(super) fn new(
        member: Arc<Member>,
        patience: Patience,
        poller: Poller,
        door: Arc<Door>,
        doorways: Vec<Doorway>,
        outlets: Vec<Outlet>,
    ) -> Self {
        let resolver = Resolver::new(poller.waker());
        let next_token = u64::try_from(doorways.len()).unwrap_or(u64::MAX);
        let dials = Dials::new(member.cluster().link_timeout());
        Self {
            member,
            patience,
            poller,
            door,
            doorways,
            meetings: BTreeMap::new(),
            next_token,
            dials,
            resolver,
            pairs: Pairs::default(),
            presence: Presence::new(patience.challenge),
            outlets,
            next_link: 1,
            complaints: Complaints::default(),
            ready: Vec::new(),
        }
    }

    /// Works until the handle is dropped.
    pub(super) fn run(mut self) {
        loop {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::error!("the conductor cannot wait for its connections: {error}");
                    std::thread::sleep(REST);
                }
            }
        }
    }

    /// Waits until something is to be done, and does it. `false`: it was told to end.
    pub(super) fn step(&mut self) -> io::Result<bool> {
        let timeout = self
            .next_deadline()
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend_from_slice(self.poller.wait(timeout.map(round_up))?);
        let now = Instant::now();
        let goes_on = self.take_orders(now);
        for event in ready.drain(..) {
            match usize::try_from(event.token) {
                Ok(place) if place < self.doorways.len() => self.accept(place, now),
                _ => self.go_on(event.token, now),
            }
        }
        self.ready = ready;
        self.take_resolved(now);
        self.settle_contests(now);
        self.expire(now);
        self.begin_dials(now);
        self.flush_outlets();
        self.tend_doorways(now);
        self.keep_places(now);
        self.complaints.tell(now);
        Ok(goes_on)
    }

    /// A number for a new meeting.
    pub(super) fn draw_token(&mut self) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        token
    }

    /// Queues an event for one party.
    pub(super) fn tell(&mut self, party: Party, event: LinkEvent) {
        let outlet = self.outlets.iter_mut().find(|outlet| outlet.party == party);
        match (outlet, event) {
            (Some(outlet), event) => outlet.push(event),
            (None, LinkEvent::Up(link)) => self.presence.close(link.id),
            (None, _) => {}
        }
    }

    /// Whether a party has more events waiting than its queue takes.
    pub(super) fn is_clogged(&self) -> bool {
        self.outlets.iter().any(Outlet::is_clogged)
    }

    fn take_orders(&mut self, now: Instant) -> bool {
        let orders = self.door.take();
        for id in orders.closed {
            self.presence.close(id);
        }
        for (peer, incarnation) in orders.answered {
            self.presence.answer(peer, incarnation);
        }
        for (key, is_wanted) in orders.dials {
            if is_wanted {
                self.dials.dial(key, now);
            } else {
                self.cancel(key);
            }
        }
        if orders.stop_accepting {
            self.close_doorways();
        }
        !orders.stop
    }

    fn cancel(&mut self, key: DialKey) {
        if let Some(attempt) = self.dials.cancel(key) {
            self.drop_meetings_of(attempt);
        }
    }

    /// Ends the contests for names that are over.
    fn settle_contests(&mut self, now: Instant) {
        while let Some(settled) = self.presence.poll_settled(now) {
            let peer = settled.peer;
            let name = self.member.cluster().node_name(peer).to_owned();
            if settled.outcome == Outcome::Silent {
                tracing::warn!("{name} does not answer and is replaced by another process");
                for index in 0..self.outlets.len() {
                    let incarnation = settled.incarnation;
                    self.outlets[index].push(LinkEvent::PeerReplaced { peer, incarnation });
                }
            }
            let held: Vec<u64> = self
                .meetings
                .iter()
                .filter(|(_, meeting)| meeting.is_held)
                .filter(|(_, meeting)| meeting.peer().is_some_and(|held| held.node == peer))
                .map(|(token, _)| *token)
                .collect();
            for token in held {
                match settled.outcome {
                    Outcome::Stays => self.refuse_held(token, now),
                    Outcome::Left | Outcome::Silent => self.go_on_held(token, now),
                }
            }
        }
    }

    /// Ends what has taken too long.
    fn expire(&mut self, now: Instant) {
        let late: Vec<u64> = self
            .meetings
            .iter()
            .filter(|(_, meeting)| meeting.until <= now)
            .map(|(token, _)| *token)
            .collect();
        for token in late {
            if let Some(meeting) = self.meetings.remove(&token) {
                let timeout = HandshakeError::Timeout(self.patience.handshake);
                self.end_meeting(meeting, Some(&timeout), now);
            }
        }
        while let Some((attempt, is_resolving)) = self.dials.expired(now) {
            let timeout = if is_resolving {
                HandshakeError::Unresolved(RESOLVING_TIMEOUT)
            } else {
                HandshakeError::Timeout(self.patience.handshake)
            };
            self.fail_attempt(attempt, &timeout, now);
        }
        for _ in 0..self.pairs.expire(now) {
            let words = || "a member's link had one lane, and the other did not come".to_owned();
            self.complaints.add(words, now);
        }
    }

    fn flush_outlets(&mut self) {
        let presence = &mut self.presence;
        for outlet in &mut self.outlets {
            outlet.flush(|lost| {
                if let LinkEvent::Up(link) = lost {
                    presence.close(link.id);
                }
            });
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let rest = || Instant::now() + REST;
        let clogged = self.is_clogged();
        [
            self.meetings.values().map(|meeting| meeting.until).min(),
            self.dials.next_deadline().filter(|_| !clogged),
            self.pairs.next_deadline(),
            self.presence.next_deadline(),
            self.complaints.next_deadline(),
            self.doorways.iter().filter_map(|door| door.resting).min(),
            self.doorways.iter().filter_map(|door| door.look_at).min(),
            clogged.then(rest),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Takes a meeting out of the poller, before its descriptor goes.
    pub(super) fn unwatch(&self, meeting: &mut Meeting) {
        if meeting.interest.take().is_some()
            && let Some(descriptor) = meeting.descriptor()
            && let Err(error) = self.poller.remove(descriptor)
        {
            tracing::debug!("a connection was not in the poller: {error}");
        }
    }

    /// Waits for a meeting's descriptor.
    pub(super) fn watch(
        &self,
        meeting: &mut Meeting,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let Some(descriptor) = meeting.descriptor() else {
            return Ok(());
        };
        match meeting.interest {
            None => self.poller.add(descriptor, token, interest)?,
            Some(present) if present == interest => {}
            Some(_) => self.poller.modify(descriptor, token, interest)?,
        }
        meeting.interest = Some(interest);
        Ok(())
    }

    /// Drops the meetings of an attempt to dial that is over.
    pub(super) fn drop_meetings_of(&mut self, attempt: Attempt) {
        let tokens: Vec<u64> = self
            .meetings
            .iter()
            .filter(|(_, meeting)| meeting.attempt() == Some(attempt))
            .map(|(token, _)| *token)
            .collect();
        for token in tokens {
            if let Some(mut meeting) = self.meetings.remove(&token) {
                self.unwatch(&mut meeting);
            }
        }
    }

    /// How many connections have the places of strangers, and who has to go first.
    pub(super) fn strangers(&self) -> (usize, Option<u64>) {
        let mut count = 0;
        let mut first: Option<(Strangeness, u64)> = None;
        for (token, meeting) in &self.meetings {
            if let Some(strangeness) = meeting.strangeness() {
                count += 1;
                let candidate = (strangeness, *token);
                first = Some(first.map_or(candidate, |first| first.min(candidate)));
            }
        }
        (count, first.map(|(_, token)| token))
    }
}

/// A little longer, so that a deadline has passed when the wait for it is over.
fn round_up(duration: Duration) -> Duration {
    duration + Duration::from_millis(1)
}
