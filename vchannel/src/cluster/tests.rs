//! The file of the design, and every mistake that it can have.

mod large;

use std::path::Path;
use std::time::Duration;

use madgate_tm::hsl::Card;
use madgate_tm::{Endpoint, Stores, TcpTuning};

use super::*;

pub(crate) use large::large;

const DEMO: &str = r#"
[session]
name = "demo"
key_file = "session.key"        # made by `madgate keygen`
link_timeout = "30s"

[[network]]
name = "left"
protocol = "tcp"

[[network]]
name = "right"
protocol = "shm"
directory = "/run/madgate/right"

[[node]]
name = "a[0-3]"
addresses = { left = "10.0.0.[1-4]:7100" }

[[node]]
name = "gw"
gateway = true
addresses = { left = "10.0.0.9:7100", right = "gw" }

[[node]]
name = "b0"
addresses = { right = "b0" }

[[channel]]
name = "main"
networks = ["left", "right"]
mtu = "64KiB"

[gateway]
depth = 2
memory = "256MiB"
"#;

fn demo() -> Cluster {
    Cluster::parse(DEMO, "/etc/madgate").unwrap_or_else(|error| panic!("{error}"))
}

/// The demo with one text replaced by another.
fn changed(from: &str, to: &str) -> Result<Cluster, ClusterError> {
    assert!(DEMO.contains(from), "{from}");
    Cluster::parse(&DEMO.replacen(from, to, 1), "/etc/madgate")
}

