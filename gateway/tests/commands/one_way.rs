//! A way that is cut in one direction: what is copied arrives, and what is answered does not.

use std::fs;

use crate::support::have;
use crate::support::netns::{Host, Rate, Switch, available};
use crate::watch::Watch;
use crate::world::{PROGRAM, Process, World};

/// Large enough that a copy which has begun is not over when its way back is cut.
const LARGE: usize = 192 << 20;

const RATE: Rate = Rate::Megabits(1000);

/// A service of the command, on a host.
fn ready(host: &Host, arguments: &[&str]) -> Process {
    let mut command = host.command(PROGRAM);
    command.args(arguments);
    Process::start(command).wait_ready()
}

#[test]
fn a_copy_whose_answers_are_lost_ends() {
    if !have(available()) {
        return;
    }
    let world = World::over("shm", "2s");
    let (left, right) = (Host::new().unwrap(), Host::new().unwrap());
    // a0 is reached over one network, and reaches the gateway over another.
    let (back, there) = (Switch::new().unwrap(), Switch::new().unwrap());
    let a0 = back.attach(&left, RATE).unwrap();
    back.attach(&right, RATE).unwrap();
    there.attach(&left, RATE).unwrap();
    let gw = there.attach(&right, RATE).unwrap();
    let text = fs::read_to_string(world.cluster()).unwrap();
    let text = text.replace(
        "protocol = \"tcp\"",
        "protocol = \"tcp\"\nuser_timeout = \"1s\"",
    );
    let nodes: Vec<_> = text.split("[[node]]").collect();
    let at = |node: &str, address| node.replace("127.0.0.1", &format!("{address}"));
    let nodes = nodes.iter().map(|node| match node {
        node if node.contains("name = \"a0\"") => at(node, a0),
        node if node.contains("name = \"gw\"") => at(node, gw),
        node => (*node).to_owned(),
    });
    fs::write(world.cluster(), nodes.collect::<Vec<_>>().join("[[node]]")).unwrap();

    let (cluster, served) = (world.cluster(), world.served());
    let (cluster, folder) = (cluster.to_str().unwrap(), served.to_str().unwrap());
    let _gateway = ready(&right, &["gateway", cluster, "--node", "gw"]);
    let serve = ready(&right, &["serve", cluster, "--node", "b0", "--dir", folder]);
    let large = world.file("large", LARGE);
    let mut watch = Watch::new(&served);
    let mut command = left.command(PROGRAM);
    command.args(["cp", cluster, "--node", "a0"]).arg(&large);
    command.arg("b0:");
    let copy = Process::start(command);
    watch.wait_for_bytes(&served, &copy);

    back.cut(a0).unwrap();
    serve.wait_said(&["copy", "answers were lost", "a0 was not reached for 2s"]);
    back.mend(a0).unwrap();
    copy.end()
        .failed_with(&["answers were lost", "large: was "]);
    assert!(world.received().is_empty(), "{:?}", world.received());
}
