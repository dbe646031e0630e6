//! Searches on surfaces that are made up, with noise, drift and points that cannot be had.

use super::*;

/// Whether the measurement with this number, of this point, fails.
type Fails = Box<dyn Fn(u32, &[usize]) -> bool>;

/// A surface whose every part is known.
struct Made {
    /// For each knob, how good each value is.
    factors: Vec<Vec<f64>>,
    /// How much figures vary: the standard deviation of their logarithm.
    noise: f64,
    /// By how much everything becomes slower with every measurement.
    drift: f64,
    /// A value that cannot be had.
    refused: Option<(usize, usize)>,
    /// Which measurements of which points fail.
    fails: Fails,
    /// What a measurement takes, half of that to one and a half times that.
    cost: Duration,
    /// What the first one takes besides.
    set_up: Duration,
    /// Which value of each knob is the default.
    default: usize,
    /// Knobs that may be traded.
    trades: Vec<Trade>,
    /// What is that many times as good, but only together.
    together: Option<(Move, f64)>,
    now: Duration,
    random: u64,
    measured: u32,
}

impl Made {
    fn new(factors: &[&[f64]], noise: f64, seed: u64) -> Self {
        Self {
            factors: factors.iter().map(|values| values.to_vec()).collect(),
            noise,
            drift: 0.0,
            refused: None,
            fails: Box::new(|_, _| false),
            cost: Duration::from_millis(400),
            set_up: Duration::ZERO,
            default: 0,
            trades: Vec::new(),
            together: None,
            now: Duration::ZERO,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1,
            measured: 0,
        }
    }

    /// Evenly from 0 to 1.
    fn draw(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        f64::from(u32::try_from(self.random >> 32).unwrap()) / f64::from(u32::MAX)
    }

    /// How good a point really is.
    fn truth(&self, point: &[usize]) -> f64 {
        let values = self.factors.iter().zip(point);
        let apart: f64 = values.map(|(values, value)| values[*value]).product();
        match self.together {
            Some((there, gain)) if there.from(point) == point => apart * gain,
            _ => apart,
        }
    }

    fn best(&self) -> f64 {
        let largest = |values: &Vec<f64>| values.iter().copied().fold(0.0, f64::max);
        self.factors.iter().map(largest).product()
    }

    /// Every knob at its first value, which is the default too.
    fn dimensions(&self) -> Vec<Dimension> {
        let knob = |values: &Vec<f64>| Dimension {
            values: values.len(),
            present: 0,
            default: self.default,
        };
        self.factors.iter().map(knob).collect()
    }

    /// The point that a search ends with.
    fn searched(&mut self, seconds: u64) -> (Point, Outcome) {
        let dimensions = self.dimensions();
        let budget = Duration::from_secs(seconds);
        let trades = self.trades.clone();
        let outcome = search(&dimensions, &trades, budget, self);
        let outcome = outcome.unwrap_or_else(|never| match never {});
        assert!(self.now <= budget, "{:?} of {budget:?}", self.now);
        let point = match &outcome.verdict {
            Verdict::Better { point, .. } => point.clone(),
            _ => present(&dimensions),
        };
        (point, outcome)
    }
}

impl Surface for Made {
    type Error = std::convert::Infallible;

    fn measure(&mut self, point: &[usize]) -> Result<Sample, Self::Error> {
        let part = self.draw() + 0.5;
        self.now += self.cost.mul_f64(part) + std::mem::take(&mut self.set_up);
        self.measured += 1;
        if self
            .refused
            .is_some_and(|(knob, value)| point[knob] == value)
        {
            return Ok(Sample::Refused("it cannot be had".to_owned()));
        }
        if (self.fails)(self.measured, point) {
            return Ok(Sample::Failed("nothing came".to_owned()));
        }
        // Twelve even draws make one that is normal enough.
        let normal: f64 = (0..12).map(|_| self.draw()).sum::<f64>() - 6.0;
        let slower = (1.0 - self.drift).powf(f64::from(self.measured));
        Ok(Sample::Score(
            self.truth(point) * slower * (self.noise * normal).exp(),
        ))
    }

    fn elapsed(&self) -> Duration {
        self.now
    }

    fn note(&mut self, _step: &Step) {}
}

