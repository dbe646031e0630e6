//! A node's process, as the test sees it.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::LONG;
use super::node;
use crate::support::netns::Host;

/// Between two looks whether a stream stands still, and how many that must find it so.
const LOOK: Duration = Duration::from_millis(50);
const STILL_LOOKS: u32 = 5;

/// A node's process. It is killed when it is dropped, and when the test program ends.
pub(crate) struct Process {
    name: String,
    child: Child,
    stdin: ChildStdin,
    said: Arc<Said>,
}

/// What a process has said and nobody has read.
#[derive(Default)]
struct Said {
    lines: Mutex<Lines>,
    more: Condvar,
}

#[derive(Default)]
struct Lines {
    waiting: VecDeque<String>,
    ended: bool,
}

impl Process {
    /// Starts a node, and waits until it is ready.
    pub(crate) fn start(cluster: &Path, name: &str, host: Option<&Host>) -> Self {
        let program = env::current_exe().unwrap();
        let mut command = match host {
            Some(host) => host.command(program),
            None => Command::new(program),
        };
        command
            .args([node::TEST, "--exact", "--nocapture", "--test-threads=1"])
            .env(node::CLUSTER, cluster)
            .env(node::NAME, name)
            .env(node::PARENT, std::process::id().to_string());
        let process = Self::spawn(name, command);
        process.hear("ready");
        process
    }

    fn spawn(name: &str, mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = child.stdout.take().unwrap();
        let said = Arc::new(Said::default());
        let hears = Arc::clone(&said);
        // Ends with the process.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix(node::SAYS) {
                    hears.push(line.to_owned());
                }
            }
            hears.end();
        });
        Self {
            name: name.to_owned(),
            child,
            stdin,
            said,
        }
    }

    /// Its node's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Gives an order.
    pub(crate) fn tell(&mut self, order: &str) {
        writeln!(self.stdin, "{order}").unwrap();
    }

    /// Gives an order, and waits for the line that begins with its first word.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        let word = order.split(' ').next().unwrap_or_default();
        self.hear(word)
    }

    /// The rest of the next line that begins with `start`, which is awaited.
    pub(crate) fn hear(&self, start: &str) -> String {
        match self.said.take(start, Instant::now() + LONG) {
            Ok(rest) => rest,
            Err(why) => panic!("{} does not say {start:?}: {why}", self.name),
        }
    }

    /// The same, for as long as `gateway` forwards something: gigabytes may take a slow machine
    /// longer than anything that is not stuck keeps a test waiting.
    pub(crate) fn hear_while_forwarding(&self, start: &str, gateway: &mut Self) -> String {
        let mut before = String::new();
        loop {
            let forwarded = gateway.ask("counters bytes");
            match self.said.take(start, Instant::now() + LONG) {
                Ok(rest) => return rest,
                Err(why) if forwarded == before => {
                    let name = &self.name;
                    panic!("{name} does not say {start:?}, {forwarded} bytes forwarded: {why}")
                }
                Err(_) => before = forwarded,
            }
        }
    }

    /// Waits until a stream (or all, when `order` is just `sent`) stands still: for some
    /// looks, nothing more was sent.
    pub(crate) fn await_standstill(&mut self, order: &str) {
        let mut last = self.ask(order);
        let mut still = 0;
        while still < STILL_LOOKS {
            thread::sleep(LOOK);
            let now = self.ask(order);
            still = if now == last { still + 1 } else { 0 };
            last = now;
        }
    }

    /// SIGSTOP: it stands still, and the kernel goes on acknowledging for it.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL; what it had said can still be read.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Resident memory now, and at most so far.
    pub(crate) fn memory(&self) -> Memory {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().next());
            kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        Memory {
            now: field("VmRSS:"),
            peak: field("VmHWM:"),
        }
    }

    /// Descriptors that it has open, and threads that run.
    pub(crate) fn holdings(&self) -> (usize, usize) {
        let count = |what: &str| {
            let path = format!("/proc/{}/{what}", self.child.id());
            fs::read_dir(path).unwrap().count()
        };
        (count("fd"), count("task"))
    }

    /// What its descriptors are open on.
    pub(crate) fn descriptors(&self) -> Vec<String> {
        let entries = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let mut open: Vec<String> = entries
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .map(|what| what.display().to_string())
            .collect();
        open.sort_unstable();
        open
    }
}

/// Resident memory of a process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Said {
    fn push(&self, line: String) {
        self.lines.lock().unwrap().waiting.push_back(line);
        self.more.notify_all();
    }

    fn end(&self) {
        self.lines.lock().unwrap().ended = true;
        self.more.notify_all();
    }

    /// Takes the first line that begins with `start`. A node that finds what must not be
    /// says `broken`, which nobody waits for and everybody fails with.
    fn take(&self, start: &str, deadline: Instant) -> Result<String, String> {
        let mut lines = self.lines.lock().unwrap();
        loop {
            if let Some(broken) = lines.waiting.iter().find(|line| line.starts_with("broken")) {
                return Err(broken.clone());
            }
            let found = lines.waiting.iter().position(|line| {
                line.strip_prefix(start)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            });
            if let Some(line) = found.and_then(|place| lines.waiting.remove(place)) {
                return Ok(line[start.len()..].trim().to_owned());
            }
            if lines.ended {
                return Err("it has ended".to_owned());
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Err(format!("it said {:?}", lines.waiting));
            };
            lines = self.more.wait_timeout(lines, left).unwrap().0;
        }
    }
}
