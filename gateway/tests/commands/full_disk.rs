//! A disk that is full at the receiver.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::have;
use crate::world::{PROGRAM, Process, World, own_mounts};

#[test]
fn a_full_disk_is_said_and_harms_nothing_else() {
    if !have(own_mounts("for a small disk")) {
        return;
    }
    let world = World::new("30s");
    let _gateway = world.gateway();
    let mut command = Command::new("unshare");
    let script =
        "mount -t tmpfs -o size=4m tmpfs \"$2\" && exec \"$0\" serve \"$1\" --node b0 --dir \"$2\"";
    command.args(["--mount", "sh", "-c", script, PROGRAM]);
    command.args([world.cluster(), world.served()]);
    let serve = Process::start(command).wait_ready();
    // Its files, as seen by the process.
    let inside = |name: &str| -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", serve.id()));
        root.join(world.served().strip_prefix("/").unwrap())
            .join(name)
    };
    let (before, large, after) = (
        world.file("before", 1000),
        world.file("large", 8 << 20),
        world.file("after", 2000),
    );

    let ended = world.cp(&[&before, &large, &after], "");
    ended.failed_with(&["large: at the destination: the disk is full"]);
    ended.failed_with(&["NOT ALL was copied to b0: 2 files were", ", 1 was not\n"]);
    let mut names: Vec<_> = fs::read_dir(inside(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["after", "before"]);
    assert_eq!(
        fs::read(inside("after")).unwrap(),
        fs::read(&after).unwrap()
    );
}
