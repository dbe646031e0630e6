//! Measures what is to be compared while the processors are at one [distance](crate::distance).

use std::io;

use crate::distance::{Looks, When, usual};
use crate::measured::{Measured, Subject};

/// How often one is measured in a round, at most, to find the distance that most find.
const TRIES: u32 = 3;

/// Measures all of these once in a `round`. Those that found the processors at another distance than most did
/// are measured again, twice at most; what was measured before is returned besides, as repeated.
/// Which those are is said on standard error, of `what` was measured.
///
/// # Errors
///
/// What `measure` says, or if a thread may not run on one of the processors.
pub fn evenly<S: Subject, F>(
    round: u16,
    what: &str,
    when: When,
    all: impl Iterator<Item = S>,
    mut measure: impl FnMut(S) -> io::Result<F>,
) -> io::Result<Vec<Measured<S, F>>> {
    repeat_unlike(what, all, |subject| {
        let (figures, looks) = Looks::at(when, || measure(subject))?;
        Ok(Measured {
            round,
            subject,
            figures,
            looks,
            was_repeated: false,
        })
    })
}

/// The same with what looks itself.
fn repeat_unlike<S: Subject, F>(
    what: &str,
    all: impl Iterator<Item = S>,
    mut measure: impl FnMut(S) -> io::Result<Measured<S, F>>,
) -> io::Result<Vec<Measured<S, F>>> {
    let mut measured = all.map(&mut measure).collect::<io::Result<Vec<_>>>()?;
    let mut repeated = Vec::new();
    for tries in 1.. {
        let unlike = unlike_most(&measured);
        if unlike.is_empty() {
            break;
        }
        let names = unlike.iter().map(|one| measured[*one].subject.name());
        let names = names.collect::<Vec<_>>().join("; ");
        if tries == TRIES {
            eprintln!("the processors were moved: {what} counts all the same for {names}");
            break;
        }
        eprintln!("the processors were moved: {what} once more for {names}");
        for one in unlike {
            let again = measure(measured[one].subject)?;
            repeated.push(Measured {
                was_repeated: true,
                ..std::mem::replace(&mut measured[one], again)
            });
        }
    }
    measured.append(&mut repeated);
    Ok(measured)
}

/// Which of those that were measured found another distance than most did.
fn unlike_most<S, F>(measured: &[Measured<S, F>]) -> Vec<usize> {
    let looks = measured.iter().filter_map(|one| one.looks.as_ref());
    let found = |looks: &Looks| looks.usual().map(|ns| (ns, looks.is_like(ns)));
    let found: Vec<_> = looks.filter_map(found).collect();
    // What was moved meanwhile has a say if all was.
    let all_were_moved = found.iter().all(|(_, stayed)| !stayed);
    let told = found
        .iter()
        .filter(|(_, stayed)| *stayed || all_were_moved)
        .map(|(ns, _)| *ns);
    let Some(usual) = usual(&told.collect::<Vec<_>>()) else {
        return Vec::new();
    };
    let is_unlike = |one: &Measured<S, F>| {
        let looks = one.looks.as_ref();
        looks.is_some_and(|looks| !looks.is_like(usual))
    };
    (0..measured.len())
        .filter(|one| is_unlike(&measured[*one]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each is of a group of its own.
    impl Subject for usize {
        type Group = Self;

        fn group(self) -> Self {
            self
        }

        fn name(self) -> String {
            self.to_string()
        }
    }

    fn measured<F>(subject: usize, figures: F, looks: Option<[f64; 2]>) -> Measured<usize, F> {
        Measured {
            round: 0,
            subject,
            figures,
            looks: looks.map(|looks| Looks::of(&looks)),
            was_repeated: false,
        }
    }

    fn unlike_of(looks: &[[f64; 2]]) -> Vec<usize> {
        let all = looks.iter().map(|looks| measured(0, (), Some(*looks)));
        unlike_most(&all.collect::<Vec<_>>())
    }

    #[test]
    fn who_found_another_distance_than_most_is_known() {
        assert!(unlike_of(&[]).is_empty());
        assert!(unlike_of(&[[60.0, 65.0], [70.0, 55.0]]).is_empty());
        // One found another, and one another one before than after.
        let unlike = unlike_of(&[[60.0, 65.0], [200.0, 210.0], [65.0, 200.0], [60.0, 60.0]]);
        assert_eq!(unlike, [1, 2]);
        // As many of both: that of the first counts, whichever that is.
        assert_eq!(unlike_of(&[[60.0, 60.0], [200.0, 200.0]]), [1]);
        assert_eq!(unlike_of(&[[200.0, 200.0], [60.0, 60.0]]), [1]);
        // Who was moved meanwhile has no say, unless all were.
        assert_eq!(unlike_of(&[[60.0, 210.0], [210.0, 210.0]]), [0]);
        assert_eq!(unlike_of(&[[60.0, 210.0], [60.0, 200.0]]), [0, 1]);
        // With one processor there is nothing to know.
        assert!(unlike_most(&[measured(0, (), None)]).is_empty());
    }

    /// Measures three, of which the last finds these distances, one after the other. Returns of which try
    /// of each the figures are that count, and those that do not.
    fn tries_of(finds: &[f64]) -> (Vec<usize>, Vec<usize>) {
        let mut finds = finds.iter();
        let mut tries = [0; 3];
        let all = repeat_unlike("it", 0..3, |subject| {
            tries[subject] += 1;
            let ns = match subject {
                2 => *finds.next().expect("it is not measured more often"),
                _ => 60.0,
            };
            Ok(measured(subject, tries[subject], Some([ns; 2])))
        });
        let (counts, repeated): (Vec<_>, Vec<_>) =
            all.unwrap().into_iter().partition(|one| !one.was_repeated);
        let subjects: Vec<_> = counts.iter().map(|one| one.subject).collect();
        assert_eq!(subjects, [0, 1, 2]);
        assert!(repeated.iter().all(|one| one.subject == 2));
        let figures =
            |all: Vec<Measured<usize, usize>>| all.iter().map(|one| one.figures).collect();
        (figures(counts), figures(repeated))
    }

    #[test]
    fn who_found_another_distance_is_measured_again_for_a_while() {
        assert_eq!(tries_of(&[62.0]), (vec![1, 1, 1], vec![]));
        assert_eq!(tries_of(&[200.0, 62.0]), (vec![1, 1, 2], vec![1]));
        let thrice = [200.0, 210.0, 62.0];
        assert_eq!(tries_of(&thrice), (vec![1, 1, 3], vec![1, 2]));
        // The last one counts all the same.
        assert_eq!(tries_of(&[200.0; 3]), (vec![1, 1, 3], vec![1, 2]));
    }

    #[test]
    fn what_fails_ends_all() {
        let mut times = 0;
        let all = repeat_unlike::<usize, ()>("it", 0..3, |_| {
            times += 1;
            Err(io::Error::other("it has failed"))
        });
        assert_eq!(all.unwrap_err().to_string(), "it has failed");
        assert_eq!(times, 1);
    }
}
