//! `demo`, as its report promises it.

use std::ffi::OsStr;
use std::fs;

use serde_json::Value;

use crate::world::{World, run};

#[test]
fn the_demo_reports_everything_and_keeps_what_is_asked_for() {
    let world = World::new("30s");
    let (file, kept) = (world.file("file", 3 << 20), world.path("kept"));
    let output = run([
        OsStr::new("demo"),
        file.as_os_str(),
        OsStr::new("--json"),
        OsStr::new("--keep"),
        kept.as_os_str(),
    ]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verified"], true);
    assert_eq!(report["files"], 1);
    assert_eq!(report["bytes"], 3 << 20);
    for figure in [
        "direct_mb_per_s",
        "forwarded_mb_per_s",
        "efficiency",
        "direct_half_rtt_us",
        "forwarded_half_rtt_us",
        "gateway_peak_rss_bytes",
    ] {
        assert!(report[figure].as_f64().unwrap() > 0.0, "{figure}: {report}");
    }
    assert!(report["gateway_copies_per_frame"].as_f64().unwrap() >= 0.0);
    assert!(fs::read(kept.join("received/file")).unwrap() == fs::read(file).unwrap());
    assert!(kept.join("cluster.toml").is_file());
}

#[test]
fn a_demo_of_nothing_says_so_and_leaves_nothing() {
    let world = World::new("30s");
    let missing = world.path("missing");
    let output = run([OsStr::new("demo"), missing.as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("missing")
    );
}
