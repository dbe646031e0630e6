//! What rounds have measured, and how far from each other the processors were.
//!
//! All rounds together are one answer. Where the host of a virtual machine has moved its processors
//! meanwhile, that is a mixture, of distances at which even ratios differ: what passes cache lines from one
//! processor to the other gains from a short one, what computes does not. So each [distance](crate::line)
//! is told by itself, too.

use std::collections::{BTreeMap, BTreeSet};

use crate::contestant::Point;
use crate::line::{Around, distances};
use crate::rounds::{Figures, Results};

/// In how many rounds a contestant was measured at a distance, at least, for its figures there to be told.
const LEAST_ROUNDS: usize = 3;

/// One contestant at one point, once.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) round: u16,
    pub(crate) name: &'static str,
    pub(crate) point: Point,
    pub(crate) figures: Figures,
    /// Nothing where there is one processor.
    pub(crate) around: Option<Around>,
    /// Whether it was measured again in its round, in which it does not count then.
    pub(crate) was_repeated: bool,
}

/// All that was measured, round after round.
#[derive(Debug, Clone, Default)]
pub struct Rounds(Vec<Measured>);

/// What was measured while the processors were at one distance.
#[derive(Debug, Clone, PartialEq)]
pub struct AtDistance {
    /// How long a cache line took from one processor to the other, in nanoseconds: the least and the most.
    pub line_ns_range: [f64; 2],
    /// The medians of those that were measured in enough rounds (three), at points where there are others.
    /// They are of as many rounds as there were for each: what compares two of them has the ratio of their
    /// medians.
    pub results: Results,
    /// How often each of those was measured, repetitions included.
    pub times: BTreeMap<(&'static str, Point), usize>,
}

impl Rounds {
    /// Adds what was measured at a point in one more round.
    pub(crate) fn append(&mut self, round: Vec<Measured>) {
        self.0.extend(round);
    }

    /// All rounds: of each contestant and point as many samples, in the order of the rounds.
    pub fn all(&self) -> Results {
        gathered(self.0.iter().filter(|measured| !measured.was_repeated))
    }

    /// What was measured at each distance, the shortest first: that before and after which it was found,
    /// repeated or not. Nothing of points where all was measured at one.
    pub fn by_distance(&self) -> Vec<AtDistance> {
        let around = self.0.iter().filter_map(|measured| measured.around);
        let distances = distances(around.flat_map(Around::looks).collect());
        let found = |measured: &Measured| measured.around?.at(&distances);
        let at_each = (0..distances.len()).filter_map(|distance| {
            let is_here = |measured: &Measured| found(measured) == Some(distance);
            let elsewhere = self.0.iter().filter(|measured| !is_here(measured));
            let varied: BTreeSet<Point> = elsewhere.map(|measured| measured.point).collect();
            let here = self.0.iter().filter(|measured| is_here(measured));
            at_distance(here.filter(|measured| varied.contains(&measured.point)))
        });
        at_each.collect()
    }
}

/// What was measured at one distance; nothing if none was in enough rounds.
fn at_distance<'m>(measured: impl Iterator<Item = &'m Measured> + Clone) -> Option<AtDistance> {
    let mut rounds: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
    for one in measured.clone() {
        let of_this = rounds.entry((one.name, one.point)).or_default();
        of_this.insert(one.round);
    }
    rounds.retain(|_, rounds| rounds.len() >= LEAST_ROUNDS);
    let told = measured.filter(|one| rounds.contains_key(&(one.name, one.point)));
    let looks = told
        .clone()
        .filter_map(|one| one.around)
        .flat_map(Around::looks);
    let least = looks.clone().min_by(f64::total_cmp)?;
    let most = looks.max_by(f64::total_cmp)?;
    let gathered = gathered(told);
    Some(AtDistance {
        line_ns_range: [least, most],
        times: gathered
            .iter()
            .map(|(which, figures)| (*which, figures.count()))
            .collect(),
        results: gathered
            .iter()
            .map(|(which, figures)| (*which, figures.medians()))
            .collect(),
    })
}

impl AtDistance {
    /// What a table of its figures at these points is headed by; nothing where there are none.
    pub fn heading(&self, points: &[Point]) -> Option<String> {
        let at_these = self
            .times
            .iter()
            .filter(|((_, point), _)| points.contains(point));
        let times = at_these.map(|(_, times)| *times);
        let (fewest, most) = (times.clone().min()?, times.max()?);
        let [from, to] = self.line_ns_range;
        Some(format!(
            "while a cache line took {from:.0} to {to:.0} ns from one processor to the other \
             (medians of {fewest} to {most} measurements, and ratios of medians)"
        ))
    }
}

