//! Looking for the best values of a few knobs by measuring, within a budget of time.
//!
//! ```text
//!   begin   with the defaults, where the file has other values and they win a race
//!   screen  every value, and every trade of one knob for another, once or twice, beside
//!           what is in force, nearest first
//!   race    the promising ones, best first, in pairs with what is in force:
//!           taken over when they are surely better, dropped when they are not
//!           (again, around what has been found, while that changes anything;
//!           or, where nothing was found, with values that there was no time for)
//!   prune   of several changes, those without which it is as good are taken back
//!   verify  what was found against what was there, in fresh pairs; or, where nothing was, what
//!           looked best of what there was no time to race
//! ```
//!
//! A figure by itself says little, as machines are busy at times. So nothing is compared but
//! what was measured next to each other, with the order changing, and only medians of such
//! ratios with their intervals decide. What is found by racing many candidates is partly luck;
//! the figures of the last step are not, and alone decide whether anything is changed at all.
//!
//! Knows nothing of knobs, clocks or networks: a [`Surface`] measures, and says how late it is.

mod prune;
mod race;
mod screen;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

use crate::statistics::Estimate;
pub(crate) use race::Standing;
pub(crate) use sweep::{MAX_POINTS, sweep};

/// For each knob, which of its values.
pub(crate) type Point = Vec<usize>;

/// A change that gains less is not worth making.
pub(crate) const LEAST_GAIN: f64 = 0.01;
/// How often the neighbourhood of what has been found is searched at most.
const PASSES: usize = 4;
/// Pairs that a verdict rests on: the fewest that can be sure, and as many as time is kept for.
const VERIFIED_PAIRS: std::ops::RangeInclusive<usize> = crate::statistics::LEAST_FIGURES..=12;
/// The most pairs, where the first ones are not sure and there is time left.
const MORE_PAIRS: usize = 60;
/// The part of the budget that is kept for the verdict, unless the fewest pairs need more.
const VERIFYING_PART: f64 = 0.25;

/// A knob, as the search sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dimension {
    /// How many values it may have; those next to each other are alike.
    pub(crate) values: usize,
    /// The one that it has.
    pub(crate) present: usize,
    /// The one that it has where nothing is said.
    pub(crate) default: usize,
}

/// Two knobs whose product is what they cost: slots, and how large each is. One may be worth more
/// only where the other is less.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trade {
    /// The two knobs, as dimensions.
    pub(crate) knobs: [usize; 2],
    /// What each of their values costs, in any unit.
    pub(crate) costs: [Vec<f64>; 2],
}

impl Trade {
    /// The values of the second knob that keeps the product closest to what it is at `point`, for
    /// each other value of the first; those that leave the second as it is are no trade.
    fn moves(&self, point: &[usize]) -> Vec<Move> {
        let [first, second] = self.knobs;
        let [firsts, seconds] = &self.costs;
        let product = firsts[point[first]] * seconds[point[second]];
        let distance = |first: f64, second: f64| (first * second / product).ln().abs();
        let others = firsts
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != point[first]);
        others
            .filter_map(|(value, cost)| {
                let places = seconds.iter().enumerate();
                let closest = places.min_by(|(_, one), (_, other)| {
                    distance(*cost, **one).total_cmp(&distance(*cost, **other))
                });
                let (beside, _) = closest.filter(|(at, _)| *at != point[second])?;
                Some(Move {
                    knob: first,
                    value,
                    beside: Some((second, beside)),
                })
            })
            .collect()
    }
}

/// What is tried beside what is in force: another value of a knob and, in a [`Trade`], of a second
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Move {
    pub(crate) knob: usize,
    pub(crate) value: usize,
    /// The second knob, and its value.
    pub(crate) beside: Option<(usize, usize)>,
}

impl Move {
    const fn plain(knob: usize, value: usize) -> Self {
        Self {
            knob,
            value,
            beside: None,
        }
    }

    /// The knobs and their values.
    pub(crate) fn parts(self) -> impl Iterator<Item = (usize, usize)> {
        [(self.knob, self.value)].into_iter().chain(self.beside)
    }

