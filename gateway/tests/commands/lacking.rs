//! What a host lacks is said, with what to do about it.

use std::fs;
use std::process::Command;

use crate::support::have;
use crate::world::{PROGRAM, Process, World, own_mounts};

/// A gateway, started by a shell after `first`.
fn gateway_after(world: &World, mut shell: Command, first: &str) -> Process {
    let script = format!("{first}\nexec \"$0\" gateway \"$1\" --node gw");
    shell.args(["-c", &script, PROGRAM]).arg(world.cluster());
    Process::start(shell)
}

/// Wherever descriptors run out, the process does not start, and says what its user can do.
#[test]
fn descriptors_that_run_out_are_said() {
    for right in ["tcp", "shm", "hsl"] {
        let world = World::over(right, "30s");
        let mut refused = 0;
        for most in 8.. {
            let first = format!("ulimit -n {most}");
            let mut gateway = gateway_after(&world, Command::new("sh"), &first);
            if gateway.next_line().contains("ready") {
                break;
            }
            let ended = gateway.end();
            let last = ended.stderr.lines().last().unwrap();
            assert_eq!(ended.status.code(), Some(1), "{right}, {most}: {last}");
            let all = ["cannot start gateway gw", "raise `ulimit -n`"];
            assert!(
                all.iter().all(|it| last.contains(it)),
                "{right}, {most}: {last}"
            );
            refused += 1;
        }
        assert!(refused > 0, "{right}: eight are enough");
    }
}

/// Hides libfabric, if there is one.
const WITHOUT_LIBFABRIC: &str = "\
    at=$(/sbin/ldconfig -p | sed -n 's/.*=> \\(.*libfabric[.]so[.]1\\)$/\\1/p' | head -n 1)\n\
    [ -z \"$at\" ] || mount --bind /dev/null \"$at\"";

#[test]
fn a_host_without_libfabric_is_told_once_it_needs_it() {
    if !have(own_mounts("to hide a library")) {
        return;
    }
    let without = || {
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "sh"]);
        shell
    };
    // Who does not ask for it does not miss it.
    let world = World::over("tcp", "30s");
    let _ready = gateway_after(&world, without(), WITHOUT_LIBFABRIC).wait_ready();

    let world = World::over("tcp", "30s");
    let text = fs::read_to_string(world.cluster()).unwrap();
    let tcp = "name = \"right\"\nprotocol = \"tcp\"";
    let card = "name = \"right\"\nprotocol = \"hsl\"\ndevice = \"libfabric\"";
    assert!(text.contains(tcp));
    fs::write(world.cluster(), text.replace(tcp, card)).unwrap();
    gateway_after(&world, without(), WITHOUT_LIBFABRIC)
        .end()
        .failed_with(&[
            "cannot listen on right",
            "this host has no libfabric",
            "apt-get install libfabric1",
        ]);
}
