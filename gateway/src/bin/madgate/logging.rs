//! Logs, to stderr: levels from `--log`, else from `MADGATE_LOG`, else the command's own.
//!
//! What is logged waits in a [`Queue`] for a thread that writes it, so that nobody who has something
//! to log waits for whoever reads stderr.

use std::collections::VecDeque;
use std::env;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::failure::{Context, Failure};

/// The variable that says what is logged.
const VARIABLE: &str = "MADGATE_LOG";

/// What a filter looks like.
const FILTER: &str = "log filter; try \"info\", or \"warn,madgate_gateway=debug\"";

/// Lines that wait for stderr at most; more are lost, and counted.
const QUEUED_LINES: usize = 1024;

/// How long the end of a command waits for stderr to take what was logged.
const SETTLE_WITHIN: Duration = Duration::from_secs(1);

/// Reads what `--log` says: wrong usage, if it is no filter.
pub(crate) fn read_filter(told: &str) -> Result<String, String> {
    match EnvFilter::try_new(told) {
        Ok(_) => Ok(told.to_owned()),
        Err(error) => Err(format!("no {FILTER}: {error}")),
    }
}

/// Starts logging; `usual` is the level of a command that nobody has told otherwise.
pub(crate) fn start(told: Option<&str>, usual: &str) -> Result<(), Failure> {
    let variable = env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    let told = told.or(variable.as_deref());
    IS_TOLD.store(told.is_some(), Ordering::Relaxed);
    let wanted = told.unwrap_or(usual);
    let filter =
        EnvFilter::try_new(wanted).or_fail(|| format!("{VARIABLE} {wanted:?} is no {FILTER}"))?;
    let queue = QUEUE.get_or_init(Queue::default);
    queue
        .start_writing()
        .or_fail(|| "cannot start to log".to_owned())?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(queue)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .init();
    Ok(())
}

/// Waits until what was logged is written, for a second at most: before a command ends, or says
/// something else on stderr.
pub(crate) fn settle() {
    let Some(queue) = QUEUE.get() else { return };
    let (done, is_done) = bounded(1);
    if queue
        .entries
        .send_timeout(Entry::Settle(done), SETTLE_WITHIN)
        .is_ok()
    {
        let _ = is_done.recv_timeout(SETTLE_WITHIN);
    }
}

/// Keeps what is logged to itself from now on, as it is expected: until [`Held`] is dropped, or
/// [told](Held::tell). Warnings of the command itself, and errors, are written all the same.
///
/// Nothing is kept where somebody has said what is logged.
pub(crate) fn hold() -> Option<Held> {
    let queue = QUEUE.get()?;
    if IS_TOLD.load(Ordering::Relaxed) {
        return None;
    }
    queue.held().get_or_insert_default();
    Some(Held(queue))
}

