//! Processes of a bench: started, listened to, measured, and never left behind.
//!
//! A [`Process`] is killed when it is dropped. When the bench itself is killed nothing is
//! dropped: for that each child asks the kernel to be killed with its parent
//! ([`die_with_parent`]), and a program that would not ask is started through one that does
//! ([`Process::program`]).

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

/// Longest wait for something that a process does at once when all is well.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Lines that a process may be ahead of who listens to it.
const LINES: usize = 64;

/// Tells a child whose child it is, so that it notices a parent that died before it asked.
const PARENT: &str = "MADGATE_BENCH_PARENT";

/// The subcommand that turns into another program; see [`become_program`].
pub const EXEC: &str = "exec";

/// A child process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this program again with other `arguments`.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn again<A: Into<OsString>>(
        name: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(arguments.into_iter().map(Into::into));
        Self::spawn(name, command)
    }

    /// Starts another program.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn program<A: Into<OsString>>(
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args([EXEC, "--", program]);
        command.args(arguments.into_iter().map(Into::into));
        Self::spawn(program, command)
    }

    fn spawn(name: &str, mut command: Command) -> io::Result<Self> {
        let mut child = command
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let (sender, lines) = sync_channel(LINES);
        if let Some(stdout) = child.stdout.take() {
            // Ends when the child closes its output or nobody listens any more.
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines() {
                    let Ok(line) = line else { break };
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self {
            name: name.to_owned(),
            child,
            stdin,
            lines,
        })
    }

    /// The next line that the process prints.
    ///
    /// # Errors
    ///
    /// If it ends, or says nothing for `patience`.
    pub fn line(&self, patience: Duration) -> io::Result<String> {
        self.lines.recv_timeout(patience).map_err(|error| {
            let name = &self.name;
            io::Error::other(match error {
                RecvTimeoutError::Timeout => {
                    format!("{name} said nothing for {} s", patience.as_secs())
                }
                RecvTimeoutError::Disconnected => format!("{name} ended too early"),
            })
        })
    }

    /// The rest of the next line, which must start with `word`.
    ///
    /// # Errors
    ///
    /// As for [`line`](Self::line), or if it starts with another.
    pub fn word(&self, word: &str) -> io::Result<String> {
        let line = self.line(PATIENCE)?;
        match line.strip_prefix(word) {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => Err(io::Error::other(format!(
                "{} said {line:?} where {word:?} was due",
                self.name
            ))),
        }
    }

    /// Tells the process, which waits for a line, to go on.
    ///
    /// # Errors
    ///
    /// If it has gone.
    pub fn go(&mut self) -> io::Result<()> {
        match &mut self.stdin {
            Some(stdin) => stdin.write_all(b"go\n"),
            None => Ok(()),
        }
    }

    /// Keeps it on one processor.
    ///
    /// # Errors
    ///
    /// If it has gone, or may not run there.
    pub fn keep_on(&self, core: usize) -> io::Result<()> {
        crate::cores::keep_process(self.child.id(), core)
    }

    /// CPU time that the process has used so far, in all of its threads, those that have
    /// ended too. Its grain is the clock tick (10 ms).
    ///
    /// # Errors
    ///
    /// If the process has gone.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        cpu_ticks(&text)
            .map(|ticks| {
                Duration::from_secs(ticks) / u32::try_from(ticks_per_second()).unwrap_or(100)
            })
            .ok_or_else(|| io::Error::other(format!("cannot read the CPU time of {}", self.name)))
    }
}

impl Process {
    /// Resident memory of the process in bytes: now, and at most so far.
    ///
    /// # Errors
    ///
    /// If the process has gone.
    pub fn memory(&self) -> io::Result<(u64, u64)> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        match (kibibytes(&text, "VmRSS:"), kibibytes(&text, "VmHWM:")) {
            (Some(now), Some(peak)) => Ok((now * 1024, peak * 1024)),
            _ => {
                let what = format!("cannot read how much memory {} has", self.name);
                Err(io::Error::other(what))
            }
        }
    }

    /// Waits until the process, which has nothing more to do, ends by itself.
    ///
    /// # Errors
    ///
    /// If it fails, or does not end.
    pub fn finish(self) -> io::Result<()> {
        self.finish_within(PATIENCE)
    }

    /// The same, of one that has so long to do.
    ///
    /// # Errors
    ///
    /// If it fails, or does not end.
    pub fn finish_within(mut self, patience: Duration) -> io::Result<()> {
        drop(self.stdin.take());
        // Its output is closed when it ends, at the latest.
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let what = format!("{} did not end in {} s", self.name, patience.as_secs());
                    return Err(io::Error::other(what));
                }
            }
        }
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("{}: {status}", self.name)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill, and to wait is instant.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks the kernel to kill this process when its parent ends; the first thing that a child
/// does.
///
/// The kernel watches the *thread* that started the child, so that a bench starts its
/// processes from its main thread.
///
/// # Errors
///
/// If the kernel refuses, or the parent has gone already.
pub fn die_with_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match env::var(PARENT) {
        Ok(expected) if expected != parent_id().to_string() => {
            Err(io::Error::other("the bench that started this has gone"))
        }
        _ => Ok(()),
    }
}

/// Allows this process as many descriptors as the system lets it have: each link needs several.
///
/// # Errors
///
/// If the system refuses it.
pub fn raise_descriptors() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Turns this process into another program, which is then killed with the parent too.
/// Returns only if that fails.
pub fn become_program(program: &[OsString]) -> io::Error {
    let Some((program, arguments)) = program.split_first() else {
        return io::Error::other("no program named");
    };
    let at = installed(program).unwrap_or_else(|| program.into());
    let error = Command::new(at).args(arguments).env_remove(PARENT).exec();
    io::Error::new(
        error.kind(),
        format!("{}: {error}", program.to_string_lossy()),
    )
}

/// Whether `program` is in one of the directories where programs are, those of the
/// administrator too.
pub fn is_installed(program: &str) -> bool {
    installed(program.as_ref()).is_some()
}

/// Where a program is that is named without a directory.
fn installed(program: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// A line such as `VmRSS:     1234 kB` in `/proc/PID/status`.
fn kibibytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time in `/proc/PID/stat`: fields 14 and 15. The second field is the name
/// in parentheses, which may hold anything, so counting starts behind the last of them.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_whatever_the_name() {
        let stat = "7 (a) b 1 (c) S 1 7 7 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 3 0 99 1 1";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn memory_is_read_by_name() {
        let status = "Name:\tsoak\nVmHWM:\t   2048 kB\nVmRSS:\t    512 kB\n";
        assert_eq!(kibibytes(status, "VmRSS:"), Some(512));
        assert_eq!(kibibytes(status, "VmHWM:"), Some(2048));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
    }

    #[test]
    fn what_is_not_there_is_not_installed() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-program-anywhere"));
        let shell = installed("sh".as_ref()).unwrap();
        assert!(shell.is_absolute() && shell.is_file());
    }
}