#[test]
fn time_that_no_verdict_needs_is_for_values_that_nobody_has_looked_at() {
    // Forty values that are all the same, or worse; and a good one, far from what is there.
    let flat = [1.0; 6];
    let mut far = flat;
    far[5] = 1.6;
    let mut found = 0;
    for seed in 0..20 {
        let mut surface = Made::new(
            &[&flat, &flat, &flat, &flat, &flat, &flat, &far],
            0.02,
            seed,
        );
        let (point, outcome) = surface.searched(40);
        let is_found = point == [0, 0, 0, 0, 0, 0, 5];
        found += usize::from(is_found);
        let used = surface.now.as_secs_f64() / 40.0;
        assert!(
            is_found || outcome.unseen == 0 || used > 0.65,
            "{used} of the time, {} untried",
            outcome.unseen
        );
    }
    assert!(found >= 8, "{found} of 20");
}

#[test]
fn what_looked_good_and_could_not_be_raced_is_what_the_verdict_is_about() {
    let mut found = 0;
    for seed in 0..20 {
        let factors: [&[f64]; 6] = [
            &[1.0, 2.0],
            &[1.0; 4],
            &[1.0; 4],
            &[1.0; 4],
            &[1.0; 4],
            &[1.0; 4],
        ];
        let mut surface = Made::new(&factors, 0.05, seed);
        let (point, outcome) = surface.searched(11);
        found += usize::from(point == [1, 0, 0, 0, 0, 0]);
        // Of what is found in the end, no race has said that it is not taken.
        let has_lost = outcome.steps.iter().any(
            |step| matches!(step, Step::Raced { to, standing: Standing::Lost, .. } if *to == point),
        );
        assert!(!has_lost, "seed {seed}: {point:?} in {outcome:?}");
    }
    assert!(found >= 10, "{found} of 20");
}

#[test]
fn what_won_by_luck_is_taken_back_and_what_gains_stays() {
    let flat: [f64; 6] = [1.0; 6];
    let factors: [&[f64]; 10] = [
        &[1.0, 1.3],
        &[1.0, 0.9, 1.15],
        &flat,
        &flat,
        &flat,
        &flat,
        &flat,
        &flat,
        &flat,
        &flat,
    ];
    let (mut lucky, mut lost, mut spared) = (0, 0, 0);
    for seed in 0..40 {
        let mut surface = Made::new(&factors, 0.05, seed);
        let (point, outcome) = surface.searched(3600);
        lost += usize::from(point[0] != 1) + usize::from(point[1] != 2);
        lucky += point[2..].iter().filter(|value| **value != 0).count();
        let is_spared = |step: &&Step| matches!(step, Step::Raced { standing, .. } if *standing == Standing::Spared);
        spared += outcome.steps.iter().filter(is_spared).count();
    }
    assert_eq!(lost, 0);
    assert!(lucky < 20, "{lucky} changes that gain nothing");
    assert!(spared > 30, "{spared} taken back");
}

#[test]
fn what_gains_little_is_seldom_taken_back() {
    let flat = [1.0; 4];
    let small = [1.0, 1.03];
    let factors: [&[f64]; 12] = [
        &small, &small, &small, &small, &small, &small, &small, &small, &flat, &flat, &flat, &flat,
    ];
    let mut kept = Vec::new();
    let mut taken_back = 0;
    for seed in 0..20 {
        let mut surface = Made::new(&factors, 0.02, seed);
        let (point, outcome) = surface.searched(3600);
        kept.push(surface.truth(&point) / surface.best());
        let gained = |step: &&Step| match step {
            Step::Raced {
                from, to, standing, ..
            } => *standing == Standing::Spared && surface.truth(to) < surface.truth(from),
            _ => false,
        };
        taken_back += outcome.steps.iter().filter(gained).count();
    }
    let kept = crate::statistics::median(&kept).unwrap();
    assert!(kept > 0.97, "{kept} of the best");
    assert!(taken_back <= 4, "{taken_back} gains given up");
}

#[test]
fn two_knobs_that_were_traded_are_taken_back_together() {
    let mut surface = Made::new(&[&[1.0; 3], &[1.0; 3], &[1.0; 2]], 0.01, 1);
    let dimensions = surface.dimensions();
    let trades = [Trade {
        knobs: [0, 1],
        costs: [vec![1.0, 2.0, 4.0], vec![4.0, 2.0, 1.0]],
    }];
    let mut search = Search::new(&dimensions, &trades, Duration::ZERO, &mut surface);
    for (found, changes) in [
        ([2, 2, 1], vec![vec![0, 1], vec![2]]),
        ([2, 0, 1], vec![vec![0], vec![2]]),
        ([1, 1, 0], vec![vec![0, 1]]),
        ([0, 0, 0], vec![]),
    ] {
        search.incumbent = found.to_vec();
        assert_eq!(search.changes(), changes, "{found:?}");
    }
}

