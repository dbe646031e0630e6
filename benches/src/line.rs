//! How long a line of memory takes from one processor to another.
//!
//! A virtual machine's processors may be two threads of a core, two cores beside each other, or two at
//! far ends of a chip, and its host moves them while it runs: what two processes tell each other
//! through memory then takes four times as long, from one second to the next. What is measured on both
//! sides of such a move is not to be compared.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cores::{self, Kept};
use crate::samples::Samples;

/// Times that it is measured at once; their median counts.
const TIMES: usize = 5;
/// How long each takes.
const EACH: Duration = Duration::from_millis(2);
/// Round trips between two looks at the clock.
const TOGETHER: u32 = 100;
/// Tells the other thread to end.
const END: u64 = u64::MAX;

/// On the same machine, the longest time in which a line passes is at most so many times the shortest.
const EVEN_WITHIN: f64 = 1.6;

/// How long lines took while several things were measured that are to be compared.
#[derive(Debug, Default)]
pub struct Watch {
    /// Nothing where there is one processor.
    ns: Samples,
}

impl Watch {
    /// Looks how long a line takes now: before each, and after the last.
    ///
    /// # Errors
    ///
    /// If a thread may not run on one of the processors.
    pub fn look(&mut self) -> io::Result<()> {
        if let Some(ns) = passing_ns()? {
            self.ns.push(ns);
        }
        Ok(())
    }

    /// Whether all had the same machine.
    pub fn is_even(&self) -> bool {
        match (self.ns.least(), self.ns.greatest()) {
            (Some(least), Some(greatest)) => greatest <= EVEN_WITHIN * least,
            _ => true,
        }
    }

    /// How long a line took, in nanoseconds: the median.
    pub fn median_ns(&self) -> Option<f64> {
        self.ns.median()
    }

    /// What these looks have seen.
    #[cfg(test)]
    fn of(ns: &[f64]) -> Self {
        Self {
            ns: Samples::of(ns.to_vec()),
        }
    }
}

/// A word on a line of its own, and on the one that is fetched along with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Nanoseconds that a line takes one way between the [two](cores::two) processors that ends are kept
/// on; `None` where there is one.
///
/// # Errors
///
/// If a thread may not run on one of them.
pub fn passing_ns() -> io::Result<Option<f64>> {
    let Some([here, there]) = cores::two() else {
        return Ok(None);
    };
    let lines = [Line::default(), Line::default()];
    thread::scope(|scope| {
        let (to, back) = (&lines[0].0, &lines[1].0);
        let other = scope.spawn(move || {
            let _kept = Kept::on(there)?;
            answer(to, back);
            io::Result::Ok(())
        });
        let measured = Kept::on(here).map(|_kept| {
            let mut samples = Samples::new();
            let mut number = 0;
            for _ in 0..TIMES {
                samples.push(one_way_ns(to, back, &mut number, || other.is_finished()));
            }
            samples.median()
        });
        to.store(END, Ordering::Release);
        let answered = other
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the other thread has panicked")));
        answered.and(measured)
    })
}

/// Sends numbers back until the end.
fn answer(to: &AtomicU64, back: &AtomicU64) {
    let mut last = 0;
    loop {
        let number = to.load(Ordering::Acquire);
        if number == END {
            return;
        }
        if number == last {
            std::hint::spin_loop();
            continue;
        }
        last = number;
        back.store(number, Ordering::Release);
    }
}

/// Half the mean of round trips for a while.
fn one_way_ns(
    to: &AtomicU64,
    back: &AtomicU64,
    number: &mut u64,
    is_alone: impl Fn() -> bool,
) -> f64 {
    let begun = Instant::now();
    let mut round_trips = 0;
    loop {
        for _ in 0..TOGETHER {
            *number += 1;
            to.store(*number, Ordering::Release);
            while back.load(Ordering::Acquire) != *number {
                if is_alone() {
                    return f64::NAN;
                }
                std::hint::spin_loop();
            }
        }
        round_trips += TOGETHER;
        let elapsed = begun.elapsed();
        if elapsed >= EACH {
            return elapsed.as_secs_f64() * 1e9 / f64::from(2 * round_trips);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_the_same_while_lines_take_as_long() {
        let is_even = |ns: &[f64]| Watch::of(ns).is_even();
        assert!(is_even(&[50.0, 52.0, 70.0]));
        assert!(is_even(&[210.0, 190.0]));
        assert!(!is_even(&[50.0, 52.0, 200.0, 51.0]));
        assert!(is_even(&[]), "with one processor there is nothing to know");
        assert_eq!(Watch::of(&[50.0, 60.0, 40.0]).median_ns(), Some(50.0));
    }

    #[test]
    fn a_line_takes_some_time() {
        match passing_ns().unwrap() {
            Some(ns) => assert!(ns > 0.0 && ns.is_finite(), "{ns} ns"),
            None => assert!(cores::two().is_none()),
        }
    }
}
