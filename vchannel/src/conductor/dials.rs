//! What is being dialled, and when the next attempt is due. No I/O and no clock.

use std::collections::HashMap;
use std::mem;
use std::time::{Duration, Instant};

use madgate_tm::{Lane, LaneClass};

use super::limits::{ATTEMPTS_AT_ONCE, ATTEMPTS_LEAST, BACKOFF_FIRST, BACKOFF_LONGEST};
use super::link::{LinkEvent, LinkRequest, Party};
use super::twins::Twins;
use crate::cluster::NodeId;
use crate::handshake::random_u64;

/// What is dialled, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DialKey {
    pub(super) party: Party,
    pub(super) request: LinkRequest,
}

/// One attempt to dial: its link's number tells it from others for the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) key: DialKey,
    pub(super) link: u64,
}

/// Everything that parties want dialled, or did until it was up.
#[derive(Debug)]
pub(super) struct Dials {
    dials: HashMap<DialKey, Dial>,
    under_way: usize,
    /// The longest pause between two attempts.
    longest: Duration,
}

#[derive(Debug)]
struct Dial {
    state: State,
    attempts: u32,
    backoff: Duration,
    last_error: Option<String>,
    /// The incarnation of the peer that was last heard of.
    incarnation: Option<u64>,
    /// Whether that one has come since the last attempt.
    is_fresh: bool,
    /// Whether a link that the peer has dialled serves as well: when the attempt fails that is
    /// under way, there is no other.
    is_served: bool,
}

#[derive(Debug)]
enum State {
    Resting {
        until: Instant,
    },
    UnderWay {
        link: u64,
        until: Instant,
        /// Whether the name of the peer's host is being resolved.
        is_resolving: bool,
        lanes: Twins,
        incarnation: Option<u64>,
    },
    /// Kept for the pause after a link that closes as soon as it is up.
    Up {
        since: Instant,
        /// The attempt that brought it.
        link: u64,
    },
}

/// What a lane that is there makes of its attempt.
#[derive(Debug)]
pub(super) enum Progressed {
    /// Its twin is missing.
    Half,
    /// The link: urgent lane, bulk lane.
    Whole(Lane, Lane),
    /// The attempt is over already; the lane is dropped.
    Stale,
    /// The other lane reached another incarnation of the peer.
    Torn,
}

impl Dials {
    /// Nothing is being dialled yet. `link_timeout` is how long anybody waits for a link: several attempts
    /// are made in it.
    pub(super) fn new(link_timeout: Duration) -> Self {
        let longest = BACKOFF_LONGEST.min(link_timeout / ATTEMPTS_LEAST);
        Self {
            dials: HashMap::new(),
            under_way: 0,
            longest: longest.max(BACKOFF_FIRST),
        }
    }

    /// A party wants a link.
    pub(super) fn dial(&mut self, key: DialKey, now: Instant) {
        let dial = self.dials.entry(key).or_insert(Dial {
            state: State::Resting { until: now },
            attempts: 0,
            backoff: BACKOFF_FIRST,
            last_error: None,
            incarnation: None,
            is_fresh: false,
            is_served: false,
        });
        if mem::take(&mut dial.is_served) {
            // Who wants it now has not been told why it cannot be had.
            dial.last_error = None;
        }
        if let State::Up { since, .. } = dial.state {
            let was_stable = now.duration_since(since) >= self.longest;
            let until = if was_stable || dial.is_fresh {
                dial.backoff = BACKOFF_FIRST;
                now
            } else {
                now + dial.pause(self.longest)
            };
            dial.state = State::Resting { until };
            dial.attempts = 0;
            dial.last_error = None;
        }
    }

    /// A link from `peer` has come: a new incarnation of it is there, whatever became of attempts
    /// to reach the one before.
    pub(super) fn heard_of(&mut self, peer: NodeId, incarnation: u64, now: Instant) {
        for (key, dial) in &mut self.dials {
            if key.request.peer != peer || dial.incarnation == Some(incarnation) {
                continue;
            }
            dial.incarnation = Some(incarnation);
            dial.is_fresh = true;
            dial.backoff = BACKOFF_FIRST;
            if let State::Resting { until } = &mut dial.state {
                *until = now.min(*until);
            }
        }
    }

    /// A link that the peer has dialled serves as well: an attempt that is under way is the last.
    /// It is not broken off, as the peer may have a link of it already.
    pub(super) fn served(&mut self, key: DialKey) {
        if let Some(dial) = self.dials.get_mut(&key) {
            match dial.state {
                State::Up { .. } => {}
                State::UnderWay { .. } => dial.is_served = true,
                State::Resting { .. } => drop(self.dials.remove(&key)),
            }
        }
    }

