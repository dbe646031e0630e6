//! A cluster of processes: a0 and a1 on TCP, b0 on shared memory (or another network), gw
//! between them.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::Missing;

/// Tells a process to end with this one, whatever happens.
const PARENT: &str = "MADGATE_PARENT";

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_madgate");

/// Folders and files of one test.
pub(crate) struct World {
    place: TempDir,
}

impl World {
    /// A cluster whose lost links may stay away for `link_timeout`.
    pub(crate) fn new(link_timeout: &str) -> Self {
        Self::over("shm", link_timeout)
    }

    /// The same, with b0 on a network of this protocol.
    pub(crate) fn over(right: &str, link_timeout: &str) -> Self {
        let trust = if right == "hsl" {
            "trust = \"memory\"\n"
        } else {
            ""
        };
        let listeners: Vec<_> = (0..5)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let ports: Vec<_> = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap().port())
            .collect();
        let (directory, gw, b0) = if right == "tcp" {
            let address = |port: u16| format!("127.0.0.1:{port}");
            ("", address(ports[3]), address(ports[4]))
        } else {
            (
                "directory = \"meeting\"\n",
                "gw".to_owned(),
                "b0".to_owned(),
            )
        };
        let place = tempfile::Builder::new()
            .prefix("mg-")
            .tempdir_in("/tmp")
            .unwrap();
        let world = Self { place };
        let key = world.path("session.key");
        assert!(run(["keygen".as_ref(), key.as_os_str()]).status.success());
        let mut text = format!(
            "[session]\nname = \"test\"\nkey_file = \"session.key\"\nlink_timeout = \"{link_timeout}\"\n\
             [[network]]\nname = \"left\"\nprotocol = \"tcp\"\n\
             [[network]]\nname = \"right\"\nprotocol = \"{right}\"\n{directory}{trust}\
             [[channel]]\nname = \"main\"\nnetworks = [\"left\", \"right\"]\n"
        );
        for (name, port, more) in [
            ("a0", ports[0], ""),
            ("a1", ports[1], ""),
            ("gw", ports[2], &format!(", right = \"{gw}\"")),
        ] {
            let gateway = name == "gw";
            writeln!(
                text,
                "[[node]]\nname = \"{name}\"\ngateway = {gateway}\n\
                 addresses = {{ left = \"127.0.0.1:{port}\"{more} }}"
            )
            .unwrap();
        }
        writeln!(
            text,
            "[[node]]\nname = \"b0\"\naddresses = {{ right = \"{b0}\" }}"
        )
        .unwrap();
        fs::write(world.cluster(), text).unwrap();
        fs::create_dir(world.served()).unwrap();
        world
    }

    /// A path in the folder of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn cluster(&self) -> PathBuf {
        self.path("cluster.toml")
    }

    /// The folder that b0 serves.
    pub(crate) fn served(&self) -> PathBuf {
        self.path("served")
    }

    /// A file of `size` bytes that differ.
    pub(crate) fn file(&self, name: &str, size: usize) -> PathBuf {
        let path = self.path(name);
        let bytes: Vec<u8> = (0_u32..)
            .flat_map(|word| word.wrapping_mul(0x9e37_79b1).to_le_bytes())
            .take(size)
            .collect();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The cluster file again, in a folder of its own with another session key.
    pub(crate) fn cluster_with_other_key(&self) -> PathBuf {
        let folder = self.path("other-key");
        fs::create_dir(&folder).unwrap();
        let key = folder.join("session.key");
        assert!(run(["keygen".as_ref(), key.as_os_str()]).status.success());
        let text = fs::read_to_string(self.cluster()).unwrap();
        fs::write(folder.join("cluster.toml"), text).unwrap();
        folder.join("cluster.toml")
    }

    /// The cluster file of another session, with the same key.
    pub(crate) fn other_cluster(&self) -> PathBuf {
        let text = fs::read_to_string(self.cluster()).unwrap();
        let path = self.path("other.toml");
        fs::write(&path, text.replace("\"test\"", "\"test2\"")).unwrap();
        path
    }

    pub(crate) fn gateway(&self) -> Process {
        self.gateway_with(&[])
    }

    pub(crate) fn gateway_with(&self, more: &[&str]) -> Process {
        let cluster = self.cluster();
        let before = [OsStr::new("gateway"), cluster.as_os_str()];
        let rest = ["--node", "gw"].iter().chain(more).map(OsStr::new);
        Process::ready(before.into_iter().chain(rest))
    }

    pub(crate) fn serve(&self) -> Process {
        self.serve_with(&[])
    }

    pub(crate) fn serve_with(&self, more: &[&str]) -> Process {
        let (cluster, served) = (self.cluster(), self.served());
        let before = [
            "serve".as_ref(),
            cluster.as_os_str(),
            "--node".as_ref(),
            "b0".as_ref(),
            "--dir".as_ref(),
            served.as_os_str(),
        ];
        Process::ready(before.into_iter().chain(more.iter().map(OsStr::new)))
    }

    /// Starts to tune the way from a0 to b0.
    pub(crate) fn start_tune(&self, more: &[&str]) -> Process {
        let cluster = self.cluster();
        let before = [OsStr::new("tune"), cluster.as_os_str()];
        let nodes = ["--node", "a0", "--to", "b0"];
        let rest = nodes.iter().chain(more).map(OsStr::new);
        Process::start(program(before.into_iter().chain(rest)))
    }

    /// Copies to b0.
    pub(crate) fn cp(&self, sources: &[&Path], path: &str) -> Ended {
        self.start_cp("a0", sources, path).end()
    }

    /// Starts to copy to b0.
    pub(crate) fn start_cp(&self, node: &str, sources: &[&Path], path: &str) -> Process {
        Self::start_cp_of(&self.cluster(), node, sources, path)
    }

    /// Starts to copy to b0, as a node of this cluster file.
    pub(crate) fn start_cp_of(
        cluster: &Path,
        node: &str,
        sources: &[&Path],
        path: &str,
    ) -> Process {
        let destination = format!("b0:{path}");
        let mut arguments: Vec<&OsStr> = vec![
            "cp".as_ref(),
            cluster.as_os_str(),
            "--node".as_ref(),
            node.as_ref(),
        ];
        arguments.extend(sources.iter().map(|source| source.as_os_str()));
        arguments.push(destination.as_ref());
        Process::start(program(arguments))
    }

    /// Starts to measure the way from a0 to b0.
    pub(crate) fn start_bench(&self, more: &[&str]) -> Process {
        Self::start_bench_of(&self.cluster(), more)
    }

    /// Starts to measure that way, as a node of this cluster file.
    pub(crate) fn start_bench_of(cluster: &Path, more: &[&str]) -> Process {
        let nodes = ["--node", "a0", "--to", "b0"];
        let before = [OsStr::new("bench"), cluster.as_os_str()];
        let rest = nodes.iter().chain(more).map(OsStr::new);
        Process::start(program(before.into_iter().chain(rest)))
    }

    /// Every file and folder that b0 has received, hidden ones too.
    pub(crate) fn received(&self) -> Vec<String> {
        let mut names = Vec::new();
        list(&self.served(), &self.served(), &mut names);
        names.sort();
        names
    }
}

