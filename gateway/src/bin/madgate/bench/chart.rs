//! Curves over the size of messages or a load, as SVG and for the terminal.

use std::error::Error;
use std::fmt::Write as _;
use std::ops::Range;

use madgate_vchannel::cluster::format_size;
use plotters::prelude::*;

use crate::failure::{Context, Failure};
use crate::files::wire::count;
use crate::units::{three_digits, whole};

/// Of the picture.
const PIXELS: (u32, u32) = (960, 600);
/// Of the longest bar in the terminal.
const BAR_COLUMNS: f64 = 40.0;
/// Ticks at the axis below, at most.
const TICKS: usize = 12;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// What the curves are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Axis {
    /// Bytes of a message, by powers of two.
    #[default]
    Sizes,
    /// Percent of a load.
    Loads,
}

impl Axis {
    const fn name(self) -> &'static str {
        match self {
            Self::Sizes => "message size",
            Self::Loads => "load, percent",
        }
    }

    fn place(self, at: usize) -> f64 {
        match self {
            // Nothing has a place of its own, before one byte.
            Self::Sizes if at == 0 => -1.0,
            Self::Sizes => crate::units::float(count(at)).log2(),
            Self::Loads => crate::units::float(count(at)),
        }
    }

    /// What is free at both sides of the points.
    const fn margin(self) -> f64 {
        match self {
            Self::Sizes => 0.5,
            Self::Loads => 5.0,
        }
    }

    /// What a tick says; ticks between powers of two say nothing.
    fn tick(self, place: f64) -> String {
        match self {
            Self::Sizes if place.fract() != 0.0 => String::new(),
            Self::Sizes if place < 0.0 => "0B".to_owned(),
            Self::Sizes => format_size(whole(place.exp2())),
            Self::Loads => format!("{place:.0}"),
        }
    }

    fn label(self, at: usize) -> String {
        match self {
            Self::Sizes => format_size(count(at)),
            Self::Loads => format!("{at} %"),
        }
    }
}

/// Curves, all in one unit.
#[derive(Debug, Default)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) axis: Axis,
    /// What is measured, with its unit.
    pub(super) measure: String,
    pub(super) curves: Vec<Curve>,
}

#[derive(Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    /// Where on the axis, and what was measured.
    pub(super) points: Vec<(usize, f64)>,
}

impl Chart {
    /// Adds a point to the curve of this name.
    pub(super) fn add(&mut self, name: &str, at: usize, value: f64) {
        let place = self.curves.iter().position(|curve| curve.name == name);
        let place = place.unwrap_or_else(|| {
            self.curves.push(Curve {
                name: name.to_owned(),
                points: Vec::new(),
            });
            self.curves.len() - 1
        });
        let points = &mut self.curves[place].points;
        points.push((at, value));
        points.sort_by_key(|(at, _)| *at);
    }

    fn points(&self) -> impl Iterator<Item = &(usize, f64)> {
        self.curves.iter().flat_map(|curve| &curve.points)
    }

    fn largest(&self) -> f64 {
        self.points().map(|(_, value)| *value).fold(0.0, f64::max)
    }

