//! Members that dial each other.

use madgate_tm::LEAST_AHEAD;

use super::*;
use crate::conductor::limits::BACKOFF_FIRST;
use crate::handshake::SessionKey;

/// Who goes on dialling after two attempts or three has dialled again after that.
const A_DIAL_MORE: Duration = BACKOFF_FIRST.saturating_mul(8);

#[test]
fn links_of_every_kind_go_to_the_party_that_they_are_for() {
    let fixture = Fixture::new();
    let a0 = Node::start(&fixture, "a0", 10);
    let a1 = Node::start(&fixture, "a1", 11);
    let gw = Node::start(&fixture, "gw", 12);
    let b0 = Node::start(&fixture, "b0", 13);

    // By host name, which has to be resolved.
    let regular = request(&fixture, LinkKind::Regular, "left", "a1");
    a0.conductor.dial(Party::Endpoint, regular);
    a0.conductor.dial(Party::Endpoint, regular);
    let (mut here, mut there) = (up(&a0.endpoint), up(&a1.endpoint));
    assert_eq!((here.request, here.peer_incarnation), (regular, 11));
    let back = request(&fixture, LinkKind::Regular, "left", "a0");
    assert_eq!((there.request, there.peer_incarnation), (back, 10));
    check_lanes(&mut here, &mut there);

    let forward = request(&fixture, LinkKind::Forward, "left", "gw");
    a0.conductor.dial(Party::Endpoint, forward);
    let (mut here, mut there) = (up(&a0.endpoint), up(&gw.engine));
    assert_eq!((here.request, here.peer_incarnation), (forward, 12));
    assert_eq!(there.request.kind, LinkKind::Forward);
    check_lanes(&mut here, &mut there);

    let deliver = request(&fixture, LinkKind::Deliver, "right", "b0");
    gw.conductor.dial(Party::Engine, deliver);
    let (mut here, mut there) = (up(&gw.engine), up(&b0.endpoint));
    assert_eq!((here.request, here.peer_incarnation), (deliver, 13));
    assert_eq!(there.request.peer, fixture.node("gw"));
    check_lanes(&mut here, &mut there);

    for events in [&a0.endpoint, &a0.engine, &a1.endpoint, &gw.endpoint] {
        assert!(events.is_empty(), "one link for one request");
    }
}

#[test]
fn who_was_dialled_does_not_dial_for_what_that_link_serves() {
    for (kind, network, dialled, dials) in [
        (LinkKind::Regular, "left", "a0", "a1"),
        (LinkKind::Regular, "left", "a1", "a0"),
        (LinkKind::Relay, "right", "gw", "g2"),
        (LinkKind::Relay, "right", "g2", "gw"),
        (LinkKind::Deliver, "left", "a0", "gw"),
        (LinkKind::Forward, "left", "gw", "a0"),
    ] {
        // Who was not there may be found by an attempt that has begun before it dials by itself. Then
        // there are two links, or that one: another time.
        let is_served = (0..20).any(|_| is_served_by_one_link(kind, network, dialled, dials));
        assert!(is_served, "{kind:?} {dialled} {dials}");
    }
}

/// Whether a node that has dialled another in vain has one link when that dials it: the other's.
fn is_served_by_one_link(kind: LinkKind, network: &str, dialled: &str, dials: &str) -> bool {
    let fixture = Fixture::new();
    let from_here = request(&fixture, kind.back(), network, dials);
    let mine = Party::that_accepts(kind);
    let here = Node::start(&fixture, dialled, 10);
    here.conductor.dial(mine, from_here);
    // Nobody is there yet.
    failure(here.events(mine));
    let there = Node::start(&fixture, dials, 11);
    let theirs = Party::that_accepts(kind.back());
    let from_there = request(&fixture, kind, network, dialled);
    there.conductor.dial(theirs, from_there);
    let (at_theirs, at_mine) = (up(there.events(theirs)), up(here.events(mine)));
    if !at_theirs.is_dialed || at_mine.is_dialed {
        return false;
    }
    assert_eq!(at_mine.request.back(), from_here);
    let second = there.events(theirs).recv_timeout(A_DIAL_MORE);
    second.is_err()
}

#[test]
fn an_engine_fills_little_ahead_of_a_session() {
    let fixture = Fixture::new();
    for (kind, dials, dialled, filled) in [
        (LinkKind::Regular, "gw", "b0", [64, 64]),
        (LinkKind::Forward, "b0", "gw", [64, LEAST_AHEAD]),
        (LinkKind::Deliver, "gw", "b0", [LEAST_AHEAD, 64]),
        (LinkKind::Relay, "gw", "g2", [64, 64]),
    ] {
        let here = Node::start(&fixture, dials, 12);
        let there = Node::start(&fixture, dialled, 13);
        let (dialer, acceptor) = (Party::that_accepts(kind.back()), Party::that_accepts(kind));
        let wanted = request(&fixture, kind, "right", dialled);
        here.conductor.dial(dialer, wanted);
        let ends = [up(here.events(dialer)), up(there.events(acceptor))];
        let fill = |lane: &mut Lane| {
            let mut count = 0;
            while let Some(slot) = lane.sender.try_lend().unwrap() {
                let length = slot.capacity();
                lane.sender.commit(slot, length).unwrap();
                count += 1;
            }
            count
        };
        let counts = ends.map(|mut end| [fill(&mut end.bulk), fill(&mut end.urgent)]);
        assert_eq!(counts, filled.map(|bulk| [bulk, 64]), "{kind:?}");
    }
}

