//! Services whose log nobody reads: they go on, and end when they are told to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use madgate_tm::Endpoint;
use madgate_vchannel::Cluster;
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{PROGRAM, World};

/// Bytes of the smallest pipe.
const PIPE_BYTES: usize = 4096;

/// Killed when it is dropped.
struct Service(Child);

impl Service {
    /// A service whose stderr is a pipe that is full, once it is ready.
    fn unread(arguments: &[&str], world: &World) -> Self {
        let (reader, mut full) = std::io::pipe().unwrap();
        let size = rustix::pipe::fcntl_setpipe_size(&full, PIPE_BYTES).unwrap();
        full.write_all(&vec![b'.'; size]).unwrap();
        let mut child = Command::new(PROGRAM)
            .args(&arguments[..1])
            .arg(world.cluster())
            .args(&arguments[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(full)
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let service = Self(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{line}");
        // Open and not read for as long as this process lives.
        std::mem::forget(reader);
        service
    }

    /// Ends it with SIGTERM.
    fn end(mut self) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn services_do_not_wait_for_who_reads_their_log() {
    let world = World::over("tcp", "5s");
    let gateway = Service::unread(&["gateway", "--node", "gw"], &world);
    let served = world.served();
    let serve = ["serve", "--node", "b0", "--dir", served.to_str().unwrap()];
    let serve = Service::unread(&serve, &world);
    let cluster = Cluster::read(world.cluster()).unwrap();
    for (node, network) in [("gw", "left"), ("b0", "right")] {
        let (node, network) = (cluster.node(node), cluster.network_named(network));
        let Some(Endpoint::Tcp { host, port }) = cluster.address(node.unwrap(), network.unwrap())
        else {
            panic!("no address");
        };
        // What is no member is logged.
        let mut stranger = TcpStream::connect((host.as_str(), port)).unwrap();
        stranger.write_all(&[b'x'; 200]).unwrap();
    }
    let file = world.file("small", 100_000);
    world.cp(&[&file], "").succeeded();
    assert_eq!(world.received(), ["small"]);
    serve.end();
    gateway.end();
}
