//! What a tuning found out, for people and for programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use madgate_vchannel::cluster::format_duration;
use serde_json::{Map, Value as Json, json};

use super::choices::{Choice, Idle};
use super::objective::{Aim, Objective};
use super::search::{Outcome, Standing, Step, Verdict};
use super::trial::Measured;
use crate::knobs::{Name, Value};
use crate::statistics::Estimate;
use crate::units::{counted, duration};

/// Everything that was found out.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    /// The route, in words.
    pub(crate) description: String,
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) channel: String,
    pub(crate) aim: Aim,
    pub(crate) budget: Duration,
    pub(crate) took: Duration,
    pub(crate) file: &'a Path,
    pub(crate) is_dry: bool,
    pub(crate) objective: Objective,
    pub(crate) choices: Vec<Choice>,
    pub(crate) idle: Idle,
    pub(crate) outcome: Outcome,
    /// Why none of it may be trusted.
    pub(crate) doubts: Vec<String>,
    pub(crate) log: Vec<Measured>,
    /// Where the new values were written.
    pub(crate) written: Option<PathBuf>,
}

impl Report<'_> {
    pub(crate) fn verdict(&self) -> &Verdict {
        &self.outcome.verdict
    }

    /// The values that were found, of every knob that was tried.
    pub(crate) fn found(&self) -> Vec<(&Name, &Value)> {
        let point = self.point();
        let value = |(choice, place)| of(choice, place);
        self.choices.iter().zip(point).map(value).collect()
    }

    /// The point that looked best, whether surely or not.
    pub(crate) fn point(&self) -> Vec<usize> {
        match &self.outcome.verdict {
            Verdict::Better { point, .. }
            | Verdict::Unsure { point, .. }
            | Verdict::Failed { point, .. } => point.clone(),
            Verdict::NoBetter { .. } | Verdict::NothingHelps => self.present(),
        }
    }

    /// The point of the file.
    pub(crate) fn present(&self) -> Vec<usize> {
        self.choices.iter().map(|choice| choice.present).collect()
    }

    /// Which knobs are to be changed, from what to what.
    pub(crate) fn changes(&self) -> Vec<(&Name, &Value, &Value)> {
        self.choices
            .iter()
            .zip(self.point())
            .filter(|(choice, place)| choice.present != *place)
            .map(|(choice, place)| {
                let (name, present) = of(choice, choice.present);
                (name, present, of(choice, place).1)
            })
            .collect()
    }

    /// The median of each figure at a point, over all that was measured there.
    pub(crate) fn figures(&self, point: &[usize]) -> Vec<f64> {
        let here = || self.log.iter().filter(|measured| measured.point == point);
        (0..self.objective.gauges.len())
            .filter_map(|gauge| {
                let figures: Vec<f64> = here().map(|measured| measured.figures[gauge]).collect();
                Estimate::of(&figures).map(|figure| figure.median)
            })
            .collect()
    }

    /// The same in words, each with its unit.
    pub(crate) fn figures_in_words(&self, point: &[usize]) -> String {
        let gauges = self.objective.gauges.iter().zip(self.figures(point));
        let words: Vec<String> = gauges
            .map(|(gauge, figure)| format!("{}: {}", gauge.name(), gauge.figure(figure)))
            .collect();
        words.join(", ")
    }

    /// Whether time was over before anything was compared with what is there.
    fn has_tried_nothing(&self) -> bool {
        let present = self.present();
        let is_of_present =
            |step: &Step| matches!(step, Step::Swept { point, .. } if *point == present);
        self.outcome.steps.iter().all(is_of_present) && self.outcome.unseen > 0
    }

    /// What it comes to, in one sentence.
    pub(crate) fn conclusion(&self) -> String {
        match &self.outcome.verdict {
            Verdict::Better { ratio, .. } => format!("better: {}", ratio_in_words(ratio)),
            Verdict::Unsure { ratio, .. } => {
                let ratio = ratio.as_ref().map_or_else(
                    || "there was no time to compare it".to_owned(),
                    ratio_in_words,
                );
                format!(
                    "not surely better, so what is there stays: {ratio}; a longer --budget may tell, or a \
                     machine with less else to do"
                )
            }
            Verdict::NoBetter { point, ratio } => format!(
                "nothing helps: what looked best, {}, was {}, so what is there stays",
                changed(&self.choices, point),
                ratio_in_words(ratio)
            ),
            Verdict::Failed { reason, .. } => {
                format!("what looked better failed, so what is there stays: {reason}")
            }
            Verdict::NothingHelps if self.has_tried_nothing() => {
                format!(
                    "there was no time to try anything, as a measurement took {}: give a --budget of {} \
                     at least, or name fewer messages with --size",
                    duration(self.outcome.cost),
                    format_duration(whole_seconds(self.outcome.least_budget()))
                )
            }
            Verdict::NothingHelps if self.outcome.unseen > 0 => {
                "nothing that was tried helps: no value was surely better, so what is there stays"
                    .to_owned()
            }
            Verdict::NothingHelps => {
                "nothing helps: no value was surely better, so what is there stays".to_owned()
            }
        }
    }

    /// What was done about it.
    fn done(&self) -> String {
        match (&self.outcome.verdict, &self.written) {
            (_, Some(file)) => format!(
                "written to {}; bring it to every node, and restart them",
                file.display()
            ),
            (Verdict::Better { .. }, None) if self.is_dry => {
                "nothing was written, as asked for".to_owned()
            }
            _ => format!("{} stays as it is", self.file.display()),
        }
    }

    /// Text that a person likes to read.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let outcome = &self.outcome;
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "\nin {}: {}",
            duration(self.took),
            counted(outcome.samples, "measurement")
        );
        if outcome.unseen > 0 {
            let _ = writeln!(
                text,
                "  there was no time to try {}, and to be sure of what they gain; a longer --budget \
                 or fewer --knobs have it",
                counted(outcome.unseen, "value")
            );
        }
        let _ = writeln!(text, "present  {}", self.figures_in_words(&self.present()));
        let changes = self.changes();
        if !changes.is_empty() {
            let _ = writeln!(text, "found    {}", self.figures_in_words(&self.point()));
        }
        for (name, from, to) in changes {
            let _ = writeln!(text, "           {name}: {from} -> {to}");
        }
        for doubt in &self.doubts {
            let _ = writeln!(text, "not to be trusted: {doubt}");
        }
        let _ = writeln!(text, "{}\n{}", self.conclusion(), self.done());
        text
    }

    /// One object.
    pub(crate) fn json(&self) -> Json {
        let (verdict, ratio) = match &self.outcome.verdict {
            Verdict::Better { ratio, .. } => ("better", Some(ratio)),
            Verdict::Unsure { ratio, .. } => ("unsure", ratio.as_ref()),
            Verdict::NoBetter { ratio, .. } => ("nothing_helps", Some(ratio)),
            Verdict::Failed { .. } => ("failed", None),
            Verdict::NothingHelps if self.has_tried_nothing() => ("no_time", None),
            Verdict::NothingHelps => ("nothing_helps", None),
        };
        let steps = self.outcome.steps.iter();
        let steps: Vec<Json> = steps.map(|step| step_json(&self.choices, step)).collect();
        let measured = self.log.iter();
        let measured: Vec<Json> = measured
            .map(|measured| {
                json!({
                    "values": values_json(&self.choices, &measured.point),
                    "figures": measured.figures,
                    "seconds": measured.at.as_secs_f64(),
                })
            })
            .collect();
        let gauges = self.objective.gauges.iter();
        let point = |point: &[usize]| {
            json!({
                "values": values_json(&self.choices, point),
                "figures": self.figures(point),
            })
        };
        json!({
            "from": self.from,
            "to": self.to,
            "channel": self.channel,
            "for": self.aim.name(),
            "figures": gauges.clone().map(|gauge| gauge.name()).collect::<Vec<_>>(),
            "units": gauges.map(|gauge| gauge.unit()).collect::<Vec<_>>(),
            "budget_seconds": self.budget.as_secs_f64(),
            "seconds": self.took.as_secs_f64(),
            "measurements": self.outcome.samples,
            "untried_values": self.outcome.unseen,
            "doubts": self.doubts,
            "idle_knobs": self.idle.names.iter().map(Name::to_string).collect::<Vec<_>>(),
            "verdict": verdict,
            "ratio": ratio.map(ratio_json),
            "present": point(&self.present()),
            "found": point(&self.point()),
            "written": self.written.as_ref().map(|file| file.to_string_lossy()),
            "steps": steps,
            "measured": measured,
        })
    }
}

