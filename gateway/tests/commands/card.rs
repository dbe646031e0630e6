//! The command's programs on a network whose card is libfabric's.

use std::fs;

use madgate_tm::conformance::has_card;
use madgate_tm::hsl::Card;
use rustix::process::Signal;

use crate::world::World;

const PROVIDER: &str = "tcp;ofi_rxm";

/// b0 is behind such a network; nothing, where the provider cannot be had.
fn world() -> Option<World> {
    let card = Card::Libfabric {
        provider: Some(PROVIDER.to_owned()),
        domain: None,
    };
    if !has_card(&card) {
        return None;
    }
    let world = World::over("hsl", "5s");
    let text = fs::read_to_string(world.cluster()).unwrap();
    let device = format!("device = \"libfabric\"\nprovider = \"{PROVIDER}\"\n");
    let text = text.replacen("trust = \"memory\"\n", &device, 1);
    assert!(text.contains(PROVIDER));
    fs::write(world.cluster(), text).unwrap();
    Some(world)
}

/// What libfabric loads must not take signals over.
#[test]
fn signals_end_programs_in_order_though_libfabric_is_loaded() {
    let Some(world) = world() else {
        return;
    };
    let file = world.file("file", 1_000_000);
    for signal in [Signal::TERM, Signal::INT] {
        let (gateway, serve) = (world.gateway(), world.serve());
        world.cp(&[&file], "").succeeded();
        assert_eq!(world.received(), ["file"]);
        for (program, word) in [(serve, "leaving"), (gateway, "drained")] {
            program.signal(signal);
            let ended = program.end();
            ended.succeeded();
            let said = [&ended.stdout[..], &ended.stderr].concat();
            assert!(said.contains(word), "{signal:?}: {ended:?}");
        }
        fs::remove_file(world.served().join("file")).unwrap();
    }
}
