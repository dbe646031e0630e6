//! Nodes whose cluster files say other things about what a network carries.

use std::fs;

use crate::world::{Process, World, program};

#[test]
fn a_gateway_refuses_fragments_that_the_next_nodes_slots_cannot_hold() {
    let world = World::over("hsl", "5s");
    let text = fs::read_to_string(world.cluster()).unwrap();
    let trust = "trust = \"memory\"\n";
    let small = text.replacen(trust, &format!("{trust}slot_bytes = \"16KiB\"\n"), 1);
    let of_b0 = world.path("small.toml");
    fs::write(&of_b0, small).unwrap();
    let serve = |cluster: &std::path::Path| {
        let (cluster, served) = (cluster.as_os_str(), world.served());
        let arguments = ["serve".as_ref(), cluster, "--node".as_ref(), "b0".as_ref()];
        let folder = ["--dir".as_ref(), served.as_os_str()];
        Process::start(program(arguments.into_iter().chain(folder))).wait_ready()
    };
    let file = world.file("file", 1_000_000);

    let gateway = world.gateway();
    let b0 = serve(&of_b0);
    world
        .cp(&[&file], "")
        .failed_with(&["the nodes disagree about the cluster"]);
    gateway.wait_said(&["a flow is refused", "slot_bytes"]);
    assert!(world.received().is_empty());
    // The link to b0 was fine, and nobody else's is closed for it.
    b0.terminate().succeeded();
    let _b0 = serve(&world.cluster());
    world.cp(&[&file], "").succeeded();
    let said = gateway.terminate().stderr;
    assert!(!said.contains("link closed"), "{said}");
}
