//! How long a line of memory takes from one processor to another.

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
/// Looks again for an answer before others are let run: where they want the processor, the other thread
/// may be one of them.
const LOOKS_PER_YIELD: u32 = 4096;

/// Times that it is measured briefly, with [`TOGETHER`] round trips each: besides the start of a thread a
/// few ten microseconds together, and some hundred where processors are far from each other. Their least
/// counts, as others may interrupt.
const BRIEF_TIMES: usize = 5;
/// A brief look that others keep from its processors for so long has failed.
const BRIEF_MOST: Duration = Duration::from_millis(20);

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
    Ok(looked(TIMES, EACH, None)?.and_then(|times| times.median()))
}

/// The same beside others that want these processors too, for some ten microseconds; `None` too where
/// they do not let it.
///
/// # Errors
///
/// If a thread may not run on one of the processors.
pub fn passing_ns_briefly() -> io::Result<Option<f64>> {
    let until = Instant::now() + BRIEF_MOST;
    let times = looked(BRIEF_TIMES, Duration::ZERO, Some(until))?;
    Ok(times.and_then(|times| times.least()))
}

/// The same, of each of so many times that take so long, as many as there is time for.
fn looked(times: usize, each: Duration, until: Option<Instant>) -> io::Result<Option<Samples>> {
    let Some([here, there]) = cores::two() else {
        return Ok(None);
    };
    let lines = [Line::default(), Line::default()];
    thread::scope(|scope| {
        let (to, back) = (&lines[0].0, &lines[1].0);
        let answering = move || {
            let _kept = Kept::on(there)?;
            answer(to, back);
            io::Result::Ok(())
        };
        let other = thread::Builder::new().spawn_scoped(scope, answering)?;
        let measured = Kept::on(here).map(|_kept| {
            let mut samples = Samples::new();
            let mut number = 0;
            let is_over = || until.is_some_and(|until| Instant::now() >= until);
            for _ in 0..times {
                let is_vain = || other.is_finished() || is_over();
                let Some(ns) = one_way_ns(to, back, &mut number, each, is_vain) else {
                    break;
                };
                samples.push(ns);
            }
            Some(samples)
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
    let mut vain = 0;
    loop {
        let number = to.load(Ordering::Acquire);
        if number == END {
            return;
        }
        if number == last {
            look_again(&mut vain);
            continue;
        }
        last = number;
        vain = 0;
        back.store(number, Ordering::Release);
    }
}

/// Between two looks, of which so many were in vain. Returns whether others were let run.
fn look_again(vain: &mut u32) -> bool {
    *vain = vain.wrapping_add(1);
    let gives_way = vain.is_multiple_of(LOOKS_PER_YIELD);
    if gives_way {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
    gives_way
}

/// Half the mean of round trips for a while; `None` if it `is_vain` to wait for an answer.
fn one_way_ns(
    to: &AtomicU64,
    back: &AtomicU64,
    number: &mut u64,
    each: Duration,
    is_vain: impl Fn() -> bool,
) -> Option<f64> {
    let begun = Instant::now();
    let mut round_trips = 0;
    loop {
        for _ in 0..TOGETHER {
            *number += 1;
            to.store(*number, Ordering::Release);
            let mut vain = 0;
            while back.load(Ordering::Acquire) != *number {
                if look_again(&mut vain) && is_vain() {
                    return None;
                }
            }
        }
        round_trips += TOGETHER;
        let elapsed = begun.elapsed();
        if elapsed >= each {
            return Some(elapsed.as_secs_f64() * 1e9 / f64::from(2 * round_trips));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_gets_no_answer_ends() {
        let [to, back] = [0, 0].map(AtomicU64::new);
        let ns = one_way_ns(&to, &back, &mut 0, Duration::ZERO, || true);
        assert_eq!(ns, None);
    }

    #[test]
    fn a_line_takes_some_time() {
        for ns in [passing_ns, passing_ns_briefly].map(|ns| ns().unwrap()) {
            match ns {
                Some(ns) => assert!(ns > 0.0 && ns.is_finite(), "{ns} ns"),
                None => assert!(cores::two().is_none()),
            }
        }
    }
}
