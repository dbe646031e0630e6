use std::fs;
use std::time::Duration;

use madgate_vchannel::cluster::WaitPolicy;

use super::*;

const FILE: &str = r#"# The session of the east wing.
[session]
name = "east"
key_file = "session.key"

[[network]]
name = "left"                  # behind the wall
protocol = "tcp"

[[network]]
name = "far.right"
protocol = "hsl"
directory = "meeting"
trust = "memory"

[[node]]
name = "gw"
gateway = true
addresses = { left = "10.0.0.9:7100", "far.right" = "gw" }

[[node]]
name = "a"
addresses = { left = "10.0.0.1:7100" }

[[node]]
name = "b"
addresses = { "far.right" = "b" }

[[channel]]
name = "main"
networks = ["left", "far.right"]
mtu = "64KiB"    # as large as a slot

# Found by hand.
[gateway]
depth = 2        # double buffering
# Long enough for a round trip.
wait = "adaptive"
spin = "50us"    # here
batch = "1MiB"
"#;

/// The plan, and the folder that it was read from.
fn plan(text: &str) -> (Plan, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.toml");
    fs::write(&path, text).unwrap();
    (Plan::read(&path).unwrap(), folder)
}

fn values(texts: &[(&str, &str)]) -> Vec<(Name, Value)> {
    texts
        .iter()
        .map(|(name, value)| {
            let name = Name::parse(name).unwrap();
            let value = Value::parse(name.knob().kind, value).unwrap();
            (name, value)
        })
        .collect()
}

fn changed(text: &str, texts: &[(&str, &str)]) -> Result<String, String> {
    let (plan, _folder) = plan(text);
    let values = values(texts);
    plan.with(values.iter().map(|(name, value)| (name, value)))
        .map(|changed| changed.text)
}

#[test]
fn every_knob_has_a_name_a_value_and_values_to_try() {
    let (plan, _folder) = plan(FILE);
    let names = names(&["main"], &["left", "far.right"], plan.cluster());
    assert_eq!(names.len(), KNOBS.len(), "every protocol is there once");
    for name in &names {
        assert_eq!(Name::parse(&name.to_string()).as_ref(), Ok(name));
        let present = name.value_in(plan.cluster()).unwrap();
        let kind = name.knob().kind;
        assert_eq!(Value::parse(kind, &present.to_string()), Ok(present));
        assert!(name.default_in(plan.cluster()).is_some());
        for text in name.knob().tried {
            let value = Value::parse(kind, text).unwrap();
            plan.with([(name, &value)])
                .unwrap_or_else(|why| panic!("{name} = {value}: {why}"));
        }
    }
}

#[test]
fn what_is_no_knob_cannot_be_named() {
    for text in [
        "",
        "depth",
        "gateway",
        "gateway.memory",
        "gateway.main.depth",
        "channel.mtu",
        "session.key_file",
        "network.left.directory",
        "channel.main.networks",
        "node.gw.addresses",
    ] {
        assert!(Name::parse(text).is_err(), "{text}");
    }
    let name = Name::parse("network.far.right.threshold").unwrap();
    assert_eq!(
        (name.of.as_str(), name.knob.key),
        ("far.right", "threshold")
    );
}

#[test]
fn values_that_make_no_sense_are_refused() {
    for (kind, text) in [
        (Kind::Count, "-1"),
        (Kind::Count, "many"),
        (Kind::Size, "64kb"),
        (Kind::Flag, "yes"),
        (Kind::Word, ""),
        (Kind::Word, "a\"b"),
        (Kind::Wait, "adaptive"),
        (Kind::Wait, "doze"),
        (Kind::Pin, ""),
        (Kind::Pin, "0,,1"),
    ] {
        assert!(Value::parse(kind, text).is_err(), "{text:?}");
    }
    for (name, value, why) in [
        ("gateway.depth", "65", "`depth` cannot be 65"),
        ("gateway.depth", "18446744073709551615", "`depth`"),
        (
            "gateway.handover",
            "maybe",
            "`handover` cannot be \"maybe\"",
        ),
        ("gateway.pin", "1024", "`pin` cannot be 1024"),
        ("channel.main.mtu", "64MiB", "out of bounds"),
        ("channel.other.mtu", "64KiB", "has no channel.other.mtu"),
        (
            "network.left.threshold",
            "64KiB",
            "has no network.left.threshold",
        ),
        ("endpoint.wait", "adaptive 1s", "`spin`"),
    ] {
        let told = changed(FILE, &[(name, value)]).unwrap_err();
        assert!(told.contains(why), "{name} = {value}: {told}");
    }
}

