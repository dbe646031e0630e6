//! Several measurements of the same thing.

/// What the rounds of a bench measured of one thing, one value per round.
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
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { values }
    }

    /// Adds the value of one more round.
    pub fn push(&mut self, value: f64) {
        let place = self.values.partition_point(|have| *have < value);
        self.values.insert(place, value);
    }

    /// The middle value; the mean of the two in the middle where their number is even.
    /// `None` if nothing was measured.
    pub fn median(&self) -> Option<f64> {
        let upper = self.values.len() / 2;
        let high = *self.values.get(upper)?;
        if self.values.len() % 2 == 1 {
            return Some(high);
        }
        let low = *self.values.get(upper.checked_sub(1)?)?;
        Some(f64::midpoint(low, high))
    }

    /// The least value.
    pub fn least(&self) -> Option<f64> {
        self.values.first().copied()
    }

    /// The greatest value.
    pub fn greatest(&self) -> Option<f64> {
        self.values.last().copied()
    }

    /// The distance from the least to the greatest value as a part of the median: how much
    /// to trust it.
    pub fn spread(&self) -> Option<f64> {
        Some((self.values.last()? - self.values.first()?) / self.median()?)
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
    fn the_spread_is_relative_to_the_median() {
        assert_eq!(samples(&[]).spread(), None);
        assert_eq!(samples(&[2.0, 1.0, 3.0]).spread(), Some(1.0));
    }
}
