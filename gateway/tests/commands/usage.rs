//! Wrong usage: said clearly, and nothing done.

use std::ffi::OsStr;
use std::fs;

use crate::world::{World, run};

fn words(arguments: &[&OsStr]) -> (Option<i32>, String) {
    let output = run(arguments.iter().copied());
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn arguments_that_make_no_sense_end_with_two() {
    for arguments in [
        &[][..],
        &["no-such-command"],
        &["cp", "cluster.toml"],
        &["bench", "c", "--node", "a0", "--to", "b0", "sideways"],
        &[
            "bench", "c", "--node", "a0", "--to", "b0", "stream", "--size", "1XB",
        ],
        &[
            "bench", "c", "--node", "a0", "--to", "b0", "stream", "--time", "0s",
        ],
        &["gateway", "c", "--node", "gw", "--stats-interval", "often"],
    ] {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let (code, stderr) = words(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let world = World::new("30s");
    let (cluster, file) = (world.cluster(), world.file("file", 1));
    let (cluster, file) = (cluster.as_os_str(), file.as_os_str());
    let os = OsStr::new;
    let missing = world.path("missing");
    let cases: [(&[&OsStr], &str); 9] = [
        (
            &[os("cp"), cluster, os("--node"), os("a0"), file, os("b0")],
            "names no node",
        ),
        (
            &[os("cp"), cluster, os("--node"), os("a0"), file, os("x:")],
            "no node \"x\"",
        ),
        (
            &[os("cp"), cluster, os("--node"), os("x"), file, os("b0:")],
            "no node \"x\"",
        ),
        (
            &[os("cp"), cluster, os("--node"), os("b0"), file, os("b0:")],
            "this node itself",
        ),
        (
            &[
                os("cp"),
                cluster,
                os("--node"),
                os("a0"),
                missing.as_os_str(),
                os("b0:"),
            ],
            "missing",
        ),
        (
            &[
                os("cp"),
                missing.as_os_str(),
                os("--node"),
                os("a0"),
                file,
                os("b0:"),
            ],
            "cannot be read",
        ),
        (&[os("gateway"), cluster, os("--node"), os("b0")], "b0"),
        (
            &[
                os("serve"),
                cluster,
                os("--node"),
                os("b0"),
                os("--dir"),
                missing.as_os_str(),
            ],
            "cannot serve",
        ),
        (
            &[os("--log"), os("=,="), os("check"), cluster],
            "no log filter",
        ),
    ];
    for (arguments, expected) in cases {
        let (code, stderr) = words(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("madgate: "), "{stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_node_runs_once() {
    let world = World::new("30s");
    let _gateway = world.gateway();
    let cluster = world.cluster();
    let arguments = [
        OsStr::new("gateway"),
        cluster.as_os_str(),
        OsStr::new("--node"),
        OsStr::new("gw"),
    ];
    let (code, stderr) = words(&arguments);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("is this node running already"), "{stderr}");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new("30s");
    let key = world.path("session.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let cluster = world.cluster();
    let arguments = [
        OsStr::new("gateway"),
        cluster.as_os_str(),
        OsStr::new("--node"),
        OsStr::new("gw"),
    ];
    let (code, stderr) = words(&arguments);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("session.key"), "{stderr}");
}
