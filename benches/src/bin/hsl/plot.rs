//! Curves over the size of messages, both axes logarithmic, as an SVG file.

use std::io;
use std::path::Path;

use plotters::prelude::*;

/// Pixels of a drawing.
const SIZE: (u32, u32) = (1000, 640);

/// What was measured in one way: sizes in bytes, and a figure for each.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(usize, f64)>,
}

impl Curve {
    /// What can be drawn of it.
    // Sizes are far below 2^52.
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    fn drawn(&self) -> impl Iterator<Item = (f64, f64)> {
        let points = self.points.iter();
        let points = points.map(|(bytes, figure)| (*bytes as f64, *figure));
        points.filter(|(_, figure)| figure.is_finite() && *figure > 0.0)
    }
}

/// Draws `curves` of `what`.
pub(crate) fn write(path: &Path, what: &str, curves: &[Curve]) -> io::Result<()> {
    draw(path, what, curves)
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    eprintln!("drawn: {}", path.display());
    Ok(())
}

fn draw(path: &Path, what: &str, curves: &[Curve]) -> Result<(), Box<dyn std::error::Error>> {
    let all = || curves.iter().flat_map(Curve::drawn);
    let least = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::min);
    let greatest = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
    let (Some(left), Some(right), Some(bottom), Some(top)) = (
        least(&mut all().map(|(bytes, _)| bytes)),
        greatest(&mut all().map(|(bytes, _)| bytes)),
        least(&mut all().map(|(_, figure)| figure)),
        greatest(&mut all().map(|(_, figure)| figure)),
    ) else {
        return Err("nothing was measured".into());
    };
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(what, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(60)
        // A little more than there is, so that the ends of curves are seen.
        .build_cartesian_2d(
            (left / 1.2..right * 1.2).log_scale(),
            (bottom / 1.2..top * 1.2).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("bytes of a message")
        .y_desc(what)
        .light_line_style(BLACK.mix(0.05))
        .draw()?;
    for (number, curve) in curves.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        chart
            .draw_series(LineSeries::new(curve.drawn(), color.stroke_width(2)))?
            .label(curve.name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_drawn_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plot.svg");
        let curve = |name: &str, factor: f64| Curve {
            name: name.to_owned(),
            points: vec![(1, factor), (1024, 5.0 * factor), (1 << 20, f64::NAN)],
        };
        let curves = [curve("one", 0.5), curve("other", 20.0)];
        write(&path, "half round trip", &curves).unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
        for text in ["one", "other", "half round trip", "bytes of a message"] {
            assert!(drawn.contains(text), "{text}");
        }
        assert!(drawn.matches("<polyline").count() > 2, "curves, and axes");
        assert!(!drawn.contains("NaN"));
        assert!(write(&path, "nothing", &[]).is_err());
    }
}
