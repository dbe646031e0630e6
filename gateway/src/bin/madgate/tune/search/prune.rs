//! Changes that won their races by luck, beside those that gain something.
//!
//! Who races many candidates takes one over now and then that is no better, and the verdict is about all
//! that was found together, of which one change may gain everything. So each of several changes is
//! measured against its absence, as far as there is time.

use super::race::{FIRST_PAIRS, MOST_PAIRS};
use super::{LEAST_GAIN, Point, Search, Standing, Step, Surface, present};
use crate::statistics::{Estimate, LEAST_FIGURES};

impl<S: Surface> Search<'_, S> {
    /// Takes back, one after the other, those of several changes without which it is as good. A single
    /// one is what the verdict is about.
    pub(super) fn prune(&mut self) -> Result<(), S::Error> {
        for knobs in self.changes() {
            if self.changes().len() < 2 {
                break;
            }
            let present = present(self.dimensions);
            let mut without = self.incumbent.clone();
            for knob in knobs {
                without[knob] = present[knob];
            }
            self.do_without(without)?;
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

    /// Races a point with one change less against what was found; it is what was found from now on, unless
    /// it is worse.
    fn do_without(&mut self, without: Point) -> Result<(), S::Error> {
        let found = self.incumbent.clone();
        let mut ratios = Vec::new();
        let mut standing = Standing::Open;
        while standing == Standing::Open && self.affords(2, self.search_end()) {
            let Some(ratio) = self.pair(ratios.len(), &without, &found)? else {
                return Ok(());
            };
            ratios.push(ratio);
            standing = Estimate::of(&ratios).map_or(Standing::Open, |ratio| stands(&ratio));
        }
        if standing == Standing::Spared {
            self.incumbent.clone_from(&without);
        }
        if let Some(ratio) = Estimate::of(&ratios) {
            self.found(Step::Raced {
                from: found,
                to: without,
                ratio,
                standing,
            });
        }
        Ok(())
    }
}

/// How what is without a change stands: it is worse, or it is not, or that is not clear yet.
fn stands(ratio: &Estimate) -> Standing {
    let worse = 1.0 - LEAST_GAIN;
    match ratio.figures {
        0..FIRST_PAIRS => Standing::Open,
        FIRST_PAIRS..LEAST_FIGURES if ratio.high <= worse => Standing::Lost,
        FIRST_PAIRS..LEAST_FIGURES => Standing::Open,
        _ if ratio.is_surely_below(1.0) && ratio.median <= worse => Standing::Lost,
        _ if ratio.median >= 1.0 => Standing::Spared,
        figures if figures < MOST_PAIRS => Standing::Open,
        _ if ratio.median > worse => Standing::Spared,
        _ => Standing::Lost,
    }
}
