//! How meetings go on, and how they end.

use std::time::Instant;

use madgate_tm::Interest;

use super::agent::Agent;
use super::dials::Attempt;
use super::limits::{LINGER, MEMBERS_WAITING_MOST};
use super::link::{LinkEvent, Party};
use super::meeting::{Meeting, Role, Step};
use super::presence::Judgement;
use crate::handshake::{HandshakeError, Refusal};

impl Agent {
    /// A meeting's descriptor is ready, or its meeting new.
    pub(super) fn go_on(&mut self, token: u64, now: Instant) {
        let Some(mut meeting) = self.meetings.remove(&token) else {
            return;
        };
        if meeting.is_held {
            // Nothing is due from it: it has closed, or says what it must not yet.
            return self.end_meeting(meeting, Some(&HandshakeError::Closed), now);
        }
        match self.drive(&mut meeting, now) {
            Ok(Fate::Stays(interest)) => match self.watch(&mut meeting, token, interest) {
                Ok(()) => {
                    self.meetings.insert(token, meeting);
                }
                Err(error) => self.end_meeting(meeting, Some(&error.into()), now),
            },
            Ok(Fate::Ends) => self.end_meeting(meeting, None, now),
            Err(error) => self.say_goodbye(meeting, token, &error, now),
        }
    }

    /// Goes on with a meeting whose peer's name is free now.
    pub(super) fn go_on_held(&mut self, token: u64, now: Instant) {
        if let Some(meeting) = self.meetings.get_mut(&token) {
            meeting.is_held = false;
            self.go_on(token, now);
        }
    }

    /// Ends a meeting whose peer's name stays with another process.
    pub(super) fn refuse_held(&mut self, token: u64, now: Instant) {
        let Some(mut meeting) = self.meetings.remove(&token) else {
            return;
        };
        meeting.is_held = false;
        if let Role::Accepted(responder) = &mut meeting.role {
            responder.refuse(Refusal::NamePresent);
            // The verdict is the last word, and the peer says nothing meanwhile.
            let _ = meeting.advance();
        }
        let node = self.name_of_peer(&meeting);
        let error = HandshakeError::NamePresent { node };
        self.end_meeting(meeting, Some(&error), now);
    }

    fn drive(&mut self, meeting: &mut Meeting, now: Instant) -> Result<Fate, HandshakeError> {
        loop {
            match meeting.advance()? {
                Step::Wait(interest) => return Ok(Fate::Stays(interest)),
                Step::Left => return Ok(Fate::Ends),
                Step::Decide => {
                    if !self.decide(meeting, now)? {
                        meeting.is_held = true;
                        return Ok(Fate::Stays(Interest::None));
                    }
                    if meeting.attempt().is_some() {
                        self.establish(meeting)?;
                    }
                }
                Step::Agreed => self.establish(meeting)?,
                Step::Lane(lane) => {
                    // The lane has descriptors of its own.
                    self.unwatch(meeting);
                    self.lane_ready(&meeting.role, lane, now);
                    return Ok(Fate::Ends);
                }
            }
        }
    }

    fn establish(&mut self, meeting: &mut Meeting) -> Result<(), HandshakeError> {
        self.unwatch(meeting);
        let settings = self.member.cluster().gateway_settings();
        meeting.establish(settings.ahead_bytes)
    }

    /// Decides about a peer that has proved who it is. `false`: not now.
    fn decide(&mut self, meeting: &mut Meeting, now: Instant) -> Result<bool, HandshakeError> {
        let Some(peer) = meeting.peer() else {
            return Err(HandshakeError::Closed);
        };
        if let Role::Accepted(responder) = &mut meeting.role
            && self.members_waiting() >= MEMBERS_WAITING_MOST
        {
            responder.refuse(Refusal::Busy);
            return Ok(true);
        }
        match self.presence.judge(peer.node, peer.incarnation, now) {
            Judgement::Admit => {
                if let Role::Accepted(responder) = &mut meeting.role {
                    responder.accept();
                }
                Ok(true)
            }
            Judgement::Wait => Ok(false),
            Judgement::Challenge { incarnation } => {
                let peer = peer.node;
                for outlet in &mut self.outlets {
                    outlet.push(LinkEvent::Challenge { peer, incarnation });
                }
                Ok(false)
            }
        }
    }

    /// Members whose connections are not links yet. The one that is asked about is not
    /// counted, as it is not in its place.
    fn members_waiting(&self) -> usize {
        let unfinished = self
            .meetings
            .values()
            .filter(|meeting| meeting.attempt().is_none() && meeting.strangeness().is_none());
        unfinished.count() + self.pairs.len()
    }

    /// Ends a meeting, but for the last words that its peer is to read.
    fn say_goodbye(
        &mut self,
        mut meeting: Meeting,
        token: u64,
        error: &HandshakeError,
        now: Instant,
    ) {
        if meeting.attempt().is_some() {
            return self.end_meeting(meeting, Some(error), now);
        }
        self.complain(&meeting, error, now);
        self.unwatch(&mut meeting);
        if meeting.leave() {
            meeting.until = meeting.until.min(now + LINGER);
            if self.watch(&mut meeting, token, Interest::Readable).is_ok() {
                self.meetings.insert(token, meeting);
            }
        }
    }

    /// Ends a meeting: with an error, unless it has become a lane or has said goodbye.
    pub(super) fn end_meeting(
        &mut self,
        mut meeting: Meeting,
        error: Option<&HandshakeError>,
        now: Instant,
    ) {
        self.unwatch(&mut meeting);
        let Some(error) = error else {
            return;
        };
        match meeting.attempt() {
            Some(attempt) => self.fail_attempt(attempt, error, now),
            None => self.complain(&meeting, error, now),
        }
    }

    /// An attempt to dial failed: with all of its meetings.
    pub(super) fn fail_attempt(&mut self, attempt: Attempt, error: &HandshakeError, now: Instant) {
        let request = attempt.key.request;
        let cluster = self.member.cluster();
        let place = cluster.place(request.peer, request.network);
        let text = format!("{place}: {error}");
        let is_refusal = error.is_refusal();
        if let Some(event) = self.dials.fail(attempt, &text, is_refusal, now) {
            // At once, as those who wait for the link hear of it only when they give up.
            match attempt.key.party {
                _ if is_refusal => tracing::warn!("no link to {text}"),
                Party::Endpoint => tracing::info!("no link to {text}"),
                // Which links it needs, the engine knows.
                Party::Engine => {}
            }
            self.tell(attempt.key.party, event);
        }
        self.drop_meetings_of(attempt);
    }

    fn complain(&mut self, meeting: &Meeting, error: &HandshakeError, now: Instant) {
        // Whoever was told to leave has been complained about.
        if meeting.is_leaving() {
            return;
        }
        let who = match meeting.peer() {
            Some(_) => self.name_of_peer(meeting),
            None => "a stranger".to_owned(),
        };
        let words = || {
            format!(
                "handshake with {who} at {} failed: {error}",
                meeting.describe()
            )
        };
        self.complaints.add(words, now);
    }

    fn name_of_peer(&self, meeting: &Meeting) -> String {
        let cluster = self.member.cluster();
        let peer = match &meeting.role {
            Role::Accepted(_) => meeting.peer().map(|peer| peer.node),
            Role::Dialed(initiator, _) => Some(initiator.hello().destination),
        };
        peer.and_then(|peer| cluster.node_with_rank(peer.rank()))
            .map_or_else(
                || "a stranger".to_owned(),
                |peer| cluster.node_name(peer).to_owned(),
            )
    }
}

/// What becomes of a meeting.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Stays(Interest),
    Ends,
}
