//! `bench`, to a node beyond a gateway and to the gateway itself.

use std::ffi::OsStr;
use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{World, run};

const QUICK: [&str; 4] = ["--time", "50ms", "--warm-up", "10ms"];

fn bench(world: &World, to: &str, more: &[&str]) -> Vec<Value> {
    let cluster = world.cluster();
    let before = ["--node", "a0", "--to", to, "--json"];
    let arguments = [OsStr::new("bench"), cluster.as_os_str()];
    let rest = before.iter().chain(&QUICK).chain(more).map(OsStr::new);
    let output = run(arguments.into_iter().chain(rest));
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The one gateway that a result tells of, on the way from left to right.
fn there(result: &Value) -> &Value {
    assert_eq!(result["gateways"].as_array().unwrap().len(), 1, "{result}");
    let seen = &result["gateways"][0];
    assert_eq!(seen["gateway"], "gw");
    let ways = seen["pipelines"].as_array().unwrap();
    let there = ways.iter().find(|way| way["from"] == "left");
    there.unwrap_or_else(|| panic!("{result}"))
}

fn check_times(result: &Value) {
    let us = |name: &str| result[name].as_f64().unwrap();
    assert!(
        us("min_us") <= us("p50_us") && us("p50_us") <= us("max_us"),
        "{result}"
    );
}

/// An answer that cannot be kept yet is not left out: nobody would ask for it again.
#[test]
fn a_node_that_retains_little_answers_all_the_same() {
    let world = World::new("30s");
    let mut cluster = fs::read_to_string(world.cluster()).unwrap();
    cluster.push_str("\n[endpoint]\nretention = \"64KiB\"\n");
    fs::write(world.cluster(), cluster).unwrap();
    let (_gateway, _serve) = (world.gateway(), world.serve());
    for to in ["b0", "gw"] {
        let sizes = "8B,1256B,2048B,4096B,30000B,100000B";
        let results = bench(&world, to, &["pingpong", "--size", sizes]);
        assert_eq!(results.len(), 6);
        for result in results {
            assert!(result["round_trips"].as_u64().unwrap() > 0, "{result}");
        }
    }
}

#[test]
fn every_size_is_measured_and_checked() {
    let world = World::new("30s");
    let (_gateway, _serve) = (world.gateway(), world.serve());
    for to in ["b0", "gw"] {
        let results = bench(&world, to, &["pingpong", "--size", "0B,8B,5000B,1MiB"]);
        assert_eq!(results.len(), 4);
        for result in results {
            assert_eq!(result["to"], to);
            assert!(result["round_trips"].as_u64().unwrap() > 0, "{result}");
            check_times(&result);
        }
        let results = bench(&world, to, &["stream", "--size", "0B,8B,64KiB,3MiB"]);
        let sizes: Vec<_> = results
            .iter()
            .map(|result| &result["message_bytes"])
            .collect();
        assert_eq!(sizes, [0, 8, 64 << 10, 3 << 20]);
        assert!(
            results
                .iter()
                .all(|result| result["messages_per_s"].as_f64().unwrap() > 0.0)
        );
    }
}

#[test]
fn streams_go_either_way_and_both() {
    let world = World::new("30s");
    let (_gateway, _serve) = (world.gateway(), world.serve());
    for (direction, goes_there, comes_back) in [
        ("there", true, false),
        ("back", false, true),
        ("both", true, true),
    ] {
        let more = ["stream", "--direction", direction, "--size", "8B,256KiB"];
        for result in bench(&world, "b0", &more) {
            let rate = |name: &str| result[name].as_f64().unwrap();
            assert_eq!(rate("there_mb_per_s") > 0.0, goes_there, "{result}");
            assert_eq!(rate("back_mb_per_s") > 0.0, comes_back, "{result}");
        }
    }
}

#[test]
fn what_the_gateway_did_stands_beside_what_was_measured() {
    let world = World::new("30s");
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let result = &bench(&world, "b0", &["stream", "--size", "256KiB"])[0];
    let way = there(result);
    let number = |name: &str| way[name].as_f64().unwrap();
    assert!(number("frames") > 0.0 && number("packet_bytes") > 0.0);
    assert!(number("predicted_mb_per_s") > 0.0 && number("measured_mb_per_s") > 0.0);
    assert!(number("receive_us") > 0.0 && number("switch_us") > 0.0);
    assert!(number("hop_p50_us") <= number("hop_p99_us"));
    assert!(!way["limit"].as_str().unwrap().is_empty());
    // The two are next to each other: there is no gateway.
    let direct = &bench(&world, "gw", &["stream"])[0];
    assert_eq!(direct["gateways"].as_array().unwrap().len(), 0);
}

#[test]
fn floods_and_single_messages_are_measured() {
    let world = World::new("30s");
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let flood = bench(&world, "b0", &["flood"]);
    let sizes: Vec<_> = flood.iter().map(|one| &one["message_bytes"]).collect();
    assert_eq!(sizes, [8, 64, 1024]);
    let pings = bench(
        &world,
        "b0",
        &["ping", "--size", "8B,1MiB", "--time", "20ms,40ms"],
    );
    let sizes: Vec<_> = pings.iter().map(|one| &one["message_bytes"]).collect();
    // Every size in every time.
    assert_eq!(sizes, [8, 8, 8, 1 << 20, 1 << 20, 1 << 20]);
    let seconds = |one: &Value| one["time_s"].as_f64().unwrap();
    let times: Vec<_> = pings[..3].iter().map(seconds).collect();
    assert_eq!(times, [0.05, 0.02, 0.04]);
    for ping in &pings {
        check_times(ping);
        assert!(ping["mb_per_s"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_load_goes_beside_messages_as_another_flow() {
    let world = World::new("30s");
    let (_gateway, _serve) = (world.gateway(), world.serve());
    // On the same links, as far as the gateway.
    let more = ["loaded", "--load-to", "gw", "--load", "0,50,100"];
    let results = bench(&world, "b0", &more);
    let loads: Vec<_> = results.iter().map(|one| &one["load"]["percent"]).collect();
    assert_eq!(loads, [0, 50, 100]);
    for result in &results {
        check_times(result);
        let load = &result["load"];
        let figures = ["mb_per_s", "alone_mb_per_s"].map(|name| load[name].as_f64().unwrap());
        assert_eq!(figures[0] > 0.0, load["percent"] != 0, "{result}");
        assert!(figures[1] > 0.0, "{result}");
        assert_eq!(
            (&load["to"], &load["message_bytes"]),
            (&json!("gw"), &json!(1 << 20))
        );
    }
    let alike = world.start_bench(&["loaded", "--time", "50ms"]).end();
    alike.failed_with(&["the same flow", "--load-to"]);
}

#[test]
fn many_nodes_send_to_many() {
    let world = World::new("30s");
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let cluster = world.cluster();
    let start = |nodes: &str, to: &str| {
        let arguments = [
            "--node", nodes, "--to", to, "many", "--size", "8B,64KiB", "--json",
        ];
        let before = [OsStr::new("bench"), cluster.as_os_str()];
        let rest = arguments.iter().chain(&QUICK).map(OsStr::new);
        run(before.into_iter().chain(rest))
    };
    for (nodes, to, flows) in [
        ("a0,a1", "b0", &["a0-b0", "a1-b0"]),
        ("a0", "b0,gw", &["a0-b0", "a0-gw"]),
        ("a0,a1", "b0,gw", &["a0-b0", "a1-gw"]),
    ] {
        let output = start(nodes, to);
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.lines().count(), 2);
        for line in printed.lines() {
            let result: Value = serde_json::from_str(line).unwrap();
            let found = result["flows"].as_array().unwrap().iter().map(|flow| {
                let name = |end: &str| flow[end].as_str().unwrap().to_owned();
                format!("{}-{}", name("from"), name("to"))
            });
            assert_eq!(found.collect::<Vec<_>>(), *flows);
            assert!(result["mb_per_s"].as_f64().unwrap() > 0.0);
            let least = result["least_of_fair_share"].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&least), "{result}");
        }
    }
}

#[test]
fn results_are_drawn_and_told_as_they_come() {
    let world = World::new("30s");
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let svg = world.path("curves.svg");
    let more = [
        "stream",
        "--size",
        "8B,64KiB",
        "--interval",
        "10ms",
        "--svg",
        svg.to_str().unwrap(),
    ];
    let lines = bench(&world, "b0", &more);
    let is_progress = |line: &&Value| line["progress"] == true;
    let progress = lines.iter().find(is_progress);
    let progress = progress.unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(progress["message_bytes"], 8);
    assert_eq!(progress["direction"], lines[lines.len() - 1]["direction"]);
    assert_eq!(lines.iter().filter(|line| !is_progress(line)).count(), 2);
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("64KiB") && svg.contains("<circle"), "{svg}");

    let plotted = world
        .start_bench(&["pingpong", "--time", "20ms", "--plot"])
        .end();
    plotted.succeeded();
    assert!(plotted.stdout.contains('█') && plotted.stdout.contains("p99"));
    assert!(!plotted.stdout.contains("20ms"), "{}", plotted.stdout);

    // Which line and which curve is of which time has to be said where there are several.
    let several = ["pingpong", "--time", "20ms,30ms", "--plot"];
    let plotted = world.start_bench(&several).end();
    plotted.succeeded();
    for said in ["in 20ms: ", "in 30ms: ", "p99, 20ms", "p99, 30ms"] {
        assert!(plotted.stdout.contains(said), "{said}: {}", plotted.stdout);
    }
}

#[test]
fn the_papers_figures_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("figures.svg");
    let arguments = [
        "bench",
        "--figure6",
        "--packet",
        "8KiB,64KiB",
        "--size",
        "4KiB,200KiB",
        "--time",
        "20ms",
        "--json",
        "--svg",
    ];
    let output = run(arguments.iter().map(OsStr::new).chain([svg.as_os_str()]));
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let points: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Two packet sizes, two directions, two message sizes.
    assert_eq!(points.len(), 8);
    for point in &points {
        assert!(point["mb_per_s"].as_f64().unwrap() > 0.0, "{point}");
        assert!(point["predicted_mb_per_s"].as_f64().unwrap() > 0.0);
        let limits = ["tcp", "shm", "the switch"];
        assert!(limits.contains(&point["limited_by"].as_str().unwrap()));
    }
    let back = points.iter().filter(|one| one["direction"] == "shm-to-tcp");
    assert_eq!(back.count(), 4);
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("Figure 6") && svg.contains("Figure 7"));
    assert_eq!(svg.matches("packets of 64KiB").count(), 2);
}

