//! Several measurements of the same thing.

/// What the rounds of a bench measured of one thing, one value per round, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    values: Vec<f64>,
}

impl Samples {
    /// None yet.
    pub const fn new() -> Self {
        Self { values: Vec::new() }
    }

    /// All of these.
    pub const fn of(values: Vec<f64>) -> Self {
        Self { values }
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.values.len()
    }

    /// Adds the value of one more round.
    pub fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// Adds the values of more rounds.
    pub fn append(&mut self, others: Self) {
        self.values.extend(others.values);
    }

    /// The middle value; the mean of the two in the middle where their number is even.
    /// `None` if nothing was measured.
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let upper = sorted.len() / 2;
        let high = *sorted.get(upper)?;
        if sorted.len() % 2 == 1 {
            return Some(high);
        }
        let low = *sorted.get(upper.checked_sub(1)?)?;
        Some(f64::midpoint(low, high))
    }

    /// What these are of `others`, round by round. What else a machine does lasts for seconds, as
    /// long as several measurements: it takes from both of a round, and the median of these ratios
    /// says more than the ratio of two medians of different rounds.
    #[must_use]
    pub fn ratios_to(&self, others: &Self) -> Self {
        self.with(others, |these, others| these / others)
    }

    /// What one gets from these and `others`, round by round; both have all rounds, or the bench has
    /// ended. Nothing where it is no number, as what is divided by a time too short for its clock.
    #[must_use]
    pub fn with(&self, others: &Self, both: impl Fn(f64, f64) -> f64) -> Self {
        let rounds = self.values.iter().zip(&others.values);
        let got = rounds.map(|(these, others)| both(*these, *others));
        Self::of(got.filter(|value| value.is_finite()).collect())
    }

    /// The least value.
    pub fn least(&self) -> Option<f64> {
        self.values.iter().copied().min_by(f64::total_cmp)
    }

    /// The greatest value.
    pub fn greatest(&self) -> Option<f64> {
        self.values.iter().copied().max_by(f64::total_cmp)
    }

    /// The distance from the least to the greatest value as a part of the median: how much
    /// to trust it.
    pub fn spread(&self) -> Option<f64> {
        Some((self.greatest()? - self.least()?) / self.median()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::default();
        for value in values {
            samples.push(*value);
        }
        samples
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(samples(&[]).median(), None);
        assert_eq!(samples(&[4.0]).median(), Some(4.0));
        assert_eq!(samples(&[9.0, 1.0]).median(), Some(5.0));
        assert_eq!(samples(&[9.0, 1.0, 2.0]).median(), Some(2.0));
    }

    #[test]
    fn ratios_are_those_of_the_same_round() {
        // The second round came when the machine was half as fast.
        let ours = samples(&[8.0, 3.0, 9.0]);
        let theirs = samples(&[10.0, 4.0, 10.0]);
        let ratios = ours.ratios_to(&theirs);
        assert_eq!(ratios, samples(&[0.8, 0.75, 0.9]));
        assert_eq!(ratios.median(), Some(0.8));
        assert_eq!(ours.ratios_to(&samples(&[])).median(), None);
    }

    #[test]
    fn least_and_greatest_do_not_depend_on_the_order() {
        let samples = samples(&[2.0, 3.0, 1.0]);
        assert_eq!(samples.least(), Some(1.0));
        assert_eq!(samples.greatest(), Some(3.0));
    }

    #[test]
    fn the_spread_is_relative_to_the_median() {
        assert_eq!(samples(&[]).spread(), None);
        assert_eq!(samples(&[2.0, 1.0, 3.0]).spread(), Some(1.0));
    }
}
