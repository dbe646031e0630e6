//! Changes that won their races by luck, beside those that gain something.
//!
//! Who races many candidates takes one over now and then that is no better, and the verdict is about all
//! that was found together, of which one change may gain everything. So each of several changes is
//! measured against its absence, where there is time for so many pairs that hardly any change is
//! taken back that gains something.

use super::{LEAST_GAIN, Point, Search, Standing, Step, Surface, present};
use crate::statistics::{Estimate, LEAST_FIGURES};

/// So many pairs decide that it is as good without a change: fewer take back what gains little.
const PAIRS: usize = 40;
/// What all that is taken back may have gained together, as far as it was seen.
const MOST_GIVEN_UP: f64 = 2.0 * LEAST_GAIN;

impl<S: Surface> Search<'_, S> {
    /// Takes back, one after the other, those of several changes without which it is as good. A single
    /// one is what the verdict is about.
    pub(super) fn prune(&mut self) -> Result<(), S::Error> {
        let mut kept = 1.0;
        for knobs in self.changes() {
            if self.changes().len() < 2 || !self.affords(2 * PAIRS, self.search_end()) {
                break;
            }
            let present = present(self.dimensions);
            let mut without = self.incumbent.clone();
            for knob in knobs {
                without[knob] = present[knob];
            }
            kept *= self.do_without(without, kept)?;
        }
        Ok(())
    }

    /// What was changed, by the knobs that have to be changed together.
    pub(super) fn changes(&self) -> Vec<Vec<usize>> {
        let present = present(self.dimensions);
        let is_changed = |knob: &usize| self.incumbent[*knob] != present[*knob];
        let mut left: Vec<usize> = (0..present.len()).filter(is_changed).collect();
        let mut changes = Vec::new();
        for trade in self.trades {
            if trade.knobs.iter().all(|knob| left.contains(knob)) {
                left.retain(|knob| !trade.knobs.contains(knob));
                changes.push(trade.knobs.to_vec());
            }
        }
        changes.extend(left.into_iter().map(|knob| vec![knob]));
        changes
    }

    /// Races a point with one change less against what was found, and takes it over unless it is worse.
    /// So much as `kept` is left of what was found at first; returns which part of that this leaves.
    fn do_without(&mut self, without: Point, kept: f64) -> Result<f64, S::Error> {
        let found = self.incumbent.clone();
        let (ratio, standing) = self.run(&without, &found, |ratio| stands(ratio, kept))?;
        let Some(ratio) = ratio else {
            return Ok(1.0);
        };
        if standing == Standing::Spared {
            self.incumbent.clone_from(&without);
        }
        self.found(Step::Raced {
            from: found,
            to: without,
            ratio,
            standing,
        });
        Ok(match standing {
            Standing::Spared => ratio.median.min(1.0),
            _ => 1.0,
        })
    }
}

/// How what is without a change stands: it is worse, or it is not, or that is not clear yet.
fn stands(ratio: &Estimate, kept: f64) -> Standing {
    let is_as_good = ratio.median >= 1.0 - LEAST_GAIN;
    let gives_up_little = ratio.median * kept >= 1.0 - MOST_GIVEN_UP;
    match ratio.figures {
        LEAST_FIGURES.. if ratio.is_surely_below(1.0) => Standing::Lost,
        PAIRS.. if is_as_good && gives_up_little => Standing::Spared,
        PAIRS.. => Standing::Lost,
        _ => Standing::Open,
    }
}