#[test]
fn only_what_changes_is_written() {
    let same = changed(
        FILE,
        &[("gateway.depth", "2"), ("channel.main.mtu", "64KiB")],
    );
    assert_eq!(same.unwrap(), FILE);
    let text = changed(
        FILE,
        &[
            ("gateway.depth", "4"),
            ("channel.main.mtu", "256KiB"),
            ("gateway.pin", "0,1"),
            ("network.far.right.threshold", "4KiB"),
            ("endpoint.window", "16MiB"),
        ],
    );
    let expected = FILE
        .replace("depth = 2 ", "depth = 4 ")
        .replace("mtu = \"64KiB\" ", "mtu = \"256KiB\" ")
        .replace(
            "trust = \"memory\"\n",
            "trust = \"memory\"\nthreshold = \"4KiB\"\n",
        )
        + "pin = [0, 1]\n\n[endpoint]\nwindow = \"16MiB\"\n";
    assert_eq!(text.unwrap(), expected);
}

#[test]
fn a_waiting_policy_is_two_keys_or_one() {
    let sleep = changed(FILE, &[("gateway.wait", "sleep")]).unwrap();
    let expected = FILE
        .replace("wait = \"adaptive\"", "wait = \"sleep\"")
        .replace("spin = \"50us\"    # here\n", "# here\n");
    assert_eq!(sleep, expected);
    let usual = changed(FILE, &[("gateway.wait", "adaptive 100us")]).unwrap();
    assert_eq!(usual, FILE.replace("\"50us\"", "\"100us\""));
    let (plan, _folder) = plan(FILE);
    let wait = Name::parse("endpoint.wait").unwrap();
    let value = Value::Wait(WaitPolicy::Adaptive {
        spin: Duration::from_millis(1),
    });
    let changed = plan.with([(&wait, &value)]).unwrap();
    assert_eq!(wait.value_in(&changed.cluster), Some(value));
}

/// Ends of lines are another system's where all of them were.
#[test]
fn lines_end_as_they_did() {
    let start = FILE.find("# Found by hand.").unwrap();
    let file = format!(
        "{}[gateway]\nspin = \"50us\" # twice\nwait = \"adaptive\"\n",
        &FILE[..start]
    );
    let changed_file = format!("{}[gateway]\n# twice\nwait = \"sleep\"\n", &FILE[..start]);
    for end in ["\n", "\r\n"] {
        let changed = changed(&file.replace('\n', end), &[("gateway.wait", "sleep")]);
        assert_eq!(changed.unwrap(), changed_file.replace('\n', end));
    }
}

/// The key goes, and nothing that somebody wrote about it.
#[test]
fn comments_outlive_the_key_that_they_are_on() {
    let start = FILE.find("# Found by hand.").unwrap();
    let with = |section: &str| format!("{}{section}", &FILE[..start]);
    for (before, after) in [
        // Above it, on its line, and below it.
        (
            "[gateway]\nwait = \"adaptive\"\n# Measured.\nspin = \"50us\" # twice\n# So much.\ndepth = 4\n",
            "[gateway]\nwait = \"sleep\"\n# Measured.\n# twice\n# So much.\ndepth = 4\n",
        ),
        // The first key, and indented.
        (
            "[gateway] # of all\n  # Measured.\n\tspin = \"50us\"# twice\n  wait = \"adaptive\"\n",
            "[gateway] # of all\n  # Measured.\n\t# twice\n  wait = \"sleep\"\n",
        ),
        // The last of its table, and another behind it.
        (
            "[gateway]\nwait = \"adaptive\"\n# Measured.\nspin = \"50us\" # twice\n# After.\n\n# Others.\n[endpoint]\n",
            "[gateway]\nwait = \"sleep\"\n# Measured.\n# twice\n# After.\n\n# Others.\n[endpoint]\n",
        ),
        // The last of the file, with an end of line and without: the parser adds one.
        (
            "[gateway]\nwait = \"adaptive\"\n# Measured.\nspin = \"50us\"\n# The end.\n",
            "[gateway]\nwait = \"sleep\"\n# Measured.\n# The end.\n",
        ),
        (
            "[gateway]\nwait = \"adaptive\"\nspin = \"50us\" # twice",
            "[gateway]\nwait = \"sleep\"\n# twice\n",
        ),
        (
            "[gateway]\nwait = \"adaptive\" # so\nspin = \"50us\"",
            "[gateway]\nwait = \"sleep\" # so\n",
        ),
    ] {
        let changed = changed(&with(before), &[("gateway.wait", "sleep")]);
        assert_eq!(changed.unwrap(), with(after), "{before}");
    }
    // In front of everything else, as a key of its own and among others.
    for (before, after) in [
        (
            "# Measured.\ngateway.spin = \"50us\" # twice\ngateway.wait = \"adaptive\"\n",
            "# Measured.\n# twice\ngateway.wait = \"spin\"\n",
        ),
        (
            "gateway = { wait = \"adaptive\", spin = \"50us\", depth = 4 } # all of it\n",
            "gateway = { wait = \"spin\", depth = 4 } # all of it\n",
        ),
        (
            "gateway = { spin = \"50us\", wait = \"adaptive\" } # all of it\n",
            "gateway = { wait = \"spin\" } # all of it\n",
        ),
    ] {
        let file = |line: &str| format!("{line}{}", &FILE[..start]);
        let changed = changed(&file(before), &[("gateway.wait", "spin")]);
        assert_eq!(changed.unwrap(), file(after), "{before}");
    }
}

