//! `bench`, to a node beyond a gateway and to the gateway itself.

use std::ffi::OsStr;

use serde_json::Value;

use crate::world::{World, run};

fn bench(world: &World, to: &str, more: &[&str]) -> Vec<Value> {
    let cluster = world.cluster();
    let before = ["--node", "a0", "--to", to, "--time", "50ms", "--json"];
    let arguments = [OsStr::new("bench"), cluster.as_os_str()];
    let rest = before.iter().chain(more).map(OsStr::new);
    let output = run(arguments.into_iter().chain(rest));
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn every_size_is_measured_and_checked() {
    let world = World::new("30s");
    let (_gateway, _serve) = (world.gateway(), world.serve());
    for to in ["b0", "gw"] {
        let results = bench(&world, to, &["pingpong", "--size", "0B,8B,5000B,1MiB"]);
        assert_eq!(results.len(), 4);
        for result in results {
            assert_eq!(result["to"], to);
            assert!(result["round_trips"].as_u64().unwrap() > 0, "{result}");
            let us = |name: &str| result[name].as_f64().unwrap();
            assert!(
                us("min_us") <= us("p50_us") && us("p50_us") <= us("max_us"),
                "{result}"
            );
        }
        let results = bench(&world, to, &["stream", "--size", "0B,8B,64KiB,3MiB"]);
        let sizes: Vec<_> = results
            .iter()
            .map(|result| &result["message_bytes"])
            .collect();
        assert_eq!(sizes, [0, 8, 64 << 10, 3 << 20]);
        assert!(
            results
                .iter()
                .all(|result| result["messages_per_s"].as_f64().unwrap() > 0.0)
        );
    }
}
