//! How far the processors were from each other while something was measured.
//!
//! A virtual machine's processors may be two threads of a core, two cores beside each other, or two at
//! far ends of a chip, and its host moves them while it runs: what two processes tell each other
//! through memory then takes four times as long, from one second to the next. What is measured on both
//! sides of such a move is not to be compared. So it is looked how long a [line](crate::line) takes before
//! something is measured and after it, and now and then meanwhile where that makes no difference
//! ([`Looks`]), and what was measured at one [distance](distances) is told apart from the rest.

use std::io;
use std::sync::Once;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;

use crate::line::{passing_ns, passing_ns_briefly};
use crate::samples::Samples;

/// How long after a look the next one comes, while something is measured.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// One in so many looks may differ from those before and after it, and is taken for an error.
const STRAY_ONE_IN: usize = 10;

/// Two processors are as far from each other as two others if a line takes at most so many times as long.
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
            (Some(least), Some(greatest)) => is_even(least, greatest),
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

/// How long a line took before something was measured, meanwhile and after it, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Looks(Vec<f64>);

/// When to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before, meanwhile and after. Threads that are interrupted at it may go on at another processor.
    Meanwhile,
    /// Before and after: for what changes with who runs where, as round trips of those who sleep.
    Around,
}

impl Looks {
    /// Measures something, and looks before and after, and `when` else; `None` where there is one processor.
    ///
    /// # Errors
    ///
    /// What `measure` says, or if a thread may not run on one of the processors.
    pub fn at<T>(
        when: When,
        measure: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<(T, Option<Self>)> {
        let Some(before) = passing_ns()? else {
            return Ok((measure()?, None));
        };
        let begun = Instant::now();
        let (looker, meanwhile) = channel();
        let measured = thread::scope(|scope| {
            let (_measuring, is_over) = channel();
            if when == When::Meanwhile {
                let look = move || look_until(&is_over, &looker);
                thread::Builder::new().spawn_scoped(scope, look)?;
            } else {
                drop(looker);
            }
            measure()
        })?;
        let meanwhile: Vec<f64> = meanwhile.into_iter().collect();
        if when == When::Meanwhile
            && let Some(due) = missed(meanwhile.len(), begun.elapsed())
        {
            warn_of_few(meanwhile.len(), due);
        }
        let looks = [before].into_iter().chain(meanwhile).chain(passing_ns()?);
        Ok((measured, Some(Self(looks.collect()))))
    }

    /// What most looks have found.
    pub fn usual(&self) -> Option<f64> {
        usual(&self.0)
    }

    /// The looks that are like what most have found.
    pub fn usual_ones(&self) -> impl Iterator<Item = f64> + Clone {
        let usual = self.usual();
        let is_usual = move |look: &f64| usual.is_some_and(|ns| is_like(*look, ns));
        self.0.iter().copied().filter(is_usual)
    }

    /// Whether the looks found processors that are `ns` from each other: the first and the last one, and of
    /// those between all but single stray ones.
    pub fn is_like(&self, ns: f64) -> bool {
        let unlike = self.0.iter().map(|look| !is_like(*look, ns));
        let unlike: Vec<bool> = unlike.collect();
        let strays = unlike.iter().filter(|one| **one).count();
        let has_moved = unlike.windows(2).any(|two| two == [true, true]);
        let begun_and_ended = [unlike.first(), unlike.last()] == [Some(&false); 2];
        begun_and_ended && !has_moved && strays * STRAY_ONE_IN <= unlike.len()
    }

    /// Which of these distances the looks found, if any.
    pub fn which(&self, distances: &[f64]) -> Option<usize> {
        let usual = self.usual()?;
        let alike = (0..distances.len()).filter(|one| self.is_like(distances[*one]));
        // Between two of them, it is at the nearer one.
        let off = |one: &usize| (usual / distances[*one]).ln().abs();
        alike.min_by(|one, other| off(one).total_cmp(&off(other)))
    }

    /// These.
    #[cfg(test)]
    pub(crate) fn of(looks: &[f64]) -> Self {
        Self(looks.to_vec())
    }
}

/// How many looks were due in a time, if there were far fewer; one may just not have come.
fn missed(looks: usize, time: Duration) -> Option<u128> {
    let due = time.as_millis() / LOOK_EVERY.as_millis();
    ((looks as u128 + 1) * 2 < due).then_some(due)
}

/// Says once how many looks came instead of so many.
fn warn_of_few(looks: usize, due: u128) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        eprintln!(
            "warning: processors were looked at {looks} times instead of {due} while something was \
             measured: others kept these looks from running, so that moves may go unnoticed; stop what \
             else runs on this machine, or run this as root"
        );
    });
}

/// Looks now and then, until what is measured `is_over`.
fn look_until(is_over: &Receiver<()>, looks: &Sender<f64>) {
    // This thread and those that it starts go ahead of what is measured, where that is allowed.
    let _ = setpriority_process(None, -20);
    while is_over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        if let Ok(Some(ns)) = passing_ns_briefly()
            && looks.send(ns).is_err()
        {
            return;
        }
    }
}

/// Whether processors that a line takes from `least` to `greatest` between are as far from each other.
fn is_even(least: f64, greatest: f64) -> bool {
    greatest <= EVEN_WITHIN * least
}

