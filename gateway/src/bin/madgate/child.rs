//! Processes that this command starts, and that never outlive it.
//!
//! Each child asks the kernel to be killed with its parent ([`follow_parent`]); a parent that
//! ends in order, or has to end early, kills all of them itself ([`Family::kill`]), and starts
//! no more. Those that serve others are missed as soon as they end ([`Process::finish`]).

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, waitid,
};

use crate::failure::{Context, Failure};

/// Tells a child whose child it is.
const PARENT: &str = "MADGATE_PARENT";

/// This very program, even when its file has been replaced meanwhile.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// How long a killed process may take to be gone.
const KILL_LIMIT: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// How much of a log a failure quotes.
const QUOTED_LINES: usize = 8;
/// How much of a log is read for that.
const QUOTED_BYTES: u64 = 64 << 10;

/// Where this process was started by another `madgate`: be killed when that one ends.
pub(crate) fn follow_parent() -> Result<(), Failure> {
    let Ok(expected) = env::var(PARENT) else {
        return Ok(());
    };
    set_parent_process_death_signal(Some(Signal::KILL))
        .or_fail(|| "cannot follow the process that started this".into())?;
    if expected == parent_id().to_string() {
        Ok(())
    } else {
        Err(Failure::new("the process that started this has ended"))
    }
}

/// All processes that were started, so that another thread can kill them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Family {
    members: Arc<Mutex<Members>>,
}

#[derive(Debug, Default)]
struct Members {
    all: Vec<Member>,
    /// Killed: nobody is added any more.
    over: bool,
}

#[derive(Debug)]
struct Member {
    /// Its number.
    id: u32,
    pidfd: OwnedFd,
    /// What is said of one that is to serve the others until it is told to end, if it ends.
    serves: Option<Missed>,
}

/// How somebody who has ended too early is called, and where its log is.
#[derive(Debug, Clone)]
struct Missed {
    name: String,
    log: Option<PathBuf>,
}

impl Family {
    /// Kills those that run, waits until they are gone, and lets nobody be started any more.
    pub(crate) fn kill(&self) {
        let mut members = self.members();
        members.over = true;
        for member in &members.all {
            // Those that have ended already do not mind.
            let _ = pidfd_send_signal(&member.pidfd, Signal::KILL);
        }
        for member in members.all.drain(..) {
            let mut ended = [PollFd::new(&member.pidfd, PollFlags::IN)];
            let _ = retry_on_intr(|| poll(&mut ended, Some(&KILL_LIMIT)));
        }
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a member. Who kills the family meanwhile waits, so that nobody is missed who writes
    /// into a folder that is about to be removed.
    fn start(&self, spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
        let mut members = self.members();
        if members.over {
            return Err(io::Error::other("everything is about to end"));
        }
        let mut child = spawn()?;
        match Member::of(&child) {
            Ok(member) => members.all.push(member),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        }
        Ok(child)
    }

    /// From now on somebody is missed who ends.
    fn rely_on(&self, id: u32, missed: Missed) {
        let mut members = self.members();
        if let Some(member) = members.all.iter_mut().find(|member| member.id == id) {
            member.serves = Some(missed);
        }
    }

    /// From now on somebody may end, and is killed all the same if all are.
    fn let_end(&self, id: u32) {
        let mut members = self.members();
        if let Some(member) = members.all.iter_mut().find(|member| member.id == id) {
            member.serves = None;
        }
    }

    /// Somebody has ended, and has been waited for.
    fn forget(&self, id: u32) {
        self.members().all.retain(|member| member.id != id);
    }

    /// `id`, and those that are missed.
    fn watched_beside(&self, id: u32) -> io::Result<Vec<(OwnedFd, Option<Missed>)>> {
        let members = self.members();
        let watched = members
            .all
            .iter()
            .filter(|member| member.id == id || member.serves.is_some());
        watched
            .map(|member| Ok((member.pidfd.try_clone()?, member.serves.clone())))
            .collect()
    }

    /// Waits until `id` has ended; fails as soon as somebody has who is missed.
    fn await_end(&self, id: u32) -> Result<(), Failure> {
        let watched = self.watched_beside(id);
        let watched = watched.or_fail(|| "cannot watch a process".into())?;
        let mut ends: Vec<_> = watched
            .iter()
            .map(|(pidfd, _)| PollFd::new(pidfd, PollFlags::IN))
            .collect();
        let waited = retry_on_intr(|| poll(&mut ends, None));
        waited.or_fail(|| "cannot watch a process".into())?;
        let ended: Vec<_> = ends.iter().map(|end| !end.revents().is_empty()).collect();
        let mut has_ended = watched.iter().zip(ended).filter(|(_, ended)| *ended);
        // It may have ended because the other has: then that is to be said.
        let missed = has_ended.find_map(|((pidfd, serves), _)| Some((pidfd, serves.as_ref()?)));
        match missed {
            Some((pidfd, missed)) => {
                let what = format!("has ended too early ({})", how_it_ended(pidfd));
                Err(failure(&missed.name, &what, missed.log.as_deref()))
            }
            None => Ok(()),
        }
    }
}

impl Member {
    /// A child that nobody has waited for yet.
    fn of(child: &Child) -> io::Result<Self> {
        let id = child.id();
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        Ok(Self {
            id,
            pidfd: pidfd_open(pid, PidfdFlags::empty())?,
            serves: None,
        })
    }
}

/// The exit code or the signal of a process that has ended, and is waited for by somebody else.
fn how_it_ended(pidfd: &OwnedFd) -> String {
    let asked = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), asked).ok().flatten();
    let said = status.and_then(|status| {
        let code = status.exit_status().map(|code| format!("exit code {code}"));
        code.or_else(|| Some(format!("signal {}", status.terminating_signal()?)))
    });
    said.unwrap_or_else(|| "nobody knows how".to_owned())
}

