//! Hosts made of network namespaces, and shaped networks between them.
//!
//! ```text
//!  Host a ──link(a, b, rate)── Host b          two hosts and a cable
//!
//!  Host c ──┐
//!  Host d ──┤ Switch ── attach(host, rate)     any number of hosts and a bridge
//!  Host e ──┘
//! ```
//!
//! A cable is a pair of virtual interfaces; a [`Rate`] holds in each direction on its own
//! (`tc tbf`). A [`Host`] that is dropped takes with it every process that runs in it.
//! Namespaces of test programs that were killed are removed by the next one that starts.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Missing;

/// Names of namespaces start so; the process number and a count follow.
const PREFIX: &str = "madgate-";

/// Where `ip netns` keeps what it has named.
const NAMED: &str = "/run/netns";

/// What may leave at once: a packet of the largest size that the kernel hands over whole,
/// and some.
const LEAST_BURST_BYTES: u64 = 128 * 1024;

/// The longest time that a packet waits for its turn before it is dropped.
const QUEUE: &str = "20ms";

/// How often the processes of a host are looked for before it is given up.
const KILL_ATTEMPTS: usize = 100;

/// Pause between two such looks.
const KILL_PAUSE: Duration = Duration::from_millis(10);

/// What a cable carries in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// So many million bits per second, headers included.
    Megabits(u32),
    /// As much as the machine can.
    Unshaped,
}

/// Whether hosts can be made here.
pub fn available() -> Result<(), Missing> {
    static AVAILABLE: OnceLock<Result<(), Missing>> = OnceLock::new();
    let try_it = || {
        if !geteuid().is_root() {
            return Err(Missing("root, for network namespaces".to_owned()));
        }
        for program in ["ip", "tc"] {
            if let Err(error) = Command::new(program).arg("-V").output() {
                return Err(Missing(format!("`{program}`, of iproute2: {error}")));
            }
        }
        let shaped = || {
            let (a, b) = (Host::new()?, Host::new()?);
            let _switch = Switch::new()?;
            link(&a, &b, Rate::Megabits(100))
        };
        match shaped() {
            Ok(_) => Ok(()),
            Err(error) => Err(Missing(format!("working network namespaces: {error}"))),
        }
    };
    AVAILABLE.get_or_init(try_it).clone()
}

/// A host: a network namespace with a loopback interface of its own.
#[derive(Debug)]
pub struct Host {
    name: String,
    interfaces: AtomicU16,
}

