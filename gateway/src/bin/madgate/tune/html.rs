//! The report as one HTML file with its plots in it, which needs nothing else to be read.

use std::fmt::Write as _;

use super::report::{Report, changed, different, named, step};
use super::search::{Standing, Step, Verdict};
use crate::statistics::Estimate;
use crate::units::{counted, duration};

/// Width of a plot, and of the part of it that names what is plotted.
const WIDTH: f64 = 860.0;
const NAMES_WIDTH: f64 = 380.0;
/// Height of one line of a plot.
const LINE: f64 = 22.0;
/// Most lines of a plot: the best of a long sweep say enough.
const MOST_LINES: usize = 60;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:900px;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:left}\
svg text{font:12px sans-serif}.axis{stroke:#999}.interval{stroke:#36c;stroke-width:2}\
.taken{fill:#2a2}.left{fill:#36c}.look{fill:#bbb}.log{color:#555;font-size:13px}";

/// A line of the plot.
struct Mark {
    name: String,
    median: f64,
    /// None for a single look.
    interval: Option<(f64, f64)>,
    class: &'static str,
}

/// The page.
pub(crate) fn page(report: &Report<'_>) -> String {
    let mut page = String::new();
    let title = format!("madgate tune: {}", escape(&report.description));
    // Writing to a `String` cannot fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>For {}: {} in {}. \
         <strong>{}</strong>.</p>\n",
        report.aim.name(),
        counted(report.outcome.samples, "measurement"),
        duration(report.took),
        escape(&report.conclusion()),
    );
    if report.outcome.unseen > 0 {
        let untried = counted(report.outcome.unseen, "value");
        let _ = writeln!(page, "<p>There was no time to try {untried}.</p>");
    }
    for doubt in &report.doubts {
        let _ = writeln!(page, "<p>Not to be trusted: {}.</p>", escape(doubt));
    }
    figures(report, &mut page);
    changes(report, &mut page);
    let is_sweep = report
        .outcome
        .steps
        .iter()
        .any(|step| matches!(step, Step::Swept { .. }));
    let beside = if is_sweep {
        "the median of each round"
    } else {
        "what was in force"
    };
    plot(&marks(report), beside, &mut page);
    page.push_str("<h2>What was tried</h2>\n<ol class=\"log\">\n");
    for found in &report.outcome.steps {
        let _ = writeln!(page, "<li>{}</li>", escape(&step(&report.choices, found)));
    }
    page.push_str("</ol>\n</body></html>\n");
    page
}

fn figures(report: &Report<'_>, page: &mut String) {
    page.push_str("<table><tr><th></th><th>present</th><th>found</th></tr>\n");
    let present = report.figures(&report.present());
    let found = report.figures(&report.point());
    let gauges = report.objective.gauges.iter();
    for ((gauge, present), found) in gauges.zip(present).zip(found) {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            gauge.name(),
            gauge.figure(present),
            gauge.figure(found)
        );
    }
    page.push_str("</table>\n");
}

fn changes(report: &Report<'_>, page: &mut String) {
    let changes = report.changes();
    if changes.is_empty() {
        return;
    }
    page.push_str("<h2>Values</h2>\n<table><tr><th>knob</th><th>present</th><th>found</th></tr>\n");
    for (name, from, to) in changes {
        let _ = writeln!(page, "<tr><td>{name}</td><td>{from}</td><td>{to}</td></tr>");
    }
    page.push_str("</table>\n");
}

/// What can be plotted: the races and looks of a search, or the points of a sweep.
fn marks(report: &Report<'_>) -> Vec<Mark> {
    let choices = &report.choices;
    let steps = &report.outcome.steps;
    // Who was looked at twice has one line, with both looks in it.
    let is_last = |place: usize, step: &Step| match step {
        Step::Screened { tried, .. } => !steps[place + 1..]
            .iter()
            .any(|later| matches!(later, Step::Screened { tried: other, .. } if other == tried)),
        _ => true,
    };
    let interval = |ratio: &Estimate| Some((ratio.low, ratio.high));
    let mut marks: Vec<Mark> = steps
        .iter()
        .enumerate()
        .filter(|(place, step)| is_last(*place, step))
        .filter_map(|(_, step)| match step {
            Step::Screened { tried, ratio, .. } => Some(Mark {
                name: named(choices, tried.parts()),
                median: *ratio,
                interval: None,
                class: "look",
            }),
            Step::Raced {
                from,
                to,
                ratio,
                standing,
            } => Some(Mark {
                name: named(choices, different(from, to)),
                median: ratio.median,
                interval: interval(ratio),
                class: if *standing == Standing::Won {
                    "taken"
                } else {
                    "left"
                },
            }),
            Step::Swept { point, ratio } => Some(Mark {
                name: changed(choices, point),
                median: ratio.median,
                // Of one round there is none.
                interval: interval(ratio).filter(|_| ratio.figures > 1),
                class: if matches!(report.verdict(), Verdict::Better { point: better, .. } if better == point)
                {
                    "taken"
                } else {
                    "left"
                },
            }),
            Step::Refused { .. } => None,
        })
        .collect();
    marks.sort_by(|one, other| other.median.total_cmp(&one.median));
    marks.truncate(MOST_LINES);
    marks
}

/// Each value with its median and interval, beside what it was compared with.
fn plot(marks: &[Mark], beside: &str, page: &mut String) {
    if marks.is_empty() {
        return;
    }
    let ends = marks.iter().flat_map(|mark| {
        let (low, high) = mark.interval.unwrap_or((mark.median, mark.median));
        [low, high]
    });
    let (low, high) = ends.fold((1.0_f64, 1.0_f64), |(low, high), end| {
        (low.min(end), high.max(end))
    });
    let span = (high - low).max(0.01) * 1.1;
    let start = low - span * 0.05;
    let x = |ratio: f64| NAMES_WIDTH + (ratio - start) / span * (WIDTH - NAMES_WIDTH);
    let lines = f64::from(u32::try_from(marks.len()).unwrap_or(u32::MAX));
    let height = (lines + 2.0) * LINE;
    let _ = write!(
        page,
        "<h2>How many times as good</h2>\n<p>Beside {beside}: a dot is the median, a line the interval \
         that the true one is in (how surely, the list below says); green was taken over, grey only \
         looked at.</p>\n\
         <svg viewBox=\"0 0 {WIDTH} {height}\" width=\"100%\" role=\"img\" \
         aria-label=\"ratios with their intervals\">\n"
    );
    let bottom = height - LINE;
    for (ratio, class) in [(low, "axis"), (1.0, "axis"), (high, "axis")] {
        let x = x(ratio);
        let _ = writeln!(
            page,
            "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"0\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{ratio:.2}</text>",
            height - LINE / 4.0
        );
    }
    let mut y = LINE;
    for mark in marks {
        let _ = write!(
            page,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            NAMES_WIDTH - 10.0,
            y + 4.0,
            escape(&mark.name)
        );
        if let Some((low, high)) = mark.interval {
            let _ = write!(
                page,
                "<line class=\"interval\" x1=\"{:.1}\" y1=\"{y}\" x2=\"{:.1}\" y2=\"{y}\">\
                 <title>{:.3} to {:.3}</title></line>",
                x(low),
                x(high),
                low,
                high
            );
        }
        let _ = writeln!(
            page,
            "<circle class=\"{}\" cx=\"{:.1}\" cy=\"{y}\" r=\"4\"><title>{:.3}</title></circle>",
            mark.class,
            x(mark.median),
            mark.median
        );
        y += LINE;
    }
    page.push_str("</svg>\n");
}

/// Text as HTML has it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
