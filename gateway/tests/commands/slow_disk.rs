//! A disk that takes its time at the receiver.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Missing, have};
use crate::world::{PROGRAM, Process, World};

/// What a test gives up after, and pauses between two looks.
const LONG: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(2);

/// Mounts the disk image `$2` at `$3`, in a mount namespace that goes with the process, and goes on.
const MOUNT: &str =
    "truncate -s 64M \"$2\" && mkfs.ext4 -q \"$2\" && mount -o loop \"$2\" \"$3\" && ";

/// Whether a disk can be made that can be frozen.
fn available(world: &World) -> Result<(), Missing> {
    let mut command = Command::new("unshare");
    let script = format!("{MOUNT} fsfreeze --freeze \"$3\" && fsfreeze --unfreeze \"$3\"");
    command.args(["--mount", "sh", "-c", &script, "sh", "-"]);
    match command.args([world.path("trial"), world.served()]).output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(Missing(
            "root, loop devices, unshare(1), mkfs.ext4(8) and fsfreeze(8), for a disk that stops"
                .into(),
        )),
    }
}

/// A disk that finishes no write until this is dropped, or the test dies.
struct Frozen(Child);

impl Frozen {
    fn freeze(mounted: &Path) -> Self {
        let script =
            "fsfreeze --freeze \"$0\" && echo frozen && read -r _; fsfreeze --unfreeze \"$0\"";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(mounted)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "frozen\n");
        Self(child)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Serves b0's folder from a disk of its own; and where that is seen from here.
fn serve(world: &World) -> (Process, PathBuf) {
    let mut command = Command::new("unshare");
    let script = format!("{MOUNT} exec \"$0\" serve \"$1\" --node b0 --dir \"$3\"");
    command.args(["--mount", "sh", "-c", &script, PROGRAM]);
    command.args([world.cluster(), world.path("disk"), world.served()]);
    let serve = Process::start(command).wait_ready();
    let root = PathBuf::from(format!("/proc/{}/root", serve.id()));
    let mounted = root.join(world.served().strip_prefix("/").unwrap());
    (serve, mounted)
}

/// Waits until a thread that receives a copy waits for the disk.
fn wait_for_the_disk(serve: &Process) {
    let waits = |thread: &Path| {
        let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
        stat.contains("(madgate-copy) D ")
    };
    let tasks = PathBuf::from(format!("/proc/{}/task", serve.id()));
    let deadline = Instant::now() + LONG;
    while !fs::read_dir(&tasks)
        .unwrap()
        .any(|thread| waits(&thread.unwrap().path()))
    {
        assert!(Instant::now() < deadline, "no copy waits for the disk");
        thread::sleep(LOOK);
    }
}

#[test]
fn an_older_copy_replaces_nothing_of_a_newer_one() {
    let world = World::new("10s");
    if !have(available(&world)) {
        return;
    }
    let _gateway = world.gateway();
    let (serve, mounted) = serve(&world);
    let (old, new) = (world.file("old", 3000), world.file("new", 5000));
    let frozen = Frozen::freeze(&mounted);
    let older = world.start_cp("a0", &[&old], "data");
    wait_for_the_disk(&serve);
    older.kill();
    let newer = world.start_cp("a0", &[&new], "data");
    drop(frozen);
    newer.end().succeeded();
    let copied = fs::read(mounted.join("data")).unwrap();
    assert!(copied == fs::read(&new).unwrap());
    world.cp(&[&new], "again").succeeded();
    assert!(copied == fs::read(mounted.join("data")).unwrap());
    serve.terminate().succeeded();
}

#[test]
fn a_disk_that_stops_for_a_while_is_no_silence() {
    let world = World::new("1s");
    if !have(available(&world)) {
        return;
    }
    let _gateway = world.gateway();
    let (_serve, mounted) = serve(&world);

    let file = world.file("file", 20 << 20);
    let frozen = Frozen::freeze(&mounted);
    let mut copy = world.start_cp("a0", &[&file], "");
    // Longer than a receiver may say nothing; others go on meanwhile.
    let mut bench = Command::new(PROGRAM);
    bench.arg("bench").arg(world.cluster());
    bench.args(["--node", "a1", "--to", "b0", "pingpong", "--time", "14s"]);
    Process::start(bench).end().succeeded();
    assert!(copy.is_running());
    drop(frozen);
    copy.end().succeeded();
    assert!(fs::read(mounted.join("file")).unwrap() == fs::read(&file).unwrap());
}