    /// Where it leads to from `point`.
    fn from(self, point: &[usize]) -> Point {
        let mut moved = point.to_vec();
        for (knob, value) in self.parts() {
            moved[knob] = value;
        }
        moved
    }

    /// Whether both set the same knob.
    fn meets(self, other: Self) -> bool {
        self.parts()
            .any(|(knob, _)| other.parts().any(|(its, _)| its == knob))
    }
}

/// What measuring a point gave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sample {
    /// The more the better; positive.
    Score(f64),
    /// The point cannot be had, and why.
    Refused(String),
    /// It can, but nothing could be measured there this time, and why.
    Failed(String),
}

/// What is searched.
pub(crate) trait Surface {
    /// Why nothing can be measured any more.
    type Error;

    /// Measures a point, once.
    fn measure(&mut self, point: &[usize]) -> Result<Sample, Self::Error>;

    /// How late it is, since the search began.
    fn elapsed(&self) -> Duration;

    /// Takes note of what has been found out.
    fn note(&mut self, step: &Step);
}

/// Something that was found out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// A move was looked at, so often: so many times as good as what was in force.
    Screened {
        tried: Move,
        ratio: f64,
        looks: usize,
    },
    /// A point cannot be had.
    Refused { point: Point, reason: String },
    /// A point raced what was in force.
    Raced {
        from: Point,
        to: Point,
        ratio: Estimate,
        standing: Standing,
    },
    /// A point of a sweep, beside the median of all.
    Swept { point: Point, ratio: Estimate },
}

impl Step {
    /// The point that is ahead of the present one after this, if `before` was until then.
    pub(crate) fn ahead(&self, before: Option<Point>) -> Option<Point> {
        match self {
            Self::Raced {
                to,
                standing: Standing::Won | Standing::Spared,
                ..
            } => Some(to.clone()),
            Self::Refused { point, .. } => before.filter(|before| before != point),
            _ => before,
        }
    }
}

/// What comes of a search.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// This point is surely better than the present one, by this ratio.
    Better { point: Point, ratio: Estimate },
    /// This point looked better, and is not surely so.
    Unsure {
        point: Point,
        ratio: Option<Estimate>,
    },
    /// This point looked better, and surely is not by as much as would count.
    NoBetter { point: Point, ratio: Estimate },
    /// This point looked better, and then nothing could be measured there any more.
    Failed { point: Point, reason: String },
    /// Nothing looked better.
    NothingHelps,
}

/// A search and what it has found out.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) steps: Vec<Step>,
    /// Values, and trades, that there was no time to look at.
    pub(crate) unseen: usize,
    /// Measurements.
    pub(crate) samples: usize,
    /// What one of them took of late.
    pub(crate) cost: Duration,
}

impl Outcome {
    /// A budget with which something could have been tried: what a verdict has to rest on, and a first
    /// look with some pairs besides.
    pub(crate) fn least_budget(&self) -> Duration {
        const MEASUREMENTS: u32 = 32;
        self.cost * MEASUREMENTS
    }
}

/// Searches from the present point on.
pub(crate) fn search<S: Surface>(
    dimensions: &[Dimension],
    trades: &[Trade],
    budget: Duration,
    surface: &mut S,
) -> Result<Outcome, S::Error> {
    let mut search = Search::new(dimensions, trades, budget, surface);
    search.try_defaults()?;
    for _ in 0..PASSES {
        let candidates = search.screen()?;
        if !search.race(candidates)? {
            break;
        }
    }
    search.prune()?;
    search.go_on_with_the_rest()?;
    let mut found = search.incumbent.clone();
    if found == present(dimensions)
        && let Some((_, point)) = search.undecided.take()
    {
        // No race had the time to decide about it; the verdict's pairs may.
        found = point;
    }
    search.conclude(found)
}

