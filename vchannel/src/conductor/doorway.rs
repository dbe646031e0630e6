//! Where peers come in: the listeners, and how they rest.

use std::io;
use std::time::Instant;

use madgate_tm::{Endpoint, Interest, Listener, Stranger};

use super::agent::Agent;
use super::limits::{ACCEPTED_AT_ONCE, PLACE_LOOK, REST, STRANGER_SLOTS};
use super::meeting::Meeting;
use crate::cluster::NetworkId;
use crate::handshake::Responder;

/// A listener of this node.
#[derive(Debug)]
pub(super) struct Doorway {
    pub(super) network: NetworkId,
    /// Until it is closed.
    pub(super) listener: Option<Box<dyn Listener>>,
    /// When it accepts again.
    pub(super) resting: Option<Instant>,
    /// When it looks whether peers still find it.
    pub(super) look_at: Option<Instant>,
    /// Where it listened, and is to listen again.
    lost: Option<Endpoint>,
}

impl Doorway {
    pub(super) fn new(network: NetworkId, listener: Box<dyn Listener>) -> Self {
        Self {
            network,
            look_at: listener.can_be_lost().then(|| Instant::now() + PLACE_LOOK),
            listener: Some(listener),
            resting: None,
            lost: None,
        }
    }

    fn try_accept(&mut self) -> io::Result<Option<Box<dyn Stranger>>> {
        self.listener
            .as_mut()
            .map_or(Ok(None), |listener| listener.try_accept())
    }
}

impl Agent {
    /// Accepts some of those who have connected. Each is heard at once, so that a member, who
    /// speaks first, is known before the next stranger could take its slot.
    pub(super) fn accept(&mut self, place: usize, now: Instant) {
        if self.is_clogged() {
            return self.rest(place, now);
        }
        for _ in 0..ACCEPTED_AT_ONCE {
            let stranger = match self.doorways[place].try_accept() {
                Ok(Some(stranger)) => stranger,
                Ok(None) => return,
                Err(error) => {
                    let words = || format!("connections cannot be accepted: {error}");
                    self.complaints.add(words, now);
                    return self.rest(place, now);
                }
            };
            self.make_room();
            let responder = Responder::new(self.member.clone(), self.doorways[place].network);
            let until = now + self.patience.handshake;
            let token = self.draw_token();
            let meeting = Meeting::accepted(stranger, responder, until);
            self.meetings.insert(token, meeting);
            self.go_on(token, now);
        }
    }

    /// Sends away the stranger who has proved the least for the longest, if slots are short.
    fn make_room(&mut self) {
        let (count, first) = self.strangers();
        if count >= STRANGER_SLOTS
            && let Some(token) = first
            && let Some(mut meeting) = self.meetings.remove(&token)
        {
            self.unwatch(&mut meeting);
        }
    }

    /// Does not accept for a while.
    fn rest(&mut self, place: usize, now: Instant) {
        let doorway = &mut self.doorways[place];
        doorway.resting = Some(now + REST);
        if let Some(listener) = &doorway.listener {
            // Should it fail, it is asked again sooner.
            let token = u64::try_from(place).unwrap_or(u64::MAX);
            let _ = self.poller.modify(listener, token, Interest::None);
        }
    }

    /// Lets doorways that have rested accept again.
    pub(super) fn tend_doorways(&mut self, now: Instant) {
        for (token, doorway) in (0_u64..).zip(&mut self.doorways) {
            if doorway.resting.is_some_and(|until| until <= now) {
                doorway.resting = None;
                if let Some(listener) = &doorway.listener
                    && self
                        .poller
                        .modify(listener, token, Interest::Readable)
                        .is_err()
                {
                    doorway.resting = Some(now + REST);
                }
            }
        }
    }

    /// Listens again where somebody has removed what peers find this node by.
    pub(super) fn keep_places(&mut self, now: Instant) {
        for place in 0..self.doorways.len() {
            let doorway = &mut self.doorways[place];
            if doorway.look_at.is_none_or(|at| at > now) {
                continue;
            }
            doorway.look_at = Some(now + PLACE_LOOK);
            if let Some(listener) = doorway.listener.take_if(|listener| listener.is_lost()) {
                let _ = self.poller.remove(&listener);
                doorway.lost = Some(listener.local_endpoint());
                doorway.resting = None;
            }
            if let Some(endpoint) = self.doorways[place].lost.take()
                && let Err(error) = self.listen_again(place, &endpoint)
            {
                let words = || {
                    format!(
                        "what peers find this node by, {endpoint}, was removed, and it cannot \
                         listen there again: {error}"
                    )
                };
                self.complaints.add(words, now);
                self.doorways[place].lost = Some(endpoint);
            }
        }
    }

    fn listen_again(&mut self, place: usize, endpoint: &Endpoint) -> io::Result<()> {
        let doorway = &mut self.doorways[place];
        let about = self.member.cluster().network(doorway.network);
        let listener = madgate_tm::listen(endpoint, &about.tuning)?;
        let token = u64::try_from(place).unwrap_or(u64::MAX);
        self.poller.add(&listener, token, Interest::Readable)?;
        tracing::warn!(
            "what peers find this node by, {endpoint}, was removed; it listens there again"
        );
        doorway.listener = Some(listener);
        Ok(())
    }

    /// Stops listening, and sends away those who have not proved anything.
    pub(super) fn close_doorways(&mut self) {
        for doorway in &mut self.doorways {
            doorway.resting = None;
            doorway.look_at = None;
            doorway.lost = None;
            if let Some(listener) = doorway.listener.take() {
                let _ = self.poller.remove(&listener);
            }
        }
        let strangers: Vec<u64> = self
            .meetings
            .iter()
            .filter(|(_, meeting)| meeting.strangeness().is_some())
            .map(|(token, _)| *token)
            .collect();
        for token in strangers {
            if let Some(mut meeting) = self.meetings.remove(&token) {
                self.unwatch(&mut meeting);
            }
        }
    }
}
