//! Logs, to stderr: levels from `--log`, else from `MADGATE_LOG`, else the command's own.
//!
//! What is logged waits in a [`Queue`] for a thread that writes it, so that nobody who has something
//! to log waits for whoever reads stderr.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
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
    let wanted = told.or(variable.as_deref()).unwrap_or(usual);
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

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Lines on their way to stderr.
#[derive(Debug)]
struct Queue {
    entries: Sender<Entry>,
    taken: Receiver<Entry>,
    /// Lines for which there was no room.
    lost: AtomicU64,
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
        }
    }
}

impl Queue {
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
struct Line<'q>(&'q Queue);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.entries.try_send(Entry::Line(line.to_vec())).is_err() {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
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
        Line(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_counted_and_the_rest_comes_in_order() {
        let queue = Queue::default();
        let count = QUEUED_LINES + 10;
        for number in 0..count {
            let line = format!("{number}\n");
            assert_eq!(Line(&queue).write(line.as_bytes()).unwrap(), line.len());
        }
        let Queue {
            taken,
            lost,
            entries,
        } = queue;
        // Nobody sends any more, so writing ends.
        drop(entries);
        let (entries, _) = bounded(0);
        let queue = Queue {
            entries,
            taken,
            lost,
        };
        let mut written = Vec::new();
        queue.write(&mut written);
        let written = String::from_utf8(written).unwrap();
        let lines: Vec<_> = written.lines().collect();
        assert_eq!(
            lines[..2],
            ["0", "10 lines of the log are lost: nobody took them"]
        );
        assert_eq!(lines.len(), QUEUED_LINES + 1);
        assert_eq!(lines[QUEUED_LINES], (QUEUED_LINES - 1).to_string());
    }
}