#[test]
fn two_parties_have_links_of_their_own() {
    let fixture = Fixture::new();
    let gw = Node::start(&fixture, "gw", 12);
    let b0 = Node::start(&fixture, "b0", 13);
    let regular = request(&fixture, LinkKind::Regular, "right", "b0");
    let deliver = request(&fixture, LinkKind::Deliver, "right", "b0");
    gw.conductor.dial(Party::Endpoint, regular);
    gw.conductor.dial(Party::Engine, deliver);
    let mine = [up(&gw.endpoint), up(&gw.engine)];
    assert_ne!(mine[0].id, mine[1].id);
    let theirs = [up(&b0.endpoint), up(&b0.endpoint)];
    assert_ne!(theirs[0].id, theirs[1].id);
    assert_ne!(theirs[0].request, theirs[1].request);
}

#[test]
fn both_parties_of_a_gateway_reach_the_next_engine() {
    let fixture = Fixture::new();
    let gw = Node::start(&fixture, "gw", 12);
    let g2 = Node::start(&fixture, "g2", 13);
    let forward = request(&fixture, LinkKind::Forward, "right", "g2");
    let relay = request(&fixture, LinkKind::Relay, "right", "g2");
    gw.conductor.dial(Party::Endpoint, forward);
    gw.conductor.dial(Party::Engine, relay);
    assert_eq!(up(&gw.endpoint).request, forward);
    assert_eq!(up(&gw.engine).request, relay);
    // At the other end neither takes the other's place.
    let theirs = [up(&g2.engine), up(&g2.engine)];
    assert_ne!(theirs[0].request, theirs[1].request);
}

#[test]
fn dialling_goes_on_until_somebody_is_there() {
    let fixture = Fixture::new();
    let a0 = Node::start(&fixture, "a0", 10);
    for (kind, peer) in [(LinkKind::Regular, "a1"), (LinkKind::Forward, "gw")] {
        let request = request(&fixture, kind, "left", peer);
        a0.conductor.dial(Party::Endpoint, request);
        let (error, attempts) = failure(&a0.endpoint);
        assert!(error.contains("over left at"), "{error}");
        assert!(error.contains("refused"), "{error}");
        assert_eq!(attempts, 1);
        let peer = Node::start(&fixture, peer, 12);
        // Said once, however often it failed.
        let mut here = up(&a0.endpoint);
        let mut there = match kind {
            LinkKind::Forward => up(&peer.engine),
            _ => up(&peer.endpoint),
        };
        check_lanes(&mut here, &mut there);
    }
}

#[test]
fn a_link_can_be_dialled_again() {
    let fixture = Fixture::new();
    let a0 = Node::start(&fixture, "a0", 10);
    let forward = request(&fixture, LinkKind::Forward, "left", "gw");
    for incarnation in 1..=3 {
        let gw = Node::start(&fixture, "gw", incarnation);
        a0.conductor.dial(Party::Endpoint, forward);
        let mut link = match next(&a0.endpoint) {
            LinkEvent::Up(link) => link,
            LinkEvent::DialFailed { .. } => Box::new(up(&a0.endpoint)),
            other => panic!("{other:?}"),
        };
        assert_eq!(link.peer_incarnation, incarnation);
        drop(gw);
        ends(&mut link.urgent);
        ends(&mut link.bulk);
        a0.conductor.link_closed(link.id);
    }
}

#[test]
fn whoever_stops_dialling_hears_no_more() {
    let fixture = Fixture::new();
    let a0 = Node::start(&fixture, "a0", 10);
    let forward = request(&fixture, LinkKind::Forward, "left", "gw");
    a0.conductor.dial(Party::Endpoint, forward);
    failure(&a0.endpoint);
    a0.conductor.cancel(Party::Endpoint, forward);
    a0.conductor.cancel(Party::Endpoint, forward);
    // What is dialled after it shows that it was heard.
    let regular = request(&fixture, LinkKind::Regular, "left", "a1");
    a0.conductor.dial(Party::Endpoint, regular);
    failure(&a0.endpoint);
    let gw = Node::start(&fixture, "gw", 12);
    let a1 = Node::start(&fixture, "a1", 11);
    assert_eq!(up(&a0.endpoint).request, regular);
    up(&a1.endpoint);
    assert!(gw.engine.is_empty() && a0.endpoint.is_empty());
}

