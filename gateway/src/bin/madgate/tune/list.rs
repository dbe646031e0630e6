//! `madgate tune list`: every knob of a cluster file.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::choices::Choice;
use crate::failure::Failure;
use crate::knobs::{Kind, Plan, names};
use crate::output::print;
use crate::tunable::processors;

/// Names every knob of a cluster file, with its meaning, its value, its default and what is tried.
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
    let cluster = plan.cluster();
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
node = [{ name = "a", addresses = { left = "127.0.0.1:7001" } }]
channel = [{ name = "main", networks = ["left"], mtu = "64KiB" }]
gateway = { depth = 2, wait = "spin" }
"#;
        std::fs::write(&path, file).unwrap();
        let list = list(&Plan::read(&path).unwrap());
        for part in [
            "channel.main.mtu = 64KiB (by default 1MiB)\n  the largest fragment",
            "tried: 16KiB, 32KiB, 64KiB, 128KiB",
            "gateway.depth = 2 (the default)\n",
            "gateway.wait = spin (by default adaptive 100us)\n",
            "network.left.unsent = 2MiB (the default)\n",
        ] {
            assert!(list.contains(part), "{part}: {list}");
        }
        assert!(!list.contains("slot_bytes"), "{list}");
    }
}