#[test]
fn a_gateway_that_is_restarted_meanwhile_does_not_spoil_a_bench() {
    let world = World::new("30s");
    let (gateway, _serve) = (world.gateway(), world.serve());
    let more = ["stream", "--time", "2s", "--interval", "100ms", "--json"];
    let mut bench = world.start_bench(&more);
    assert!(bench.next_line().contains("progress"));
    gateway.kill();
    let _gateway = world.gateway();
    let ended = bench.end();
    let printed = &ended.succeeded().stdout;
    let last: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert!(last["mb_per_s"].as_f64().unwrap() > 0.0, "{last}");
    // Others may have kept the processors busy besides.
    let doubts = last["doubts"].as_array().unwrap().iter();
    let mut doubts = doubts.map(|doubt| doubt.as_str().unwrap());
    let doubt = doubts.find(|doubt| doubt.contains("gw does not say what it did"));
    let doubt = doubt.unwrap_or_else(|| panic!("{last}"));
    assert!(ended.stderr.contains(doubt), "{ended:?}");
}

#[test]
fn a_bench_in_which_nothing_moves_ends() {
    for kind in ["stream", "flood"] {
        let world = World::new("1s");
        // The kernel would give the connection up, if the gateway's buffers were full.
        let tcp = "protocol = \"tcp\"\n";
        let patient = format!("{tcp}keepalive = \"1h\"\nuser_timeout = \"1h\"\n");
        let text = fs::read_to_string(world.cluster()).unwrap();
        fs::write(world.cluster(), text.replace(tcp, &patient)).unwrap();
        let (gateway, _serve) = (world.gateway(), world.serve());
        let more = [kind, "--time", "1min", "--interval", "100ms", "--json"];
        let mut bench = world.start_bench(&more);
        assert!(bench.next_line().contains("progress"));
        gateway.signal(Signal::STOP);
        bench
            .end()
            .failed_with(&["b0 was not reached for 2s", "its process is stopped"]);
    }
}

