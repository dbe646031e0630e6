//! What rounds have measured, and how far from each other the processors were.
//!
//! All rounds together are one answer. Where the host of a virtual machine has moved its processors
//! meanwhile, that is a mixture, of distances at which even ratios differ: what passes cache lines from one
//! processor to the other gains from a short one, what computes does not. So each [distance](crate::distance)
//! is told by itself, too.

use std::collections::{BTreeMap, BTreeSet};

use crate::distance::{Looks, distances};
use crate::samples::Samples;

/// In how many rounds a subject was measured at a distance, at least, for its figures there to be told.
const LEAST_ROUNDS: usize = 3;

/// What figures are of.
pub trait Subject: Copy + Ord {
    /// What subjects that are compared with each other have in common.
    type Group: Ord;

    /// Those that this one is compared with.
    fn group(self) -> Self::Group;

    /// What people call it, among those of its group.
    fn name(self) -> String;
}

/// Figures of one subject in some rounds.
pub trait Gather: Clone + Default {
    /// All of them, always in the same order.
    fn samples(&mut self) -> Vec<&mut Samples>;

    /// Of how many rounds they are.
    fn count(&self) -> usize;

    /// Adds those of more rounds.
    fn append(&mut self, mut others: Self) {
        let pairs = self.samples().into_iter().zip(others.samples());
        pairs.for_each(|(these, others)| these.append(std::mem::take(others)));
    }

    /// The median of each.
    #[must_use]
    fn medians(&self) -> Self {
        let mut medians = self.clone();
        for samples in medians.samples() {
            *samples = Samples::of(samples.median().into_iter().collect());
        }
        medians
    }
}

/// Of one subject, once.
#[derive(Debug, Clone)]
pub struct Measured<S, F> {
    pub(crate) round: u16,
    pub(crate) subject: S,
    pub(crate) figures: F,
    /// Nothing where there is one processor.
    pub(crate) looks: Option<Looks>,
    /// Whether it was measured again in its round, in which it does not count then.
    pub(crate) was_repeated: bool,
}

/// All that was measured, round after round.
#[derive(Debug, Clone)]
pub struct Rounds<S, F>(Vec<Measured<S, F>>);

/// What was measured while the processors were at one distance.
#[derive(Debug, Clone, PartialEq)]
pub struct AtDistance<S, F> {
    /// How long a cache line took from one processor to the other, in nanoseconds: the least and the most, but
    /// for stray looks.
    pub line_ns_range: [f64; 2],
    /// The medians of those that were measured in enough rounds (three), in groups of which some were
    /// measured elsewhere. They are of as many rounds as there were for each: what compares two of them has
    /// the ratio of their medians.
    pub results: BTreeMap<S, F>,
    /// How often each of those was measured, repetitions included.
    pub times: BTreeMap<S, usize>,
}

impl<S, F> Default for Rounds<S, F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<S: Subject, F: Gather> Rounds<S, F> {
    /// Adds what was measured of some that are compared in one more round.
    pub fn append(&mut self, round: Vec<Measured<S, F>>) {
        self.0.extend(round);
    }

    /// All rounds: of each subject as many samples, in the order of the rounds.
    pub fn all(&self) -> BTreeMap<S, F> {
        gathered(self.0.iter().filter(|measured| !measured.was_repeated))
    }

    /// What was measured at each distance, the shortest first: that which was found before, after and meanwhile,
    /// but for [stray looks](Looks::is_like), repeated or not. Nothing of groups of which all was measured at one.
    pub fn by_distance(&self) -> Vec<AtDistance<S, F>> {
        let looks = self.0.iter().filter_map(|measured| measured.looks.as_ref());
        let distances = distances(looks.filter_map(Looks::usual).collect());
        let found = |measured: &Measured<S, F>| measured.looks.as_ref()?.which(&distances);
        let at_each = (0..distances.len()).filter_map(|distance| {
            let is_here = |measured: &Measured<S, F>| found(measured) == Some(distance);
            let elsewhere = self.0.iter().filter(|measured| !is_here(measured));
            let varied: BTreeSet<_> = elsewhere.map(|one| one.subject.group()).collect();
            let here = self.0.iter().filter(|measured| is_here(measured));
            at_distance(here.filter(|one| varied.contains(&one.subject.group())))
        });
        at_each.collect()
    }
}

/// What was measured at one distance; nothing if none was in enough rounds.
fn at_distance<'m, S: Subject + 'm, F: Gather + 'm>(
    measured: impl Iterator<Item = &'m Measured<S, F>> + Clone,
) -> Option<AtDistance<S, F>> {
    let mut rounds: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
    for one in measured.clone() {
        rounds.entry(one.subject).or_default().insert(one.round);
    }
    rounds.retain(|_, rounds| rounds.len() >= LEAST_ROUNDS);
    let told = measured.filter(|one| rounds.contains_key(&one.subject));
    let looks = told.clone().filter_map(|one| one.looks.as_ref());
    let looks = looks.flat_map(Looks::usual_ones);
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

impl<S: Subject, F> AtDistance<S, F> {
    /// What a table of its figures in these groups is headed by; nothing where there are none.
    pub fn heading(&self, groups: &[S::Group]) -> Option<String> {
        let in_these = self
            .times
            .iter()
            .filter(|(subject, _)| groups.contains(&subject.group()));
        let times = in_these.map(|(_, times)| *times);
        let (fewest, most) = (times.clone().min()?, times.max()?);
        let [from, to] = self.line_ns_range.map(|ns| format!("{ns:.0}"));
        let times = range(&fewest.to_string(), &most.to_string());
        let line = range(&from, &to);
        Some(format!(
            "while a cache line took {line} ns from one processor to the other \
             (medians of {times} measurements, and ratios of medians)"
        ))
    }
}

fn range(from: &str, to: &str) -> String {
    if from == to {
        from.to_owned()
    } else {
        format!("{from} to {to}")
    }
}

/// The figures of some measurements.
fn gathered<'m, S: Subject + 'm, F: Gather + 'm>(
    measured: impl Iterator<Item = &'m Measured<S, F>>,
) -> BTreeMap<S, F> {
    let mut results = BTreeMap::new();
    for one in measured {
        let figures: &mut F = results.entry(one.subject).or_default();
        figures.append(one.figures.clone());
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Point;
    use crate::rounds::{AtPoint, Figures, Results};

    const POINT: Point = Point::stream(8);
    const NEAR: Option<[f64; 2]> = Some([60.0, 62.0]);
    const FAR: Option<[f64; 2]> = Some([190.0, 210.0]);
    const MOVED: Option<[f64; 2]> = Some([60.0, 210.0]);

    type Of = Measured<AtPoint, Figures>;

    fn measured(round: u16, name: &'static str, gb_per_s: f64, looks: Option<[f64; 2]>) -> Of {
        Measured {
            round,
            subject: (name, POINT),
            figures: Figures {
                gb_per_s: Samples::of(vec![gb_per_s]),
                ..Figures::default()
            },
            looks: looks.map(|looks| Looks::of(&looks)),
            was_repeated: false,
        }
    }

    fn repeated(measured: Of) -> Of {
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
        for (round, (ours, theirs, looks)) in [
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
                measured(round, "ours", ours, looks),
                measured(round, "theirs", theirs, looks),
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
        let heading = distances[0].heading(&[POINT]).unwrap();
        assert!(heading.contains("took 60 to 62 ns"), "{heading}");
        assert!(heading.contains("of 3 measurements"), "{heading}");
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
            subject: ("ours", Point::stream(64)),
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
