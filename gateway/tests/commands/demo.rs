//! `demo`, as its report promises it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::world::{Process, World, program, run};

/// Runs it to its end, after which nothing of it is among the temporary files.
fn run_in<'a>(world: &World, arguments: impl IntoIterator<Item = &'a OsStr>) -> Output {
    let temporary = world.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut command = program(arguments);
    let output = command.env("TMPDIR", &temporary).output().unwrap();
    assert!(is_empty(&temporary), "{output:?}");
    output
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn the_demo_reports_everything_and_keeps_what_is_asked_for() {
    let world = World::new("30s");
    let (file, kept) = (world.file("file", 3 << 20), world.path("kept"));
    let arguments = [
        OsStr::new("demo"),
        file.as_os_str(),
        OsStr::new("--json"),
        OsStr::new("--keep"),
        kept.as_os_str(),
    ];
    let output = run_in(&world, arguments);
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
    // Between a socket and slots small frames are copied once, and large ones where a slot is late.
    let copies = report["gateway_copies_per_frame"].as_f64().unwrap();
    assert!(copies > 0.0 && copies <= 1.0, "{report}");
    assert!(fs::read(kept.join("received/file")).unwrap() == fs::read(file).unwrap());
    assert!(kept.join("cluster.toml").is_file());
}

#[test]
fn the_demo_says_what_it_skips_and_that_others_disturb_it() {
    let world = World::new("30s");
    let tree = world.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "file").unwrap();
    symlink("file", tree.join("link")).unwrap();
    let _socket = UnixListener::bind(tree.join("socket")).unwrap();
    let processors = thread::available_parallelism().unwrap().get();
    let is_over = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        for _ in 0..processors.div_ceil(2) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let output = run([OsStr::new("demo"), tree.as_os_str(), OsStr::new("--json")]);
        is_over.store(true, Ordering::Relaxed);
        output
    });
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["files"], &report["skipped"]),
        (&1.into(), &2.into())
    );
    // A container may have few of many processors, which is no matter of the others'.
    if report["load"]["processors"] == processors {
        assert_eq!(report["load"]["is_high"], true, "{report}");
    }
    assert!(report["load"]["others"].as_f64().unwrap() > 0.0);
    let stderr = String::from_utf8(output.stderr).unwrap();
    for word in [
        "tree/link: is a link",
        "tree/socket: is a device, pipe or socket",
    ] {
        assert!(stderr.contains(word), "{stderr}");
    }
}

#[test]
fn an_empty_folder_is_copied_too() {
    let world = World::new("30s");
    let folder = world.path("empty");
    fs::create_dir(&folder).unwrap();
    let arguments = [OsStr::new("demo"), folder.as_os_str(), OsStr::new("--json")];
    let output = run_in(&world, arguments);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verified"], true);
    assert_eq!(
        (&report["files"], &report["folders"]),
        (&0.into(), &1.into())
    );
}

#[test]
fn a_demo_of_nothing_says_so_and_leaves_nothing() {
    let world = World::new("30s");
    let missing = world.path("missing");
    let output = run_in(&world, [OsStr::new("demo"), missing.as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("missing")
    );
}

#[test]
fn a_signal_ends_the_demo_as_a_signal() {
    let world = World::new("30s");
    let file = world.file("file", 1000);
    let folder = world.path("temporary");
    fs::create_dir(&folder).unwrap();
    for (signal, is_for_all) in [(Signal::TERM, false), (Signal::INT, true)] {
        let mut command = program([OsStr::new("demo"), file.as_os_str()]);
        command.env("TMPDIR", &folder).process_group(0);
        let mut demo = Process::start(command);
        while !demo.next_line().starts_with("measuring") {}
        if is_for_all {
            // As a terminal does it.
            let group = Pid::from_raw(demo.id().try_into().unwrap()).unwrap();
            kill_process_group(group, signal).unwrap();
        } else {
            demo.signal(signal);
        }
        let ended = demo.end();
        assert_eq!(
            ended.status.code(),
            Some(128 + signal.as_raw()),
            "{ended:?}"
        );
        assert!(!ended.stderr.contains("madgate: "), "{ended:?}");
        assert!(is_empty(&folder));
    }
}

#[test]
fn a_node_that_ends_is_missed_and_named() {
    let world = World::new("30s");
    let file = world.file("file", 1000);
    for (name, role) in [("gw", "gateway"), ("b0", "serve")] {
        let mut demo = Process::start(program([OsStr::new("demo"), file.as_os_str()]));
        while !demo.next_line().starts_with("measuring") {}
        kill_process(node_of(demo.id(), role, name), Signal::KILL).unwrap();
        let missed = format!("{name}: has ended too early (signal 9)");
        demo.end().failed_with(&[&missed, "the end of its log"]);
    }
}

/// The process of a demo that is this node.
fn node_of(demo: u32, role: &str, name: &str) -> Pid {
    let children = fs::read_to_string(format!("/proc/{demo}/task/{demo}/children")).unwrap();
    let is_it = |pid: &&str| {
        // It may have ended meanwhile.
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split('\0').collect();
        words.get(1) == Some(&role) && words.contains(&name)
    };
    let found = children.split_whitespace().find(is_it).unwrap();
    Pid::from_raw(found.parse().unwrap()).unwrap()
}

#[test]
fn a_folder_that_the_demo_is_made_in_is_refused() {
    let world = World::new("30s");
    let folder = world.path("folder");
    fs::create_dir(&folder).unwrap();
    let kept = folder.join("kept");
    let keep = [OsStr::new("--keep"), kept.as_os_str()];
    let output = run([OsStr::new("demo"), folder.as_os_str()]
        .into_iter()
        .chain(keep));
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("which is inside of it"), "{stderr}");
    assert!(!kept.exists());
}
