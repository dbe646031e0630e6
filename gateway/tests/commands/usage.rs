//! Wrong usage: said clearly, and nothing done.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::world::{PROGRAM, World, program, run};

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
        &["--log", "a=b=c", "check", "c"],
        &["demo", "--rounds"],
        &["keygen"],
        &["check"],
        &["routes", "c", "a0"],
        &["serve", "c", "--node", "b0"],
        &["cp", "cluster.toml"],
        &["cp", "c", "--node", "a0", "file", "b0"],
        &["bench", "c", "--node", "a0", "--to", "b0", "sideways"],
        &[
            "bench", "c", "--node", "a0", "--to", "b0", "stream", "--size", "1XB",
        ],
        &[
            "bench", "c", "--node", "a0", "--to", "b0", "stream", "--time", "0s",
        ],
        &["gateway", "c", "--node", "gw", "--stats-interval", "often"],
        &["tune"],
        &["tune", "c", "--node", "a0"],
        &["tune", "list"],
        &["tune", "c", "--node", "a0", "--to", "b0", "--budget", "1s"],
        &["tune", "c", "--node", "a0", "--to", "b0", "--for", "fun"],
        &["tune", "c", "--node", "a0", "--to", "b0", "--size", "1XB"],
        &[
            "tune", "c", "--node", "a0", "--to", "b0", "--knobs", "depth",
        ],
        &["tune", "c", "--node", "a0", "--to", "b0", "--sweep"],
        &[
            "tune",
            "c",
            "--node",
            "a0",
            "--to",
            "b0",
            "--dry-run",
            "--output",
            "o",
        ],
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
    let (missing, in_missing) = (world.path("missing"), world.path("missing/key"));
    let cases: [(&[&OsStr], &str); 14] = [
        (&[os("keygen"), file], "file"),
        (&[os("keygen"), in_missing.as_os_str()], "make it first"),
        (&[os("routes"), cluster, os("a0"), os("x")], "no node \"x\""),
        (
            &[
                os("bench"),
                cluster,
                os("--node"),
                os("a0"),
                os("--to"),
                os("x"),
                os("stream"),
            ],
            "no node \"x\"",
        ),
        (&[os("demo"), missing.as_os_str()], "missing"),
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
            "missing; the folder must exist, so make it first",
        ),
        (
            &[
                os("gateway"),
                cluster,
                os("--node"),
                os("gw"),
                os("--dir"),
                missing.as_os_str(),
            ],
            "missing; the folder must exist, so make it first",
        ),
        (
            &[
                os("serve"),
                cluster,
                os("--node"),
                os("b0"),
                os("--dir"),
                file,
            ],
            "file; name a folder",
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
fn a_filter_in_the_environment_that_is_none_is_named() {
    let world = World::new("30s");
    let output = program([OsStr::new("check"), world.cluster().as_ref()])
        .env("MADGATE_LOG", "a=b=c")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("MADGATE_LOG \"a=b=c\" is no log filter"),
        "{stderr}"
    );
}

