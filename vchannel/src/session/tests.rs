//! Two nodes in one process, seen from inside.

use std::fs;
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
    let directory = if protocol == "shm" {
        format!("directory = \"{}\"\n", files.path().join("net").display())
    } else {
        String::new()
    };
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
