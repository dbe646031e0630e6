//! Processes that are killed in the middle of a copy: no half file, nothing lost that could
//! be delivered, and everything works again.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::watch::Watch;
use crate::world::{Process, World};

/// Large enough that a copy which has begun is not over when somebody hears of it.
const LARGE: usize = 192 << 20;

/// What is said of that file when its copy breaks off: it "was not sent completely", or "was sent, but
/// is not confirmed" where this machine was busy with something else meanwhile.
const UNFINISHED: &str = "large: was ";

/// A copy of a large file from a0 to b0, of which part has arrived.
struct Scene {
    world: World,
    gateway: Process,
    serve: Process,
    large: PathBuf,
    watch: Watch,
    copy: Process,
}

impl Scene {
    fn of_a_copy(right: &str, link_timeout: &str) -> Self {
        let world = World::over(right, link_timeout);
        let (gateway, serve) = (world.gateway(), world.serve());
        let large = world.file("large", LARGE);
        let mut watch = Watch::new(&world.served());
        let copy = world.start_cp("a0", &[&large], "");
        watch.wait_for_bytes(&world.served(), &copy);
        Self {
            world,
            gateway,
            serve,
            large,
            watch,
            copy,
        }
    }
}

#[test]
fn a_gateway_that_comes_back_loses_nothing() {
    ["shm", "hsl"].into_iter().for_each(gateway_comes_back_to);
}

fn gateway_comes_back_to(right: &str) {
    let Scene {
        world,
        gateway,
        serve: _serve,
        large,
        copy,
        ..
    } = Scene::of_a_copy(right, "30s");
    gateway.kill();
    let _gateway = world.gateway();
    copy.end().succeeded();
    assert_eq!(world.received(), ["large"]);
    assert!(fs::read(world.served().join("large")).unwrap() == fs::read(&large).unwrap());
}

#[test]
fn a_gateway_that_stays_away_fails_the_copy() {
    let Scene {
        world,
        gateway,
        serve,
        mut watch,
        copy,
        ..
    } = Scene::of_a_copy("shm", "5s");
    gateway.kill();
    copy.end()
        .failed_with(&[UNFINISHED, "b0 was not reached for 5s"]);
    // The receiver gives up too, and keeps no half file.
    watch.wait_until(|| world.received().is_empty());
    serve.terminate().succeeded();
}

#[test]
fn a_copy_that_ends_early_names_everything_that_was_not_copied() {
    let world = World::new("3s");
    let (gateway, _serve) = (world.gateway(), world.serve());
    let (large, tree) = (world.file("a-large", LARGE), world.path("tree"));
    fs::create_dir_all(tree.join("inner")).unwrap();
    for file in 0..150 {
        fs::write(tree.join(format!("inner/{file:03}")), "file").unwrap();
    }
    std::os::unix::fs::symlink("inner", tree.join("link")).unwrap();
    let mut watch = Watch::new(&world.served());
    let copy = world.start_cp("a0", &[&large, &tree], "");
    watch.wait_for_bytes(&world.served(), &copy);
    gateway.kill();
    let ended = copy.end();
    // The large file, two folders, 150 files and a link: of these 100 are named.
    ended.failed_with(&[
        &format!("a-{UNFINISHED}"),
        "tree: was not sent\n",
        "tree/inner: was not sent\n",
        "tree/inner/000: was not sent\n",
        "tree/inner/096: was not sent\n",
        "madgate: and 54 more\n",
        "madgate: NOTHING was copied to b0: 154 were not; it ended early\n",
    ]);
    assert!(!ended.stderr.contains("tree/inner/097"), "{ended:?}");
    assert!(!ended.stderr.contains("message"), "{ended:?}");
}

#[test]
fn a_copy_that_never_began_names_everything() {
    let world = World::new("1s");
    let tree = world.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "file").unwrap();
    std::os::unix::fs::symlink("file", tree.join("link")).unwrap();
    world.cp(&[&tree], "").failed_with(&[
        "tree: was not sent\n",
        "tree/file: was not sent\n",
        "tree/link: is a link, which is not copied\n",
        "madgate: NOTHING was copied to b0: 3 were not; it ended early\n",
    ]);
}

#[test]
fn a_receiver_that_dies_leaves_no_file_under_its_name() {
    // By `hsl`, the gateway is receiving into memory of its.
    ["shm", "hsl"].into_iter().for_each(receiver_dies_behind);
}

fn receiver_dies_behind(right: &str) {
    let Scene {
        world,
        gateway: _gateway,
        serve,
        large,
        copy,
        ..
    } = Scene::of_a_copy(right, "5s");
    serve.kill();
    copy.end().failed_with(&[UNFINISHED, "b0"]);
    assert!(!world.served().join("large").exists());
    // What it was writing goes when it is back, and it works again.
    let _serve = world.serve();
    assert!(world.received().is_empty());
    world.cp(&[&large], "").succeeded();
    assert_eq!(world.received(), ["large"]);
}

