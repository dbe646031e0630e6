//! UCX, the library that MPI implementations stand on, measured by its own program.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use madgate_benches::children::free_address;
use madgate_benches::cores;
use madgate_benches::process::{PATIENCE, Process, is_installed};

/// Its program (Debian's `ucx-utils`).
const PROGRAM: &str = "ucx_perftest";
/// Shared memory made by `shm_open`, and no system call for each message.
const TRANSPORTS: &str = "UCX_TLS=posix,self";
/// Pause between two attempts to reach the end that listens, which is still starting.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest wait for its figures. Its ends look without ever giving their processors away, so that on
/// a machine with other work to do they may take long.
const LONGEST: Duration = Duration::from_secs(120);
const BYTES_PER_MIB: f64 = 1_048_576.0;

/// What this machine lacks to run it.
pub(crate) fn missing() -> Option<String> {
    (!is_installed(PROGRAM))
        .then(|| format!("{PROGRAM} is not installed (ci/packages.sh installs it)"))
}

/// One of its tests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Test {
    /// Half of a round trip; its median, in microseconds.
    Latency,
    /// Messages one way; 10⁹ bytes per second.
    Bandwidth,
}

/// Two processes, one processor each, and what they find.
pub(crate) fn measure(test: Test, bytes: usize, rounds: usize) -> io::Result<f64> {
    let port = free_address()?.port();
    let cores = cores::two();
    let arguments = |end: usize| {
        let mut arguments = vec![TRANSPORTS.to_owned(), PROGRAM.to_owned()];
        arguments.extend(["-p".to_owned(), port.to_string()]);
        if let Some(cores) = cores {
            arguments.extend(["-c".to_owned(), cores[end].to_string()]);
        }
        arguments
    };
    let name = match test {
        Test::Latency => "tag_lat",
        Test::Bandwidth => "tag_bw",
    };
    let server = Process::program("env", arguments(0))?;
    let begun = Instant::now();
    loop {
        let mut arguments = arguments(1);
        arguments.push("127.0.0.1".to_owned());
        arguments.extend(["-f", "-v", "-t", name].map(str::to_owned));
        arguments.extend(["-s".to_owned(), bytes.to_string()]);
        arguments.extend(["-n".to_owned(), rounds.to_string()]);
        // As many to begin with as a share of them, however large they are.
        arguments.extend(["-w".to_owned(), (rounds / 10).max(1).to_string()]);
        let client = Process::program("env", arguments)?;
        match figures(&client) {
            Ok(line) => {
                server.finish()?;
                return figure(test, &line).ok_or_else(|| {
                    io::Error::other(format!("{PROGRAM} said {line:?}, where figures were due"))
                });
            }
            Err(error) if begun.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// The line with what it found: the only one that begins with a number.
fn figures(client: &Process) -> io::Result<String> {
    loop {
        let line = client.line(LONGEST)?;
        if is_figures(&line) {
            return Ok(line);
        }
    }
}

fn is_figures(line: &str) -> bool {
    // Small numbers have a space before them.
    line.trim_start()
        .starts_with(|first: char| first.is_ascii_digit())
}

/// What a line says: messages; three latencies, of which the first is the median; average and
/// overall bandwidth in MiB per second; and two rates.
fn figure(test: Test, line: &str) -> Option<f64> {
    let fields: Vec<f64> = line
        .split(',')
        .map(|field| field.trim().parse().ok())
        .collect::<Option<_>>()?;
    match test {
        Test::Latency => fields.get(1).copied(),
        Test::Bandwidth => fields.get(5).map(|rate| rate * BYTES_PER_MIB / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let line = "200000,0.469,4.972,7.243,1.53,2000,201108,138071";
        assert_eq!(figure(Test::Latency, line), Some(0.469));
        assert_eq!(figure(Test::Bandwidth, line), Some(2.097_152));
        let short = " 256,0.374,3440.938,4564.102,290.62,1000,291,219";
        assert_eq!(figure(Test::Bandwidth, short), Some(1.048_576));
        assert!(is_figures(line) && is_figures(short) && !is_figures("iterations,50.0"));
        assert_eq!(figure(Test::Latency, "1,x"), None);
        assert_eq!(figure(Test::Bandwidth, "1,2"), None);
    }
}
