//! Promising values against what is in force, pair by pair, until it is clear.

use super::screen::Candidate;
use super::{LEAST_GAIN, Move, Point, Search, Step, Surface};
use crate::statistics::{Estimate, LEAST_FIGURES};

/// Who looked worse than this is not raced. Below one, as a first look may have been unlucky.
const LEAST_PROMISE: f64 = 0.98;
/// While there are values that nobody has looked at: they are worth more than races of who hardly
/// looked better,
const LEAST_PROMISE_BEFORE_OTHERS: f64 = 1.0 + LEAST_GAIN;
/// and than many races.
const RACES_BEFORE_OTHERS: usize = 2;
/// After so many pairs, who is not ahead is out.
const FIRST_PAIRS: usize = 3;
/// After so many, who is not surely ahead is out.
const MOST_PAIRS: usize = 16;

/// How a race stands, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Surely better, and taken over.
    Won,
    /// Not better, or not surely so after [`MOST_PAIRS`].
    Lost,
    /// As good with one change less, and taken over for that.
    Spared,
    /// Not clear yet; for good, if there was no more time.
    Open,
}

impl<S: Surface> Search<'_, S> {
    /// Races candidates, the most promising first. Returns whether any was taken over.
    pub(super) fn race(&mut self, mut candidates: Vec<Candidate>) -> Result<bool, S::Error> {
        let mut has_changed = false;
        let (least, most) = if self.unseen > 0 {
            (LEAST_PROMISE_BEFORE_OTHERS, RACES_BEFORE_OTHERS)
        } else {
            (LEAST_PROMISE, usize::MAX)
        };
        let mut lost = 0;
        while !candidates.is_empty() && lost < most {
            let candidate = candidates.remove(0);
            if candidate.promise() < least {
                break;
            }
            let promise = candidate.promise();
            let Some(gain) = self.challenge(candidate.tried.from(&self.incumbent), promise)? else {
                lost += 1;
                continue;
            };
            has_changed = true;
            // The knob's other values are compared with a better one from now on.
            for other in &mut candidates {
                if other.tried.meets(candidate.tried) {
                    other.ratios.iter_mut().for_each(|ratio| *ratio /= gain);
                }
            }
            candidates.sort_by(|one, other| other.promise().total_cmp(&one.promise()));
        }
        if let Some(next) = candidates.first() {
            self.note_undecided(next.tried.from(&self.incumbent), next.promise());
        }
        Ok(has_changed)
    }

    /// There was no time for a race that decides about a point.
    fn note_undecided(&mut self, point: Point, promise: f64) {
        let is_best = self
            .undecided
            .as_ref()
            .is_none_or(|(best, _)| promise > *best);
        if promise >= LEAST_PROMISE_BEFORE_OTHERS && is_best {
            self.undecided = Some((promise, point));
        }
    }

    /// A point was measured beside another one: where one knob is different, its value has been looked at.
    fn note_seen(&mut self, point: &[usize], beside: &[usize]) {
        let values = point.iter().zip(beside).enumerate();
        let mut others = values.filter(|(_, (value, present))| value != present);
        if let (Some((knob, (&value, _))), None) = (others.next(), others.next()) {
            self.seen.insert(Move::plain(knob, value));
        }
    }

    /// Measures pairs of a point and what is in force, until it is clear how the point `stands`, or time
    /// is over, or one of them cannot be had.
    pub(super) fn run(
        &mut self,
        point: &[usize],
        present: &[usize],
        stands: impl Fn(&Estimate) -> Standing,
    ) -> Result<(Option<Estimate>, Standing), S::Error> {
        let mut ratios = Vec::new();
        let mut standing = Standing::Open;
        while standing == Standing::Open && self.affords(2, self.search_end()) {
            let Some(ratio) = self.pair(ratios.len(), point, present)? else {
                break;
            };
            ratios.push(ratio);
            self.note_seen(point, present);
            standing = Estimate::of(&ratios).map_or(Standing::Open, |ratio| stands(&ratio));
        }
        Ok((Estimate::of(&ratios), standing))
    }

    /// Races a point that looked `promise` times as good as what is in force; by how many times it is
    /// better, where it is surely so and has been taken over.
    pub(super) fn challenge(
        &mut self,
        point: Point,
        promise: f64,
    ) -> Result<Option<f64>, S::Error> {
        let present = self.incumbent.clone();
        if point == present {
            // A trade that was taken has brought it.
            return Ok(None);
        }
        let (ratio, standing) = self.run(&point, &present, stands)?;
        self.undecided.take_if(|(_, it)| *it == point);
        if standing == Standing::Open && self.refusal(&point).is_none() {
            let promise = ratio.as_ref().map_or(promise, |ratio| ratio.median);
            self.note_undecided(point.clone(), promise);
        }
        let Some(ratio) = ratio else {
            return Ok(None);
        };
        let gain = (standing == Standing::Won).then_some(ratio.median);
        if gain.is_some() {
            self.incumbent.clone_from(&point);
        }
        self.found(Step::Raced {
            from: present,
            to: point,
            ratio,
            standing,
        });
        Ok(gain)
    }
}

fn stands(ratio: &Estimate) -> Standing {
    let pays = ratio.median >= 1.0 + LEAST_GAIN;
    match ratio.figures {
        0..FIRST_PAIRS => Standing::Open,
        FIRST_PAIRS..LEAST_FIGURES if ratio.median > 1.0 => Standing::Open,
        FIRST_PAIRS..LEAST_FIGURES => Standing::Lost,
        _ if !pays => Standing::Lost,
        _ if ratio.is_surely_above(1.0) => Standing::Won,
        figures if figures < MOST_PAIRS => Standing::Open,
        _ => Standing::Lost,
    }
}
