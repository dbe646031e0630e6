//! Who runs on which processor. Two ends that both look all the time are measured on one each:
//! left alone, the system now and then puts them on the same one, where each waits for the other
//! to be interrupted.

use std::fs;
use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two processors that this process may run on; `None` where it has one.
pub fn two() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    Some([cores.next()?, cores.next()?])
}

fn only(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    set
}

/// Keeps all threads of a process on `core`, and those that they start.
///
/// # Errors
///
/// If the process has gone, or may not run there.
pub fn keep_process(process: u32, core: usize) -> io::Result<()> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let name = thread?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        if let Some(thread) = number.and_then(Pid::from_raw) {
            sched_setaffinity(Some(thread), &only(&[core]))?;
        }
    }
    Ok(())
}

/// Keeps this thread on some processors until it is dropped. Processes and threads that it starts
/// meanwhile are kept there too.
#[derive(Debug)]
pub struct Kept {
    before: CpuSet,
}

impl Kept {
    /// On `core`.
    ///
    /// # Errors
    ///
    /// If it may not run there.
    pub fn on(core: usize) -> io::Result<Self> {
        Self::on_any(&[core])
    }

    /// On two processors, where there are more; where there is one, it says that figures for two
    /// are not to be had.
    ///
    /// # Errors
    ///
    /// If it may not run there.
    pub fn on_two() -> io::Result<Self> {
        if let Some(cores) = two() {
            return Self::on_any(&cores);
        }
        eprintln!("warning: there is one processor: nothing here can overlap");
        Ok(Self {
            before: sched_getaffinity(None)?,
        })
    }

    fn on_any(cores: &[usize]) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        sched_setaffinity(None, &only(cores))?;
        Ok(Self { before })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(None, &self.before);
    }
}