/// Who only receives has nothing that somebody could fail to answer.
#[test]
fn a_bench_to_which_nothing_comes_any_more_ends() {
    let world = World::new("1s");
    let (_gateway, serve) = (world.gateway(), world.serve());
    let more = [
        "stream",
        "--direction",
        "back",
        "--time",
        "1min",
        "--interval",
        "100ms",
        "--json",
    ];
    let mut bench = world.start_bench(&more);
    assert!(bench.next_line().contains("progress"));
    serve.signal(Signal::STOP);
    let ended = bench.end();
    // What an answer may take, 11 s, an eighth of that and 5 s more.
    ended.failed_with(&["nothing has moved for 18s: "]);
    // It went on to say how it stands.
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["mb_per_s"], 0.0, "{last}");
}

/// Nobody is there who could be asked: what cannot be is said before.
#[test]
fn what_nobody_could_answer_is_refused() {
    let world = World::over("tcp", "2s");
    let picture = world.path("bench.svg");
    let cluster = world.cluster();
    let (picture_name, cluster_name) = (picture.to_str().unwrap(), cluster.to_str().unwrap());
    let missing = world.path("missing.toml");
    for (arguments, code, words) in [
        (
            vec![
                "bench",
                cluster_name,
                "--node",
                "a0",
                "--to",
                "b0,b0",
                "many",
            ],
            2,
            "two flows from a0 to b0",
        ),
        (
            vec![
                "bench",
                cluster_name,
                "--node",
                "a0,b0",
                "--to",
                "b0",
                "many",
            ],
            2,
            "b0 is both in --node and in --to",
        ),
        (
            vec![
                "bench",
                cluster_name,
                "--node",
                "a0",
                "--to",
                "b0",
                "pingpong",
                "--json",
                "--plot",
            ],
            2,
            "--plot",
        ),
        (
            vec![
                "bench",
                cluster_name,
                "--node",
                "a0",
                "--to",
                "b0",
                "loaded",
                "--load-size",
                "0B",
            ],
            2,
            "no load",
        ),
        (
            vec![
                "bench",
                missing.to_str().unwrap(),
                "--node",
                "a0",
                "--to",
                "b0",
                "pingpong",
                "--svg",
                picture_name,
            ],
            1,
            "missing.toml",
        ),
        (
            vec![
                "tune",
                cluster_name,
                "--node",
                "a0",
                "--to",
                "b0",
                "--size",
                "8B,0B",
            ],
            2,
            "messages without bytes",
        ),
    ] {
        let output = run(arguments.iter().map(OsStr::new));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
    assert!(!picture.exists());
}
