//! `madgate tune list`: every knob of a cluster file.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use madgate_vchannel::Cluster;

use super::choices::Choice;
use crate::failure::Failure;
use crate::knobs::{Kind, Plan, SETTINGS, names};
use crate::output::print;
use crate::tunable::processors;

/// Names every knob of a cluster file, with its meaning, its value, its default and what is tried;
/// and what is for its owner to set, and not searched.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The cluster file.
    cluster: PathBuf,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let plan = Plan::read(&arguments.cluster)?;
    print(&list(&plan))
}

fn list(plan: &Plan) -> String {
    let mut out = knobs(plan.cluster());
    settings(plan.cluster(), &mut out);
    out
}

fn knobs(cluster: &Cluster) -> String {
    let channels = cluster.channels().iter();
    let channels: Vec<&str> = channels.map(|channel| channel.name.as_str()).collect();
    let networks = cluster.networks().iter();
    let networks: Vec<&str> = networks.map(|network| network.name.as_str()).collect();
    let mut out = String::new();
    for name in names(&channels, &networks, cluster) {
        let Some(choice) = Choice::new(name, cluster, &processors()) else {
            continue;
        };
        let (name, present) = (&choice.name, &choice.values[choice.present]);
        let knob = name.knob();
        let default = name.default_in(cluster);
        let default = match default {
            Some(default) if default == *present => "the default".to_owned(),
            Some(default) => format!("by default {default}"),
            None => "without a default".to_owned(),
        };
        let tried: Vec<String> = choice.values.iter().map(ToString::to_string).collect();
        let between = if knob.kind == Kind::Pin { "; " } else { ", " };
        // Writing to a `String` cannot fail.
        let _ = write!(
            out,
            "{name} = {present} ({default})\n  {}\n  tried: {}\n",
            knob.meaning,
            tried.join(between)
        );
    }
    out
}

/// What is not searched.
fn settings(cluster: &Cluster, out: &mut String) {
    for setting in &SETTINGS {
        for set in setting.sets(cluster) {
            let default = if set.value == set.default {
                "the default".to_owned()
            } else {
                format!("by default {}", set.default)
            };
            // Writing to a `String` cannot fail.
            let _ = write!(
                out,
                "{} = {} ({default})\n  {}\n  yours to set, not searched: {}\n",
                set.name, set.value, setting.meaning, setting.why
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_listed_with_its_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        let file = r#"
session = { name = "s", key_file = "key" }
network = [{ name = "left", protocol = "tcp" }]
node = [
    { name = "a", addresses = { left = "127.0.0.1:7001" } },
    { name = "b[0-2]", rate = "80Mbit/s", memory = "32MiB", addresses = { left = "127.0.0.1:700[2-4]" } },
]
channel = [{ name = "main", networks = ["left"], mtu = "64KiB", weight = 3 }]
gateway = { depth = 2, wait = "spin", memory = "64MiB" }
"#;
        std::fs::write(&path, file).unwrap();
        let list = list(&Plan::read(&path).unwrap());
        for part in [
            "channel.main.mtu = 64KiB (by default 1MiB)\n  the largest fragment",
            "tried: 16KiB, 32KiB, 64KiB, 128KiB",
            "gateway.depth = 2 (the default)\n",
            "gateway.wait = spin (by default adaptive 100us)\n",
            "network.left.unsent = 2MiB (the default)\n",
            "network.left.urgent_unsent = 64KiB (the default)\n",
            "network.left.mtu = what its protocol carries (the default)\n",
            "network.left.rate = none (the default)\n",
            "network.left.cost = 1 (the default)\n",
            "network.left.congestion = the system's (the default)\n",
            "channel.main.rate = none (the default)\n",
            "channel.main.weight = 3 (by default 1)\n  how much of a link",
            "gateway.memory = 64MiB (by default 1GiB)\n",
            "endpoint.memory = 256MiB (the default)\n",
            "node.b[0-2].rate = 80Mbit/s (by default none)\n",
            "node.*.rate = none (the default)\n",
            "node.b[0-2].memory = 32MiB (by default that of [gateway] or [endpoint])\n",
            "  yours to set, not searched: it is a cap, and what it is good for shows with many flows\n",
            "network.left.keepalive = 10s (the default)\n",
            "network.left.user_timeout = 30s (the default)\n",
        ] {
            assert!(list.contains(part), "{part}: {list}");
        }
        for foreign in ["slot_bytes", "urgent_slots", "device", "provider", "domain"] {
            assert!(!list.contains(foreign), "{foreign}: {list}");
        }
    }
}