#[test]
fn a_receiver_that_is_restarted_ends_the_copy() {
    let Scene {
        world,
        gateway: _gateway,
        serve,
        copy,
        ..
    } = Scene::of_a_copy("shm", "30s");
    serve.kill();
    let _serve = world.serve();
    // Said by its session, or by the new process when it is asked.
    copy.end().failed_with(&[UNFINISHED, "was restarted"]);
    assert!(world.received().is_empty());
}

#[test]
fn a_receiver_that_leaves_says_what_breaks_off() {
    let Scene {
        world,
        gateway: _gateway,
        serve,
        copy,
        ..
    } = Scene::of_a_copy("shm", "2s");
    let ended = serve.terminate();
    assert!(
        ended
            .succeeded()
            .stdout
            .contains("madgate serve b0: leaving, 1 copy breaks off\n"),
        "{ended:?}"
    );
    copy.end().failed_with(&["NOTHING was copied to b0"]);
    assert!(world.received().is_empty());
}

#[test]
fn a_receiver_that_is_stopped_is_given_up() {
    let Scene {
        world,
        gateway: _gateway,
        serve,
        copy,
        ..
    } = Scene::of_a_copy("shm", "1s");
    serve.signal(Signal::STOP);
    copy.end().failed_with(&[
        UNFINISHED,
        "b0 was not reached for 2s (nothing comes back: its process is stopped",
    ]);
    serve.kill();
    assert!(!world.served().join("large").exists());
}

/// What a gateway has for it and cannot send is not said to wait for its turn: whoever is behind that
/// would wait for ever.
#[test]
fn a_receiver_that_is_stopped_is_noticed_behind_what_a_gateway_holds_for_it() {
    let world = World::new("1s");
    let _gateway = world.gateway();
    let serve = world.serve();
    let more = [
        "flood",
        "--size",
        "1KiB",
        "--time",
        "10min",
        "--interval",
        "100ms",
        "--json",
    ];
    let mut flood = world.start_bench(&more);
    assert!(flood.next_line().contains("progress"));
    serve.signal(Signal::STOP);
    let small = world.file("small", 100);
    let copy = world.start_cp("a1", &[&small], "small");
    copy.end().failed_with(&["b0 was not reached for 1s"]);
    flood.kill();
    serve.kill();
}

#[test]
fn a_server_that_is_ended_tells_its_senders() {
    let Scene {
        world,
        gateway: _gateway,
        serve,
        copy,
        ..
    } = Scene::of_a_copy("shm", "30s");
    serve.terminate().succeeded();
    copy.end()
        .failed_with(&[UNFINISHED, "refused: the server there is being ended"]);
    assert!(world.received().is_empty());
}

#[test]
fn a_sender_that_dies_makes_way_for_the_next() {
    let Scene {
        world,
        gateway: _gateway,
        serve: _serve,
        mut watch,
        copy,
        ..
    } = Scene::of_a_copy("shm", "30s");
    copy.kill();
    assert!(!world.served().join("large").exists());
    let small = world.file("small", 1000);
    world.cp(&[&small], "").succeeded();
    watch.wait_until(|| world.received() == ["small"]);
}

#[test]
fn a_bench_that_is_stopped_holds_up_nobody() {
    let world = World::new("30s");
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let file = world.file("file", 3 << 20);
    let bench = world.start_bench(&["stream", "--size", "32MiB", "--time", "1min"]);
    world.start_cp("a1", &[&file], "running").end().succeeded();
    bench.signal(Signal::STOP);
    for name in ["stopped", "still"] {
        world.start_cp("a1", &[&file], name).end().succeeded();
    }
    bench.kill();
    assert_eq!(world.received(), ["running", "still", "stopped"]);
}

#[test]
fn a_server_that_ends_leaves_nothing_of_a_sender_that_stands_still() {
    let world = World::over("tcp", "30s");
    let (_gateway, serve) = (world.gateway(), world.serve());
    // Its copy takes seconds, however late this test is told that it has begun.
    let huge = world.path("huge");
    let file = fs::File::create(&huge).unwrap();
    file.set_len(1 << 30).unwrap();
    let mut watch = Watch::new(&world.served());
    let copy = world.start_cp("a0", &[&huge], "");
    watch.wait_for_bytes(&world.served(), &copy);
    // Mostly in the middle of a message.
    copy.signal(Signal::STOP);
    let ended = serve.terminate();
    ended.succeeded();
    assert!(ended.stdout.contains("1 copy breaks off"), "{ended:?}");
    assert!(world.received().is_empty(), "{:?}", world.received());
}