    /// A party no longer wants it. Returns the attempt that is under way.
    pub(super) fn cancel(&mut self, key: DialKey) -> Option<Attempt> {
        match self.dials.remove(&key)?.state {
            State::UnderWay { link, .. } => {
                self.under_way -= 1;
                Some(Attempt { key, link })
            }
            _ => None,
        }
    }

    /// Begins the next attempt that is due.
    pub(super) fn poll_due(&mut self, now: Instant, patience: Duration) -> Option<Attempt> {
        if self.under_way >= ATTEMPTS_AT_ONCE {
            return None;
        }
        let is_due = |dial: &Dial| matches!(dial.state, State::Resting { until } if until <= now);
        // Who has waited longest: attempts that take long must not have all the turns.
        let due = self.dials.iter_mut().filter(|(_, dial)| is_due(dial));
        let (key, dial) = due.min_by_key(|(_, dial)| match dial.state {
            State::Resting { until } => Some(until),
            _ => None,
        })?;
        let link = random_u64();
        dial.attempts = dial.attempts.saturating_add(1);
        dial.is_fresh = false;
        dial.state = State::UnderWay {
            link,
            until: now + patience,
            is_resolving: false,
            lanes: Twins::default(),
            incarnation: None,
        };
        self.under_way += 1;
        Some(Attempt { key: *key, link })
    }

    /// The name of the peer's host is resolved, until `deadline` at most.
    pub(super) fn begin_resolving(&mut self, attempt: Attempt, deadline: Instant) {
        self.prolong(attempt, deadline, true);
    }

    /// That is done, and the attempt has until `deadline`. `false`: it is over already.
    pub(super) fn end_resolving(&mut self, attempt: Attempt, deadline: Instant) -> bool {
        self.prolong(attempt, deadline, false)
    }

    fn prolong(&mut self, attempt: Attempt, deadline: Instant, resolves: bool) -> bool {
        match self.dials.get_mut(&attempt.key).map(|dial| &mut dial.state) {
            Some(State::UnderWay {
                link,
                until,
                is_resolving,
                ..
            }) if *link == attempt.link => {
                *until = deadline;
                *is_resolving = resolves;
                true
            }
            _ => false,
        }
    }

    /// An attempt that has taken too long, and whether to resolve a name.
    pub(super) fn expired(&self, now: Instant) -> Option<(Attempt, bool)> {
        self.dials.iter().find_map(|(key, dial)| match dial.state {
            State::UnderWay {
                link,
                until,
                is_resolving,
                ..
            } if until <= now => Some((Attempt { key: *key, link }, is_resolving)),
            _ => None,
        })
    }

    /// A lane of an attempt is there.
    pub(super) fn lane_ready(
        &mut self,
        attempt: Attempt,
        class: LaneClass,
        peer_incarnation: u64,
        lane: Lane,
        now: Instant,
    ) -> Progressed {
        let Some(dial) = self.dials.get_mut(&attempt.key) else {
            return Progressed::Stale;
        };
        let State::UnderWay {
            link,
            lanes,
            incarnation,
            ..
        } = &mut dial.state
        else {
            return Progressed::Stale;
        };
        if *link != attempt.link {
            return Progressed::Stale;
        }
        if *incarnation.get_or_insert(peer_incarnation) != peer_incarnation {
            return Progressed::Torn;
        }
        match lanes.add(class, lane) {
            Some((urgent, bulk)) => {
                dial.state = State::Up {
                    since: now,
                    link: attempt.link,
                };
                self.under_way -= 1;
                Progressed::Whole(urgent, bulk)
            }
            None => Progressed::Half,
        }
    }

    /// An attempt failed, or the link that came of it cannot be used. Returns what its party
    /// is told, if it has not been told the same last time.
    pub(super) fn fail(
        &mut self,
        attempt: Attempt,
        error: &str,
        is_refusal: bool,
        now: Instant,
    ) -> Option<LinkEvent> {
        let dial = self.dials.get_mut(&attempt.key)?;
        match dial.state {
            State::UnderWay { link, .. } if link == attempt.link => self.under_way -= 1,
            State::Up { link, .. } if link == attempt.link => {}
            _ => return None,
        }
        if dial.is_served {
            self.dials.remove(&attempt.key);
            return None;
        }
        let until = now + dial.pause(self.longest);
        dial.state = State::Resting { until };
        if dial.last_error.as_deref() == Some(error) {
            return None;
        }
        dial.last_error = Some(error.to_owned());
        Some(LinkEvent::DialFailed {
            request: attempt.key.request,
            error: error.to_owned(),
            is_refusal,
            attempts: dial.attempts,
        })
    }

