//! What a handful of noisy figures says: medians, and how far they can be trusted.
//!
//! Nothing is assumed about how the figures are distributed. Of `n` independent ones, each is
//! above the true median as likely as not, so that the interval from the k-th smallest to the
//! k-th largest misses it with twice the probability of fewer than k heads in n throws.

/// How sure an interval is, where there are figures enough.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// The fewest figures whose extremes are as sure as [`CONFIDENCE`]: 1 - 2/2^6 = 0.97.
pub(crate) const LEAST_FIGURES: usize = 6;

/// The middle of some figures, in any order; `None` when there are none.
pub(crate) fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match (middle, sorted.len() % 2) {
        (0, 0) => None,
        (_, 0) => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        _ => Some(sorted[middle]),
    }
}

/// The middle of some figures, and the interval in which the true one is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// How sure the interval is; less than [`CONFIDENCE`] where there are too few figures.
    pub(crate) confidence: f64,
    /// How many figures there were.
    pub(crate) figures: usize,
}

impl Estimate {
    /// Of figures in any order; `None` when there are none.
    pub(crate) fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = median_of_sorted(&sorted)?;
        let mut estimate = Self {
            median,
            low: first,
            high: last,
            confidence: covered(sorted.len(), 1),
            figures: sorted.len(),
        };
        for rank in 2..=middle {
            let confidence = covered(sorted.len(), rank);
            if confidence < CONFIDENCE {
                break;
            }
            estimate.low = sorted[rank - 1];
            estimate.high = sorted[sorted.len() - rank];
            estimate.confidence = confidence;
        }
        Some(estimate)
    }

    /// Whether the true value is above `limit`, as surely as [`CONFIDENCE`].
    pub(crate) fn is_surely_above(&self, limit: f64) -> bool {
        self.confidence >= CONFIDENCE && self.low > limit
    }

    /// The same for below it.
    pub(crate) fn is_surely_below(&self, limit: f64) -> bool {
        self.confidence >= CONFIDENCE && self.high < limit
    }
}

/// How surely the true median is between the `rank`-th smallest and the `rank`-th largest of
/// `figures`: the binomial distribution, term by term.
fn covered(figures: usize, rank: usize) -> f64 {
    let mut term = 0.5_f64.powf(crate::units::float(crate::files::wire::count(figures)));
    let mut fewer = 0.0;
    for heads in 0..rank {
        fewer += term;
        let left = crate::units::float(crate::files::wire::count(figures - heads));
        term *= left / crate::units::float(crate::files::wire::count(heads + 1));
    }
    (1.0 - 2.0 * fewer).max(0.0)
}

/// The geometric mean: what differs by a factor counts alike, however large it is.
pub(crate) fn geometric_mean(figures: &[f64]) -> f64 {
    let sum: f64 = figures.iter().map(|figure| figure.ln()).sum();
    (sum / crate::units::float(crate::files::wire::count(figures.len().max(1)))).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        for (figures, expected) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[1.0, 4.0], Some(2.5)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
        ] {
            assert_eq!(median(figures), expected, "{figures:?}");
        }
    }

    #[track_caller]
    fn is_near(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-4, "{one} is not {other}");
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Ranks and confidences of the sign test's interval, from any table of it.
        for (figures, rank, confidence) in [
            (6, 1, 0.96875),
            (8, 1, 0.99219),
            (9, 2, 0.96094),
            (12, 3, 0.96143),
            (20, 6, 0.95861),
        ] {
            is_near(covered(figures, rank), confidence);
            let numbers: Vec<f64> = (1..=figures)
                .rev()
                .map(|n| f64::from(u32::try_from(n).unwrap()))
                .collect();
            let estimate = Estimate::of(&numbers).unwrap();
            is_near(estimate.low, numbers[figures - rank]);
            is_near(estimate.high, numbers[rank - 1]);
            is_near(estimate.confidence, confidence);
        }
    }

    #[test]
    fn few_figures_are_not_sure_of_anything() {
        assert_eq!(Estimate::of(&[]), None);
        let one = Estimate::of(&[3.0]).unwrap();
        is_near(one.confidence, 0.0);
        let five = Estimate::of(&[2.0, 1.5, 3.0, 2.5, 4.0]).unwrap();
        is_near(five.median, 2.5);
        is_near(five.confidence, 0.9375);
        assert!(!five.is_surely_above(1.0));
        let six = Estimate::of(&[2.0, 1.5, 3.0, 2.5, 4.0, 1.2]).unwrap();
        assert_eq!(six.figures, LEAST_FIGURES);
        is_near(six.median, 2.25);
        assert!(six.is_surely_above(1.0) && !six.is_surely_above(1.2));
    }

    #[test]
    fn factors_cancel() {
        is_near(geometric_mean(&[0.5, 2.0, 4.0, 0.25]), 1.0);
    }
}
