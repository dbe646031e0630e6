//! What rounds have measured, and on which machine.
//!
//! All that was measured is one answer. Where the host of a virtual machine has moved its processors
//! meanwhile, it is a mixture of several machines, on which even ratios differ: what waits for lines of
//! memory gains from processors that are near each other, what computes does not. So it is told for each
//! [machine](crate::line) by itself, too.

use std::ops::RangeInclusive;

use crate::contestant::Point;
use crate::line::{Around, alike};
use crate::rounds::{Figures, Results};

/// How often a contestant was measured on a machine, at least, for its figures there to be told.
pub const LEAST_MEASURED: usize = 3;

/// One contestant at one point, once.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) point: Point,
    pub(crate) figures: Figures,
    /// Nothing where there is one processor.
    pub(crate) around: Option<Around>,
    /// Whether it was measured again in its round, which it is not in then.
    pub(crate) was_repeated: bool,
}

impl Measured {
    /// How long a line took, if that has not changed meanwhile.
    fn steady_ns(&self) -> Option<f64> {
        self.around?.steady_ns()
    }
}

/// All that was measured, round after round.
#[derive(Debug, Clone, Default)]
pub struct Rounds(Vec<Measured>);

/// What was measured on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct OnMachine {
    /// How long a line of memory took from one processor to the other, in nanoseconds.
    pub line_ns: RangeInclusive<f64>,
    /// How often those were measured there: the fewest and the most.
    pub times: RangeInclusive<usize>,
    /// The medians, of those that were measured there [often enough](LEAST_MEASURED). Not all that are
    /// compared were measured in the same rounds.
    pub results: Results,
}

impl Rounds {
    /// Adds what was measured at a point in one more round.
    pub(crate) fn append(&mut self, round: Vec<Measured>) {
        self.0.extend(round);
    }

    /// All rounds.
    pub fn all(&self) -> Results {
        gathered(self.0.iter().filter(|measured| !measured.was_repeated))
    }

    /// What was measured on one machine each, while nothing changed, the one with the nearest processors
    /// first; what was repeated, too. Nothing where all had the same.
    pub fn by_machine(&self) -> Vec<OnMachine> {
        let times = self.0.iter().filter_map(Measured::steady_ns);
        let machines = alike(times).into_iter().map(|line_ns| {
            let here =
                |measured: &&Measured| measured.steady_ns().is_some_and(|ns| line_ns.contains(&ns));
            let had_another = self.0.iter().any(|measured| !here(&measured));
            let mut results = gathered(self.0.iter().filter(here));
            results.retain(|_, figures| figures.count() >= LEAST_MEASURED);
            let times = results.values().map(Figures::count);
            let times = times.clone().min()?..=times.max()?;
            for figures in results.values_mut() {
                *figures = figures.medians();
            }
            had_another.then_some(OnMachine {
                line_ns,
                times,
                results,
            })
        });
        machines.flatten().collect()
    }
}

impl OnMachine {
    /// What a table of its figures is headed by.
    pub fn heading(&self) -> String {
        let Self { line_ns, times, .. } = self;
        let (least, most) = (line_ns.start(), line_ns.end());
        let (fewest, often) = (times.start(), times.end());
        format!(
            "where a line of memory took {least:.0} to {most:.0} ns from one processor to the other \
             ({fewest} to {often} measurements each; ratios are those of medians)"
        )
    }

    /// What a line of JSON says of it.
    pub fn line_ns(&self) -> [f64; 2] {
        [*self.line_ns.start(), *self.line_ns.end()]
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

    fn measured(name: &'static str, gb_per_s: f64, around: Option<Around>) -> Measured {
        Measured {
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

    fn gb_per_s(results: &Results, name: &'static str) -> Option<Samples> {
        Some(results.get(&(name, POINT))?.gb_per_s.clone())
    }

    #[test]
    fn each_machine_has_its_medians() {
        let near = Some(Around::of(60.0, 62.0));
        let far = Some(Around::of(190.0, 210.0));
        let moved = Some(Around::of(60.0, 210.0));
        let mut rounds = Rounds::default();
        for (ours, theirs, around) in [
            (9.0, 7.0, near),
            (3.0, 1.0, far),
            (8.0, 6.0, near),
            (5.0, 5.0, moved),
            (2.0, 1.5, far),
            (7.0, 5.0, near),
            (1.0, 2.0, far),
        ] {
            let theirs = measured("theirs", theirs, around);
            rounds.append(vec![measured("ours", ours, around), theirs]);
        }
        // Once more, but too seldom to tell.
        rounds.append(vec![measured("others", 1.0, near)]);
        // What was repeated is of no round, but of its machine.
        let repeated = Measured {
            was_repeated: true,
            ..measured("ours", 2.5, far)
        };
        rounds.append(vec![repeated]);
        let all = gb_per_s(&rounds.all(), "ours").unwrap();
        assert_eq!(all, Samples::of(vec![9.0, 3.0, 8.0, 5.0, 2.0, 7.0, 1.0]));
        let machines = rounds.by_machine();
        let lines: Vec<_> = machines.iter().map(|it| it.line_ns.clone()).collect();
        assert_eq!(lines, [61.0..=61.0, 200.0..=200.0]);
        assert_eq!(
            machines
                .iter()
                .map(|it| it.times.clone())
                .collect::<Vec<_>>(),
            [3..=3, 3..=4]
        );
        let of = |machine: usize, name| gb_per_s(&machines[machine].results, name);
        assert_eq!(of(0, "ours"), Some(Samples::of(vec![8.0])));
        assert_eq!(of(0, "theirs"), Some(Samples::of(vec![6.0])));
        assert_eq!(of(1, "ours"), Some(Samples::of(vec![2.25])));
        assert_eq!(of(0, "others"), None);
    }

    #[test]
    fn what_had_one_machine_is_told_once() {
        let mut rounds = Rounds::default();
        for _ in 0..LEAST_MEASURED {
            rounds.append(vec![measured("ours", 1.0, Some(Around::of(60.0, 70.0)))]);
        }
        assert_eq!(rounds.by_machine(), []);
        // What moved meanwhile is of no machine, and in none of their figures.
        rounds.append(vec![measured("ours", 9.0, Some(Around::of(60.0, 200.0)))]);
        let machines = rounds.by_machine();
        assert_eq!(machines.len(), 1);
        assert_eq!(
            gb_per_s(&machines[0].results, "ours"),
            Some(Samples::of(vec![1.0]))
        );
        // With one processor there is nothing to know.
        let mut alone = Rounds::default();
        alone.append(vec![measured("ours", 1.0, None); LEAST_MEASURED]);
        assert_eq!(alone.by_machine(), []);
    }
}
