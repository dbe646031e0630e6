//! A node that its gateway cannot dial, as behind a firewall: it speaks first, and the rest comes by
//! the link that it has dialled.

use std::fs;

use crate::support::have;
use crate::support::netns::{Host, Rate, available, link};
use crate::world::{PROGRAM, Process, World};

/// One of the command's programs, on a host.
fn start(host: &Host, arguments: &[&str]) -> Process {
    let mut command = host.command(PROGRAM);
    command.args(arguments);
    Process::start(command)
}

#[test]
fn a_node_that_cannot_be_dialled_is_answered_and_comes_back_when_its_gateway_does() {
    if !have(available()) {
        return;
    }
    let world = World::new("3s");
    let (left, right) = (Host::new().unwrap(), Host::new().unwrap());
    let (_, gw) = link(&left, &right, Rate::Megabits(1000)).unwrap();
    // a0 is at 127.0.0.1 of its own host, where nobody else reaches it.
    let text = fs::read_to_string(world.cluster()).unwrap();
    let (before, of_gw) = text.split_once("name = \"gw\"").unwrap();
    let of_gw = of_gw.replacen("127.0.0.1", &gw.to_string(), 1);
    fs::write(world.cluster(), format!("{before}name = \"gw\"{of_gw}")).unwrap();

    let (cluster, served) = (world.cluster(), world.served());
    let (cluster, folder) = (cluster.to_str().unwrap(), served.to_str().unwrap());
    let gateway = || start(&right, &["gateway", cluster, "--node", "gw"]).wait_ready();
    let first = gateway();
    let _serve = start(&right, &["serve", cluster, "--node", "b0", "--dir", folder]).wait_ready();
    let file = world.file("file", 1_000_000);
    let cp = ["cp", cluster, "--node", "a0", file.to_str().unwrap(), "b0:"];
    start(&left, &cp).end().succeeded();
    assert_eq!(world.received(), ["file"]);

    // Everything comes back to a0, which has nothing to send for longer than links may be lost.
    let bench = ["bench", cluster, "--node", "a0", "--to", "b0", "stream"];
    let back = ["--direction", "back", "--time", "7s", "--interval", "200ms"];
    let mut bench = start(&left, &[&bench[..], &back].concat());
    // A first figure: it is under way.
    assert!(bench.next_line().contains("at "));
    first.kill();
    let _again = gateway();
    bench.end().succeeded();
}
