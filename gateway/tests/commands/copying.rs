//! `cp` through a gateway while all is well, and what it refuses.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;

use crate::watch::Watch;
use crate::world::{PROGRAM, Process, World};

const TIMEOUT: &str = "30s";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn trees_arrive_as_they_are() {
    ["shm", "hsl"].into_iter().for_each(tree_arrives_over);
}

fn tree_arrives_over(right: &str) {
    let world = World::over(right, TIMEOUT);
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let tree = world.path("tree");
    fs::create_dir_all(tree.join("inner/empty")).unwrap();
    fs::write(tree.join("nothing"), b"").unwrap();
    fs::write(tree.join("inner/script"), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(tree.join("inner/script"), Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(tree.join("inner"), Permissions::from_mode(0o555)).unwrap();
    let large = world.file("large", (5 << 20) + 3);

    let ended = world.cp(&[&tree, &large], "");
    ended.succeeded();
    assert!(
        ended
            .stdout
            .contains("copied 3 files and 3 folders to b0: 5.2 MB"),
        "{ended:?}"
    );
    let served = world.served();
    assert_eq!(
        world.received(),
        [
            "large",
            "tree",
            "tree/inner",
            "tree/inner/empty",
            "tree/inner/script",
            "tree/nothing"
        ]
    );
    assert_eq!(
        fs::read(served.join("large")).unwrap(),
        fs::read(large).unwrap()
    );
    assert_eq!(fs::read(served.join("tree/nothing")).unwrap(), b"");
    assert_eq!(mode(&served.join("tree/inner/script")), 0o750);
    assert_eq!(mode(&served.join("tree/inner")), 0o555);
    // Who is not root removes them with the rest.
    for place in [tree, served.join("tree")] {
        fs::set_permissions(place.join("inner"), Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_path_says_where_to() {
    let world = World::new(TIMEOUT);
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let file = world.file("file", 1000);
    world.cp(&[&file], "other-name").succeeded();
    world.cp(&[&file], "made/").succeeded();
    world.cp(&[&file], "made").succeeded();
    world.cp(&[&file, &world.cluster()], "both").succeeded();
    assert_eq!(
        world.received(),
        [
            "both",
            "both/cluster.toml",
            "both/file",
            "made",
            "made/file",
            "other-name"
        ]
    );
}

#[test]
fn nothing_is_written_outside() {
    let world = World::new(TIMEOUT);
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let file = world.file("file", 1000);
    let outside = world.path("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, world.served().join("link")).unwrap();
    world
        .cp(&[&file], "../file2")
        .failed_with(&["refused", "\"..\""]);
    world
        .cp(&[&file], "/tmp/file2")
        .failed_with(&["refused", "absolute"]);
    let ended = world.cp(&[&file], "link");
    ended.failed_with(&[
        "refused",
        "link",
        "madgate: NOTHING was copied to b0: 1 was not; it ended early\n",
    ]);
    assert_eq!(ended.stdout, "");
    world
        .cp(&[&file], "link/file")
        .failed_with(&["refused", "link"]);
    assert_eq!(world.received(), ["link"]);
    assert!(fs::read_dir(outside).unwrap().next().is_none());
    assert!(!world.path("file2").exists());
}

#[test]
fn links_are_named_and_the_rest_is_copied() {
    let world = World::new(TIMEOUT);
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let tree = world.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), b"file").unwrap();
    symlink("file", tree.join("link")).unwrap();
    let ended = world.cp(&[&tree], "");
    ended.failed_with(&["tree/link: is a link"]);
    ended.failed_with(&[
        "NOT ALL was copied to b0: 1 file and 1 folder were (4 B in ",
        "), 1 was not\n",
    ]);
    assert_eq!(ended.stdout, "", "nothing that looks like success");
    assert_eq!(world.received(), ["tree", "tree/file"]);
}

#[test]
fn a_folder_that_cannot_be_read_is_not_copied() {
    let world = World::new(TIMEOUT);
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let tree = world.path("tree");
    let shut = tree.join("shut");
    fs::create_dir_all(&shut).unwrap();
    fs::write(tree.join("file"), b"file").unwrap();
    fs::set_permissions(&shut, Permissions::from_mode(0o000)).unwrap();
    let mut copy = if geteuid().is_root() {
        // What lets root read everything.
        let mut copy = Command::new("setpriv");
        copy.args(["--bounding-set", "-dac_override,-dac_read_search", PROGRAM]);
        copy
    } else {
        Command::new(PROGRAM)
    };
    copy.arg("cp").arg(world.cluster()).args(["--node", "a0"]);
    copy.arg(&tree).arg("b0:");
    let ended = Process::start(copy).end();
    fs::set_permissions(&shut, Permissions::from_mode(0o700)).unwrap();
    ended.failed_with(&[
        "tree/shut: permission denied",
        "NOT ALL was copied to b0: 1 file and 1 folder were (4 B in ",
        "), 1 was not\n",
    ]);
    assert_eq!(world.received(), ["tree", "tree/file"]);
}

#[test]
fn a_file_that_shrinks_meanwhile_is_named_and_an_older_one_stays() {
    let world = World::new(TIMEOUT);
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let (large, small) = (world.file("large", 192 << 20), world.file("small", 1000));
    let mut watch = Watch::new(&world.served());
    let copy = world.start_cp("a0", &[&large, &small], "");
    watch.wait_for_bytes(&world.served(), &copy);
    fs::write(world.served().join("large"), b"older").unwrap();
    File::options()
        .write(true)
        .open(&large)
        .unwrap()
        .set_len(1000)
        .unwrap();
    copy.end().failed_with(&[
        "large: changed while it was copied; copy it again",
        "NOT ALL was copied to b0: 1 file was",
    ]);
    assert_eq!(world.received(), ["large", "small"]);
    assert_eq!(fs::read(world.served().join("large")).unwrap(), b"older");
}

#[test]
fn several_nodes_copy_at_once() {
    let world = World::new(TIMEOUT);
    let (_gateway, _serve) = (world.gateway(), world.serve());
    let (first, second) = (
        world.file("first", 20 << 20),
        world.file("second", 21 << 20),
    );
    let copies = [
        world.start_cp("a0", &[&first], ""),
        world.start_cp("a1", &[&second], ""),
    ];
    for copy in copies {
        copy.end().succeeded();
    }
    for file in [first, second] {
        let name = file.file_name().unwrap();
        assert_eq!(
            fs::read(world.served().join(name)).unwrap(),
            fs::read(&file).unwrap()
        );
    }
}

#[test]
fn services_end_in_order() {
    let world = World::new(TIMEOUT);
    let (gateway, serve) = (world.gateway(), world.serve());
    world.cp(&[&world.file("file", 1 << 20)], "").succeeded();
    let ended = serve.terminate();
    assert!(
        ended
            .succeeded()
            .stdout
            .contains("madgate serve b0: leaving, no copy is under way\n"),
        "{ended:?}"
    );
    let ended = gateway.terminate();
    assert!(
        ended.succeeded().stdout.contains("nothing dropped"),
        "{ended:?}"
    );
}