#[test]
fn a_race_that_the_time_ends_is_not_decided() {
    let ended_open = (0..40).any(|seed| {
        let mut surface = Made::new(&[&[1.0, 1.03]], 0.05, seed);
        let (_, outcome) = surface.searched(12);
        let last = outcome.steps.iter().rev().find_map(|step| match step {
            Step::Raced { standing, .. } => Some(*standing),
            _ => None,
        });
        last == Some(Standing::Open)
    });
    assert!(ended_open, "every race was decided");
}

const HILLS: [&[f64]; 8] = [
    &[1.0, 1.15, 1.3, 1.2, 0.8],
    &[1.0, 0.9, 0.7],
    &[1.0, 1.25],
    &[1.0, 1.0, 1.0, 1.0],
    &[1.0, 0.5],
    &[1.0, 0.95, 1.1],
    &[1.0, 1.0],
    &[1.0, 1.02, 0.99],
];

const FLAT: [&[f64]; 8] = [
    &[1.0; 5], &[1.0; 3], &[1.0; 2], &[1.0; 4], &[1.0; 2], &[1.0; 3], &[1.0; 2], &[1.0; 3],
];

#[test]
fn the_best_is_found_within_five_per_cent() {
    for seed in 0..30 {
        let mut surface = Made::new(&HILLS, 0.03, seed);
        let (point, outcome) = surface.searched(120);
        let part = surface.truth(&point) / surface.best();
        assert!(
            part >= 0.95,
            "seed {seed}: {part:.3} of the best: {outcome:?}"
        );
    }
}

#[test]
fn knobs_that_help_only_together_are_found_where_they_may_be_traded() {
    // Slots of four sizes, and three numbers of them, of which the middle one is there. Less memory
    // is no better by itself, and larger slots are only if there are fewer.
    let trade = Trade {
        knobs: [1, 2],
        costs: [vec![64.0, 32.0, 128.0, 256.0], vec![64.0, 16.0, 256.0]],
    };
    let moves = trade.moves(&[0, 0, 0]);
    let beside = |value, other| Move {
        knob: 1,
        value,
        beside: Some((2, other)),
    };
    assert_eq!(moves, [beside(3, 1)], "others leave the number as it is");
    let mut surface = Made::new(
        &[&[1.0, 0.9], &[1.0, 0.95, 0.95, 0.9], &[1.0, 0.98, 0.8]],
        0.03,
        3,
    );
    surface.together = Some((beside(3, 1), 1.4));
    let (point, _) = surface.searched(90);
    assert_eq!(point, [0, 0, 0]);
    surface.trades = vec![trade];
    surface.now = Duration::ZERO;
    let (point, outcome) = surface.searched(90);
    assert_eq!(point, [0, 3, 1], "{outcome:?}");
}

#[test]
fn who_begins_badly_gets_the_defaults_first() {
    // A dozen knobs, of which each is a little better at its default; with the time for two looks at
    // each value nobody would be sure of any.
    let knob = &[0.96, 1.0, 0.97, 0.95][..];
    for seed in 0..10 {
        let mut surface = Made::new(&[knob; 12], 0.03, seed);
        surface.default = 1;
        let (point, outcome) = surface.searched(30);
        assert_eq!(point, [1; 12], "{outcome:?}");
    }
    // And nobody is given what is worse.
    let mut surface = Made::new(&[&[1.0, 0.9][..]; 4], 0.03, 1);
    surface.default = 1;
    let (point, _) = surface.searched(30);
    assert_eq!(point, [0; 4]);
}

#[test]
fn what_is_ahead_is_known_before_there_is_a_verdict() {
    let ahead = |outcome: &Outcome| {
        let mut steps = outcome.steps.iter();
        steps.try_fold(None, |before, step| Some(step.ahead(before)))
    };
    let (point, outcome) = Made::new(&[&[1.0, 1.3], &[1.0, 1.2]], 0.0, 1).searched(60);
    assert_eq!(ahead(&outcome), Some(Some(point)), "{outcome:?}");
    let (_, outcome) = Made::new(&[&[1.0, 0.9]], 0.0, 1).searched(60);
    assert_eq!(ahead(&outcome), Some(None), "{outcome:?}");
    // What cannot be had any more is not ahead any longer, and what is beside it does not matter.
    let gone = |point: Point| Step::Refused {
        point,
        reason: String::new(),
    };
    assert_eq!(gone(vec![1]).ahead(Some(vec![1])), None);
    assert_eq!(gone(vec![2]).ahead(Some(vec![1])), Some(vec![1]));
}