/// The figures of some measurements.
fn gathered<'m>(measured: impl Iterator<Item = &'m Measured>) -> Results {
    let mut results = Results::new();
    for one in measured {
        let figures: &mut Figures = results.entry((one.name, one.point)).or_default();
        figures.append(one.figures.clone());
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Samples;

    const POINT: Point = Point::stream(8);
    const NEAR: Option<Around> = Some(Around::of(60.0, 62.0));
    const FAR: Option<Around> = Some(Around::of(190.0, 210.0));
    const MOVED: Option<Around> = Some(Around::of(60.0, 210.0));

    fn measured(round: u16, name: &'static str, gb_per_s: f64, around: Option<Around>) -> Measured {
        Measured {
            round,
            name,
            point: POINT,
            figures: Figures {
                gb_per_s: Samples::of(vec![gb_per_s]),
                ..Figures::default()
            },
            around,
            was_repeated: false,
        }
    }

    fn repeated(measured: Measured) -> Measured {
        Measured {
            was_repeated: true,
            ..measured
        }
    }

    fn gb_per_s(results: &Results, name: &'static str) -> Option<Samples> {
        Some(results.get(&(name, POINT))?.gb_per_s.clone())
    }

    #[test]
    fn each_distance_has_its_medians() {
        let mut rounds = Rounds::default();
        for (round, (ours, theirs, around)) in [
            (9.0, 7.0, NEAR),
            (3.0, 1.0, FAR),
            (8.0, 6.0, NEAR),
            (5.0, 5.0, MOVED),
            (2.0, 1.5, FAR),
            (7.0, 5.0, NEAR),
            (1.0, 2.0, FAR),
        ]
        .into_iter()
        .enumerate()
        {
            let round = u16::try_from(round).unwrap();
            rounds.append(vec![
                measured(round, "ours", ours, around),
                measured(round, "theirs", theirs, around),
            ]);
        }
        // What was repeated is of no round, but at its distance.
        rounds.append(vec![repeated(measured(6, "ours", 2.5, FAR))]);
        // Three times, but in two rounds: too few to tell.
        let others = [0, 0, 1].map(|round| measured(round, "others", 1.0, NEAR));
        rounds.append(others.to_vec());
        let all = gb_per_s(&rounds.all(), "ours").unwrap();
        assert_eq!(all, Samples::of(vec![9.0, 3.0, 8.0, 5.0, 2.0, 7.0, 1.0]));
        let distances = rounds.by_distance();
        let lines: Vec<_> = distances.iter().map(|at| at.line_ns_range).collect();
        assert_eq!(lines, [[60.0, 62.0], [190.0, 210.0]]);
        let of = |at: usize, name| gb_per_s(&distances[at].results, name);
        assert_eq!(of(0, "ours"), Some(Samples::of(vec![8.0])));
        assert_eq!(of(0, "theirs"), Some(Samples::of(vec![6.0])));
        assert_eq!(of(1, "ours"), Some(Samples::of(vec![2.25])));
        assert_eq!(of(0, "others"), None);
        let heading = distances[1].heading(&[POINT]).unwrap();
        assert!(heading.contains("190 to 210 ns"), "{heading}");
        assert!(heading.contains("3 to 4 measurements"), "{heading}");
        assert_eq!(distances[1].heading(&[Point::stream(64)]), None);
    }

    #[test]
    fn what_was_measured_at_one_distance_is_told_once() {
        let mut rounds = Rounds::default();
        for round in 0..3 {
            rounds.append(vec![measured(round, "ours", 1.0, NEAR)]);
        }
        assert_eq!(rounds.by_distance(), []);
        // That others were measured elsewhere at another point makes no difference.
        let elsewhere = Measured {
            point: Point::stream(64),
            ..measured(3, "ours", 9.0, FAR)
        };
        rounds.append(vec![elsewhere]);
        assert_eq!(rounds.by_distance(), []);
        // What moved meanwhile is at no distance, and in none of their figures.
        rounds.append(vec![measured(3, "ours", 9.0, MOVED)]);
        let distances = rounds.by_distance();
        assert_eq!(distances.len(), 1);
        let ours = gb_per_s(&distances[0].results, "ours");
        assert_eq!(ours, Some(Samples::of(vec![1.0])));
        // With one processor there is nothing to know.
        let mut alone = Rounds::default();
        alone.append(
            (0..3)
                .map(|round| measured(round, "ours", 1.0, None))
                .collect(),
        );
        assert_eq!(alone.by_distance(), []);
    }
}