/// A search under way.
#[derive(Debug)]
struct Search<'a, S> {
    surface: &'a mut S,
    budget: Duration,
    dimensions: &'a [Dimension],
    trades: &'a [Trade],
    /// The best that is known.
    incumbent: Point,
    steps: Vec<Step>,
    /// Points that cannot be had, or where measuring has failed, and why.
    refused: Vec<(Point, String)>,
    /// What looked best of what no race has decided about, and how many times as good it looked.
    undecided: Option<(f64, Point)>,
    /// Whether nothing was found among the values that were looked at, and others are.
    is_late: bool,
    /// What was looked at.
    seen: HashSet<Move>,
    unseen: usize,
    samples: usize,
    /// What one measurement takes: an average in which the last ones count most.
    cost: Duration,
}

impl<'a, S: Surface> Search<'a, S> {
    fn new(
        dimensions: &'a [Dimension],
        trades: &'a [Trade],
        budget: Duration,
        surface: &'a mut S,
    ) -> Self {
        let present_values = present(dimensions).into_iter().enumerate();
        Self {
            surface,
            budget,
            dimensions,
            trades,
            incumbent: present(dimensions),
            steps: Vec::new(),
            refused: Vec::new(),
            undecided: None,
            is_late: false,
            // What is there is looked at all the time.
            seen: present_values
                .map(|(knob, value)| Move::plain(knob, value))
                .collect(),
            unseen: 0,
            samples: 0,
            cost: Duration::ZERO,
        }
    }

    /// Where the values of the file are others, the defaults are usually close to the best, and what is
    /// worth more than another value is then looked for around them.
    fn try_defaults(&mut self) -> Result<(), S::Error> {
        let defaults: Point = self.dimensions.iter().map(|knob| knob.default).collect();
        if defaults != self.incumbent {
            self.learn_cost()?;
            self.challenge(defaults, 1.0)?;
        }
        Ok(())
    }

