//! Which incarnation of each node is present, and what happens when another one comes. No
//! I/O and no clock.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::cluster::NodeId;

/// Who is present.
///
/// A node is present while it has links. Another incarnation of it is let in when the present
/// one has no links left, or has not answered a challenge in time.
///
/// - **Input**: [`judge`](Self::judge), [`register`](Self::register),
///   [`close`](Self::close), [`answer`](Self::answer).
/// - **Output**: [`poll_settled`](Self::poll_settled), due at
///   [`next_deadline`](Self::next_deadline).
#[derive(Debug)]
pub(super) struct Presence {
    challenge: Duration,
    present: HashMap<NodeId, Present>,
    links: HashMap<u64, NodeId>,
    contested: Vec<Contest>,
}

#[derive(Debug)]
struct Present {
    incarnation: u64,
    links: usize,
}

/// A challenge that is under way.
#[derive(Debug)]
struct Contest {
    peer: NodeId,
    incarnation: u64,
    until: Instant,
    is_answered: bool,
}

/// Whether a newcomer is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Admit,
    /// Not before the contest is settled, which this newcomer has begun.
    Challenge {
        incarnation: u64,
    },
    /// Not before the contest is settled.
    Wait,
}

/// How a contest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) peer: NodeId,
    /// The incarnation that was challenged.
    pub(super) incarnation: u64,
    pub(super) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It answered: newcomers are refused.
    Stays,
    /// Its links were closed meanwhile: newcomers are let in.
    Left,
    /// It did not answer: newcomers are let in, and its links are forgotten.
    Silent,
}

impl Presence {
    pub(super) fn new(challenge: Duration) -> Self {
        Self {
            challenge,
            present: HashMap::new(),
            links: HashMap::new(),
            contested: Vec::new(),
        }
    }

    /// An incarnation of `peer` wants to come in.
    pub(super) fn judge(&mut self, peer: NodeId, incarnation: u64, now: Instant) -> Judgement {
        match self.present.get(&peer) {
            Some(present) if present.incarnation != incarnation => {
                let incarnation = present.incarnation;
                if self.contested.iter().any(|contest| contest.peer == peer) {
                    return Judgement::Wait;
                }
                self.contested.push(Contest {
                    peer,
                    incarnation,
                    until: now + self.challenge,
                    is_answered: false,
                });
                Judgement::Challenge { incarnation }
            }
            _ => Judgement::Admit,
        }
    }

    /// A link of an incarnation is up. `false`: another incarnation was faster, and the link
    /// must not be.
    pub(super) fn register(&mut self, id: u64, peer: NodeId, incarnation: u64) -> bool {
        let present = self.present.entry(peer).or_insert(Present {
            incarnation,
            links: 0,
        });
        if present.incarnation != incarnation {
            return false;
        }
        present.links += 1;
        self.links.insert(id, peer);
        true
    }

    /// A link has closed. One that is forgotten already makes no difference.
    pub(super) fn close(&mut self, id: u64) {
        let Some(peer) = self.links.remove(&id) else {
            return;
        };
        if let Some(present) = self.present.get_mut(&peer) {
            present.links -= 1;
            if present.links == 0 {
                self.present.remove(&peer);
            }
        }
    }

    /// A challenged incarnation was heard.
    pub(super) fn answer(&mut self, peer: NodeId, incarnation: u64) {
        for contest in &mut self.contested {
            contest.is_answered |= (contest.peer, contest.incarnation) == (peer, incarnation);
        }
    }

    /// A contest that has ended by now.
    pub(super) fn poll_settled(&mut self, now: Instant) -> Option<Settled> {
        let outcome = |contest: &Contest| {
            let present = self.present.get(&contest.peer);
            if present.is_none_or(|present| present.incarnation != contest.incarnation) {
                Some(Outcome::Left)
            } else if contest.is_answered {
                Some(Outcome::Stays)
            } else {
                (contest.until <= now).then_some(Outcome::Silent)
            }
        };
        let (index, outcome) = self
            .contested
            .iter()
            .enumerate()
            .find_map(|(index, contest)| Some((index, outcome(contest)?)))?;
        let Contest {
            peer, incarnation, ..
        } = self.contested.swap_remove(index);
        if outcome == Outcome::Silent {
            self.present.remove(&peer);
            self.links.retain(|_, node| *node != peer);
        }
        Some(Settled {
            peer,
            incarnation,
            outcome,
        })
    }

    /// When a contest ends, if nobody answers.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.contested.iter().map(|contest| contest.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeId = NodeId(7);
    const CHALLENGE: Duration = Duration::from_secs(2);

    fn settled(outcome: Outcome) -> Option<Settled> {
        Some(Settled {
            peer: PEER,
            incarnation: 1,
            outcome,
        })
    }

    /// Incarnation 1 is present with links 10 and 11, and 2 has challenged it.
    fn contested(now: Instant) -> Presence {
        let mut presence = Presence::new(CHALLENGE);
        assert_eq!(presence.judge(PEER, 1, now), Judgement::Admit);
        assert!(presence.register(10, PEER, 1));
        assert_eq!(presence.judge(PEER, 1, now), Judgement::Admit);
        assert!(presence.register(11, PEER, 1));
        assert_eq!(
            presence.judge(PEER, 2, now),
            Judgement::Challenge { incarnation: 1 }
        );
        assert_eq!(presence.judge(PEER, 2, now), Judgement::Wait);
        assert_eq!(presence.judge(NodeId(8), 2, now), Judgement::Admit);
        assert_eq!(presence.poll_settled(now), None);
        presence
    }

    #[test]
    fn who_answers_stays() {
        let now = Instant::now();
        let mut presence = contested(now);
        presence.answer(PEER, 2);
        assert_eq!(
            presence.poll_settled(now),
            None,
            "not the one that was asked"
        );
        presence.answer(PEER, 1);
        assert_eq!(presence.poll_settled(now), settled(Outcome::Stays));
        assert_eq!(presence.poll_settled(now + CHALLENGE), None);
        assert_eq!(
            presence.judge(PEER, 2, now),
            Judgement::Challenge { incarnation: 1 }
        );
    }

    #[test]
    fn who_leaves_makes_room_at_once() {
        let now = Instant::now();
        let mut presence = contested(now);
        presence.close(10);
        presence.close(10);
        assert_eq!(presence.poll_settled(now), None);
        presence.close(11);
        assert_eq!(presence.poll_settled(now), settled(Outcome::Left));
        assert_eq!(presence.judge(PEER, 2, now), Judgement::Admit);
    }

    #[test]
    fn who_is_silent_is_replaced() {
        let now = Instant::now();
        let mut presence = contested(now);
        assert_eq!(presence.next_deadline(), Some(now + CHALLENGE));
        assert_eq!(
            presence.poll_settled(now + CHALLENGE),
            settled(Outcome::Silent)
        );
        assert_eq!(presence.next_deadline(), None);
        assert!(presence.register(12, PEER, 2));
        assert!(!presence.register(13, PEER, 3), "two newcomers at once");
        presence.close(11);
        assert_eq!(
            presence.judge(PEER, 1, now),
            Judgement::Challenge { incarnation: 2 },
            "links that were forgotten do not count"
        );
        presence.close(12);
        assert_eq!(presence.judge(PEER, 1, now), Judgement::Admit);
    }
}