#[test]
fn members_are_told_why_they_cannot_come_in() {
    let fixture = Fixture::new();
    let parties = vec![(Party::Endpoint, Arc::new(|| ()) as WakeParty)];
    let member = fixture.member_with("gw", 12, &fixture.key, &[Party::Endpoint]);
    let (_gw, events) = Conductor::start_with(member, parties, Patience::default()).unwrap();
    let forward = request(&fixture, LinkKind::Forward, "left", "gw");

    let a0 = Node::start(&fixture, "a0", 10);
    a0.conductor.dial(Party::Endpoint, forward);
    let (error, _) = failure(&a0.endpoint);
    assert!(error.contains("nothing there is for such links"), "{error}");
    drop(a0);

    let member = fixture.member_with("a0", 10, &SessionKey::generate(), &BOTH);
    let a0 = Node::of(member, Patience::default());
    a0.conductor.dial(Party::Endpoint, forward);
    let (error, _) = failure(&a0.endpoint);
    assert!(error.contains("another session key"), "{error}");
    drop(a0);

    let (cluster, node) = (fixture.other_cluster(), fixture.node("a0"));
    let member = Member::new(cluster, node, 10, fixture.key.clone(), BOTH.to_vec());
    let a0 = Node::of(Arc::new(member), Patience::default());
    a0.conductor.dial(Party::Endpoint, forward);
    let (error, _) = failure(&a0.endpoint);
    assert!(error.contains("another cluster file"), "{error}");

    let nowhere = request(&fixture, LinkKind::Regular, "left", "b0");
    a0.conductor.dial(Party::Endpoint, nowhere);
    let (error, _) = failure(&a0.endpoint);
    assert!(error.contains("b0 is not on this network"), "{error}");
    assert!(events[0].1.is_empty());
}

#[test]
fn a_node_runs_once() {
    for name in ["gw", "b0"] {
        let fixture = Fixture::new();
        let first = Node::start(&fixture, name, 12);
        let parties = || BOTH.map(|party| (party, Arc::new(|| ()) as WakeParty));
        let patience = Patience::default();
        let member = fixture.member(name, 13);
        let second = Conductor::start_with(member, parties().to_vec(), patience);
        let error = second.unwrap_err();
        assert!(error.to_string().contains("running already"), "{error}");
        drop(first);
        Node::start(&fixture, name, 14);
    }
}

#[test]
fn who_drains_is_not_dialled_any_more() {
    let fixture = Fixture::new();
    let gw = Node::start(&fixture, "gw", 12);
    let a0 = Node::start(&fixture, "a0", 10);
    let forward = request(&fixture, LinkKind::Forward, "left", "gw");
    a0.conductor.dial(Party::Endpoint, forward);
    let (mut here, mut there) = (up(&a0.endpoint), up(&gw.engine));
    gw.conductor.stop_accepting();
    let regular = request(&fixture, LinkKind::Regular, "left", "gw");
    // Who connects before it is heard may still come in.
    loop {
        a0.conductor.dial(Party::Endpoint, regular);
        match next(&a0.endpoint) {
            LinkEvent::Up(_) => {}
            LinkEvent::DialFailed { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    check_lanes(&mut here, &mut there);
}

#[test]
fn a_party_that_reads_late_misses_nothing() {
    let fixture = Fixture::new();
    let (mut outlet, events) = outlet::Outlet::new(Party::Engine, Arc::new(|| ()));
    let peer = fixture.node("a0");
    let total = u64::try_from(EVENTS_MOST).unwrap() + 10;
    for incarnation in 0..total {
        outlet.push(LinkEvent::PeerReplaced { peer, incarnation });
    }
    let mut lost = 0;
    outlet.flush(|_| lost += 1);
    assert!(outlet.is_clogged());
    assert_eq!(events.len(), EVENTS_MOST);
    let mut expected = 0;
    while let Ok(event) = events.try_recv() {
        assert!(
            matches!(event, LinkEvent::PeerReplaced { incarnation, .. } if incarnation == expected)
        );
        expected += 1;
        outlet.flush(|_| lost += 1);
    }
    assert_eq!((expected, lost), (total, 0));
    drop(events);
    outlet.push(LinkEvent::PeerReplaced {
        peer,
        incarnation: 0,
    });
    outlet.flush(|_| lost += 1);
    assert_eq!(lost, 1);
    assert!(!outlet.is_clogged());
}

#[test]
fn who_loses_its_place_in_the_folder_takes_it_again() {
    let fixture = Fixture::new();
    let gw = Node::start(&fixture, "gw", 12);
    let b0 = Node::start(&fixture, "b0", 13);
    // As the service of another node does, where the folder is its own.
    let folder = fixture.right();
    std::fs::remove_dir_all(&folder).unwrap();
    let regular = request(&fixture, LinkKind::Regular, "right", "b0");
    gw.conductor.dial(Party::Endpoint, regular);
    let link = loop {
        match next(&gw.endpoint) {
            LinkEvent::Up(link) => break link,
            LinkEvent::DialFailed { .. } => {}
            other => panic!("expected a link, got {other:?}"),
        }
    };
    assert_eq!(link.peer_incarnation, 13);
    up(&b0.endpoint);
    // Nobody else can be the node meanwhile.
    let twice = madgate_tm::listen(
        &fixture
            .cluster
            .address(fixture.node("b0"), link.request.network)
            .unwrap(),
        &madgate_tm::Tuning::default(),
    );
    assert!(twice.is_err());
}