/// Another process of this command. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Process {
    family: Family,
    name: String,
    child: Child,
    stdout: Option<ChildStdout>,
    log: Option<PathBuf>,
}

impl Process {
    /// Starts this command again. Its stderr goes into the file `log`, or is shared.
    pub(crate) fn start(
        family: &Family,
        name: &str,
        arguments: &[OsString],
        log: Option<&Path>,
    ) -> Result<Self, Failure> {
        let spawn = || {
            let stderr = match log {
                Some(log) => File::options().create(true).append(true).open(log)?.into(),
                None => Stdio::inherit(),
            };
            Command::new(OWN_PROGRAM)
                .arg0("madgate")
                .args(arguments)
                .env(PARENT, std::process::id().to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(stderr)
                .spawn()
        };
        let started = family.start(spawn);
        let mut child = started.or_fail(|| format!("cannot start {name}"))?;
        Ok(Self {
            family: family.clone(),
            name: name.to_owned(),
            stdout: child.stdout.take(),
            child,
            log: log.map(Path::to_owned),
        })
    }

    /// Waits for the line that a service prints when it is ready. It is missed from then on.
    pub(crate) fn ready(&mut self, patience: Duration) -> Result<(), Failure> {
        let lines = self.lines();
        match lines.recv_timeout(patience) {
            Ok(_) => {
                let missed = Missed {
                    name: self.name.clone(),
                    log: self.log.clone(),
                };
                self.family.rely_on(self.id(), missed);
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => Err(self.failure("is not ready in time")),
            Err(RecvTimeoutError::Disconnected) => Err(self.failure("has ended too early")),
        }
    }

    /// The first line of its output; reads all of it, so that it never waits to print.
    fn lines(&mut self) -> Receiver<String> {
        let (first, received) = bounded(1);
        if let Some(stdout) = self.stdout.take() {
            // Ends with the child.
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Nobody waits for the second one.
                    let _ = first.try_send(line);
                }
            });
        }
        received
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, and returns what it printed; ends it, and fails, as soon as a service
    /// has ended that its family relies on.
    pub(crate) fn finish(mut self) -> Result<(ExitStatus, String), Failure> {
        let stdout = self.stdout.take();
        // Ends with the child.
        let reading = thread::spawn(move || {
            let mut printed = String::new();
            let read = stdout.map(|mut stdout| stdout.read_to_string(&mut printed));
            read.transpose().map(|_| printed)
        });
        self.family.await_end(self.id())?;
        let status = self.child.wait();
        let what = || format!("cannot hear {}", self.name);
        let read = reading.join().map_err(|_| io::Error::other("a bug"));
        let printed = read.and_then(|printed| printed).or_fail(what)?;
        Ok((status.or_fail(what)?, printed))
    }

    /// Waits for its end, which has to be a success, and returns what it printed.
    pub(crate) fn succeed(self) -> Result<String, Failure> {
        let (name, log) = (self.name.clone(), self.log.clone());
        let (status, printed) = self.finish()?;
        if status.success() {
            Ok(printed)
        } else {
            Err(failure(&name, &status.to_string(), log.as_deref()))
        }
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(mut self) -> Result<ExitStatus, Failure> {
        self.family.let_end(self.id());
        let what = || format!("cannot end {}", self.name);
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("a process without a number"))?;
        // Not waited for yet, so that the number is still its own.
        rustix::process::kill_process(pid, Signal::TERM).or_fail(what)?;
        self.child.wait().or_fail(what)
    }

    fn failure(&self, what: &str) -> Failure {
        failure(&self.name, what, self.log.as_deref())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill, and to wait is instant.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.family.forget(self.id());
    }
}

fn failure(name: &str, what: &str, log: Option<&Path>) -> Failure {
    let mut words = format!("{name}: {what}");
    if let Some(tail) = log.and_then(tail) {
        words.push_str("; the end of its log:\n");
        words.push_str(&tail);
    }
    Failure::new(words)
}

/// The last lines of a log.
fn tail(log: &Path) -> Option<String> {
    let mut text = Vec::new();
    let mut file = fs::File::open(log).ok()?;
    let bytes = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(QUOTED_BYTES)))
        .ok()?;
    file.take(QUOTED_BYTES).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(QUOTED_LINES);
    (!lines.is_empty()).then(|| lines[from..].join("\n"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn nobody_is_started_after_the_end() {
        let family = Family::default();
        let sleeper = || Command::new("sleep").arg("60").spawn();
        let mut child = family.start(sleeper).unwrap();
        family.kill();
        assert!(child.try_wait().unwrap().is_some());
        assert!(family.start(|| panic!("started")).is_err());
    }

    #[test]
    fn the_end_of_a_long_log_is_quoted() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        for line in 0..20_000 {
            writeln!(log, "line {line}").unwrap();
        }
        let tail = tail(log.path()).unwrap();
        assert!(tail.ends_with("line 19998\nline 19999"), "{tail}");
        assert_eq!(tail.lines().count(), QUOTED_LINES);
    }
}