fn list(top: &Path, folder: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        names.push(path.strip_prefix(top).unwrap().to_str().unwrap().to_owned());
        if path.symlink_metadata().unwrap().is_dir() {
            list(top, &path, names);
        }
    }
}

/// Whether a process can have mounts that nobody else sees, and that go with it: `why` it should.
pub(crate) fn own_mounts(why: &str) -> Result<(), Missing> {
    let made = Command::new("unshare").args(["--mount", "true"]).output();
    match made {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(Missing(format!(
            "root, and unshare(1) of util-linux, {why}"
        ))),
    }
}

pub(crate) fn program<'a>(arguments: impl IntoIterator<Item = &'a OsStr>) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    command
}

/// Runs the command to its end.
pub(crate) fn run<'a>(arguments: impl IntoIterator<Item = &'a OsStr>) -> Output {
    program(arguments).output().unwrap()
}

/// How a process ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn succeeded(&self) -> &Self {
        assert!(self.status.success(), "{self:?}");
        self
    }

    /// It failed with exit code 1, and said all of this.
    pub(crate) fn failed_with(&self, words: &[&str]) -> &Self {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing: {self:?}");
        }
        self
    }
}

/// A process; killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    stderr: Option<JoinHandle<String>>,
    /// The lines of stderr, as they come.
    said: Receiver<String>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        let (say, said) = channel();
        // Read all the time, so that it never waits to log.
        let stderr = child.stderr.take().map(|stderr| {
            thread::spawn(move || {
                let mut text = String::new();
                for line in BufReader::new(stderr).lines().map(Result::unwrap) {
                    text.push_str(&line);
                    text.push('\n');
                    // Nobody may wait for it.
                    let _ = say.send(line);
                }
                text
            })
        });
        Self {
            child,
            stdout,
            stderr,
            said,
        }
    }

    /// Waits until it says a line with all of these words on stderr, and returns that.
    pub(crate) fn wait_said(&self, words: &[&str]) -> String {
        let is_it = |line: &String| words.iter().all(|word| line.contains(word));
        let line = self.said.iter().find(is_it);
        line.unwrap_or_else(|| panic!("{words:?} was not said before the end"))
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn ready<'a>(arguments: impl IntoIterator<Item = &'a OsStr>) -> Self {
        Self::start(program(arguments)).wait_ready()
    }

    /// Waits for the line that a service prints when it is ready.
    pub(crate) fn wait_ready(mut self) -> Self {
        if !self.next_line().contains("ready") {
            panic!("not ready: {:?}", self.end());
        }
        self
    }

    /// Waits for the next line that it prints.
    pub(crate) fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// Takes nothing of what it prints any more.
    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub(crate) fn kill(self) -> Ended {
        self.signal(Signal::KILL);
        self.end()
    }

    /// Ends it with SIGTERM, and waits until it is gone.
    pub(crate) fn terminate(self) -> Ended {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let mut stdout = String::new();
        if let Some(mut rest) = self.stdout.take() {
            rest.read_to_string(&mut stdout).unwrap();
        }
        let stderr = self.stderr.take().unwrap().join().unwrap();
        Ended {
            status: self.child.wait().unwrap(),
            stdout,
            stderr,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