#[test]
fn a_machine_that_slows_down_does_not_decide() {
    for seed in 0..10 {
        let mut surface = Made::new(&HILLS, 0.03, seed);
        // To less than a fifth, in the time that there is.
        surface.drift = 0.005;
        let (point, outcome) = surface.searched(120);
        let part = surface.truth(&point) / surface.best();
        assert!(
            part >= 0.95,
            "seed {seed}: {part:.3} of the best: {outcome:?}"
        );
    }
}

#[test]
fn what_is_surely_no_better_is_called_so() {
    for seed in 0..20 {
        // Whatever a search has made of it before.
        let mut surface = Made::new(&[&[1.0, 0.7]], 0.03, seed);
        let dimensions = surface.dimensions();
        let budget = Duration::from_secs(120);
        let mut search = Search::new(&dimensions, &[], budget, &mut surface);
        search.learn_cost().unwrap_or_else(|never| match never {});
        let outcome = search
            .conclude(vec![1])
            .unwrap_or_else(|never| match never {});
        let Verdict::NoBetter { point, ratio } = outcome.verdict else {
            panic!("{:?}", outcome.verdict);
        };
        assert!(point == [1] && ratio.high < 1.0, "{ratio:?}");
    }
}

#[test]
fn a_value_that_raced_has_been_tried() {
    for seconds in [15, 20, 30, 60] {
        // The default, which races before anything is looked at, is all that is to be tried.
        let mut surface = Made::new(&[&[1.0, 1.5]], 0.01, seconds);
        surface.default = 1;
        let (_, outcome) = surface.searched(seconds);
        let is_race = |step: &Step| matches!(step, Step::Raced { .. });
        assert!(outcome.steps.iter().any(is_race), "{outcome:?}");
        assert_eq!(outcome.unseen, 0, "{outcome:?}");
    }
}

#[test]
fn nothing_is_changed_where_nothing_helps() {
    let mut wrong = 0;
    for seed in 0..100 {
        let mut surface = Made::new(&FLAT, 0.1, seed);
        let (_, outcome) = surface.searched(120);
        wrong += u32::from(matches!(outcome.verdict, Verdict::Better { .. }));
    }
    // An interval of 95 % is too high once in 40 times.
    assert!(wrong <= 5, "{wrong} of 100");
}

#[test]
fn noise_that_hides_everything_changes_nothing() {
    let mut wrong = 0;
    for seed in 0..50 {
        let mut surface = Made::new(&[&[1.0, 0.9, 0.8], &[1.0, 0.95]], 0.5, seed);
        let (point, _) = surface.searched(60);
        wrong += u32::from(surface.truth(&point) < 1.0);
    }
    assert!(wrong <= 2, "{wrong} of 50 made it worse");
}

#[test]
fn every_budget_is_kept() {
    for seconds in [1, 2, 5, 10, 20, 45, 90, 300, 3600] {
        for seed in 0..5 {
            // `searched` looks at the clock.
            let (_, outcome) = Made::new(&HILLS, 0.05, seed).searched(seconds);
            assert!(outcome.samples > 0);
        }
    }
}

#[test]
fn what_there_was_no_time_for_is_counted() {
    let (_, outcome) = Made::new(&HILLS, 0.03, 1).searched(8);
    assert!(outcome.unseen > 0, "{outcome:?}");
    // Looking once more, around what has been found, takes nothing of that back.
    for seconds in [45, 60, 90, 120] {
        let (_, outcome) = Made::new(&HILLS, 0.03, 1).searched(seconds);
        assert_eq!(outcome.unseen, 0, "{seconds}");
    }
}

#[test]
fn a_first_measurement_that_takes_long_does_not_take_the_time_of_the_others() {
    let mut surface = Made::new(&HILLS, 0.03, 1);
    surface.cost = Duration::from_millis(100);
    surface.set_up = Duration::from_secs(1);
    let (_, outcome) = surface.searched(20);
    assert_eq!(outcome.unseen, 0, "{outcome:?}");
}

