//! What the fuzz targets do, so that plain tests can replay their corpora: each is a function
//! from any bytes to nothing, which panics where it finds something wrong.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use madgate_tm::LaneClass;

use crate::cluster::{Cluster, NodeId};
use crate::conductor::Party;
use crate::handshake::{Initiator, LinkHello, LinkKind, Member, Progress, Responder, SessionKey};
use crate::topology::Routes;

/// Longer texts only make the same mistakes again.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// A cluster file: what is in it is right and agrees with itself, or there is a mistake that
/// says where it is.
pub fn cluster_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if text.len() > TEXT_BYTES_MAX {
        return;
    }
    match Cluster::parse(text, Path::new("/folder")) {
        Ok(cluster) => agrees_with_itself(Arc::new(cluster)),
        Err(error) => assert!(!error.to_string().is_empty(), "a mistake without a word"),
    }
}

fn agrees_with_itself(cluster: Arc<Cluster>) {
    let last = u32::try_from(cluster.node_count() - 1).expect("at most 2^20 nodes");
    let [first, last] = [NodeId(0), NodeId(last)];
    for node in [first, last] {
        let name = cluster.node_name(node).to_owned();
        assert_eq!(cluster.node(&name), Some(node), "{name} is another node");
    }
    for channel in cluster.channel_ids() {
        let reached = |from, to| {
            let both = cluster.is_in_channel(from, channel) && cluster.is_in_channel(to, channel);
            both.then(|| Routes::new(Arc::clone(&cluster), channel).route(from, to))
        };
        if let Some(there) = reached(first, last).filter(|_| first != last) {
            let there = there.expect("nodes of a checked channel reach each other");
            let back = reached(last, first).expect("both are in it");
            let back = back.expect("nodes of a checked channel reach each other");
            assert_eq!(
                there.hops.len(),
                back.hops.len(),
                "a route is not symmetric"
            );
        }
    }
}

/// The nodes of the handshakes.
const CLUSTER: &str = r#"
[session]
name = "fuzz"
key_file = "session.key"
[[network]]
name = "left"
protocol = "tcp"
[[node]]
name = "a0"
addresses = { left = "10.0.0.1:7100" }
[[node]]
name = "gw"
gateway = true
addresses = { left = "10.0.0.2:7100" }
[[channel]]
name = "main"
networks = ["left"]
"#;

static MEMBERS: LazyLock<[Arc<Member>; 2]> = LazyLock::new(|| {
    let cluster = Cluster::parse(CLUSTER, Path::new("/folder")).expect("the text above is right");
    let cluster = Arc::new(cluster);
    let key = SessionKey::generate();
    ["a0", "gw"].map(|name| {
        let node = cluster.node(name).expect("it is in the text above");
        let parties = vec![Party::Endpoint, Party::Engine];
        Arc::new(Member::new(
            Arc::clone(&cluster),
            node,
            7,
            key.clone(),
            parties,
        ))
    })
});

/// A handshake between two members, on a connection where somebody changes, adds and takes
/// away bytes: each side fails, or is sure of what the other really said.
///
/// Two bytes each time: what happens, and to how many bytes.
pub fn handshake(mut bytes: &[u8]) {
    let [dials, listens] = &*MEMBERS;
    let hello = LinkHello {
        node: dials.node(),
        destination: listens.node(),
        incarnation: dials.incarnation(),
        link: 1,
        network: crate::cluster::NetworkId(0),
        kind: LinkKind::Forward,
        class: LaneClass::Urgent,
    };
    let mut initiator = Initiator::new(Arc::clone(dials), hello);
    let mut responder = Responder::new(Arc::clone(listens), crate::cluster::NetworkId(0));
    let mut is_honest = true;
    while let [action, count, rest @ ..] = bytes {
        bytes = rest;
        let to_responder = action & 1 == 0;
        let mut carried = match to_responder {
            true => initiator.output().to_vec(),
            false => responder.output().to_vec(),
        };
        carried.truncate(usize::from(*count));
        let from_output = carried.len();
        match (action >> 1) % 8 {
            0 => {
                let added = rest.len().min(usize::from(*count));
                carried = rest[..added].to_vec();
                bytes = &rest[added..];
                is_honest &= carried.is_empty();
                give(&mut initiator, &mut responder, to_responder, &carried);
                continue;
            }
            1 if from_output > 0 => {
                carried[from_output - 1] ^= action | 1;
                is_honest = false;
            }
            2 => {
                is_honest &= carried.is_empty();
                carried.clear();
            }
            _ => {}
        }
        let taken = give(&mut initiator, &mut responder, to_responder, &carried);
        let gone = if carried.is_empty() {
            from_output
        } else {
            taken
        };
        match to_responder {
            true => initiator.sent(gone),
            false => responder.sent(gone),
        }
        if responder.progress() == Progress::Member {
            assert_eq!(
                responder.hello(),
                Some(&hello),
                "a member said something else"
            );
            responder.accept();
        }
    }
    if let Some(peer) = initiator.peer() {
        assert_eq!(
            (peer.node, peer.incarnation),
            (listens.node(), listens.incarnation())
        );
        assert_eq!(
            responder.progress(),
            Progress::Accepted,
            "nobody has accepted"
        );
    }
    if is_honest {
        assert_ne!(
            responder.progress(),
            Progress::Over,
            "an honest peer was sent away"
        );
    }
}

/// Gives one side bytes, as many as it takes; returns how many that was.
fn give(
    initiator: &mut Initiator,
    responder: &mut Responder,
    to_responder: bool,
    bytes: &[u8],
) -> usize {
    let wanted = match to_responder {
        true => responder.wanted_bytes(),
        false => initiator.wanted_bytes(),
    };
    let bytes = &bytes[..bytes.len().min(wanted)];
    let handled = match to_responder {
        true => responder.handle_bytes(bytes),
        false => initiator.handle_bytes(bytes),
    };
    let taken = handled.unwrap_or(bytes.len());
    assert!(taken <= bytes.len(), "more was taken than given");
    taken
}

#[cfg(test)]
mod tests {
    use madgate_gtm::fuzzing::replay;

    #[test]
    fn corpora_and_what_is_near_them_hold() {
        let folder = env!("CARGO_MANIFEST_DIR");
        replay(folder, "cluster_file", super::cluster_file);
        replay(folder, "handshake", super::handshake);
    }
}