/// The distance that most of these looks have found, in nanoseconds; of several, the one that was found first.
pub fn usual(looks: &[f64]) -> Option<f64> {
    let alike = |ns: &f64| looks.iter().filter(|look| is_like(**look, *ns)).count();
    // Of several that are greatest, this takes the last.
    looks.iter().rev().copied().max_by_key(alike)
}

/// All distances that these looks have found, the least first: the [usual] one, that of the others, and so on.
pub fn distances(mut looks: Vec<f64>) -> Vec<f64> {
    let mut distances = Vec::new();
    while let Some(usual) = usual(&looks) {
        let before = looks.len();
        looks.retain(|look| !is_like(*look, usual));
        if looks.len() == before {
            // What is not even like itself is no time.
            break;
        }
        distances.push(usual);
    }
    distances.sort_by(f64::total_cmp);
    distances
}

/// Whether a look has found processors that are `ns` from each other.
fn is_like(look: f64, ns: f64) -> bool {
    is_even(look, ns) && is_even(ns, look)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores;
    use crate::process::PATIENCE;

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
    fn a_measurement_is_at_the_distance_that_all_looks_but_stray_ones_found() {
        let steady = Looks::of(&[50.0, 65.0, 70.0]);
        assert!(steady.is_like(55.0) && steady.is_like(75.0));
        assert!(!steady.is_like(110.0) && !steady.is_like(40.0));
        let moved = Looks::of(&[60.0, 60.0, 200.0]);
        assert!(!moved.is_like(60.0) && !moved.is_like(200.0));
        assert_eq!(steady.which(&[25.0, 60.0, 200.0]), Some(1));
        assert_eq!(steady.which(&[72.0, 48.0]), Some(1), "the nearer of two");
        assert_eq!(moved.which(&[25.0, 60.0, 200.0]), None);
        assert_eq!(moved.usual(), Some(60.0));
        // One of ten is an error; two in a row are a move and a move back.
        let with = |others: &[usize]| {
            let mut looks = [60.0; 20];
            others.iter().for_each(|at| looks[*at] = 200.0);
            Looks::of(&looks)
        };
        assert!(with(&[3, 7]).is_like(60.0));
        assert!(!with(&[3, 4]).is_like(60.0));
        assert!(!with(&[3, 7, 11]).is_like(60.0));
        assert!(!with(&[0]).is_like(60.0) && !with(&[19]).is_like(60.0));
        let usual: Vec<_> = Looks::of(&[60.0, 200.0, 65.0]).usual_ones().collect();
        assert_eq!(usual, [60.0, 65.0]);
    }

    #[test]
    fn the_usual_distance_is_that_of_most_looks() {
        assert_eq!(usual(&[]), None);
        assert_eq!(usual(&[200.0, 60.0, 190.0, 65.0, 70.0]), Some(60.0));
        assert_eq!(usual(&[60.0, 200.0]), Some(60.0));
        assert_eq!(usual(&[200.0, 60.0]), Some(200.0));
    }

    #[test]
    fn one_look_in_between_does_not_join_two_distances() {
        assert!(distances(Vec::new()).is_empty());
        let looks = [60.0, 47.0, 78.0, 110.0, 150.0, 180.0, 210.0, 60.0, 185.0];
        assert_eq!(distances(looks.to_vec()), [60.0, 150.0]);
        assert_eq!(distances(vec![f64::NAN, 60.0]), [60.0]);
    }

    #[test]
    fn what_is_measured_is_looked_at_before_and_after() {
        for when in [When::Meanwhile, When::Around] {
            let error = Looks::at(when, || io::Result::<()>::Err(io::Error::other("it is")));
            assert_eq!(error.unwrap_err().to_string(), "it is");
            let (measured, looks) = Looks::at(when, || Ok(7)).unwrap();
            assert_eq!(measured, 7);
            assert_eq!(looks.is_some(), cores::two().is_some());
            let Some(Looks(looks)) = looks else { continue };
            let all_are_times = looks.iter().all(|ns| *ns > 0.0 && ns.is_finite());
            assert!(all_are_times && looks.len() >= 2, "{looks:?}");
            assert!(when == When::Meanwhile || looks.len() == 2, "{looks:?}");
        }
    }

    #[test]
    fn looks_come_until_what_is_measured_is_over() {
        let (looker, looks) = channel();
        let (measuring, is_over) = channel();
        thread::scope(|scope| {
            scope.spawn(move || look_until(&is_over, &looker));
            let several = if cores::two().is_some() { 3 } else { 0 };
            for _ in 0..several {
                let ns = looks.recv_timeout(PATIENCE).unwrap();
                assert!(ns > 0.0 && ns.is_finite(), "{ns} ns");
            }
            drop(measuring);
            // No more of them, once what came before that is read.
            looks.iter().for_each(drop);
        });
    }

    #[test]
    fn looks_are_missed_where_fewer_than_half_came() {
        assert_eq!(missed(0, 2 * LOOK_EVERY), None);
        assert_eq!(missed(0, 3 * LOOK_EVERY), Some(3));
        assert_eq!(missed(4, 10 * LOOK_EVERY), None);
        assert_eq!(missed(3, 10 * LOOK_EVERY), Some(10));
    }
}
