//! What others do on this machine while something is measured.

use std::fs;

use serde::Serialize;

use crate::units::float;

/// Figures are not to be trusted when others use more than this part of the processors.
const DISTURBED: f64 = 0.1;

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
    before: Option<(Work, u64)>,
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

    /// What others did since then: all but processes of this command, whoever started them.
    pub(crate) fn end(&self) -> Option<Load> {
        let (before, own_before) = self.before?;
        let (now, own_now) = look()?;
        let busy = float(now.busy.checked_sub(before.busy)?);
        let own = float(own_now.checked_sub(own_before)?);
        let passed = float(now.passed.checked_sub(before.passed)?.max(1));
        let others = (busy - own).max(0.0) / passed;
        Some(Load::new(now.processors, others))
    }
}

impl Load {
    /// `part`: of all processors' time.
    pub(crate) fn new(processors: u64, part: f64) -> Self {
        Self {
            processors,
            others: part * float(processors),
            is_high: part > DISTURBED,
        }
    }
}

fn look() -> Option<(Work, u64)> {
    let work = work_of(&fs::read_to_string("/proc/stat").ok()?)?;
    Some((work, own()?))
}

/// Ticks of all processes of this command, and of their children that have been waited for.
fn own() -> Option<u64> {
    let (name, mut ticks) = own_of(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let own = std::process::id().to_string();
    for entry in fs::read_dir("/proc").ok()?.map_while(Result::ok) {
        let process = entry.file_name();
        let Some(process) = process.to_str() else {
            continue;
        };
        if process == own || !process.bytes().all(|digit| digit.is_ascii_digit()) {
            continue;
        }
        // Processes come and go.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        ticks += own_of(&stat)
            .filter(|(other, _)| *other == name)
            .map_or(0, |(_, ticks)| ticks);
    }
    Some(ticks)
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

/// The name of a process, and ticks of it and of its children that have been waited for
/// (proc_pid_stat(5)).
fn own_of(stat: &str) -> Option<(String, u64)> {
    /// The place of `utime` behind the name of the program, which ends with the last bracket.
    const USER_TIME: usize = 11;
    let (head, fields) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let times = fields.get(USER_TIME..USER_TIME + 4)?;
    let ticks: Option<u64> = times.iter().map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some((name.to_owned(), ticks?))
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
        assert_eq!(own_of(own), Some(("a) b".to_owned(), 1234)));
        assert_eq!(work_of("cpu  1 2"), None);
        assert_eq!(own_of("17 (a) S 1"), None);
        assert!(Watch::start().end().is_some());
    }

    #[test]
    fn a_tenth_of_the_processors_is_too_much() {
        assert!(!Load::new(2, 0.0).is_high);
        assert!(!Load::new(2, 0.05).is_high);
        assert!(Load::new(2, 0.25).is_high);
        assert!(!Load::new(64, 0.01).is_high);
    }
}