impl Host {
    /// A host that is connected to nothing.
    pub fn new() -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        static SWEEP: Once = Once::new();
        SWEEP.call_once(remove_stale);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{count}", std::process::id());
        run(&["ip", "netns", "add", &name])?;
        // From here on dropping it removes the namespace.
        let host = Self {
            name,
            interfaces: AtomicU16::new(0),
        };
        run(&["ip", "-n", &host.name, "link", "set", "lo", "up"])?;
        Ok(host)
    }

    /// The name of the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs on this host.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]);
        command.arg(program.as_ref());
        command
    }

    /// Runs `work` on this host: the sockets that it opens belong to it for good.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let namespace = fs::File::open(Path::new(NAMED).join(&self.name))?;
        thread::scope(|scope| {
            // A thread of its own, which takes its move with it when it ends.
            let inside = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), network)?;
                Ok(work())
            });
            match inside.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn new_interface(&self) -> String {
        format!("eth{}", self.interfaces.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// A network that any number of hosts are attached to.
#[derive(Debug)]
pub struct Switch {
    host: Host,
    subnet: Subnet,
    /// Where its cables go, in the order in which hosts were attached.
    ports: Mutex<Vec<String>>,
}

impl Switch {
    /// A network without hosts.
    pub fn new() -> io::Result<Self> {
        let host = Host::new()?;
        run(&[
            "ip", "-n", &host.name, "link", "add", "bridge", "type", "bridge",
        ])?;
        run(&["ip", "-n", &host.name, "link", "set", "bridge", "up"])?;
        Ok(Self {
            host,
            subnet: Subnet::next(),
            ports: Mutex::default(),
        })
    }

    /// Attaches `host` by a cable of `rate`, and says which address it got.
    pub fn attach(&self, host: &Host, rate: Rate) -> io::Result<Ipv4Addr> {
        let (inner, port) = cable(host, &self.host, rate)?;
        self.set_port(&port, &["master", "bridge"])?;
        let place = {
            let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
            ports.push(port);
            u16::try_from(ports.len()).map_err(io::Error::other)?
        };
        let address = self.subnet.address(place);
        give_address(host, &inner, address)?;
        Ok(address)
    }

    /// From now on nothing passes from or to the host with this address, and nobody is told.
    pub fn cut(&self, address: Ipv4Addr) -> io::Result<()> {
        self.set_port(&self.port(address)?, &["nomaster"])
    }

    /// It passes again.
    pub fn mend(&self, address: Ipv4Addr) -> io::Result<()> {
        self.set_port(&self.port(address)?, &["master", "bridge"])
    }

    fn port(&self, address: Ipv4Addr) -> io::Result<String> {
        let [.., place] = address.octets();
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let port = usize::from(place).checked_sub(1);
        port.and_then(|port| ports.get(port).cloned())
            .ok_or_else(|| io::Error::other(format!("no host has {address}")))
    }

    fn set_port(&self, port: &str, how: &[&str]) -> io::Result<()> {
        let before = ["ip", "-n", &self.host.name, "link", "set", port];
        run(&[&before, how].concat())
    }
}

/// Connects two hosts by a cable of `rate`; their addresses, in the same order.
pub fn link(a: &Host, b: &Host, rate: Rate) -> io::Result<(Ipv4Addr, Ipv4Addr)> {
    let (at_a, at_b) = cable(a, b, rate)?;
    let subnet = Subnet::next();
    let addresses = (subnet.address(1), subnet.address(2));
    give_address(a, &at_a, addresses.0)?;
    give_address(b, &at_b, addresses.1)?;
    Ok(addresses)
}

/// 10.x.y.0/24: no two networks of a test program share addresses.
#[derive(Debug, Clone, Copy)]
struct Subnet(u16);

impl Subnet {
    fn next() -> Self {
        static COUNT: AtomicU16 = AtomicU16::new(0);
        Self(COUNT.fetch_add(1, Ordering::Relaxed))
    }

    fn address(self, place: u16) -> Ipv4Addr {
        let [high, low] = self.0.to_be_bytes();
        let last = u8::try_from(place).expect("a network has at most 254 hosts");
        Ipv4Addr::new(10, high, low, last)
    }
}

/// A pair of interfaces, up and shaped; their names.
fn cable(a: &Host, b: &Host, rate: Rate) -> io::Result<(String, String)> {
    let (at_a, at_b) = (a.new_interface(), b.new_interface());
    run(&[
        "ip", "link", "add", &at_a, "netns", &a.name, "type", "veth", "peer", "name", &at_b,
        "netns", &b.name,
    ])?;
    for (host, interface) in [(a, &at_a), (b, &at_b)] {
        shape(host, interface, rate)?;
        run(&["ip", "-n", &host.name, "link", "set", interface, "up"])?;
    }
    Ok((at_a, at_b))
}

fn shape(host: &Host, interface: &str, rate: Rate) -> io::Result<()> {
    let Rate::Megabits(megabits) = rate else {
        return Ok(());
    };
    // What the rate carries in a millisecond.
    let burst = (u64::from(megabits) * 125).max(LEAST_BURST_BYTES);
    run(&[
        "tc",
        "-n",
        &host.name,
        "qdisc",
        "add",
        "dev",
        interface,
        "root",
        "tbf",
        "rate",
        &format!("{megabits}mbit"),
        "burst",
        &format!("{burst}b"),
        "latency",
        QUEUE,
    ])
}

fn give_address(host: &Host, interface: &str, address: Ipv4Addr) -> io::Result<()> {
    let address = format!("{address}/24");
    run(&[
        "ip", "-n", &host.name, "addr", "add", &address, "dev", interface,
    ])
}

fn run(command: &[&str]) -> io::Result<()> {
    let output = Command::new(command[0]).args(&command[1..]).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{}: {}",
        command.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// Kills what runs in a namespace, and removes it.
fn remove(name: &str) {
    for _ in 0..KILL_ATTEMPTS {
        let processes = processes_in(name);
        if processes.is_empty() {
            break;
        }
        for process in processes {
            // It may have ended in between.
            let _ = kill_process(process, Signal::KILL);
        }
        thread::sleep(KILL_PAUSE);
    }
    if let Err(error) = run(&["ip", "netns", "delete", name]) {
        eprintln!("{error}");
    }
}

/// The processes in a namespace, but those that have ended and wait to be noticed.
fn processes_in(name: &str) -> Vec<Pid> {
    let Ok(output) = Command::new("ip").args(["netns", "pids", name]).output() else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| Pid::from_raw(line.trim().parse().ok()?))
        .collect()
}

/// Removes the namespaces of test programs that are no more.
fn remove_stale() {
    let Ok(entries) = fs::read_dir(NAMED) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            remove(&name);
        }
    }
}