    /// Which part of the axis all points lie in.
    fn span(&self) -> Range<f64> {
        let places = || self.points().map(|(at, _)| self.axis.place(*at));
        let least = places().fold(f64::INFINITY, f64::min);
        let most = places().fold(0.0, f64::max);
        let (least, margin) = (least.min(most), self.axis.margin());
        (least - margin)..(most + margin)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Box<dyn Error>> {
        let highest = (self.largest() * 1.1).max(f64::MIN_POSITIVE);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(80)
            .build_cartesian_2d(self.span(), 0.0..highest)?;
        chart
            .configure_mesh()
            .x_desc(self.axis.name())
            .y_desc(&*self.measure)
            .x_labels(TICKS)
            .x_label_formatter(&|place| self.axis.tick(*place))
            .light_line_style(WHITE)
            .draw()?;
        for (number, curve) in self.curves.iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let points = || {
                let place = |(at, value): &(usize, f64)| (self.axis.place(*at), *value);
                curve.points.iter().map(place)
            };
            chart
                .draw_series(LineSeries::new(points(), color.stroke_width(2)))?
                .label(&*curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
            chart.draw_series(points().map(|point| Circle::new(point, 3, color.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        Ok(())
    }

    /// As bars of text.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}, {}\n", self.title, self.measure);
        let largest = self.largest();
        for curve in &self.curves {
            let _ = writeln!(text, "  {}", curve.name);
            for (at, value) in &curve.points {
                let part = if largest > 0.0 { value / largest } else { 0.0 };
                let at = self.axis.label(*at);
                let value = three_digits(*value);
                let _ = writeln!(text, "  {at:>8} {:<40} {value}", bar(part));
            }
        }
        text
    }
}

/// Charts as a picture, one below the other.
pub(super) fn svg(charts: &[Chart]) -> Result<String, Failure> {
    let mut text = String::new();
    draw(charts, &mut text)
        .map_err(|error| error.to_string())
        .or_fail(|| "cannot draw".into())?;
    Ok(text)
}

fn draw(charts: &[Chart], into: &mut String) -> Result<(), Box<dyn Error>> {
    let (width, height) = PIXELS;
    // A few charts.
    let rows = u32::try_from(charts.len())?;
    let area = SVGBackend::with_string(into, (width, height * rows.max(1))).into_drawing_area();
    area.fill(&WHITE)?;
    for (chart, part) in charts.iter().zip(area.split_evenly((charts.len(), 1))) {
        chart.draw(&part)?;
    }
    area.present()?;
    Ok(())
}

/// A bar of this part of the longest, to an eighth of a character.
fn bar(part: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = whole(part.clamp(0.0, 1.0) * BAR_COLUMNS * 8.0);
    // A few hundred.
    let eighths = usize::try_from(eighths).unwrap_or(0);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_at_powers_of_two() {
        assert_eq!(Axis::Sizes.tick(16.0), "64KiB");
        assert_eq!(Axis::Sizes.tick(16.5), "");
        assert_eq!(Axis::Sizes.tick(Axis::Sizes.place(1)), "1B");
        assert_eq!(Axis::Sizes.tick(Axis::Sizes.place(0)), "0B");
    }

    #[test]
    fn loads_are_drawn_by_percent() {
        let mut chart = Chart {
            axis: Axis::Loads,
            ..Chart::default()
        };
        for (percent, value) in [(0, 10.0), (50, 20.0), (100, 80.0)] {
            chart.add("p50, 8B", percent, value);
        }
        assert_eq!(chart.span(), -5.0..105.0);
        let text = chart.text();
        for line in ["0 % █████ ", "50 % ██████████ ", "100 % ████"]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
        let svg = svg(&[chart]).unwrap();
        assert!(svg.contains("load, percent") && !svg.contains("message size"));
    }

    fn chart() -> Chart {
        let mut chart = Chart {
            title: "a <title>".into(),
            measure: "MB/s".into(),
            ..Chart::default()
        };
        for (name, bytes, value) in [
            ("8KiB", 1 << 20, 30.0),
            ("8KiB", 1024, 15.0),
            ("16KiB", 1024, 60.0),
        ] {
            chart.add(name, bytes, value);
        }
        chart
    }

    #[test]
    fn curves_are_drawn() {
        let svg = svg(&[chart(), chart()]).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for word in ["8KiB", "16KiB", "MB/s", "message size", "a &lt;title&gt;"] {
            assert!(svg.contains(word), "{word}");
        }
        assert_eq!(svg.matches("<circle").count(), 2 * 3);
    }

    #[test]
    fn nothing_and_a_single_point_can_be_drawn_too() {
        assert!(svg(&[Chart::default()]).is_ok() && svg(&[]).is_ok());
        let mut chart = Chart::default();
        chart.add("alone", 0, 0.0);
        assert!(svg(&[Chart::default(), Chart::default()]).is_ok());
        assert!(chart.text().contains("alone"));
    }

    #[test]
    fn bars_are_as_long_as_they_should_be() {
        let text = chart().text();
        let bars: Vec<_> = text.lines().filter(|line| line.contains('█')).collect();
        let columns = |line: &str| line.matches('█').count();
        // In the order of curves, by size.
        assert_eq!(
            bars.iter().map(|line| columns(line)).collect::<Vec<_>>(),
            [10, 20, 40]
        );
        assert_eq!(bar(1.0 / 320.0), "▏");
        assert_eq!(bar(0.0), "");
    }
}