    /// When an attempt is due, or has taken too long.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let has_room = self.under_way < ATTEMPTS_AT_ONCE;
        self.dials
            .values()
            .filter_map(|dial| match dial.state {
                State::Resting { until } if has_room => Some(until),
                State::UnderWay { until, .. } => Some(until),
                _ => None,
            })
            .min()
    }
}

impl Dial {
    /// How long to rest now: half the backoff to all of it, by chance. The next one is longer.
    fn pause(&mut self, longest: Duration) -> Duration {
        let backoff = self.backoff.min(longest);
        self.backoff = (2 * backoff).min(longest);
        let half = backoff / 2;
        let half_us = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
        half + Duration::from_micros(random_u64() % half_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::NetworkId;
    use crate::conductor::LinkKind;

    const PATIENCE: Duration = Duration::from_secs(5);
    const LINK_TIMEOUT: Duration = Duration::from_secs(30);

    fn key(peer: u32) -> DialKey {
        let request = LinkRequest {
            kind: LinkKind::Regular,
            network: NetworkId(0),
            peer: NodeId(peer),
        };
        let party = Party::Endpoint;
        DialKey { party, request }
    }

    #[test]
    fn everybody_has_a_turn_where_attempts_take_long() {
        let (mut now, count) = (Instant::now(), 4 * u32::try_from(ATTEMPTS_AT_ONCE).unwrap());
        let mut dials = Dials::new(Duration::from_secs(1));
        for peer in 0..count {
            dials.dial(key(peer), now);
        }
        let mut tried = std::collections::HashSet::new();
        // Nobody answers: each attempt takes all of its time.
        for _ in 0..8 {
            while let Some(attempt) = dials.poll_due(now, PATIENCE) {
                tried.insert(attempt.key);
            }
            now += PATIENCE;
            while let Some((attempt, _)) = dials.expired(now) {
                dials.fail(attempt, "silent", false, now);
            }
        }
        assert_eq!(tried.len(), count as usize);
    }

    #[test]
    fn what_an_earlier_attempt_meets_is_not_of_the_link_that_is_up() {
        let now = Instant::now();
        let mut dials = Dials::new(LINK_TIMEOUT);
        dials.dial(key(1), now);
        let earlier = dials.poll_due(now, PATIENCE).unwrap();
        dials.cancel(key(1));
        dials.dial(key(1), now);
        let attempt = dials.poll_due(now, PATIENCE).unwrap();
        let link = attempt.link;
        dials.dials.get_mut(&key(1)).unwrap().state = State::Up { since: now, link };
        dials.under_way -= 1;
        assert!(dials.fail(earlier, "no such host", false, now).is_none());
        assert_eq!(dials.next_deadline(), None);
        assert!(
            dials
                .fail(attempt, "it cannot be used", false, now)
                .is_some()
        );
    }

    #[test]
    fn pauses_grow_and_reasons_are_told_once() {
        let mut now = Instant::now();
        let mut dials = Dials::new(LINK_TIMEOUT);
        dials.dial(key(1), now);
        let mut longest = BACKOFF_FIRST;
        for attempt_number in 1..=12 {
            assert_eq!(dials.next_deadline(), Some(now));
            let attempt = dials.poll_due(now, PATIENCE).unwrap();
            assert!(dials.poll_due(now, PATIENCE).is_none());
            dials.dial(key(1), now);
            assert_eq!(dials.next_deadline(), Some(now + PATIENCE));
            // The reason changes once.
            let error = if attempt_number < 8 {
                "refused"
            } else {
                "lost"
            };
            let told = dials.fail(attempt, error, false, now);
            let is_news = attempt_number == 1 || attempt_number == 8;
            assert_eq!(told.is_some(), is_news, "attempt {attempt_number}");
            if let Some(LinkEvent::DialFailed { attempts, .. }) = told {
                assert_eq!(attempts, attempt_number);
            }
            assert!(dials.fail(attempt, "stale", false, now).is_none());
            let next = dials.next_deadline().unwrap();
            let pause = next - now;
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?}");
            longest = (2 * longest).min(BACKOFF_LONGEST);
            now = next;
        }
    }

    #[test]
    fn several_attempts_are_made_while_anybody_waits_for_a_link() {
        for timeout in [100, 250, 1000, 3000, 60_000].map(Duration::from_millis) {
            let mut now = Instant::now();
            let mut dials = Dials::new(timeout);
            dials.dial(key(1), now);
            for _ in 0..12 {
                let attempt = dials.poll_due(now, PATIENCE).unwrap();
                dials.fail(attempt, "refused", false, now);
                now = dials.next_deadline().unwrap();
            }
            // However often it was in vain before.
            let begun = now;
            let mut attempts = 0;
            while now < begun + timeout {
                let attempt = dials.poll_due(now, PATIENCE).unwrap();
                dials.fail(attempt, "refused", false, now);
                now = dials.next_deadline().unwrap();
                attempts += 1;
            }
            assert!(attempts >= ATTEMPTS_LEAST, "{timeout:?}: {attempts}");
        }
    }

    #[test]
    fn a_peer_that_comes_anew_is_dialled_at_once() {
        let now = Instant::now();
        let mut dials = Dials::new(LINK_TIMEOUT);
        dials.dial(key(1), now);
        for _ in 0..5 {
            let due = dials.next_deadline().unwrap();
            let attempt = dials.poll_due(due, PATIENCE).unwrap();
            dials.fail(attempt, "refused", false, due);
        }
        let rests = |dials: &Dials| dials.next_deadline().is_some_and(|at| at > now);
        assert!(rests(&dials));
        dials.heard_of(NodeId(2), 7, now);
        assert!(rests(&dials), "that was another one");
        dials.heard_of(NodeId(1), 7, now);
        let attempt = dials.poll_due(now, PATIENCE).unwrap();
        // The same incarnation says nothing new.
        dials.fail(attempt, "refused", false, now);
        dials.heard_of(NodeId(1), 7, now);
        assert!(rests(&dials));
        // Nor does a link that was closed as soon as it was up, unless its peer is another now.
        dials.heard_of(NodeId(1), 8, now);
        let up = |dials: &mut Dials| {
            let link = dials.poll_due(now, PATIENCE).unwrap().link;
            dials.dials.get_mut(&key(1)).unwrap().state = State::Up { since: now, link };
            dials.under_way -= 1;
        };
        up(&mut dials);
        dials.dial(key(1), now);
        assert!(rests(&dials));
        dials.heard_of(NodeId(1), 9, now);
        up(&mut dials);
        dials.heard_of(NodeId(1), 10, now);
        dials.dial(key(1), now);
        assert!(!rests(&dials));
    }

    #[test]
    fn what_a_link_of_the_peer_serves_is_dialled_no_longer() {
        let now = Instant::now();
        let mut dials = Dials::new(LINK_TIMEOUT);
        dials.dial(key(1), now);
        dials.served(key(1));
        assert_eq!(dials.next_deadline(), None);
        // An attempt that is under way goes on, and is the last.
        dials.dial(key(1), now);
        let attempt = dials.poll_due(now, PATIENCE).unwrap();
        dials.served(key(1));
        assert_eq!(dials.next_deadline(), Some(now + PATIENCE));
        assert!(dials.fail(attempt, "refused", false, now).is_none());
        assert_eq!(dials.next_deadline(), None);
        // Unless it is wanted again before it fails.
        dials.dial(key(1), now);
        let attempt = dials.poll_due(now, PATIENCE).unwrap();
        assert!(dials.fail(attempt, "refused", false, now).is_some());
        let due = dials.next_deadline().unwrap();
        let attempt = dials.poll_due(due, PATIENCE).unwrap();
        dials.served(key(1));
        dials.dial(key(1), now);
        assert!(
            dials.fail(attempt, "refused", false, now).is_some(),
            "it is news"
        );
        assert!(dials.next_deadline().is_some());
    }

    #[test]
    fn attempts_take_turns_and_can_be_cancelled() {
        let now = Instant::now();
        let mut dials = Dials::new(LINK_TIMEOUT);
        let total = u32::try_from(ATTEMPTS_AT_ONCE + 10).unwrap();
        (0..total).for_each(|peer| dials.dial(key(peer), now));
        let begun: Vec<Attempt> = std::iter::from_fn(|| dials.poll_due(now, PATIENCE)).collect();
        assert_eq!(begun.len(), ATTEMPTS_AT_ONCE);
        assert_eq!(
            dials.next_deadline(),
            Some(now + PATIENCE),
            "no room, nothing due"
        );
        let first = begun[0];
        assert_eq!(dials.cancel(first.key), Some(first));
        assert_eq!(dials.cancel(first.key), None);
        assert!(!dials.end_resolving(first, now));
        let next = dials.poll_due(now, PATIENCE).unwrap();
        assert!(dials.poll_due(now, PATIENCE).is_none());
        assert_eq!(dials.expired(now), None);
        dials.begin_resolving(next, now);
        assert_eq!(dials.expired(now), Some((next, true)));
        assert!(dials.end_resolving(next, now));
        assert_eq!(dials.expired(now), Some((next, false)));
    }
}