/// As many as are begun.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

fn of(choice: &Choice, place: usize) -> (&Name, &Value) {
    (&choice.name, &choice.values[place])
}

/// Something that was found out, in one line.
pub(crate) fn step(choices: &[Choice], step: &Step) -> String {
    match step {
        Step::Screened {
            tried,
            ratio,
            looks,
        } => {
            let (tried, looks) = (named(choices, tried.parts()), counted(*looks, "look"));
            format!("looked at  {tried}: {ratio:.2} times as good, {looks}")
        }
        Step::Refused { point, reason } => {
            format!("refused    {}: {reason}", changed(choices, point))
        }
        Step::Raced {
            from,
            to,
            ratio,
            standing,
        } => {
            let before = different(from, to).map(|(knob, _)| {
                let (_, value) = of(&choices[knob], from[knob]);
                value.to_string()
            });
            let before: Vec<String> = before.collect();
            let ended = match standing {
                Standing::Won => "taken",
                Standing::Lost => "not taken",
                Standing::Spared => "taken, as one change less is as good",
                Standing::Open => "not decided for want of time",
            };
            format!(
                "raced      {} against {}: {}, {ended}",
                named(choices, different(from, to)),
                before.join(", "),
                ratio_in_words(ratio)
            )
        }
        Step::Swept { point, ratio } => format!(
            "measured   {}: {:.2} of the median, {}",
            changed(choices, point),
            ratio.median,
            counted(ratio.figures, "time")
        ),
    }
}