    /// What one measurement costs is not known before the second one: the first has set up what the
    /// others find there.
    fn learn_cost(&mut self) -> Result<(), S::Error> {
        while self.samples < 2 && self.surface.elapsed() < self.search_end() {
            let incumbent = self.incumbent.clone();
            if self.measure(&incumbent)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Where nothing has been found, nothing needs a verdict, and what was kept for one, but for the
    /// fewest pairs, is spent on values that nobody has looked at.
    fn go_on_with_the_rest(&mut self) -> Result<(), S::Error> {
        self.is_late = true;
        while self.unseen > 0 && self.incumbent == present(self.dimensions) {
            let before = self.samples;
            let candidates = self.screen()?;
            self.race(candidates)?;
            if self.samples == before {
                break;
            }
        }
        Ok(())
    }

    /// The score of a point; `None`: it cannot be had.
    fn measure(&mut self, point: &[usize]) -> Result<Option<f64>, S::Error> {
        if self.refusal(point).is_some() {
            return Ok(None);
        }
        let began = self.surface.elapsed();
        let mut sample = self.surface.measure(point)?;
        if matches!(sample, Sample::Failed(_)) {
            // A node may have been restarted just then.
            sample = self.surface.measure(point)?;
        }
        let took = self.surface.elapsed().saturating_sub(began);
        self.samples += 1;
        if matches!(sample, Sample::Score(_)) {
            // The first one has set up what the others find there. How long a failure took says nothing of
            // them.
            self.cost = if self.samples <= 2 {
                took
            } else {
                (self.cost * 3 + took) / 4
            };
        }
        match sample {
            Sample::Score(score) => Ok(Some(score)),
            Sample::Refused(reason) | Sample::Failed(reason) => {
                self.refused.push((point.to_vec(), reason.clone()));
                if self.incumbent == point {
                    // Nothing can be compared with it any more.
                    self.incumbent = present(self.dimensions);
                }
                self.found(Step::Refused {
                    point: point.to_vec(),
                    reason,
                });
                Ok(None)
            }
        }
    }

    /// Why a point cannot be had, as far as that is known.
    fn refusal(&self, point: &[usize]) -> Option<&str> {
        let mut refused = self.refused.iter();
        let (_, reason) = refused.find(|(refused, _)| refused == point)?;
        Some(reason)
    }

    /// How many times as good as the second one the first one is, measured one after the other
    /// in an order that changes from pair to pair, so that a machine that becomes busier or
    /// less busy favours neither.
    fn pair(
        &mut self,
        pair: usize,
        one: &[usize],
        other: &[usize],
    ) -> Result<Option<f64>, S::Error> {
        let (one, other) = if pair.is_multiple_of(2) {
            let other = self.measure(other)?;
            (self.measure(one)?, other)
        } else {
            let one = self.measure(one)?;
            (one, self.measure(other)?)
        };
        Ok(one.zip(other).map(|(one, other)| one / other))
    }

    /// Whether so many more measurements fit in before `end`, with half of one to spare.
    fn affords(&self, samples: usize, end: Duration) -> bool {
        let samples = u32::try_from(samples).unwrap_or(u32::MAX);
        self.surface.elapsed() + self.cost * samples + self.cost / 2 <= end
    }

    /// When the search has to be over, so that the verdict can be sure: it has half of the budget at
    /// least, as a verdict on nothing is worth nothing.
    fn search_end(&self) -> Duration {
        let pairs = u32::try_from(*VERIFIED_PAIRS.start()).unwrap_or(u32::MAX);
        let least = self.cost * pairs * 2 + self.cost;
        if self.is_late {
            return self.budget.saturating_sub(least.min(self.budget / 2));
        }
        let most = u32::try_from(*VERIFIED_PAIRS.end()).unwrap_or(u32::MAX);
        let kept = (self.cost * most * 2 + self.cost).min(self.budget.mul_f64(VERIFYING_PART));
        self.budget
            .saturating_sub(kept.max(least).min(self.budget / 2))
    }

    fn found(&mut self, step: Step) {
        self.surface.note(&step);
        self.steps.push(step);
    }

    /// Compares what was found with what was there.
    fn conclude(mut self, found: Point) -> Result<Outcome, S::Error> {
        let verdict = if found == present(self.dimensions) {
            Verdict::NothingHelps
        } else {
            self.verify(found)?
        };
        Ok(Outcome {
            verdict,
            steps: self.steps,
            unseen: self.unseen,
            samples: self.samples,
            cost: self.cost,
        })
    }

    /// Measures fresh pairs, and looks at them twice at most: how many there are before each
    /// look follows from the time alone, as who stops when it looks good fools himself.
    fn verify(&mut self, found: Point) -> Result<Verdict, S::Error> {
        let mut ratios = Vec::new();
        for most in [*VERIFIED_PAIRS.end(), MORE_PAIRS] {
            self.add_pairs(&found, most, &mut ratios)?;
            if let Some(reason) = self.refusal(&found) {
                let (point, reason) = (found.clone(), reason.to_owned());
                return Ok(Verdict::Failed { point, reason });
            }
            let Some(ratio) = Estimate::of(&ratios) else {
                break;
            };
            let pays = ratio.median >= 1.0 + LEAST_GAIN;
            if pays && ratio.is_surely_above(1.0) {
                let point = found;
                return Ok(Verdict::Better { point, ratio });
            }
            if !pays {
                break;
            }
        }
        let (point, ratio) = (found, Estimate::of(&ratios));
        Ok(match ratio {
            Some(ratio) if ratio.is_surely_below(1.0 + LEAST_GAIN) => {
                Verdict::NoBetter { point, ratio }
            }
            ratio => Verdict::Unsure { point, ratio },
        })
    }

    /// Compares a point with the present one until there are `most` ratios, or as many as there
    /// is time for.
    fn add_pairs(
        &mut self,
        found: &Point,
        most: usize,
        ratios: &mut Vec<f64>,
    ) -> Result<(), S::Error> {
        let present = present(self.dimensions);
        let fits = |pairs: &usize| self.affords(pairs * 2, self.budget);
        let pairs = (1..=most.saturating_sub(ratios.len())).rev().find(fits);
        for pair in 0..pairs.unwrap_or(0) {
            // Measurements may have become slower meanwhile.
            if !self.affords(2, self.budget) {
                break;
            }
            let Some(ratio) = self.pair(pair, found, &present)? else {
                break;
            };
            ratios.push(ratio);
        }
        Ok(())
    }
}

fn present(dimensions: &[Dimension]) -> Point {
    dimensions.iter().map(|knob| knob.present).collect()
}