#[test]
fn what_works_ends_with_zero() {
    let world = World::new("30s");
    let (cluster, key) = (world.cluster(), world.path("new.key"));
    for arguments in [
        &[OsStr::new("--version")][..],
        &[OsStr::new("help"), OsStr::new("cp")],
        &[OsStr::new("keygen"), key.as_os_str()],
        &[OsStr::new("check"), cluster.as_os_str()],
        &[OsStr::new("routes"), cluster.as_os_str()],
    ] {
        let (code, stderr) = words(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_new_key_is_its_owners_whatever_the_umask() {
    let world = World::new("30s");
    let mut files = Vec::new();
    for umask in ["000", "777"] {
        let key = world.path(umask);
        let mut keygen = Command::new("sh");
        keygen.args([
            "-c",
            "umask \"$1\" && exec \"$0\" keygen \"$2\"",
            PROGRAM,
            umask,
        ]);
        assert!(keygen.arg(&key).output().unwrap().status.success());
        assert_eq!(
            fs::metadata(&key).unwrap().mode() & 0o7777,
            0o600,
            "{umask}"
        );
        files.push(fs::read(key).unwrap());
    }
    assert_ne!(files[0], files[1]);
}

#[test]
fn whoever_reads_may_leave() {
    let world = World::new("30s");
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let mut bench = world.start_bench(&["pingpong", "--size", "8B,9B", "--time", "1ms"]);
    bench.close_stdout();
    assert_eq!(bench.end().status.code(), Some(0));
}

#[test]
fn one_is_not_several() {
    let world = World::new("30s");
    let text = "[session]\nname = \"one\"\nkey_file = \"session.key\"\n\
                [[network]]\nname = \"left\"\nprotocol = \"tcp\"\n\
                [[node]]\nname = \"a0\"\naddresses = { left = \"127.0.0.1:7100\" }\n\
                [[channel]]\nname = \"main\"\nnetworks = [\"left\"]\n";
    let cluster = world.path("one.toml");
    fs::write(&cluster, text).unwrap();
    let output = run([OsStr::new("check"), cluster.as_os_str()]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let expected = "session one: 1 node, 1 network, 1 channel\n";
    assert!(stdout.starts_with(expected), "{stdout}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("has one node only"), "{stderr}");
}

#[test]
fn an_address_that_nobody_can_dial_is_refused() {
    let world = World::new("30s");
    let cluster = world.cluster();
    let text = fs::read_to_string(&cluster).unwrap();
    for address in [
        "0.0.0.0:",
        "[::]:",
        "224.0.0.7:",
        "255.255.255.255:",
        "[ff02::1]:",
    ] {
        fs::write(&cluster, text.replace("127.0.0.1:", address)).unwrap();
        for arguments in [
            &["check"][..],
            &["gateway", "--node", "gw"],
            &["bench", "--node", "a0", "--to", "b0", "stream"],
        ] {
            let mut all: Vec<&OsStr> = vec![OsStr::new(arguments[0]), cluster.as_os_str()];
            all.extend(arguments[1..].iter().map(OsStr::new));
            let (code, stderr) = words(&all);
            assert_eq!(code, Some(1), "{stderr}");
            let place = format!("{}:18: address \"{address}", cluster.display());
            assert!(stderr.contains(&place), "{place}: {stderr}");
            assert!(stderr.contains("no other node can dial it"), "{stderr}");
        }
    }
}

/// Every counter that a gateway reports is explained to those who run it.
#[test]
fn every_counter_is_in_the_manual() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operation.md");
    let manual = fs::read_to_string(manual).unwrap();
    let world = World::new("30s");
    let counters = world.path("counters.json");
    let options = [
        "--stats-json",
        counters.to_str().unwrap(),
        "--stats-interval",
        "50ms",
    ];
    let gateway = world.gateway_with(&options);
    let _serve = world.serve();
    let bench = world.start_bench(&["stream", "--time", "50ms"]);
    gateway.wait_said(&["left -> right", "hop p50", "receiving", "sender of right"]);
    bench.end().succeeded();
    gateway.terminate().succeeded();
    let text = fs::read_to_string(counters).unwrap();
    let counters: serde_json::Value = serde_json::from_str(&text).unwrap();
    let networks = counters["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 2);
    let explained = |object: &serde_json::Value, more: &str| {
        for name in object.as_object().unwrap().keys() {
            assert!(manual.contains(&format!("| `{name}`{more} |")), "{name}");
        }
    };
    explained(&counters, "");
    explained(&networks[0], " of a network");
    explained(&networks[0]["receiver"], " of a thread");
    let pipelines = counters["pipelines"].as_array().unwrap();
    explained(&pipelines[0], " of a pipeline");
    explained(&counters["cards"], " of the cards");
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
fn what_is_no_socket_where_one_is_to_be_is_named_and_stays() {
    let world = World::over("shm", "30s");
    let cluster = world.cluster();
    let described = madgate_vchannel::Cluster::read(&cluster).unwrap();
    let right = described
        .networks()
        .iter()
        .find(|it| it.name == "right")
        .unwrap();
    let folder = right.directory.as_ref().unwrap();
    fs::create_dir_all(folder).unwrap();
    let way = folder.join("gw.sock");
    fs::write(&way, "somebody's").unwrap();
    let arguments = ["gateway", cluster.to_str().unwrap(), "--node", "gw"].map(OsStr::new);
    let (code, stderr) = words(&arguments);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("gw.sock is no socket: move it away"),
        "{stderr}"
    );
    assert!(!stderr.contains("as a folder"), "{stderr}");
    assert_eq!(fs::read_to_string(&way).unwrap(), "somebody's");
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

#[test]
fn options_that_say_nothing_about_what_is_measured_are_refused() {
    let world = World::new("30s");
    let cluster = world.cluster();
    for (more, ends, expected) in [
        (["pingpong", "--packet", "8KiB"], 2, "--figure6"),
        (["pingpong", "--load", "50"], 2, "`loaded`"),
        (["stream", "--load-to", "gw"], 2, "`loaded`"),
        (["stream", "--load-size", "8B"], 2, "`loaded`"),
        (["ping", "--direction", "both"], 2, "`stream`"),
        (["pingpong", "--interval", "1s"], 2, "`stream`"),
        (["stream", "--node", "a1"], 2, "only `many`"),
        (["pingpong", "--figure6", "--json"], 2, "--figure6"),
        (["pingpong", "--svg", "/no/folder/x.svg"], 1, "cannot write"),
        (["stream", "--interval", "9ms"], 2, "10ms at least"),
    ] {
        let way = ["--node", "a0", "--to", "b0"];
        let arguments = [OsStr::new("bench"), cluster.as_os_str()].into_iter();
        let rest = way.iter().chain(&more).map(OsStr::new);
        let arguments: Vec<_> = arguments.chain(rest).collect();
        let (code, stderr) = words(&arguments);
        assert_eq!(code, Some(ends), "{more:?}: {stderr}");
        assert!(stderr.contains(expected), "{more:?}: {stderr}");
    }
}

#[test]
fn nothing_is_written_over_what_is_read_or_written_too() {
    let world = World::new("30s");
    let (cluster, key, page) = (
        world.cluster(),
        world.path("session.key"),
        world.path("page.html"),
    );
    let link = world.path("link.html");
    std::os::unix::fs::symlink(&cluster, &link).unwrap();
    let before = [&cluster, &key].map(|file| fs::read(file).unwrap());
    let way = ["--node", "a0", "--to", "b0"];
    let bench = [&way[..], &["pingpong", "--svg"]].concat();
    let tune = |option| [&way[..], &[option]].concat();
    let both = [&way[..], &["--output", page.to_str().unwrap(), "--report"]].concat();
    for (command, options, file, what) in [
        ("bench", bench.clone(), &cluster, "the cluster file"),
        ("bench", bench, &key, "the session key"),
        ("tune", tune("--output"), &key, "the session key"),
        ("tune", tune("--report"), &link, "the cluster file"),
        ("tune", both, &page, "what --output writes"),
        (
            "gateway",
            vec!["--node", "gw", "--stats-json"],
            &cluster,
            "the cluster file",
        ),
        (
            "gateway",
            vec!["--node", "gw", "--stats-json"],
            &key,
            "the session key",
        ),
    ] {
        let arguments = [OsStr::new(command), cluster.as_os_str()].into_iter();
        let options = options.into_iter().map(OsStr::new);
        let arguments: Vec<_> = arguments.chain(options).chain([file.as_os_str()]).collect();
        let (code, stderr) = words(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        let expected = format!("would write over {}, which is {what}", file.display());
        assert!(stderr.contains(&expected), "{arguments:?}: {stderr}");
    }
    assert_eq!([&cluster, &key].map(|file| fs::read(file).unwrap()), before);
    assert!(!page.exists() && link.is_symlink());
}

#[test]
fn what_a_gateway_would_refuse_is_found_before() {
    let world = World::new("30s");
    let cluster = world.cluster();
    let text = std::fs::read_to_string(&cluster).unwrap();
    let cramped = "\n[gateway]\ndepth = 64\nbatch = \"16MiB\"\nmemory = \"8MiB\"\n";
    std::fs::write(&cluster, text + cramped).unwrap();
    let (code, stderr) = words(&[OsStr::new("check"), cluster.as_os_str()]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("a memory of 8MiB is too small"), "{stderr}");
}