/// Lines that are kept back.
#[derive(Debug)]
pub(crate) struct Held(&'static Queue);

impl Held {
    /// Writes the last of them after all: what was expected has not come about.
    pub(crate) fn tell(self) {
        let lines = self.0.held().take();
        for line in lines.into_iter().flatten() {
            self.0.push(line);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.held().take());
    }
}

/// Lines that are kept back at most; older ones are forgotten.
const HELD_LINES: usize = 16;

/// What the targets of the libraries begin with; those of the command have no underscore.
const LIBRARIES: &str = "madgate_";

/// Whether somebody has said what is logged.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Lines on their way to stderr.
#[derive(Debug)]
struct Queue {
    entries: Sender<Entry>,
    taken: Receiver<Entry>,
    /// Lines for which there was no room.
    lost: AtomicU64,
    /// What is kept back, while it is.
    held: Mutex<Option<VecDeque<Vec<u8>>>>,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// Say so when everything before this is written.
    Settle(Sender<()>),
}

impl Default for Queue {
    fn default() -> Self {
        let (entries, taken) = bounded(QUEUED_LINES);
        let lost = AtomicU64::new(0);
        Self {
            entries,
            taken,
            lost,
            held: Mutex::default(),
        }
    }
}

impl Queue {
    fn held(&self) -> MutexGuard<'_, Option<VecDeque<Vec<u8>>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a line written.
    fn push(&self, line: Vec<u8>) {
        if self.entries.try_send(Entry::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has a line written that is kept back where such lines are.
    fn push_expected(&self, line: Vec<u8>) {
        match &mut *self.held() {
            Some(held) => {
                if held.len() == HELD_LINES {
                    held.pop_front();
                }
                held.push_back(line);
            }
            None => self.push(line),
        }
    }

    /// Starts the thread that writes. It has a descriptor of its own: whoever else writes to stderr
    /// does not wait for it.
    fn start_writing(&'static self) -> io::Result<()> {
        let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        thread::Builder::new()
            .name("madgate-log".into())
            .spawn(move || self.write(stderr))
            .map(drop)
    }

    /// Writes for ever. Nothing can be said of what stderr does not take.
    fn write(&self, mut stderr: impl Write) {
        for entry in &self.taken {
            match entry {
                Entry::Line(line) => {
                    let _ = stderr.write_all(&line);
                }
                Entry::Settle(done) => {
                    let _ = done.send(());
                }
            }
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let _ = writeln!(stderr, "{lost} lines of the log are lost: nobody took them");
            }
        }
    }
}

/// Where one line goes.
#[derive(Debug)]
struct Line<'q> {
    queue: &'q Queue,
    /// Whether it is one that may be kept back.
    may_wait: bool,
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.may_wait {
            self.queue.push_expected(line.to_vec());
        } else {
            self.queue.push(line.to_vec());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'q> MakeWriter<'q> for &'static Queue {
    type Writer = Line<'q>;

    fn make_writer(&'q self) -> Line<'q> {
        Line {
            queue: self,
            may_wait: false,
        }
    }

    fn make_writer_for(&'q self, meta: &Metadata<'_>) -> Line<'q> {
        Line {
            queue: self,
            may_wait: meta.target().starts_with(LIBRARIES) && *meta.level() != Level::ERROR,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(queue: &Queue, text: &str, may_wait: bool) {
        let line = format!("{text}\n");
        let mut writer = Line { queue, may_wait };
        assert_eq!(writer.write(line.as_bytes()).unwrap(), line.len());
    }

    /// What somebody reads.
    fn written(queue: Queue) -> String {
        let Queue {
            taken,
            lost,
            entries,
            held,
        } = queue;
        // Nobody sends any more, so writing ends.
        drop(entries);
        let (entries, _) = bounded(0);
        let queue = Queue {
            entries,
            taken,
            lost,
            held,
        };
        let mut written = Vec::new();
        queue.write(&mut written);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn what_is_expected_is_kept_back_and_told_when_something_fails() {
        let queue: &'static Queue = Box::leak(Box::default());
        let hold = || {
            queue.held().get_or_insert_default();
            Held(queue)
        };
        say(queue, "before", true);
        let held = hold();
        say(queue, "of a node that is restarted", true);
        say(queue, "a warning of the command", false);
        drop(held);
        say(queue, "between", true);
        let held = hold();
        for number in 0..HELD_LINES + 2 {
            say(queue, &number.to_string(), true);
        }
        held.tell();
        say(queue, "behind", true);
        let mut lines = Vec::new();
        while let Ok(Entry::Line(line)) = queue.taken.try_recv() {
            lines.push(String::from_utf8(line).unwrap().trim_end().to_owned());
        }
        let told = (2..HELD_LINES + 2).map(|number| number.to_string());
        let front = ["before", "a warning of the command", "between"].map(str::to_owned);
        let expected: Vec<_> = front.into_iter().chain(told).collect();
        assert_eq!(lines[..lines.len() - 1], expected);
        assert_eq!(lines.last().unwrap(), "behind");
    }

    #[test]
    fn what_is_lost_is_counted_and_the_rest_comes_in_order() {
        let queue = Queue::default();
        let count = QUEUED_LINES + 10;
        for number in 0..count {
            say(&queue, &number.to_string(), true);
        }
        let written = written(queue);
        let lines: Vec<_> = written.lines().collect();
        assert_eq!(
            lines[..2],
            ["0", "10 lines of the log are lost: nobody took them"]
        );
        assert_eq!(lines.len(), QUEUED_LINES + 1);
        assert_eq!(lines[QUEUED_LINES], (QUEUED_LINES - 1).to_string());
    }
}
