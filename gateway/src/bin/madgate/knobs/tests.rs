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
        .replace("spin = \"50us\"    # here\n", "");
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

#[test]
fn tables_in_one_line_are_found_too() {
    let start = FILE.find("[[channel]]").unwrap();
    let channel = "channel = [{ name = \"main\", networks = [\"left\", \"far.right\"] }]\n";
    let text = format!("{channel}{}", &FILE[..start]);
    let changed = changed(&text, &[("channel.main.mtu", "64KiB")]).unwrap();
    let expected = text.replace("\"far.right\"] }", "\"far.right\"] , mtu = \"64KiB\" }");
    assert_eq!(changed, expected);
}