/// Some knobs and their values: `a = 1, b = 2`.
pub(crate) fn named(choices: &[Choice], parts: impl Iterator<Item = (usize, usize)>) -> String {
    let parts = parts.map(|(knob, value)| {
        let (name, value) = of(&choices[knob], value);
        format!("{name} = {value}")
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// The knobs that differ at two points, and the values that they have at the second one.
pub(crate) fn different(from: &[usize], to: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let places = from.iter().zip(to).enumerate();
    places.filter_map(|(knob, (from, to))| (from != to).then_some((knob, *to)))
}

/// What is different at a point.
pub(crate) fn changed(choices: &[Choice], point: &[usize]) -> String {
    let present: Vec<usize> = choices.iter().map(|choice| choice.present).collect();
    let changed = named(choices, different(&present, point));
    if changed.is_empty() {
        "what is there".to_owned()
    } else {
        changed
    }
}

/// A ratio with how sure it is.
pub(crate) fn ratio_in_words(ratio: &Estimate) -> String {
    format!(
        "{:.2} times as good ({:.2} to {:.2}, {:.0} % sure, {})",
        ratio.median,
        ratio.low,
        ratio.high,
        ratio.confidence * 100.0,
        counted(ratio.figures, "pair")
    )
}

fn ratio_json(ratio: &Estimate) -> Json {
    json!({
        "median": ratio.median,
        "low": ratio.low,
        "high": ratio.high,
        "confidence": ratio.confidence,
        "pairs": ratio.figures,
    })
}

/// The values of all knobs at a point.
fn values_json(choices: &[Choice], point: &[usize]) -> Json {
    named_json(choices, point.iter().copied().enumerate())
}

/// The values of some knobs.
fn named_json(choices: &[Choice], parts: impl Iterator<Item = (usize, usize)>) -> Json {
    let value = |(knob, place): (usize, usize)| {
        let (name, value) = of(&choices[knob], place);
        (name.to_string(), value.to_string().into())
    };
    Json::Object(parts.map(value).collect::<Map<_, _>>())
}

fn step_json(choices: &[Choice], step: &Step) -> Json {
    match step {
        Step::Screened {
            tried,
            ratio,
            looks,
        } => json!({
            "step": "screened",
            "values": named_json(choices, tried.parts()),
            "ratio": ratio,
            "looks": looks,
        }),
        Step::Refused { point, reason } => json!({
            "step": "refused",
            "values": values_json(choices, point),
            "reason": reason,
        }),
        Step::Raced {
            from,
            to,
            ratio,
            standing,
        } => json!({
            "step": "raced",
            "values": named_json(choices, different(from, to)),
            "against": named_json(choices, different(to, from)),
            "ratio": ratio_json(ratio),
            "taken": matches!(standing, Standing::Won | Standing::Spared),
            "decided": *standing != Standing::Open,
        }),
        Step::Swept { point, ratio } => json!({
            "step": "swept",
            "values": values_json(choices, point),
            "ratio": ratio_json(ratio),
        }),
    }
}