#[track_caller]
fn mistakes(from: &str, to: &str) -> String {
    match changed(from, to) {
        Ok(_) => panic!("no mistake was found"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_example_of_the_design() {
    let cluster = demo();
    assert_eq!(cluster.session_name(), "demo");
    assert_eq!(cluster.key_file(), Path::new("/etc/madgate/session.key"));
    assert_eq!(cluster.link_timeout(), Duration::from_secs(30));
    assert_eq!(cluster.node_count(), 6);
    let names: Vec<&str> = cluster
        .nodes()
        .map(|node| cluster.node_name(node))
        .collect();
    assert_eq!(names, ["a0", "a1", "a2", "a3", "gw", "b0"]);
    let (left, right) = (NetworkId(0), NetworkId(1));
    let (a2, gw) = (cluster.node("a2").unwrap(), cluster.node("gw").unwrap());
    assert_eq!((a2, gw), (NodeId(2), NodeId(4)));
    assert_eq!((cluster.node_line(a2), cluster.node_line(gw)), (16, 20));
    assert_eq!(
        cluster.address(a2, left).unwrap().to_string(),
        "10.0.0.3:7100"
    );
    assert_eq!(cluster.address(a2, right), None);
    assert_eq!(
        cluster.address(gw, right).unwrap().to_string(),
        "/run/madgate/right/gw"
    );
    assert!(cluster.is_gateway(gw) && !cluster.is_gateway(a2));
    assert_eq!(cluster.gateways().collect::<Vec<_>>(), [gw]);
    assert_eq!(cluster.networks_of(gw).collect::<Vec<_>>(), [left, right]);
    assert_eq!(cluster.nodes_on(right).collect::<Vec<_>>(), [gw, NodeId(5)]);
    assert_eq!(cluster.node_with_rank(5), Some(NodeId(5)));
    assert_eq!(cluster.node_with_rank(6), None);
    assert_eq!(cluster.channels()[0].networks, [left, right]);
    assert_eq!(cluster.gateway_settings().depth, 2);
    assert_eq!(cluster.warnings(), []);
    assert!(cluster.is_in_channel(a2, ChannelId(0)));
}

#[test]
fn a_mistake_has_a_line_and_help() {
    assert_eq!(
        mistakes("{ left = \"10.0.0.[1-4]", "{ lfet = \"10.0.0.[1-4]"),
        "cluster.toml:18: unknown network \"lfet\" in the addresses of \"a[0-3]\"; did you mean \"left\"?"
    );
}

#[test]
fn every_mistake_is_found() {
    for (from, to, expected) in [
        (
            "mtu = \"64KiB\"",
            "rate = \"300Mbit\"",
            "`rate` should be a rate like \"300Mbit/s\"",
        ),
        (
            "protocol = \"tcp\"",
            "protocol = \"tcp\"\nrate = \"10bit/s\"",
            "`rate` of 1B/s is out of bounds; write 8kbit/s",
        ),
        (
            "mtu = \"64KiB\"",
            "weight = 0",
            "`weight` cannot be 0; write a whole number, 1 to 100",
        ),
        (
            "mtu = \"64KiB\"",
            "checksum = \"none\"",
            "`checksum` cannot be \"none\"",
        ),
        (
            "depth = 2",
            "dept = 2",
            "unknown key `dept` in [gateway]; did you mean \"depth\"?",
        ),
        ("[gateway]", "[gatway]", "unknown key `gatway`"),
        (
            "key_file = \"session.key\"",
            "",
            "[session] has no `key_file`",
        ),
        ("[session]", "[session", "not TOML"),
        (
            "name = \"b0\"",
            "name = \"a1\"",
            "a node called \"a1\" is there already, on line 16",
        ),
        (
            "name = \"right\"",
            "name = \"left\"",
            "a network called \"left\" is there already",
        ),
        (
            "10.0.0.9:7100",
            "10.0.0.2:7100",
            "is that of \"a1\" already",
        ),
        (
            "\"left\", \"right\"",
            "\"left\", \"rihgt\"",
            "did you mean \"right\"?",
        ),
        ("\"left\", \"right\"", "\"left\", \"left\"", "twice"),
        ("\"left\", \"right\"", "", "spans no network"),
        ("a[0-3]", "a[3-0]", "runs backwards"),
        ("a[0-3]", "a[0-x]", "bad range"),
        (
            "a[0-3]",
            "a[0-4]",
            "stands for 4 while \"a[0-4]\" stands for 5",
        ),
        ("a[0-3]", "a[0-99999999]", "more than"),
        ("a[0-3]", "a b", "cannot be the name"),
        (
            "gateway = true",
            "",
            "there is no way from network \"left\" to network \"right\"",
        ),
        (
            "gateway = true",
            "",
            "gw has addresses on both: write `gateway = true` in it",
        ),
        ("gateway = true", "gateway = 1", "should be true or false"),
        ("\"64KiB\"", "0", "out of bounds"),
        ("\"64KiB\"", "\"1TiB\"", "out of bounds"),
        ("\"64KiB\"", "\"much\"", "should be a size"),
        ("depth = 2", "depth = 0", "`depth` cannot be 0"),
        ("depth = 2", "depth = 1000", "write a whole number, 1 to 64"),
        ("depth = 2", "depth = -1", "cannot be -1"),
        (
            "depth = 2",
            "depth = 2\nbatch = \"1KiB\"",
            "`batch` of 1KiB is out of bounds",
        ),
        (
            "depth = 2",
            "depth = 2\nwait = \"sometimes\"",
            "\"adaptive\"",
        ),
        (
            "depth = 2",
            "depth = 2\nwait = \"sleep\"\nspin = \"1ms\"",
            "`spin` says",
        ),
        (
            "\"256MiB\"",
            "\"1MiB\"",
            "`memory` of 1MiB is out of bounds",
        ),
        ("\"30s\"", "\"0s\"", "`link_timeout` of 0s is out of bounds"),
        ("\"30s\"", "30", "should be a duration"),
        (
            "directory = \"/run/madgate/right\"",
            "directory = \"\"",
            "`directory` is empty",
        ),
        (
            "directory = \"/run/madgate/right\"",
            "",
            "has no `directory`",
        ),
        (
            "protocol = \"tcp\"",
            "protocol = \"tpc\"",
            "unknown protocol \"tpc\"",
        ),
        (
            "protocol = \"tcp\"",
            "protocol = \"tcp\"\nslots = 4",
            "has no `slots`",
        ),
        (
            "protocol = \"tcp\"",
            "protocol = \"tcp\"\ncost = 0",
            "`cost` cannot be 0",
        ),
        ("10.0.0.9:7100", "10.0.0.9", "there is no port"),
        (
            "10.0.0.9:7100",
            "0.0.0.0:7100",
            ":23: address \"0.0.0.0:7100\" on network \"left\" stands for every address of its host",
        ),
        (
            "10.0.0.9:7100",
            "[::]:7100",
            "write the address or the host name at which the other nodes reach it",
        ),
        (
            "10.0.0.9:7100",
            "[::ffff:0.0.0.0]:7100",
            "no other node can dial it",
        ),
        ("10.0.0.9:7100", "239.1.2.3:7100", "a multicast group"),
        ("10.0.0.9:7100", "[ff02::1]:7100", "a multicast group"),
        (
            "10.0.0.9:7100",
            "255.255.255.255:7100",
            "every host of a network",
        ),
        (
            "10.0.0.[1-4]:7100",
            "0.0.0.[0-3]:7100",
            "address \"0.0.0.0:7100\"",
        ),
        ("{ right = \"b0\" }", "{ }", "is on no network"),
        (
            "/run/madgate/right",
            &format!("/run/{}", "x".repeat(100)),
            "has 113 bytes, and may have 107",
        ),
        ("addresses = { right = \"b0\" }", "", "has no `addresses`"),
    ] {
        let found = mistakes(from, to);
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn the_examples_of_the_documentation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cluster-file.md");
    let document = std::fs::read_to_string(path).unwrap();
    let examples = document.split("```toml").skip(1);
    let whole = examples.filter_map(|rest| rest.split("```").next());
    let nodes = whole
        .filter(|example| example.contains("[session]"))
        .map(|example| {
            let cluster = Cluster::parse(example, ".").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(cluster.warnings(), []);
            cluster.node_count()
        });
    assert_eq!(nodes.collect::<Vec<_>>(), [21, 6]);
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = DEMO
        .replace("depth = 2", "depth = 0")
        .replace("tcp", "tpc")
        .replace("a[0-3]", "a[0-");
    let error = Cluster::parse(&text, ".").unwrap_err();
    assert_eq!(error.mistakes.len(), 3, "{error}");
    assert!(error.mistakes.is_sorted_by_key(|mistake| mistake.line));
}

/// What is wrong is said once, and not what would follow from it.
#[test]
fn one_mistake_brings_no_others() {
    let two = |section: &str| format!("[{section}]\nname = \"x\"\n[[{section}]]");
    for (from, to, expected) in [
        (
            "networks = [\"left\", \"right\"]",
            "networks = \"left\"",
            "cluster.toml:31: `networks` should be a list of strings, not a string; write networks = [\"left\"]",
        ),
        (
            "name = \"main\"",
            "nme = \"main\"",
            "cluster.toml:30: unknown key `nme` in [[channel]]; did you mean \"name\"?",
        ),
        (
            "[[channel]]",
            "[channel]",
            "cluster.toml:29: `channel` is a table, not a list of tables; write [[channel]], with two brackets on each side",
        ),
        (
            "name = \"left\"\n",
            "",
            "cluster.toml:7: [[network]] has no `name`; add a line `name = …`",
        ),
        (
            "name = \"main\"\n",
            "",
            "cluster.toml:29: [[channel]] has no `name`; add a line `name = …`",
        ),
        (
            "[[network]]",
            &two("network"),
            "cluster.toml:9: there is both [network] and [[network]], or [network] twice; write [[network]], with two brackets on each side, every time",
        ),
        (
            "depth = 2",
            "depth = 2\ndepth = 3",
            "`depth` is there already; leave one of them out",
        ),
        (
            "[\"left\", \"right\"]",
            "[3]",
            "cluster.toml:31: `networks` should be a list of strings, not a whole number",
        ),
        (
            "{ right = \"b0\" }",
            "{ right = 3 }",
            "cluster.toml:27: `right` should be a string, not a whole number",
        ),
        (
            "[gateway]",
            "[[gateway]]",
            "[gateway] is written as a list of tables; write [gateway], with one bracket",
        ),
    ] {
        let found = mistakes(from, to);
        assert_eq!(found.lines().count(), 1, "{found}");
        assert!(found.contains(expected), "{found}");
    }
    let one = "[network]\nname = \"left\"\nprotocol = \"tcp\"\n";
    let text = format!(
        "session = {{ name = \"t\", key_file = \"k\" }}\n{one}\
         [[node]]\nname = \"a[0-1]\"\naddresses = {{ left = \"10.0.0.[1-2]:1\" }}\n\
         [[channel]]\nname = \"main\"\nnetworks = [\"left\"]\n"
    );
    let found = Cluster::parse(&text, ".").unwrap_err().to_string();
    assert!(
        found.starts_with("cluster.toml:2: `network` is a table"),
        "{found}"
    );
    assert_eq!(found.lines().count(), 1, "{found}");
    let found = Cluster::parse(&text.replace(one, "network = 3\n"), ".").unwrap_err();
    assert_eq!(found.mistakes.len(), 1, "{found}");
}

#[test]
fn empty_files_and_missing_files() {
    let error = Cluster::parse("", ".").unwrap_err().to_string();
    for expected in ["[session]", "[[network]]", "[[node]]", "[[channel]]"] {
        assert!(
            error.contains(&format!("there is no {expected}")),
            "{error}"
        );
    }
    let error = Cluster::read("/nonexistent/cluster.toml")
        .unwrap_err()
        .to_string();
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn what_looks_odd_is_a_warning() {
    let cluster = changed("10.0.0.9:7100", "192.9.200.1:7100").unwrap();
    let warning = cluster.warnings()[0].display_in("c").to_string();
    assert!(
        warning.contains("public addresses (\"gw\" is 192.9.200.1:7100)"),
        "{warning}"
    );
    let cluster = changed("\"left\", \"right\"", "\"left\"").unwrap();
    assert!(cluster.warnings()[0].message.contains("is in no channel"));
    let lonely = "[[node]]\nname = \"b0\"\naddresses = { right = \"b0\" }\n";
    let cluster = changed(lonely, "").unwrap();
    assert!(cluster.warnings()[0].message.contains("has one node only"));
}

#[test]
fn a_rate_at_which_a_fragment_takes_long_is_a_warning() {
    // Of the file: fragments of 64 KiB.
    let shm = "protocol = \"shm\"";
    let with = |rate: &str| changed(shm, &format!("{shm}\n{rate}")).unwrap();
    assert_eq!(with("rate = \"1Mbit/s\"").warnings(), []);
    let cluster = with("rate = \"64kbit/s\"");
    let message = &cluster.warnings()[0].message;
    let expected = "a fragment of 64KiB over network \"right\" takes 8s at a rate of 8000B/s";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.ends_with("waits for it"), "{message}");
    assert_eq!(with("rate = \"64kbit/s\"\nmtu = \"4KiB\"").warnings(), []);
    let node = "name = \"b0\"";
    let cluster = changed(node, &format!("{node}\nrate = \"8kbit/s\"")).unwrap();
    let message = &cluster.warnings()[0].message;
    assert!(
        message.contains("to node \"b0\" over network \"right\" takes"),
        "{message}"
    );
}

#[test]
fn the_digest_is_of_the_meaning() {
    let digest = demo().digest();
    let same = [
        ("# made by `madgate keygen`", "# another comment"),
        ("session.key", "other.key"),
        ("64KiB", "32KiB"),
        ("mtu = \"64KiB\"", "checksum = \"header\""),
        ("depth = 2", "depth = 4"),
        ("\"30s\"", "\"20s\""),
        (
            "protocol = \"tcp\"",
            "protocol = \"tcp\"\nsocket_buffer = \"1MiB\"",
        ),
        (
            "name = \"a[0-3]\"\naddresses = { left = \"10.0.0.[1-4]:7100\" }",
            "name = \"a0\"\naddresses = { left = \"10.0.0.1:7100\" }\n[[node]]\n\
             name = \"a[1-3]\"\naddresses = { left = \"10.0.0.[2-4]:7100\" }",
        ),
    ];
    for (from, to) in same {
        assert_eq!(changed(from, to).unwrap().digest(), digest, "{to}");
    }
    let other = [
        ("\"demo\"", "\"demo2\""),
        ("10.0.0.9", "10.0.0.8"),
        ("name = \"b0\"", "name = \"b1\""),
        ("name = \"b0\"", "name = \"b0\"\ngateway = true"),
        ("\"main\"", "\"more\""),
        ("protocol = \"tcp\"", "protocol = \"tcp\"\ncost = 2"),
        ("/run/madgate/right", "/run/madgate/left"),
    ];
    for (from, to) in other {
        assert_ne!(changed(from, to).unwrap().digest(), digest, "{to}");
    }
}

#[test]
fn checksums_are_told_by_channel() {
    let of = |cluster: &Cluster| cluster.channels()[0].checksum;
    assert_eq!(of(&demo()), Checksum::Payload);
    for (name, checksum) in Checksum::NAMES {
        let key = format!("checksum = {name:?}");
        assert_eq!(of(&changed("mtu = \"64KiB\"", &key).unwrap()), checksum);
        assert_eq!(checksum.name(), name);
    }
}

#[test]
fn memory_is_the_nodes_own_or_that_of_its_section() {
    let cluster = changed("gateway = true", "gateway = true\nmemory = \"32MiB\"").unwrap();
    let (gw, b0) = (cluster.node("gw").unwrap(), cluster.node("b0").unwrap());
    assert_eq!(cluster.engine_memory_bytes(gw), 32 << 20);
    assert_eq!(cluster.endpoint_memory_bytes(gw), 256 << 20);
    assert_eq!(cluster.endpoint_memory_bytes(b0), 256 << 20);
    let cluster = changed("name = \"b0\"", "name = \"b0\"\nmemory = \"16MiB\"").unwrap();
    assert_eq!(cluster.endpoint_memory_bytes(b0), 16 << 20);
}

#[test]
fn connections_are_tuned_by_network() {
    let tcp = "protocol = \"tcp\"";
    let with = |keys: &str| changed(tcp, &format!("{tcp}\n{keys}"));
    assert_eq!(demo().networks()[0].tuning.tcp, TcpTuning::default());
    let cluster = with("unsent = \"1MiB\"\nlow_water = true\ncongestion = \"bbr\"").unwrap();
    let tuning = &cluster.networks()[0].tuning.tcp;
    assert_eq!(
        (tuning.bulk_unsent_bytes, tuning.low_water),
        (1 << 20, true)
    );
    assert_eq!(tuning.congestion.as_deref(), Some("bbr"));
    assert_eq!(cluster.digest(), demo().digest(), "tuning is no meaning");
    for keys in ["congestion = \"\"", "congestion = \"sixteen letters!\""] {
        let error = with(keys).unwrap_err().to_string();
        assert!(error.contains("tcp_allowed_congestion_control"), "{error}");
    }
}

#[test]
fn the_fast_ways_of_the_ends_can_be_switched_off() {
    let defaults = demo();
    let settings = defaults.endpoint_settings();
    // Which setting each key is of, said apart from the list that is read by.
    let fields: [fn(&EndpointSettings) -> bool; 11] = [
        |it| it.leads,
        |it| it.straight,
        |it| it.batches,
        |it| it.gather,
        |it| it.bundles,
        |it| it.alone,
        |it| it.whole,
        |it| it.unsealed,
        |it| it.ramps,
        |it| it.sized_by_speed,
        |it| it.wide_windows,
    ];
    let keys = "leads straight batches gather bundles alone whole unsealed ramps sized_by_speed \
                wide_windows";
    let keys: Vec<_> = keys.split(' ').collect();
    assert!(settings.switches().map(|(key, _)| key) == keys[..]);
    assert!(settings.switches().iter().all(|(_, is_on)| *is_on));
    for &switched_off in &keys {
        let off = format!("[endpoint]\n{switched_off} = false\n\n[gateway]");
        let cluster = changed("[gateway]", &off).unwrap();
        let settings = cluster.endpoint_settings();
        for (key, is_on) in keys.iter().zip(fields) {
            assert_eq!(is_on(settings), *key != switched_off, "{key}");
        }
    }
    assert!(defaults.gateway_settings().gather);
    let cluster = changed("[gateway]", "[gateway]\ngather = false").unwrap();
    assert!(!cluster.gateway_settings().gather);
}

#[test]
fn slots_follow_the_mtu() {
    let right = |cluster: Cluster| cluster.networks()[1].largest_fragment_bytes();
    assert_eq!(right(demo()), 512 << 10);
    let shm = "protocol = \"shm\"";
    let larger = changed(shm, "protocol = \"shm\"\nmtu = \"1MiB\"").unwrap();
    let network = &larger.networks()[1];
    assert_eq!(network.tuning, network.default_tuning());
    assert_eq!(right(larger), 1 << 20);
    let small = "protocol = \"shm\"\nslot_bytes = \"16KiB\"";
    assert_eq!(right(changed(shm, small).unwrap()), (16 << 10) - 128);
}

#[test]
fn lanes_that_would_take_too_much_memory_are_a_mistake() {
    for keys in [
        "protocol = \"shm\"\n",
        "protocol = \"hsl\"\ntrust = \"memory\"\n",
    ] {
        let with = |slots: &str| {
            let keys = format!("{keys}slots = {slots}\nslot_bytes = \"4MiB\"");
            changed("protocol = \"shm\"", &keys)
        };
        with("100").unwrap();
        let error = with("256").unwrap_err().to_string();
        assert!(error.contains("can be made"), "{error}");
    }
}

#[test]
fn remote_write_is_described() {
    let shm = "protocol = \"shm\"";
    let with = |keys: &str| changed(shm, &format!("protocol = \"hsl\"\n{keys}"));
    let cluster = with("trust = \"memory\"").unwrap();
    let right = &cluster.networks()[1];
    assert_eq!(right.tuning.hsl, madgate_tm::HslTuning::default());
    assert_eq!(right.largest_fragment_bytes(), 512 << 10);
    assert!(!right.never_wakes());
    let polling = with("trust = \"memory\"\nmode = \"polling\"").unwrap();
    let never_wakes = polling.networks().iter().map(Network::never_wakes);
    assert_eq!(never_wakes.collect::<Vec<_>>(), [false, true]);
    let tuned = with(
        "trust = \"memory\"\ndevice = \"host\"\nmode = \"interrupt\"\nthreshold = \"8KiB\"\n\
         mtu = \"1MiB\"",
    )
    .unwrap();
    let right = &tuned.networks()[1];
    assert_eq!(right.tuning.hsl.mode, madgate_tm::hsl::Mode::Interrupt);
    assert_eq!(right.tuning.hsl.threshold_bytes, 8 << 10);
    assert_eq!(right.largest_fragment_bytes(), 1 << 20);
    assert_eq!(cluster.digest(), tuned.digest(), "tuning is no meaning");
    assert_ne!(cluster.digest(), demo().digest());

    for (keys, what) in [
        ("", "trust = \"memory\""),
        ("trust = \"none\"", "memory"),
        ("trust = \"memory\"\nmode = \"fast\"", "adaptive"),
        ("trust = \"memory\"\ndevice = \"fpga\"", "host"),
        ("trust = \"memory\"\nthreshold = \"1B\"", "threshold"),
        ("trust = \"memory\"\nkeepalive = \"1s\"", "no `keepalive`"),
    ] {
        let error = with(keys).unwrap_err();
        assert_eq!(error.mistakes.len(), 1, "{keys}: {error}");
        let error = error.to_string();
        assert!(error.contains(what), "{keys}: {error}");
    }
    for (keys, what) in [
        ("trust = \"memory\"\nprovider = \"tcp\"", "no `provider`"),
        ("device = \"libfabric\"\ntrust = \"memory\"", "no `trust`"),
        ("device = \"libfabric\"\nmode = \"interrupt\"", "adaptive"),
        ("device = \"libfabric\"\nprovider = \"\"", "fi_info"),
        ("device = \"libfabric\"\ndomain = \"a\\nb\"", "fi_info"),
    ] {
        let error = with(keys).unwrap_err().to_string();
        assert!(error.contains(what), "{keys}: {error}");
    }
    let error = changed(shm, "protocol = \"shm\"\ntrust = \"memory\"");
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no `trust`"), "{error}");
}

#[test]
fn cards_that_lock_memory_have_smaller_slots() {
    let with = |keys: &str| {
        let keys = format!("protocol = \"hsl\"\ndevice = \"libfabric\"\n{keys}");
        changed("protocol = \"shm\"", &keys).unwrap()
    };
    let slots_of = |cluster: &Cluster| {
        let network = &cluster.networks()[1];
        let hsl = &network.tuning.hsl;
        let is_default = network.tuning == network.default_tuning();
        (hsl.bulk_slots, hsl.bulk_slot_bytes - 128, is_default)
    };
    assert_eq!(slots_of(&with("")), (64, 64 << 10, true));
    let mtu = with("mtu = \"256KiB\"");
    assert_eq!(slots_of(&mtu), (64, (260 << 10) - 128, true));
    let told = with("slots = 8\nslot_bytes = \"32KiB\"");
    assert_eq!(slots_of(&told), (8, (32 << 10) - 128, false));
}

#[test]
fn how_units_are_stored_is_said_where_nodes_share_memory() {
    let shm = "protocol = \"shm\"";
    for stores in Stores::ALL {
        let keys = format!("stores = \"{}\"", stores.name());
        let tuning = |protocol: &str| {
            let cluster = changed(shm, &format!("protocol = {protocol}\n{keys}")).unwrap();
            cluster.networks()[1].tuning.clone()
        };
        assert_eq!(tuning("\"shm\"").shm.stores, stores);
        assert_eq!(tuning("\"hsl\"\ntrust = \"memory\"").hsl.stores, stores);
    }
    let said = |keys: &str| changed(shm, keys).unwrap_err().to_string();
    let unknown = said("protocol = \"shm\"\nstores = \"fast\"");
    assert!(unknown.contains("\"streaming\""), "{unknown}");
    for other in ["\"tcp\"", "\"hsl\"\ndevice = \"libfabric\""] {
        let none = said(&format!("protocol = {other}\nstores = \"cached\""));
        assert!(none.contains("no `stores`"), "{none}");
    }
    // Each node may have its own.
    let streaming = changed(shm, "protocol = \"shm\"\nstores = \"streaming\"").unwrap();
    assert_eq!(streaming.digest(), demo().digest(), "tuning is no meaning");
}

#[test]
fn a_node_has_one_place_in_a_directory() {
    let cluster = |second: &str| {
        let text = format!(
            "[session]\nname = \"s\"\nkey_file = \"k\"\n\
             [[network]]\nname = \"l\"\nprotocol = \"shm\"\ndirectory = \"meeting\"\n\
             [[network]]\nname = \"r\"\nprotocol = \"hsl\"\ntrust = \"memory\"\ndirectory = \"{second}\"\n\
             [[node]]\nname = \"a\"\naddresses = {{ l = \"a\" }}\n\
             [[node]]\nname = \"gw\"\ngateway = true\naddresses = {{ l = \"gw\", r = \"gw\" }}\n\
             [[node]]\nname = \"b\"\naddresses = {{ r = \"b\" }}\n\
             [[channel]]\nname = \"main\"\nnetworks = [\"l\", \"r\"]\n"
        );
        Cluster::parse(&text, Path::new("/east"))
    };
    cluster("another").unwrap();
    let error = cluster("meeting").unwrap_err().to_string();
    assert!(error.contains("twice at /east/meeting/gw.sock"), "{error}");
}

#[test]
fn a_card_of_libfabric_is_described() {
    let shm = "protocol = \"shm\"";
    let with = |keys: &str| {
        let keys = format!("protocol = \"hsl\"\ndevice = \"libfabric\"\n{keys}");
        changed(shm, &keys).unwrap()
    };
    let (any, verbs) = (
        with(""),
        with("provider = \"verbs;ofi_rxm\"\ndomain = \"mlx5_0\""),
    );
    let card = |cluster: &Cluster| cluster.networks()[1].tuning.hsl.card.clone();
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(
        card(&verbs),
        Card::Libfabric {
            provider: named("verbs;ofi_rxm"),
            domain: named("mlx5_0"),
        }
    );
    assert_ne!(
        any.digest(),
        verbs.digest(),
        "both sides take the same provider"
    );
    assert_eq!(
        verbs.digest(),
        with("provider = \"verbs;ofi_rxm\"").digest()
    );

    // Without a directory, its nodes are where their ports are.
    let text = "[session]\nname = \"s\"\nkey_file = \"k\"\n\
                [[network]]\nname = \"n\"\nprotocol = \"hsl\"\ndevice = \"libfabric\"\n\
                [[node]]\nname = \"a[0-1]\"\naddresses = { n = \"10.0.0.[1-2]:7100\" }\n\
                [[channel]]\nname = \"main\"\nnetworks = [\"n\"]\n";
    let cluster = Cluster::parse(text, Path::new("/")).unwrap();
    let address = cluster.address(NodeId(1), NetworkId(0)).unwrap();
    assert_eq!(
        address,
        Endpoint::HslHost {
            host: "10.0.0.2".to_owned(),
            port: 7100
        }
    );
    let nowhere = text.replace("10.0.0.[1-2]", "[::]");
    assert!(Cluster::parse(&nowhere, Path::new("/")).is_err());
    let without_card = text.replace("device = \"libfabric\"", "trust = \"memory\"");
    let error = Cluster::parse(&without_card, Path::new("/")).unwrap_err();
    assert!(error.to_string().contains("directory"), "{error}");
}

proptest::proptest! {
    #[test]
    fn no_text_panics(at in 0..DEMO.len(), cut in 0..40_usize, insert in ".{0,12}") {
        let mut text = String::from_utf8_lossy(&DEMO.as_bytes()[..at]).into_owned();
        text.push_str(&insert);
        text.push_str(&String::from_utf8_lossy(&DEMO.as_bytes()[(at + cut).min(DEMO.len())..]));
        if let Err(error) = Cluster::parse(&text, ".") {
            proptest::prop_assert!(!error.mistakes.is_empty());
        }
    }
}

#[test]
fn what_never_ends_is_too_large() {
    let error = Cluster::read("/dev/zero").unwrap_err();
    assert!(error.to_string().contains("is larger than"), "{error}");
}