#[test]
fn a_sweep_begins_with_what_is_there() {
    let mut surface = Made::new(&[&[1.0, 0.5, 0.5, 0.5]], 0.0, 1);
    let mut dimensions = surface.dimensions();
    dimensions[0].present = 3;
    let budget = Duration::from_secs(1);
    let outcome = sweep(&dimensions, budget, &mut surface).unwrap_or_else(|never| match never {});
    assert!(outcome.unseen > 0, "{outcome:?}");
    assert!(
        matches!(&outcome.steps[0], Step::Swept { point, .. } if point == &[3]),
        "{outcome:?}"
    );
}

#[test]
fn what_fails_once_is_measured_again() {
    let mut surface = Made::new(&[&[1.0, 1.3]], 0.0, 1);
    surface.fails = Box::new(|measured, _| [3, 8].contains(&measured));
    let (point, outcome) = surface.searched(60);
    assert_eq!(point, [1], "{outcome:?}");
    assert!(
        !outcome
            .steps
            .iter()
            .any(|step| matches!(step, Step::Refused { .. })),
        "{outcome:?}"
    );
}

#[test]
fn what_fails_in_the_end_is_not_taken() {
    let made = || Made::new(&[&[1.0, 1.3]], 0.0, 1);
    let mut surface = made();
    let (point, _) = surface.searched(60);
    assert_eq!(point, [1]);
    // The same, but for the last time that what was found is measured.
    let last = surface.measured - 1;
    let mut surface = made();
    surface.fails = Box::new(move |measured, point| measured >= last && point == [1]);
    let (point, outcome) = surface.searched(60);
    assert_eq!(point, [0]);
    assert_eq!(
        outcome.verdict,
        Verdict::Failed {
            point: vec![1],
            reason: "nothing came".to_owned()
        }
    );
}

#[test]
fn values_that_cannot_be_had_are_passed_over() {
    let mut surface = Made::new(&HILLS, 0.03, 7);
    surface.refused = Some((0, 2));
    let (point, outcome) = surface.searched(120);
    let part = surface.truth(&point) / (surface.best() * 1.2 / 1.3);
    assert!(part >= 0.95, "{part:.3}: {outcome:?}");
    let refusals = outcome
        .steps
        .iter()
        .filter(|step| matches!(step, Step::Refused { point, .. } if point[0] == 2));
    assert!(refusals.count() > 0);
}

#[test]
fn nothing_to_choose_from_is_no_mistake() {
    let (point, outcome) = Made::new(&[&[1.0], &[1.0]], 0.03, 3).searched(10);
    assert_eq!(point, [0, 0]);
    assert_eq!(outcome.verdict, Verdict::NothingHelps);
    let (point, _) = Made::new(&[], 0.03, 3).searched(10);
    assert_eq!(point, Point::new());
}

#[test]
fn a_sweep_finds_the_best_of_all() {
    let knobs = [&[1.0, 1.2, 0.9][..], &[1.0, 1.1], &[1.0, 0.8]];
    let mut surface = Made::new(&knobs, 0.03, 5);
    let dimensions = surface.dimensions();
    let budget = Duration::from_secs(60);
    let outcome = sweep(&dimensions, budget, &mut surface).unwrap_or_else(|never| match never {});
    assert!(surface.now <= budget);
    let swept = |step: &&Step| matches!(step, Step::Swept { .. });
    assert_eq!(outcome.steps.iter().filter(swept).count(), 12);
    let Verdict::Better { point, ratio } = outcome.verdict else {
        panic!("{:?}", outcome.verdict);
    };
    assert_eq!(point, [1, 1, 0]);
    assert!(ratio.low <= 1.32 && ratio.high >= 1.32 * 0.97, "{ratio:?}");
}

#[test]
fn a_sweep_without_time_for_one_round_says_so() {
    let mut surface = Made::new(&HILLS, 0.03, 5);
    let dimensions = surface.dimensions();
    let budget = Duration::from_secs(20);
    let outcome = sweep(&dimensions, budget, &mut surface).unwrap_or_else(|never| match never {});
    assert!(surface.now <= budget && outcome.unseen > 0);
}

#[test]
fn time_that_is_left_makes_a_verdict_surer() {
    let sure = |seconds: u64| {
        let is_sure = |seed: &u64| {
            let mut surface = Made::new(&[&[1.0, 1.25]], 0.3, *seed);
            let (_, outcome) = surface.searched(seconds);
            matches!(outcome.verdict, Verdict::Better { .. })
        };
        (0..60).filter(is_sure).count()
    };
    let (short, long) = (sure(20), sure(120));
    assert!(long > short, "{short} of 60, and {long} with more time");
}
