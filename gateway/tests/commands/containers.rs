//! Nodes that share memory from namespaces of processes of their own, as containers have them: the
//! kernel has no number there for who is at the other end of a socket.

use std::process::Command;

use rustix::process::geteuid;

use crate::support::{Missing, have};
use crate::world::{PROGRAM, Process, World};

fn available() -> Result<(), Missing> {
    if !geteuid().is_root() {
        return Err(Missing("root, for namespaces of processes".to_owned()));
    }
    let tried = Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .status();
    match tried {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Missing(format!("namespaces of processes: {status}"))),
        Err(error) => Err(Missing(format!("`unshare`, of util-linux: {error}"))),
    }
}

#[test]
fn nodes_in_other_namespaces_of_processes_are_met_over_memory() {
    if !have(available()) {
        return;
    }
    for right in ["shm", "hsl"] {
        let world = World::over(right, "10s");
        let _gateway = world.gateway();
        let mut contained = Command::new("unshare");
        // Its parent is nobody there, and so cannot be watched.
        contained.args([
            "--pid",
            "--fork",
            "--kill-child",
            "env",
            "-u",
            "MADGATE_PARENT",
        ]);
        contained.args([PROGRAM, "serve"]).arg(world.cluster());
        contained
            .args(["--node", "b0", "--dir"])
            .arg(world.served());
        let _serve = Process::start(contained).wait_ready();
        let bench = world.start_bench(&["pingpong", "--time", "50ms"]);
        bench.end().succeeded();
    }
}
