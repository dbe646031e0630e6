//! A first look at every value and trade: which are promising.

use std::time::Duration;

use super::{Move, Search, Step, Surface};
use crate::statistics::geometric_mean;

/// Values that are looked at between two measurements of what is in force.
const GROUP: usize = 4;
/// The part of the time for searching that one screening may take.
const SCREENING_PART: f64 = 0.5;
/// The same when it is late: races are few then.
const LATE_SCREENING_PART: f64 = 0.75;
/// Looks at the same value in one screening: all values once, then the better half again.
const LOOKS: usize = 2;

/// A move that may be better than what is in force.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidate {
    pub(super) tried: Move,
    /// How many times as good it looked, look by look.
    pub(super) ratios: Vec<f64>,
}

impl Candidate {
    const fn new(tried: Move) -> Self {
        Self {
            tried,
            ratios: Vec::new(),
        }
    }

    /// How many times as good as what is in force it seems to be.
    pub(super) fn promise(&self) -> f64 {
        geometric_mean(&self.ratios)
    }
}

impl<S: Surface> Search<'_, S> {
    /// Looks at every value of every knob and every trade (when it is late, at those that were not
    /// looked at), and returns those that there was time for, the most promising first.
    pub(super) fn screen(&mut self) -> Result<Vec<Candidate>, S::Error> {
        let mut candidates = self.neighbours();
        if self.is_late {
            candidates.retain(|it| !self.seen.contains(&it.tried));
        }
        self.learn_cost()?;
        let began = self.surface.elapsed();
        let time = self.search_end().saturating_sub(began);
        let part = if self.is_late {
            LATE_SCREENING_PART
        } else {
            SCREENING_PART
        };
        let end = began + time.mul_f64(part);
        for look in 0..LOOKS {
            self.look_at(&mut candidates, end)?;
            self.note_looks(&candidates, look + 1);
            candidates.sort_by(|one, other| other.promise().total_cmp(&one.promise()));
            if look == 0 {
                // Another time they may have been looked at beside something else.
                let is_unseen = |candidate: &&Candidate| {
                    candidate.ratios.is_empty() && !self.seen.contains(&candidate.tried)
                };
                self.unseen = candidates.iter().filter(is_unseen).count();
                candidates.retain(|candidate| !candidate.ratios.is_empty());
                candidates.truncate(candidates.len().div_ceil(2));
            }
        }
        Ok(candidates)
    }

    /// Takes note of the candidates that were looked at this time too.
    fn note_looks(&mut self, candidates: &[Candidate], looks: usize) {
        for candidate in candidates {
            if candidate.ratios.len() == looks {
                self.seen.insert(candidate.tried);
                self.found(Step::Screened {
                    tried: candidate.tried,
                    ratio: candidate.promise(),
                    looks,
                });
            }
        }
    }

    /// Every value that is not in force, those next to it first: where there is no time for
    /// all, each knob has had its turn. A trade comes with the value that it begins with.
    fn neighbours(&self) -> Vec<Candidate> {
        let knobs = self.dimensions.iter().zip(&self.incumbent).enumerate();
        let plain = knobs.flat_map(|(knob, (dimension, present))| {
            let others = (0..dimension.values).filter(move |value| value != present);
            others.map(move |value| Move::plain(knob, value))
        });
        let trades = self.trades.iter();
        let trades = trades.flat_map(|trade| trade.moves(&self.incumbent));
        let mut candidates: Vec<_> = plain.chain(trades).map(Candidate::new).collect();
        // Stable, so that knobs stay in their order.
        candidates.sort_by_key(|candidate| {
            let Move { knob, value, .. } = candidate.tried;
            (value.abs_diff(self.incumbent[knob]), knob)
        });
        candidates
    }

    /// Looks once at each candidate that there is time for, in groups, between two measurements
    /// of what is in force. Those that cannot be had are dropped.
    fn look_at(&mut self, candidates: &mut Vec<Candidate>, end: Duration) -> Result<(), S::Error> {
        let incumbent = self.incumbent.clone();
        let mut before = None;
        for group in candidates.chunks_mut(GROUP) {
            if !self.affords(group.len() + 2, end) {
                break;
            }
            let first = match before {
                Some(score) => Some(score),
                None => self.measure(&incumbent)?,
            };
            if first.is_none() {
                break;
            }
            let mut scores = Vec::with_capacity(group.len());
            for candidate in group.iter() {
                scores.push(self.measure(&candidate.tried.from(&incumbent))?);
            }
            let last = self.measure(&incumbent)?;
            before = last;
            let Some((first, last)) = first.zip(last) else {
                continue;
            };
            let beside = geometric_mean(&[first, last]);
            for (candidate, score) in group.iter_mut().zip(scores) {
                candidate.ratios.extend(score.map(|score| score / beside));
            }
        }
        candidates.retain(|candidate| self.refusal(&candidate.tried.from(&incumbent)).is_none());
        Ok(())
    }
}
