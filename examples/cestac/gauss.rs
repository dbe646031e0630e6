//! A dense linear system, solved by elimination with pivoting, in stochastic arithmetic.
//!
//! The code is the same whether one process has all three samples of each number or each of three
//! processes has one: only [`Brothers`] differ.

use std::error::Error;

use super::arithmetic::{Chance, SAMPLES, is_zero, mean};

/// Those who compute the other samples.
pub(crate) trait Brothers<const N: usize> {
    /// All samples of a number of which `local` are here, in their order.
    fn exchange(&mut self, local: [f64; N]) -> Result<[f64; SAMPLES], Box<dyn Error>>;
}

/// Nobody: all samples are here.
#[derive(Debug)]
pub(crate) struct Alone;

impl Brothers<SAMPLES> for Alone {
    fn exchange(&mut self, local: [f64; SAMPLES]) -> Result<[f64; SAMPLES], Box<dyn Error>> {
        Ok(local)
    }
}

/// Arithmetic with `N` of the samples of each number.
#[derive(Debug)]
pub(crate) struct Arithmetic<const N: usize, B> {
    chances: [Chance; N],
    brothers: B,
    exchanges: u64,
}

impl<const N: usize, B: Brothers<N>> Arithmetic<N, B> {
    /// With the samples from number `first` on.
    pub(crate) fn new(first: usize, brothers: B) -> Self {
        Self {
            chances: std::array::from_fn(|sample| Chance::of_sample(first + sample)),
            brothers,
            exchanges: 0,
        }
    }

    /// How often values were exchanged, and with whom.
    pub(crate) fn finish(self) -> (u64, B) {
        (self.exchanges, self.brothers)
    }

    fn each(
        &mut self,
        a: [f64; N],
        b: [f64; N],
        operation: impl Fn(&mut Chance, f64, f64) -> f64,
    ) -> [f64; N] {
        std::array::from_fn(|sample| operation(&mut self.chances[sample], a[sample], b[sample]))
    }

    /// `a - b × c`.
    fn reduce(&mut self, a: [f64; N], b: [f64; N], c: [f64; N]) -> [f64; N] {
        let product = self.each(b, c, Chance::multiply);
        self.each(a, product, Chance::subtract)
    }

    /// All samples of a number.
    pub(crate) fn all(&mut self, number: [f64; N]) -> Result<[f64; SAMPLES], Box<dyn Error>> {
        self.exchanges += 1;
        self.brothers.exchange(number)
    }

    /// The absolute value: all samples keep their sign, or all change it.
    fn absolute(&mut self, number: [f64; N]) -> Result<[f64; N], Box<dyn Error>> {
        let is_negative = mean(self.all(number)?) < 0.0;
        Ok(if is_negative {
            number.map(|sample| -sample)
        } else {
            number
        })
    }

    /// Whether `a` is significantly less than `b`: the same answer for all samples.
    fn is_less(&mut self, a: [f64; N], b: [f64; N]) -> Result<bool, Box<dyn Error>> {
        let difference = self.each(b, a, Chance::subtract);
        let all = self.all(difference)?;
        Ok(!is_zero(all) && mean(all) > 0.0)
    }
}

/// `matrix × unknowns = right`.
#[derive(Debug, Clone)]
pub(crate) struct System<const N: usize> {
    matrix: Vec<Vec<[f64; N]>>,
    right: Vec<[f64; N]>,
}

impl<const N: usize> System<N> {
    /// A dense system of `size` equations, always the same, whose unknowns are all about one.
    pub(crate) fn new(size: usize) -> Self {
        let mut chance = Chance::of_sample(SAMPLES);
        // Halves of 53 bits, from -1 to 1: exact in every sample.
        let scale = 2_f64.powi(-52);
        #[allow(
            clippy::cast_precision_loss,
            reason = "53 bits are what a number has room for"
        )]
        let mut entry = || ((chance.bits() >> 11) as f64).mul_add(scale, -1.0);
        let rows: Vec<Vec<f64>> = (0..size)
            .map(|_| (0..size).map(|_| entry()).collect())
            .collect();
        let right = rows.iter().map(|row| [row.iter().sum(); N]).collect();
        let matrix = rows
            .into_iter()
            .map(|row| row.into_iter().map(|entry| [entry; N]).collect())
            .collect();
        Self { matrix, right }
    }

    /// The unknowns.
    pub(crate) fn solve<B: Brothers<N>>(
        mut self,
        arithmetic: &mut Arithmetic<N, B>,
    ) -> Result<Vec<[f64; N]>, Box<dyn Error>> {
        let size = self.right.len();
        for column in 0..size {
            let pivot = self.find_pivot(column, arithmetic)?;
            self.matrix.swap(column, pivot);
            self.right.swap(column, pivot);
            self.eliminate(column, arithmetic);
        }
        let mut unknowns = self.right;
        for row in (0..size).rev() {
            for column in row + 1..size {
                unknowns[row] =
                    arithmetic.reduce(unknowns[row], self.matrix[row][column], unknowns[column]);
            }
            unknowns[row] = arithmetic.each(unknowns[row], self.matrix[row][row], Chance::divide);
        }
        Ok(unknowns)
    }

    /// The row from `column` on whose entry there is the largest.
    fn find_pivot<B: Brothers<N>>(
        &self,
        column: usize,
        arithmetic: &mut Arithmetic<N, B>,
    ) -> Result<usize, Box<dyn Error>> {
        let mut found = column;
        let mut largest = arithmetic.absolute(self.matrix[column][column])?;
        for row in column + 1..self.right.len() {
            let candidate = arithmetic.absolute(self.matrix[row][column])?;
            if arithmetic.is_less(largest, candidate)? {
                (found, largest) = (row, candidate);
            }
        }
        Ok(found)
    }

    /// Takes the equation in row `column` off those below it, so that they lose that unknown.
    fn eliminate<B: Brothers<N>>(&mut self, column: usize, arithmetic: &mut Arithmetic<N, B>) {
        let (above, below) = self.matrix.split_at_mut(column + 1);
        let pivot = &above[column];
        for (offset, row) in below.iter_mut().enumerate() {
            let factor = arithmetic.each(row[column], pivot[column], Chance::divide);
            for (entry, of_pivot) in row.iter_mut().zip(pivot).skip(column + 1) {
                *entry = arithmetic.reduce(*entry, factor, *of_pivot);
            }
            let right = column + 1 + offset;
            self.right[right] = arithmetic.reduce(self.right[right], factor, self.right[column]);
        }
    }
}
