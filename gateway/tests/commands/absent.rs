//! Peers that refuse or are not there: who cannot go on says so at once, and nobody else is
//! alarmed.

use std::process::Command;

use crate::world::{PROGRAM, Process, World};

#[test]
fn a_refusal_is_told_at_once_and_named_at_the_end() {
    let world = World::new("3s");
    let _gateway = world.gateway();
    let file = world.file("file", 1000);
    let (other_key, other_cluster) = (world.cluster_with_other_key(), world.other_cluster());
    for (cluster, reason) in [
        (&other_key, "another session key"),
        (&other_cluster, "another cluster file"),
    ] {
        let bench = ["pingpong", "--time", "50ms"];
        for start in [&|| World::start_cp_of(cluster, "a0", &[&file], ""), &|| {
            World::start_bench_of(cluster, &bench)
        }] as [&dyn Fn() -> Process; 2]
        {
            let mut process = start();
            process.wait_said(&["WARN", "no link to gw over left at 127.0.0.1:", reason]);
            assert!(process.is_running(), "it goes on until `link_timeout`");
            let ended = process.end();
            ended.failed_with(&["madgate: "]);
            let last = ended.stderr.lines().last().unwrap();
            assert!(
                last.contains("b0 was not reached for 3s (gw over left at 127.0.0.1:"),
                "{ended:?}"
            );
            assert!(last.contains(reason), "{ended:?}");
            assert_eq!(ended.stdout, "");
        }
    }
}

#[test]
fn a_gateway_that_only_serves_says_that_it_does_not_forward() {
    let world = World::new("3s");
    let mut serve = Command::new(PROGRAM);
    serve.arg("serve").arg(world.cluster());
    serve.args(["--node", "gw", "--dir"]).arg(world.served());
    let serve = Process::start(serve).wait_ready();
    serve.wait_said(&[
        "WARN",
        "gw is a gateway",
        "forwards nothing",
        "`madgate gateway`",
    ]);
    serve.terminate().succeeded();
}

#[test]
fn who_is_not_there_is_named_at_once() {
    let world = World::new("3s");
    let file = world.file("file", 1000);
    let mut copy = world.start_cp("a0", &[&file], "");
    copy.wait_said(&["INFO", "no link to gw over left", "Connection refused"]);
    assert!(copy.is_running());
    copy.end().failed_with(&[
        "NOTHING was copied to b0",
        "cannot copy to b0",
        "(gw over left at",
    ]);
}

#[test]
fn who_waits_for_a_gateway_hears_that_it_has_come() {
    let world = World::new("20s");
    let file = world.file("file", 1000);
    let copy = world.start_cp("a0", &[&file], "");
    copy.wait_said(&["INFO", "no link to gw over left", "Connection refused"]);
    let (_serve, _gateway) = (world.serve(), world.gateway());
    copy.wait_said(&["INFO", "link is there now", "gw"]);
    copy.end().succeeded();
}

#[test]
fn who_is_not_there_behind_a_gateway_is_named_long_before_the_end() {
    let world = World::new("8s");
    let _gateway = world.gateway();
    let file = world.file("file", 1000);
    let mut copy = world.start_cp("a0", &[&file], "");
    copy.wait_said(&[
        "INFO",
        "b0 is not reached yet, and tried for 8s at most: gw has no link onwards",
    ]);
    assert!(copy.is_running());
    // It comes late, and that is all.
    let _serve = world.serve();
    copy.end().succeeded();
}

#[test]
fn a_gateway_warns_of_nodes_that_are_needed_and_of_no_others() {
    let world = World::new("10s");
    let (gateway, serve) = (world.gateway_with(&["--log", "debug"]), world.serve());
    let file = world.file("file", 1000);
    world.cp(&[&file], "").succeeded();
    gateway.wait_said(&["link closed", "peer=\"a0\""]);
    let mut bench = Command::new(PROGRAM);
    bench
        .arg("bench")
        .arg(world.cluster())
        .args(["--node", "a1", "--to", "b0", "pingpong", "--time", "50ms"]);
    Process::start(bench).end().succeeded();
    gateway.wait_said(&["link closed", "peer=\"a1\""]);
    serve.terminate().succeeded();
    // Nobody serves any more, and somebody asks for it: that is told, and the others were not.
    let copy = world.start_cp("a0", &[&file], "");
    gateway.wait_said(&["WARN", "no link to b0 over right"]);
    // Nor is it a riddle later whether that goes on.
    let serve = world.serve();
    gateway.wait_said(&["INFO", "link is there now", "b0", "right"]);
    copy.end().succeeded();
    serve.terminate().succeeded();
    let ended = gateway.terminate();
    let warnings: Vec<_> = ended
        .stderr
        .lines()
        .filter(|line| line.contains("WARN") && line.contains("no link"))
        .collect();
    assert_eq!(warnings.len(), 1, "{ended:?}");
}