#[test]
fn tables_in_one_line_are_found_too() {
    let start = FILE.find("[[channel]]").unwrap();
    let channel = "channel = [{ name = \"main\", networks = [\"left\", \"far.right\"] }]\n";
    let text = format!("{channel}{}", &FILE[..start]);
    let changed = changed(&text, &[("channel.main.mtu", "64KiB")]).unwrap();
    let expected = text.replace("\"far.right\"] }", "\"far.right\"] , mtu = \"64KiB\" }");
    assert_eq!(changed, expected);
}

/// Keys that say what is there, who may do what, and when something has failed, or that are part
/// of another.
const NO_KNOBS: [(&str, &[&str]); 6] = [
    ("session", &["name", "key_file", "link_timeout"]),
    ("network", &["name", "protocol", "directory", "trust"]),
    ("node", &["name", "gateway", "addresses"]),
    ("channel", &["name", "networks"]),
    // Part of `wait`.
    ("gateway", &["spin"]),
    ("endpoint", &["spin"]),
];

/// The keys that a section of a cluster file may have, as it says where it finds another.
fn keys_of(section: &str) -> Vec<String> {
    let is_list = ["network", "node", "channel"].contains(&section);
    let table = if is_list {
        "[{ zzzzzzzz = 1 }]"
    } else {
        "{ zzzzzzzz = 1 }"
    };
    let error = Cluster::parse(&format!("{section} = {table}"), ".").unwrap_err();
    let mut helps = error.mistakes.iter().map(|mistake| mistake.help.as_str());
    let keys = helps.find_map(|help| help.strip_prefix("the keys of ")?.split_once(" are "));
    let (_, keys) = keys.unwrap_or_else(|| panic!("{section}: {error}"));
    keys.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_key_is_searched_or_listed_or_no_knob() {
    for (section, no_knobs) in NO_KNOBS {
        let keys = keys_of(section);
        for key in &keys {
            let of_knob = |knob: &Knob| (knob.section.prefix(), knob.key) == (section, key);
            let of_setting = |one: &settings::Setting| (one.section(), one.key) == (section, key);
            let found = [
                KNOBS.iter().any(of_knob),
                SETTINGS.iter().any(of_setting),
                no_knobs.contains(&key.as_str()),
            ];
            let count = found.iter().filter(|found| **found).count();
            assert_eq!(count, 1, "`{key}` of `{section}`: {found:?}");
        }
        for key in no_knobs {
            assert!(keys.iter().any(|one| one == key), "{section}: no `{key}`");
        }
    }
}

/// What the documentation says of a key stands in the first column of a table.
#[test]
fn every_key_is_documented() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let text = fs::read_to_string(docs.join("cluster-file.md")).unwrap();
    for (section, _) in NO_KNOBS {
        for key in keys_of(section) {
            let is_row = |line: &str| {
                let first = line
                    .strip_prefix("| ")
                    .and_then(|line| line.split_once(" |"));
                first.is_some_and(|(first, _)| first.contains(&format!("`{key}`")))
            };
            assert!(text.lines().any(is_row), "`{key}` of `{section}`");
        }
    }
}

#[test]
fn who_names_a_setting_is_told_that_it_is_not_searched() {
    for setting in ["network.left.rate", "gateway.memory", "node.b0.rate"] {
        let told = Name::parse(setting).unwrap_err();
        assert!(told.contains("yours to set"), "{told}");
    }
    let told = Name::parse("network.left.trust").unwrap_err();
    assert!(told.contains("is no knob"), "{told}");
}
