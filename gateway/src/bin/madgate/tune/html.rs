//! The report as one HTML file with its plots in it, which needs nothing else to be read.

use std::fmt::Write as _;

use super::report::{Report, changed, different, named, step};
use super::search::{Standing, Step, Verdict};
use crate::statistics::Estimate;
use crate::units::{counted, duration};

/// Width of a plot, and of the part of it that names what is plotted.
const WIDTH: f64 = 860.0;
const NAMES_WIDTH: f64 = 380.0;
/// Letters of a name that have room there, and how many of the last ones of a longer name are shown.
const NAME_LETTERS: usize = 58;
const LAST_LETTERS: usize = 20;
/// Figures that are closer to each other than this cannot both be read.
const LEAST_DISTANCE: f64 = 30.0;
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
                class: if matches!(standing, Standing::Won | Standing::Spared) {
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

/// A name as far as there is room for it.
fn shortened(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= NAME_LETTERS {
        return name.to_owned();
    }
    let (first, last) = letters.split_at(letters.len() - LAST_LETTERS);
    let first = &first[..NAME_LETTERS - LAST_LETTERS - 1];
    first.iter().chain(&['…']).chain(last).collect()
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
    for (ratio, is_one) in [(low, false), (1.0, true), (high, false)] {
        let at = x(ratio);
        let _ = writeln!(
            page,
            "<line class=\"axis\" x1=\"{at:.1}\" y1=\"0\" x2=\"{at:.1}\" y2=\"{bottom}\"/>"
        );
        if is_one || (at - x(1.0)).abs() >= LEAST_DISTANCE {
            let _ = writeln!(
                page,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{ratio:.2}</text>",
                height - LINE / 4.0
            );
        }
    }
    let mut y = LINE;
    for mark in marks {
        let _ = write!(
            page,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\"><title>{}</title>{}</text>",
            NAMES_WIDTH - 10.0,
            y + 4.0,
            escape(&mark.name),
            escape(&shortened(&mark.name))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(name: &str, low: f64, high: f64) -> Mark {
        Mark {
            name: name.to_owned(),
            median: f64::midpoint(low, high),
            interval: Some((low, high)),
            class: "left",
        }
    }

    #[test]
    fn a_long_name_keeps_both_its_ends_and_all_of_it_can_be_read() {
        let long = "channel.main.mtu = 64KiB, gateway.depth = 4, gateway.batch = 2MiB, gateway.gather = false";
        assert_eq!(
            shortened(long),
            "channel.main.mtu = 64KiB, gateway.dep…teway.gather = false"
        );
        assert_eq!(shortened("gateway.depth = 4"), "gateway.depth = 4");
        let mut page = String::new();
        plot(&[mark(long, 0.9, 1.1)], "what is there", &mut page);
        assert!(page.contains(&format!("<title>{long}</title>")));
    }

    #[test]
    fn figures_that_would_cover_each_other_are_left_out() {
        let axis = |low, high| {
            let mut page = String::new();
            plot(
                &[mark("gateway.depth = 4", low, high)],
                "what is there",
                &mut page,
            );
            let shown = |figure: &&str| page.contains(&format!(">{figure}</text>"));
            let figures = ["0.50", "0.98", "1.00", "1.60"];
            figures.into_iter().filter(shown).collect::<Vec<_>>()
        };
        assert_eq!(axis(0.98, 1.6), ["1.00", "1.60"]);
        assert_eq!(axis(0.5, 1.6), ["0.50", "1.00", "1.60"]);
        assert_eq!(axis(1.0, 1.0), ["1.00"]);
    }
}
