//! Arithmetic that rounds by chance, and what can be said of results of which there are three.
//!
//! Paper 000, section 6.1.1. The same numbers follow from the same seed, on every machine whose
//! arithmetic is that of IEEE 754.

/// How often everything is computed: CESTAC takes three samples.
pub(crate) const SAMPLES: usize = 3;

/// Student's t for 95 % and three samples.
const STUDENT: f64 = 4.303;

/// Decimal digits of a number whose samples do not differ.
const ALL_DIGITS: f64 = 15.95;

/// Coins to throw, of one sample.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The coins of sample number `sample`.
    pub(crate) const fn of_sample(sample: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ (sample as u64 + 1) << 32)
    }

    /// 64 bits of chance (xorshift64*).
    pub(crate) const fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One of the two numbers next to `nearest + error`, which is the exact result; `nearest` is
    /// the one that is nearer. An exact result is not rounded.
    fn round(&mut self, nearest: f64, error: f64) -> f64 {
        let goes_up = self.bits() >> 63 == 0;
        if error > 0.0 && goes_up {
            nearest.next_up()
        } else if error < 0.0 && !goes_up {
            nearest.next_down()
        } else {
            nearest
        }
    }

    pub(crate) fn add(&mut self, a: f64, b: f64) -> f64 {
        let sum = a + b;
        // What was rounded off, exactly (Knuth's two-sum).
        let of_b = sum - a;
        let error = (a - (sum - of_b)) + (b - of_b);
        self.round(sum, error)
    }

    pub(crate) fn subtract(&mut self, a: f64, b: f64) -> f64 {
        self.add(a, -b)
    }

    pub(crate) fn multiply(&mut self, a: f64, b: f64) -> f64 {
        let product = a * b;
        self.round(product, a.mul_add(b, -product))
    }

    pub(crate) fn divide(&mut self, a: f64, b: f64) -> f64 {
        let quotient = a / b;
        // What is left of `a` has the sign of the error, but for that of `b`.
        let rest = (-quotient).mul_add(b, a);
        self.round(quotient, rest * b.signum())
    }
}

/// The computed result: the mean of its samples.
pub(crate) fn mean(samples: [f64; SAMPLES]) -> f64 {
    samples.iter().sum::<f64>() / 3.0
}

/// Its significant decimal digits.
pub(crate) fn digits(samples: [f64; SAMPLES]) -> f64 {
    let mean = mean(samples);
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let deviation = (squares / 2.0).sqrt();
    if deviation == 0.0 {
        return if mean == 0.0 { 0.0 } else { ALL_DIGITS };
    }
    let digits = (3_f64.sqrt() * mean.abs() / (deviation * STUDENT)).log10();
    digits.clamp(0.0, ALL_DIGITS)
}

/// Whether a result is a *computed zero*: nothing of it is significant.
pub(crate) fn is_zero(samples: [f64; SAMPLES]) -> bool {
    digits(samples) <= 0.0
}
