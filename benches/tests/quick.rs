//! The relay bench as its users run it, one short round: figures are there for everything that was
//! asked for. And of every bench: a mistake in the command line is told before anything is measured.

use std::process::{Command, Output};

use serde_json::Value;

fn run(binary: &str, arguments: &[&str]) -> Output {
    Command::new(binary)
        .args(arguments)
        .output()
        .expect("the bench starts")
}

/// Each line of what a bench that ended well wrote.
fn lines(output: &Output) -> Vec<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = std::str::from_utf8(&output.stdout).expect("text");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[track_caller]
fn is_positive(line: &Value, key: &str) {
    assert!(
        line[key].as_f64().is_some_and(|it| it > 0.0),
        "{key}: {line}"
    );
}

#[test]
fn a_relay_is_measured_beside_another() {
    let relay = env!("CARGO_BIN_EXE_relay");
    let arguments = "--quick --json --relays madgate bare-looking --sizes 8";
    let arguments: Vec<_> = arguments.split(' ').collect();
    let mut lines = lines(&run(relay, &arguments));
    let machine = lines.remove(0);
    assert_eq!(machine["table"], "machine");
    for key in ["cores", "unix_s"] {
        is_positive(&machine, key);
    }
    let mut relays: Vec<_> = lines.iter().map(|line| line["relay"].as_str()).collect();
    relays.sort_unstable();
    assert_eq!(relays, [Some("bare-looking"), Some("madgate")]);
    for line in &lines {
        assert_eq!(line["message_bytes"], 8);
        for key in ["messages_per_s", "half_rtt_us", "half_rtt_p99_us"] {
            is_positive(line, key);
        }
    }
}

#[test]
fn a_reference_is_one_of_the_relays_that_are_measured() {
    let relay = env!("CARGO_BIN_EXE_relay");
    let output = run(relay, &["--relays", "madgate", "--reference", "bare"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--reference bare"), "{said}");
    let arguments = "--quick --relays bare bare-looking --reference bare --sizes 1024";
    let arguments: Vec<_> = arguments.split(' ').collect();
    let output = run(relay, &arguments);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("compared with bare"),
        "{said}"
    );
    // The other one has a ratio, and the reference none.
    let row = said.lines().find(|line| line.starts_with("1 KiB,"));
    assert_eq!(row.map(|row| row.matches('(').count()), Some(1), "{said}");
}

#[test]
fn mistakes_are_told_before_anything_is_measured() {
    let benches = [
        env!("CARGO_BIN_EXE_bridges"),
        env!("CARGO_BIN_EXE_hsl"),
        env!("CARGO_BIN_EXE_regular"),
        env!("CARGO_BIN_EXE_relay"),
        env!("CARGO_BIN_EXE_soak"),
    ];
    for bench in benches {
        let output = run(bench, &["--no-such-option"]);
        assert_eq!(output.status.code(), Some(2), "{bench}");
        assert!(output.stdout.is_empty(), "{bench}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("--no-such-option"), "{bench}: {said}");
    }
    let relay = run(env!("CARGO_BIN_EXE_relay"), &["--sizes", "7"]);
    assert_eq!(relay.status.code(), Some(2));
    let said = String::from_utf8_lossy(&relay.stderr);
    assert!(said.contains("8 bytes at least"), "{said}");
}
