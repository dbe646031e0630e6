//! The machine that a figure belongs to.

use std::fmt;
use std::fs;
use std::io;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::json;

/// Load per core above which figures are called unreliable.
pub const HIGH_LOAD_PER_CORE: f64 = 0.5;

/// What a reader must know of the machine to judge a figure.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    /// The system's, which connections have whose ends choose none.
    congestion: String,
    load: Option<f64>,
}

/// A machine, when it was measured.
#[derive(Debug, Serialize)]
struct MachineLine<'a> {
    table: &'static str,
    unix_s: u64,
    #[serde(flatten)]
    machine: &'a Machine,
}

impl Machine {
    /// Describes this machine as it is now.
    pub fn describe() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo")
            .ok()
            .and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("model name"))?;
                Some(line.split_once(':')?.1.trim().to_owned())
            })
            .unwrap_or_else(|| "unknown CPU".to_owned());
        let of_system = |name: &str| {
            fs::read_to_string(format!("/proc/sys/{name}"))
                .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
        };
        let kernel = of_system("kernel/osrelease");
        let congestion = of_system("net/ipv4/tcp_congestion_control");
        let load = fs::read_to_string("/proc/loadavg")
            .ok()
            .and_then(|text| text.split_whitespace().next()?.parse().ok());
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            cpu,
            cores,
            kernel,
            congestion,
            load,
        }
    }

    /// Names this machine on standard error, and warns if its figures are unreliable. Where what
    /// is measured is told as `json`, the machine and the time are its first line.
    ///
    /// # Errors
    /// When nobody takes that line.
    pub fn announce(json: bool) -> io::Result<()> {
        let machine = Self::describe();
        eprintln!("{machine}");
        if let Some(warning) = machine.warning() {
            eprintln!("warning: {warning}");
        }
        if !json {
            return Ok(());
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        json::print_lines([MachineLine {
            table: "machine",
            unix_s: since.map_or(0, |since| since.as_secs()),
            machine: &machine,
        }])
    }

    /// What makes figures from this machine unreliable just now, if anything does.
    pub fn warning(&self) -> Option<String> {
        let load = self.load?;
        let cores = f64::from(u32::try_from(self.cores).unwrap_or(u32::MAX));
        (load > HIGH_LOAD_PER_CORE * cores).then(|| {
            format!(
                "the load average is {load:.2} on {} cores: absolute figures mean little, \
                 and ratios vary",
                self.cores
            )
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cpu,
            cores,
            kernel,
            congestion,
            ..
        } = self;
        write!(
            formatter,
            "{cpu}, {cores} cores, Linux {kernel}, TCP {congestion}"
        )?;
        match self.load {
            Some(load) => write!(formatter, ", load average {load:.2}"),
            None => Ok(()),
        }
    }
}
