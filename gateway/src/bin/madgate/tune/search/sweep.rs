//! Every combination of values, in turn, for as long as there is time: slow, and sure.

use std::time::Duration;

use super::{Dimension, Outcome, Point, Search, Step, Surface, present};
use crate::statistics::Estimate;

/// The most combinations that a sweep measures.
pub(crate) const MAX_POINTS: usize = 4096;

/// Measures every combination of values, round by round, and compares the one with the best
/// median with the present one. The caller sees to it that there are at most [`MAX_POINTS`].
pub(crate) fn sweep<S: Surface>(
    dimensions: &[Dimension],
    budget: Duration,
    surface: &mut S,
) -> Result<Outcome, S::Error> {
    let mut points = combinations(dimensions);
    // The present one first: what is not compared with it is measured for nothing.
    points.sort_by_key(|point| *point != present(dimensions));
    let mut search = Search::new(dimensions, &[], budget, surface);
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); points.len()];
    let mut round = 0_usize;
    // The first round, which says what a round costs, ends early where time does.
    while round == 0 || search.affords(points.len(), search.search_end()) {
        let mut scores = vec![None; points.len()];
        let mut order: Vec<usize> = (0..points.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for place in order {
            if search.samples > 0 && !search.affords(1, search.search_end()) {
                break;
            }
            scores[place] = search.measure(&points[place])?;
        }
        note_round(&scores, &mut ratios);
        round += 1;
        // With nothing to measure there is nothing to wait for.
        if scores.iter().all(Option::is_none) {
            break;
        }
    }
    search.unseen = ratios.iter().filter(|ratios| ratios.is_empty()).count();
    let mut best: Option<(f64, Point)> = None;
    let mut is_present_known = false;
    for (point, ratios) in points.into_iter().zip(ratios) {
        let Some(ratio) = Estimate::of(&ratios) else {
            continue;
        };
        is_present_known |= point == present(dimensions);
        if best
            .as_ref()
            .is_none_or(|(median, _)| ratio.median > *median)
        {
            best = Some((ratio.median, point.clone()));
        }
        search.found(Step::Swept { point, ratio });
    }
    // What was not compared with the present point has not been found to be better.
    let found = best.filter(|_| is_present_known);
    let found = found.map_or_else(|| present(dimensions), |(_, point)| point);
    search.conclude(found)
}

/// Scores of one round, each over the round's median: a machine that is slow for a while is
/// slow for all of them.
fn note_round(scores: &[Option<f64>], ratios: &mut [Vec<f64>]) {
    let known: Vec<f64> = scores.iter().copied().flatten().collect();
    let Some(middle) = Estimate::of(&known) else {
        return;
    };
    for (score, ratios) in scores.iter().zip(ratios) {
        ratios.extend(score.map(|score| score / middle.median));
    }
}

fn combinations(dimensions: &[Dimension]) -> Vec<Point> {
    let mut points = vec![Vec::new()];
    for knob in dimensions {
        points = points
            .into_iter()
            .flat_map(|point: Point| {
                (0..knob.values).map(move |value| {
                    let mut point = point.clone();
                    point.push(value);
                    point
                })
            })
            .collect();
    }
    points
}
