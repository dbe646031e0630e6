//! What others do on this machine while something is measured.

use std::collections::HashMap;
use std::fs;

use serde::Serialize;

use crate::units::float;

/// Below so many ticks of each processor, what others did cannot be told from what was rounded.
const LEAST_TICKS: u64 = 10;

/// Figures are not to be trusted when others use more than this part of the processors.
const DISTURBED: f64 = 0.1;

/// Nor when they use more than this much of one, which shows after so many ticks.
const DISTURBED_PROCESSOR: f64 = 0.5;
const TELLING_TICKS: u64 = 50;

/// What the processors have done until now, in ticks of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Work {
    processors: u64,
    /// Busy or idle.
    passed: u64,
    /// For whomever. What a hypervisor has given to others counts; interrupts do not, as
    /// they are nobody's.
    busy: u64,
}

/// What has been done since [`Watch::start`].
#[derive(Debug)]
pub(crate) struct Watch {
    /// Work, and that of processes of this command; `None`: the kernel does not say.
    before: Option<(Work, Processes)>,
}

/// Processes of this command, by their numbers.
type Processes = HashMap<u64, Process>;

/// What a process has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: u64,
    /// Ticks of it, and of its children that have been waited for.
    ticks: u64,
}

/// What others did meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Load {
    /// How many processors there are.
    pub(crate) processors: u64,
    /// How many of them others kept busy, on average.
    pub(crate) others: f64,
    /// Whether that is so much that the figures are not to be trusted.
    pub(crate) is_high: bool,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self { before: look() }
    }

    /// What others did since then: all but processes of this command, whoever started them. Of less than a
    /// tenth of a second nothing can be said.
    pub(crate) fn end(&self) -> Option<Load> {
        let (before, own_before) = self.before.as_ref()?;
        let (now, own_now) = look()?;
        let busy = float(now.busy.checked_sub(before.busy)?);
        let own = float(done_between(own_before, &own_now));
        let passed = now.passed.checked_sub(before.passed)?;
        if passed < LEAST_TICKS * now.processors {
            return None;
        }
        let others = (busy - own).max(0.0) / float(passed);
        Some(Load::new(
            now.processors,
            others,
            passed / now.processors.max(1),
        ))
    }
}

impl Load {
    /// `part`: of all processors' time, which was so many `ticks` each.
    pub(crate) fn new(processors: u64, part: f64, ticks: u64) -> Self {
        let others = part * float(processors);
        let tells = ticks >= TELLING_TICKS;
        Self {
            processors,
            others,
            is_high: part > DISTURBED || (tells && others > DISTURBED_PROCESSOR),
        }
    }
}

fn look() -> Option<(Work, Processes)> {
    let work = work_of(&fs::read_to_string("/proc/stat").ok()?)?;
    Some((work, own()?))
}

/// Ticks of these processes from one look to the next. Those of a process that has ended are its
/// parent's now, or that one's parent's, if it is still there and one of them; otherwise nobody
/// knows what it did at last.
fn done_between(before: &Processes, now: &Processes) -> u64 {
    let is_counted = |number: u64| {
        let parent = |number: &u64| before.get(number).map(|process| process.parent);
        std::iter::successors(Some(number), parent).any(|number| now.contains_key(&number))
    };
    let all = now.values().map(|process| process.ticks).sum::<u64>();
    let counted = before.iter().filter(|(number, _)| is_counted(**number));
    all.saturating_sub(counted.map(|(_, process)| process.ticks).sum())
}

/// All processes of this command.
fn own() -> Option<Processes> {
    let (name, own) = own_of(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let mut all = Processes::from([(u64::from(std::process::id()), own)]);
    for entry in fs::read_dir("/proc").ok()?.map_while(Result::ok) {
        let number = entry.file_name().to_str().map(str::parse);
        let Some(Ok(number)) = number else {
            continue;
        };
        // Processes come and go.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if let Some((other, process)) = own_of(&stat)
            && other == name
        {
            all.insert(number, process);
        }
    }
    Some(all)
}

/// Reads proc_stat(5).
fn work_of(stat: &str) -> Option<Work> {
    let mut lines = stat.lines();
    let total = lines.next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = total
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    let processors = lines.take_while(|line| line.starts_with("cpu")).count();
    let busy = user + nice + system + steal;
    Some(Work {
        processors: u64::try_from(processors).ok()?,
        passed: busy + idle + iowait + irq + softirq,
        busy,
    })
}

/// The name of a process, and what it has done (proc_pid_stat(5)).
fn own_of(stat: &str) -> Option<(String, Process)> {
    /// The places of `ppid` and `utime` behind the name of the program, which ends with the last
    /// bracket.
    const PARENT: usize = 1;
    const USER_TIME: usize = 11;
    let (head, fields) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let times = fields.get(USER_TIME..USER_TIME + 4)?;
    let ticks: Option<u64> = times.iter().map(|ticks| ticks.parse::<u64>().ok()).sum();
    let parent = fields.get(PARENT)?.parse().ok()?;
    let process = Process {
        parent,
        ticks: ticks?,
    };
    Some((name.to_owned(), process))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        let stat = "cpu  100 20 30 9000 400 5 6 7 0 0\ncpu0 50 10 15 4500 200 2 3 3 0 0\n\
                    cpu1 50 10 15 4500 200 3 3 4 0 0\nintr 1 2 3\n";
        let expected = Work {
            processors: 2,
            passed: 9568,
            busy: 157,
        };
        assert_eq!(work_of(stat), Some(expected));
        let own = "17 (a) b) S 1 17 17 0 -1 4194560 9 8 7 6 1000 200 30 4 20 0 1 0 99";
        let process = Process {
            parent: 1,
            ticks: 1234,
        };
        assert_eq!(own_of(own), Some(("a) b".to_owned(), process)));
        assert_eq!(work_of("cpu  1 2"), None);
        assert_eq!(own_of("17 (a) S 1"), None);
        assert!(look().is_some());
        // As it has just begun.
        assert_eq!(Watch::start().end(), None);
    }

    #[test]
    fn processes_may_end_meanwhile() {
        let processes = |all: &[(u64, u64, u64)]| {
            let process = |(number, parent, ticks): &_| {
                let (parent, ticks) = (*parent, *ticks);
                (*number, Process { parent, ticks })
            };
            all.iter().map(process).collect::<Processes>()
        };
        // A child and its child that ended, whose ticks are the first one's now; a new one; and one of others that
        // ended with all it had done.
        let before = processes(&[(10, 1, 100), (11, 10, 50), (13, 11, 30), (20, 1, 1000)]);
        let now = processes(&[(10, 1, 100 + 30 + 60 + 7), (12, 10, 5)]);
        assert_eq!(done_between(&before, &now), 10 + 7 + 5);
        assert_eq!(done_between(&before, &processes(&[(10, 1, 90)])), 0);
    }

    #[test]
    fn a_tenth_of_the_processors_or_half_of_one_is_too_much() {
        let is_high = |processors, part, ticks| Load::new(processors, part, ticks).is_high;
        for ticks in [LEAST_TICKS, TELLING_TICKS] {
            assert!(!is_high(2, 0.0, ticks));
            assert!(!is_high(2, 0.05, ticks));
            assert!(is_high(2, 0.25, ticks));
            assert!(!is_high(64, 0.005, ticks));
        }
        // A thread of its own, if it was not just rounded.
        assert!(is_high(64, 1.0 / 64.0, TELLING_TICKS));
        assert!(!is_high(64, 1.0 / 64.0, TELLING_TICKS - 1));
    }
}
