//! `madgate check`, `routes` and `keygen`: what they say, and how they end.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const DEMO: &str = r#"
[session]
name = "demo"
key_file = "session.key"

[[network]]
name = "left"
protocol = "tcp"

[[network]]
name = "right"
protocol = "shm"
directory = "meet"

[[node]]
name = "a[0-3]"
addresses = { left = "10.0.0.[1-4]:7100" }

[[node]]
name = "gw"
gateway = true
memory = "32MiB"
addresses = { left = "10.0.0.9:7100", right = "gw" }

[[node]]
name = "b0"
addresses = { right = "b0" }

[[channel]]
name = "main"
networks = ["left", "right"]
"#;

/// A folder with a cluster file and its key.
struct Folder(TempDir);

impl Folder {
    fn with(text: &str) -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder for the test"));
        fs::write(folder.cluster(), text).expect("the cluster file is written");
        let made = madgate(&["keygen"], &folder.key(), &[]);
        assert!(made.status.success(), "{made:?}");
        folder
    }

    fn cluster(&self) -> PathBuf {
        self.0.path().join("cluster.toml")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("session.key")
    }
}

fn madgate(before: &[&str], file: &Path, after: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_madgate"))
        .args(before)
        .arg(file)
        .args(after)
        .output()
        .expect("madgate runs")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("madgate prints text")
}

#[track_caller]
fn failure(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr.clone()).expect("madgate prints text")
}

