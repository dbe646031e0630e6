//! The route as something to search: points become values, values are put in force, and what
//! then goes through is the score.

use std::time::{Duration, Instant};

use super::choices::Choice;
use super::objective::Objective;
use super::report;
use super::route::{Route, Stop, Tried};
use super::search::{Point, Sample, Step, Surface};
use crate::failure::Failure;
use crate::knobs::{Name, Value};

/// One measurement: where, and the figures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    pub(crate) point: Point,
    pub(crate) figures: Vec<f64>,
    /// When it ended, since the command began.
    pub(crate) at: Duration,
}

/// A route under search.
pub(crate) struct Trial<'a, 'p> {
    route: &'a mut Route<'p>,
    choices: &'a [Choice],
    objective: &'a Objective,
    started: Instant,
    tell: &'a dyn Fn(&str),
    log: Vec<Measured>,
    /// What races have been won by, until a verdict says more.
    ahead: Option<Point>,
}

impl<'a, 'p> Trial<'a, 'p> {
    pub(crate) fn new(
        route: &'a mut Route<'p>,
        choices: &'a [Choice],
        objective: &'a Objective,
        started: Instant,
        tell: &'a dyn Fn(&str),
    ) -> Self {
        Self {
            route,
            choices,
            objective,
            started,
            tell,
            log: Vec::new(),
            ahead: None,
        }
    }

    /// The search has ended early: what it would have gone on from is not to be lost.
    pub(crate) fn tell_ahead(&self) {
        if let Some(ahead) = &self.ahead {
            let changed = report::changed(self.choices, ahead);
            (self.tell)(&format!(
                "  ahead until here, and not verified: {changed}\n"
            ));
        }
    }

    /// Every measurement, in order.
    pub(crate) fn into_log(self) -> Vec<Measured> {
        self.log
    }
}

/// The values of a point.
pub(crate) fn values(choices: &[Choice], point: &[usize]) -> Vec<(Name, Value)> {
    let value = |(choice, place): (&Choice, &usize)| {
        let value = choice.values[*place].clone();
        (choice.name.clone(), value)
    };
    choices.iter().zip(point).map(value).collect()
}

impl Surface for Trial<'_, '_> {
    type Error = Stop;

    fn measure(&mut self, point: &[usize]) -> Result<Sample, Stop> {
        self.route.look_for_signal()?;
        let is_present = self
            .choices
            .iter()
            .zip(point)
            .all(|(choice, place)| choice.present == *place);
        if let Tried::Refused(why) = self.route.switch(&values(self.choices, point))? {
            if is_present {
                let what = format!("the values of the file cannot be put in force: {why}");
                return Err(Failure::new(what).into());
            }
            return Ok(Sample::Refused(why));
        }
        let figures = match self.objective.measure(self.route) {
            Ok(figures) => figures,
            // With these values; whether others still pass is seen when they are put in force.
            Err(Stop::Failure(why)) if !is_present => {
                self.route.recover()?;
                return Ok(Sample::Failed(format!("nothing could be measured: {why}")));
            }
            Err(stop) => return Err(stop),
        };
        let score = self.objective.score(&figures);
        self.log.push(Measured {
            point: point.to_vec(),
            figures,
            at: self.started.elapsed(),
        });
        Ok(Sample::Score(score))
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn note(&mut self, step: &Step) {
        self.ahead = step.ahead(self.ahead.take());
        (self.tell)(&format!("  {}\n", report::step(self.choices, step)));
    }
}
