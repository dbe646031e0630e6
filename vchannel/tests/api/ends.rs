//! Opening and closing sessions, and destinations that cannot be.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use madgate_vchannel::ReceiveMode::{Cheaper, Express};
use madgate_vchannel::{Cluster, NodeId, OpenError, PackError, Session, UnpackError};

use crate::support::{ALL, Nodes, Protocol, pattern, receive};

#[test]
fn a_session_closes_when_all_is_delivered() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 2, "");
        let (here, to) = (nodes.channel(0), nodes.id(1));
        for number in 0..100 {
            let block = Bytes::from(pattern(number, 500));
            here.try_send(to, &[(block, Cheaper)]).expect("is retained");
        }
        drop(here);
        nodes
            .stop(0)
            .close(Duration::from_secs(3600))
            .expect("all is delivered");
        for number in 0..100 {
            assert_eq!(
                receive(&nodes.channel(1)).1,
                [(pattern(number, 500), Cheaper)]
            );
        }
    }
}

#[test]
fn a_session_that_closes_in_vain_names_who_was_not_reached() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 3, "");
        drop(nodes.stop(1));
        let here = nodes.channel(0);
        for to in [1, 2] {
            here.try_send(nodes.id(to), &[(Bytes::from_static(b"hello"), Cheaper)])
                .expect("is retained");
        }
        assert_eq!(receive(&nodes.channel(2)).0, nodes.id(0));
        drop(here);
        let error = nodes
            .stop(0)
            .close(Duration::from_millis(100))
            .expect_err("one is not there");
        assert_eq!(error.nodes, ["n1"]);
        assert_eq!(
            error.to_string(),
            "messages to n1 were not delivered within 100ms"
        );
    }
}

#[test]
fn a_session_that_closes_says_what_was_lost_before() {
    for protocol in ALL {
        let mut nodes = Nodes::open(protocol, 3, "");
        drop(nodes.stop(1));
        let here = nodes.channel(0);
        for to in [1, 2] {
            let mut packing = here.begin_packing(nodes.id(to)).expect("begins");
            packing.pack_safer(b"hello", Cheaper).expect("packs");
            packing.end_packing().expect("nobody waits");
        }
        drop(here);
        // Longer than messages are tried for.
        let error = nodes
            .stop(0)
            .close(Duration::from_secs(3600))
            .expect_err("one is not there");
        assert!(error.nodes.is_empty(), "{error:?}");
        let [PackError::Unreachable { node, messages, .. }] = &error.lost[..] else {
            panic!("{error:?}");
        };
        assert_eq!((node.as_str(), messages), ("n1", &(0..1)));
        let said = error.to_string();
        assert!(said.ends_with("; message 0 was not delivered"), "{said}");
    }
}

#[test]
fn a_session_with_nothing_to_say_closes_at_once() {
    let mut nodes = Nodes::open(Protocol::Tcp, 2, "");
    nodes
        .stop(0)
        .close(Duration::ZERO)
        .expect("there is nothing to deliver");
}

#[test]
fn what_the_cluster_does_not_have_is_named() {
    let nodes = Nodes::open(Protocol::Tcp, 2, "");
    let error = Session::open(Arc::clone(&nodes.cluster), "n7").expect_err("there is none");
    assert!(
        matches!(&error, OpenError::UnknownNode(unknown) if unknown.name() == "n7"),
        "{error}"
    );
    let error = nodes.session(0).channel("none").expect_err("there is none");
    assert!(
        matches!(&error, OpenError::UnknownChannel(unknown) if unknown.name() == "none"),
        "{error}"
    );

    let here = nodes.channel(0);
    let error = here.begin_packing(NodeId(7)).expect_err("there is none");
    assert!(
        matches!(error, PackError::UnknownNode { rank: 7 }),
        "{error}"
    );
    let error = here.begin_packing(nodes.id(0)).expect_err("it is here");
    assert!(
        matches!(&error, PackError::ToItself { node } if node == "n0"),
        "{error}"
    );
    let error = here
        .begin_unpacking_from(NodeId(7))
        .expect_err("there is none");
    assert!(
        matches!(error, UnpackError::UnknownNode { rank: 7 }),
        "{error}"
    );
    let error = here
        .begin_unpacking_from(nodes.id(0))
        .expect_err("it is here");
    assert!(
        matches!(&error, UnpackError::FromItself { node } if node == "n0"),
        "{error}"
    );
}

#[test]
fn a_node_without_a_route_cannot_be_packed_for() {
    let more = r#"
        [[network]]
        name = "island"
        protocol = "tcp"
        [[node]]
        name = "far"
        addresses = { island = "127.0.0.1:7300" }
        [[node]]
        name = "farther"
        addresses = { island = "127.0.0.1:7301" }
        [[channel]]
        name = "away"
        networks = ["island"]
    "#;
    let nodes = Nodes::open(Protocol::Tcp, 2, more);
    let far = nodes.cluster.node("far").expect("it has the node");
    let error = nodes
        .channel(0)
        .begin_packing(far)
        .expect_err("it is not on the network");
    assert!(
        matches!(&error, PackError::NoRoute { node, channel } if node == "far" && channel == "main"),
        "{error}"
    );
    let error = nodes
        .session(0)
        .channel("away")
        .expect_err("it is not in it");
    assert!(
        matches!(&error, OpenError::NotInChannel { node, .. } if node == "n0"),
        "{error}"
    );
}

#[test]
fn a_session_needs_its_key_and_its_addresses() {
    let nodes = Nodes::open(Protocol::Tcp, 2, "");
    let error = Session::open(Arc::clone(&nodes.cluster), "n0").expect_err("it runs already");
    assert!(matches!(error, OpenError::Start(_)), "{error}");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "[session]\nname = \"test\"\nkey_file = \"missing\"\n\
                [[network]]\nname = \"net\"\nprotocol = \"tcp\"\n\
                [[node]]\nname = \"a\"\naddresses = { net = \"127.0.0.1:7100\" }\n\
                [[node]]\nname = \"b\"\naddresses = { net = \"127.0.0.1:7101\" }\n\
                [[channel]]\nname = \"main\"\nnetworks = [\"net\"]\n";
    let cluster = Cluster::parse(text, folder.path()).expect("the cluster file is right");
    let error = Session::open(Arc::new(cluster), "a").expect_err("there is no key");
    assert!(matches!(error, OpenError::Key(_)), "{error}");
}

#[test]
fn a_node_that_closes_has_acknowledged_what_it_received() {
    for protocol in ALL {
        for number in 0..10 {
            let mut nodes = Nodes::open(protocol, 2, "");
            let block = Bytes::from(pattern(number, 100));
            let delivery = nodes
                .channel(0)
                .try_send(nodes.id(1), &[(block.clone(), Express)])
                .expect("is retained");
            assert_eq!(receive(&nodes.channel(1)).1, [(block.to_vec(), Express)]);
            nodes
                .stop(1)
                .close(Duration::from_secs(3600))
                .expect("it has sent nothing");
            delivery.wait().expect("was acknowledged");
        }
    }
}