#[test]
fn check_says_what_the_file_describes() {
    let folder = Folder::with(DEMO);
    let said = stdout(&madgate(&["check"], &folder.cluster(), &[]));
    for expected in [
        "session demo: 6 nodes, 2 networks, 1 channel\n",
        "a[0-3], gw",
        "gateway gw: left, right",
        "32MiB: admits 1,791 flows at once",
        "15, of which 4 cross gateways",
    ] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn check_says_how_fast_gateways_may_send() {
    let text = DEMO
        .replace(
            "protocol = \"tcp\"",
            "protocol = \"tcp\"\nrate = \"2Gbit/s\"",
        )
        .replace("name = \"a[0-3]\"", "name = \"a[0-3]\"\nrate = \"8Mbit/s\"");
    let folder = Folder::with(&text);
    let said = stdout(&madgate(&["check"], &folder.cluster(), &[]));
    for expected in [
        "  rate          each gateway sends 2Gbit/s at most\n",
        "                and 8Mbit/s at most to each of a[0-3]\n",
    ] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn check_says_everything_that_is_wrong() {
    let folder = Folder::with(
        &DEMO
            .replace("{ left = \"10.0.0.[", "{ lfet = \"10.0.0.[")
            .replace("shm", "hsm"),
    );
    let said = failure(&madgate(&["check"], &folder.cluster(), &[]), 1);
    assert!(
        said.contains("cluster.toml:17: unknown network \"lfet\""),
        "{said}"
    );
    assert!(said.contains("did you mean \"left\"?"), "{said}");
    assert!(
        said.contains("cluster.toml:12: unknown protocol \"hsm\""),
        "{said}"
    );
    assert!(said.contains("2 mistakes"), "{said}");
}

#[test]
fn check_lists_a_hundred_gateways_with_too_little_memory_and_counts_the_rest() {
    let mut text = DEMO.replace("\"32MiB\"", "\"8MiB\"\n");
    for node in 0..120 {
        let _ = writeln!(
            text,
            "[[node]]\nname = \"g{node}\"\ngateway = true\nmemory = \"8MiB\"\n\
             addresses = {{ left = \"10.0.1.{node}:7100\", right = \"g{node}\" }}"
        );
    }
    text += "[gateway]\nbatch = \"4MiB\"\n";
    let folder = Folder::with(&text);
    let output = madgate(&["check"], &folder.cluster(), &[]);
    let said = failure(&output, 1);
    let line = "cluster.toml:19: gateway \"gw\": a memory of 8MiB is too small";
    assert!(said.contains(line), "{said}");
    assert_eq!(said.matches("is too small").count(), 100, "{said}");
    assert!(
        said.contains("and 21 more mistakes of this kind\n"),
        "{said}"
    );
    assert!(said.contains("121 mistakes\n"), "{said}");
}

#[test]
fn check_looks_at_the_key_file() {
    let folder = Folder::with(DEMO);
    fs::set_permissions(folder.key(), fs::Permissions::from_mode(0o644)).unwrap();
    let said = failure(&madgate(&["check"], &folder.cluster(), &[]), 1);
    assert!(said.contains("session.key"), "{said}");
    fs::remove_file(folder.key()).unwrap();
    let said = failure(&madgate(&["check"], &folder.cluster(), &[]), 1);
    assert!(said.contains("madgate keygen"), "{said}");
}

#[test]
fn a_file_that_is_not_there() {
    let nowhere = Path::new("nowhere/cluster.toml");
    assert!(failure(&madgate(&["check"], nowhere, &[]), 1).contains("cannot be read"));
    assert!(failure(&madgate(&["routes"], nowhere, &[]), 1).contains("cannot be read"));
}

#[test]
fn keys_are_private_and_never_overwritten() {
    let folder = Folder::with(DEMO);
    assert_eq!(
        fs::metadata(folder.key()).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let before = fs::read(folder.key()).unwrap();
    let said = failure(&madgate(&["keygen"], &folder.key(), &[]), 1);
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(fs::read(folder.key()).unwrap(), before);
}

#[test]
fn routes_between_two_nodes() {
    let folder = Folder::with(DEMO);
    let said = stdout(&madgate(&["routes"], &folder.cluster(), &["a1", "b0"]));
    assert!(
        said.contains("a1  b0    512KiB  over left, gw, right"),
        "{said}"
    );
    let said = stdout(&madgate(
        &["routes"],
        &folder.cluster(),
        &["b0", "a1", "--json"],
    ));
    assert_eq!(
        said.trim_end(),
        r#"{"routes":[{"channel":"main","from":"b0","to":"a1","hops":[{"network":"right","node":"gw"},{"network":"left","node":"a1"}],"fragment_bytes":524288}],"unlisted":0}"#
    );
}

#[test]
fn routes_between_all_places() {
    let folder = Folder::with(DEMO);
    let said = stdout(&madgate(&["routes"], &folder.cluster(), &[]));
    assert_eq!(said.lines().count(), 5, "{said}");
    assert!(
        said.contains("a[0-3]  b0        512KiB  over left, gw, right"),
        "{said}"
    );
}

#[test]
fn routes_are_as_the_manual_shows_them() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cluster-file.md");
    let manual = fs::read_to_string(manual).unwrap();
    let block = |language: &str| {
        let begin = format!("```{language}\n");
        let (_, rest) = manual.split_once(&begin).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let folder = Folder::with(&block("toml"));
    let said = stdout(&madgate(&["routes"], &folder.cluster(), &[]));
    assert_eq!(said, block("text"));
}

#[test]
fn routes_that_do_not_exist() {
    let folder = Folder::with(DEMO);
    let ask = |after: &[&str]| madgate(&["routes"], &folder.cluster(), after);
    assert!(failure(&ask(&["a1", "a1"]), 1).contains("to itself"));
    assert!(failure(&ask(&["a1", "nobody"]), 1).contains("no node"));
    assert!(failure(&ask(&["--channel", "more"]), 1).contains("no channel"));
    assert!(failure(&ask(&["a1"]), 2).contains("<TO>"));
}

/// A ring of 1,000 networks with 100 nodes each, every node a table of its own.
fn large() -> String {
    let mut text = String::from("[session]\nname = \"large\"\nkey_file = \"session.key\"\n");
    let mut networks = Vec::new();
    for network in 0..1000 {
        networks.push(format!("\"n{network}\""));
        let _ = writeln!(
            text,
            "[[network]]\nname = \"n{network}\"\nprotocol = \"tcp\""
        );
        let host =
            |network: u32, low: u32| format!("10.{}.{}.{low}:7100", network / 250, network % 250);
        for node in 1..100 {
            let _ = writeln!(
                text,
                "[[node]]\nname = \"n{network}x{node}\"\naddresses = {{ n{network} = \"{}\" }}",
                host(network, node)
            );
        }
        let next = (network + 1) % 1000;
        let _ = writeln!(
            text,
            "[[node]]\nname = \"gw{network}\"\ngateway = true\naddresses = {{ n{network} = \"{}\", n{next} = \"{}\" }}",
            host(network, 200),
            host(next, 201)
        );
    }
    let _ = writeln!(
        text,
        "[[channel]]\nname = \"main\"\nnetworks = [{}]",
        networks.join(", ")
    );
    text
}

#[test]
fn a_hundred_thousand_nodes() {
    let folder = Folder::with(&large());
    let said = stdout(&madgate(&["check"], &folder.cluster(), &[]));
    assert!(said.contains("100,000 nodes, 1,000 networks"), "{said}");
    assert!(
        said.contains("4,999,950,000, of which 4,994,900,000 cross gateways"),
        "{said}"
    );
    assert!(said.lines().count() < 300, "a summary, not a list");
    assert!(said.contains("  nodes         100,000\n"), "{said}");
    assert!(said.contains("… and 960 more networks\n"), "{said}");
    let said = stdout(&madgate(
        &["routes"],
        &folder.cluster(),
        &["n0x1", "n500x99"],
    ));
    assert!(said.contains("gw499, n500"), "{said}");
}

#[test]
fn who_starts_a_gateway_as_another_node_is_told_which_are() {
    let folder = Folder::with(DEMO);
    let said = failure(
        &madgate(&["gateway"], &folder.cluster(), &["--node", "a0"]),
        1,
    );
    assert!(
        said.contains("node \"a0\" is no gateway, unlike gw"),
        "{said}"
    );
}

#[test]
fn a_congestion_control_that_is_not_to_be_had_is_not_blamed_on_the_address() {
    let folder = Folder::with(
        &DEMO
            .replacen(
                "protocol = \"tcp\"",
                "protocol = \"tcp\"\ncongestion = \"pigeon\"",
                1,
            )
            .replace("10.0.0.", "127.0.0."),
    );
    let gateway = madgate(&["gateway"], &folder.cluster(), &["--node", "gw"]);
    let said = failure(&gateway, 1);
    assert!(said.contains("congestion control \"pigeon\""), "{said}");
    assert!(!said.contains("is the address"), "{said}");
}
