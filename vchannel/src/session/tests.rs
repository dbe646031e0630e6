//! Two nodes in one process, seen from inside.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use madgate_gtm::wire::ReceiveMode;
use tempfile::TempDir;

use super::Session;
use crate::cluster::Cluster;
use crate::handshake::SessionKey;

fn pair(protocol: &str, addresses: [&str; 2]) -> (TempDir, Session, Session) {
    let files = tempfile::tempdir().unwrap();
    SessionKey::generate()
        .write_new(&files.path().join("session.key"))
        .unwrap();
    let mut directory = String::new();
    if protocol != "tcp" {
        directory = format!("directory = \"{}\"\n", files.path().join("net").display());
    }
    if protocol == "hsl" {
        directory += "trust = \"memory\"\n";
    }
    let [a, b] = addresses;
    let text = format!(
        "[session]\nname = \"pair\"\nkey_file = \"session.key\"\n\
         [[network]]\nname = \"net\"\nprotocol = \"{protocol}\"\n{directory}\
         [[node]]\nname = \"a\"\naddresses = {{ net = \"{a}\" }}\n\
         [[node]]\nname = \"b\"\naddresses = {{ net = \"{b}\" }}\n\
         [[channel]]\nname = \"main\"\nnetworks = [\"net\"]\n"
    );
    fs::write(files.path().join("cluster.toml"), &text).unwrap();
    let cluster = Arc::new(Cluster::parse(&text, files.path()).unwrap());
    let a = Session::open(Arc::clone(&cluster), "a").unwrap();
    let b = Session::open(cluster, "b").unwrap();
    (files, a, b)
}

fn stream(protocol: &str, addresses: [&str; 2], bytes: usize, count: usize) {
    let (_files, a, b) = pair(protocol, addresses);
    let to = b.node();
    let sender = thread::spawn(move || {
        let channel = a.channel("main").unwrap();
        let block = Bytes::from(vec![7; bytes]);
        for number in 0..count {
            let mut packing = channel.begin_packing(to).unwrap();
            packing
                .pack_safer(&number.to_le_bytes(), ReceiveMode::Cheaper)
                .unwrap();
            packing
                .pack_owned(block.clone(), ReceiveMode::Cheaper)
                .unwrap();
            packing.end_packing().unwrap();
        }
        drop(channel);
        a
    });
    let channel = b.channel("main").unwrap();
    let mut block = vec![0; bytes];
    for expected in 0..count {
        let mut number = [0; 8];
        let mut unpacking = channel.begin_unpacking().unwrap();
        unpacking.unpack_cheaper(&mut number).unwrap();
        unpacking.unpack_cheaper(&mut block).unwrap();
        unpacking.end_unpacking().unwrap();
        assert_eq!(usize::from_le_bytes(number), expected);
        assert!(block.iter().all(|byte| *byte == 7));
    }
    drop(sender.join().unwrap());
}

#[test]
fn messages_of_a_fragment_stream_over_shared_memory() {
    stream("shm", ["a", "b"], 65_528, 3000);
}

#[test]
fn messages_of_some_fragments_stream_over_shared_memory() {
    stream("shm", ["a", "b"], 1 << 20, 300);
}

#[test]
fn messages_stream_by_remote_write() {
    stream("hsl", ["a", "b"], 65_528, 3000);
    stream("hsl", ["a", "b"], 1 << 20, 300);
}

/// Larger than a slot of an urgent lane, and than one of a bulk lane.
const LARGE: usize = 200_000;

fn say(from: &Session, to: &Session, what: u8) {
    let channel = from.channel("main").unwrap();
    let mut packing = channel.begin_packing(to.node()).unwrap();
    packing.pack_safer(&[what], ReceiveMode::Express).unwrap();
    packing
        .pack_owned(vec![what; LARGE].into(), ReceiveMode::Cheaper)
        .unwrap();
    packing.end_packing_delivered().unwrap();
}

fn hear(at: &Session) -> u8 {
    let channel = at.channel("main").unwrap();
    let mut block = [0];
    let mut unpacking = channel.begin_unpacking().unwrap();
    unpacking.unpack_express(&mut block).unwrap();
    let large = unpacking.unpack_owned(LARGE, ReceiveMode::Cheaper).unwrap();
    unpacking.end_unpacking().unwrap();
    assert_eq!(large[..], [block[0]; LARGE]);
    block[0]
}

/// The numbers of the links that are up.
fn links(session: &Session) -> Vec<u64> {
    let core = session.inner().lock();
    let up = core.links.iter().flatten().filter(|link| link.is_up());
    up.map(|link| link.id).collect()
}

/// Breaks every link that is up.
fn cut(session: &Session) {
    let mut core = session.inner().lock();
    for index in 0..core.links.len() {
        let index = u32::try_from(index).unwrap();
        if let Some(output) = core.output(index) {
            core.note_broken(index, &output);
        }
    }
    drop(core);
    session.inner().waker.wake();
}

#[test]
fn two_that_talk_both_ways_share_a_link() {
    // Of the addresses of loopback, this process has one to itself.
    let host = Ipv4Addr::from(0x7f00_0000 | (std::process::id() & 0x00ff_ffff));
    let tcp = [7310, 7311].map(|port| format!("{host}:{port}"));
    for (protocol, addresses) in [
        ("tcp", [&*tcp[0], &*tcp[1]]),
        ("shm", ["a", "b"]),
        ("hsl", ["a", "b"]),
    ] {
        let (_files, a, b) = pair(protocol, addresses);
        for what in 0..3 {
            say(&a, &b, what);
            assert_eq!(hear(&b), what);
            say(&b, &a, what);
            assert_eq!(hear(&a), what);
        }
        assert_eq!((links(&a).len(), links(&b).len()), (1, 1), "{protocol}");
        // Both find their flow another link, whoever dials first.
        for (turn, cutter) in [(10, &a), (20, &b)] {
            cut(cutter);
            thread::scope(|both| {
                both.spawn(|| say(&a, &b, turn));
                both.spawn(|| say(&b, &a, turn + 1));
                assert_eq!((hear(&b), hear(&a)), (turn, turn + 1));
            });
        }
    }
}
