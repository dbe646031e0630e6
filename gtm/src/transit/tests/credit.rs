//! What is promised to sources, and for how long they have nothing left of it.

use super::*;

/// A gateway of so many bytes, with a flow whose destination grants more than that, and what its source
/// is granted.
fn short_of_memory(bytes: u64) -> (Gateway, u64) {
    let mut gateway = Gateway::new(bytes);
    gateway.open_with(&opening_header(1, LABEL, 0));
    gateway.forward(Lane::Urgent);
    gateway.credit(1, OPENED, 1 << 30);
    let granted = gateway.granted();
    (gateway, granted)
}

#[test]
fn credit_is_lowered_to_what_memory_allows_and_raised_as_it_frees() {
    let (mut gateway, granted) = short_of_memory(64 << 10);
    // Half of what is elastic, besides what is guaranteed.
    assert_eq!(granted, OPENED + GUARANTEED_BYTES + 24 * 1024);
    gateway.run(1, OPENED, granted, Lane::Bulk).unwrap();
    assert!(gateway.control(gateway.near).is_empty());
    gateway.forward(Lane::Bulk);
    assert_eq!(gateway.granted(), granted + GUARANTEED_BYTES + 24 * 1024);
}

#[test]
fn credit_that_waits_for_its_link_says_what_there_is_when_it_leaves() {
    let (mut gateway, granted) = short_of_memory(64 << 10);
    gateway.run(1, OPENED, granted, Lane::Bulk).unwrap();
    // While nothing of that has left, there is no more to promise.
    gateway.credit(1, OPENED, 1 << 31);
    gateway.forward(Lane::Bulk);
    assert_eq!(gateway.granted(), granted + GUARANTEED_BYTES + 24 * 1024);
}

#[test]
fn what_a_parked_flow_waits_for_may_change() {
    let at = |nanos| Time(NOW.0 + nanos);
    let mut gateway = Gateway::new(64 << 10);
    let granted = OPENED + GUARANTEED_BYTES + 24 * 1024;
    gateway.open(1, granted);
    gateway.run(1, OPENED, granted, Lane::Bulk).unwrap();
    // The destination promises more, for which there is no memory before something leaves.
    let credit = Header::credit(key(1), LABEL, OPENED, 1 << 30, THEIRS);
    gateway
        .transit
        .handle_control(gateway.far, &credit, at(5000));
    assert_eq!(gateway.transit.counters().parked_flows, 1);
    assert_eq!(gateway.transit.way(NEAR, FAR).parked_flows, 1);
    gateway.transit.count_parked(at(7000));
    let counters = gateway.transit.counters();
    let parked = (counters.parked_ahead_ns, counters.parked_memory_ns);
    assert_eq!(parked, (5000, 2000));
}

#[test]
fn the_time_is_kept_that_flows_have_no_credit_and_whose_is_missing() {
    let later = Time(NOW.0 + 5000);
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 10_000);
    gateway.run(1, OPENED, 9000, Lane::Bulk).unwrap();
    assert_eq!(gateway.transit.counters().parked_flows, 0);
    gateway.run(1, 9000, 10_000, Lane::Bulk).unwrap();
    // That it leaves promises nothing: the destination has not.
    gateway.forward(Lane::Bulk);
    assert_eq!(gateway.transit.counters().parked_flows, 1);
    assert_eq!(gateway.transit.way(NEAR, FAR).parked_flows, 1);
    // What has passed counts while it goes on, and once.
    for (at, nanos) in [(2000, 2000), (3000, 3000)] {
        gateway.transit.count_parked(Time(NOW.0 + at));
        let counters = gateway.transit.counters();
        assert_eq!(
            (counters.parked_flows, counters.parked_ahead_ns),
            (1, nanos)
        );
    }
    let credit = Header::credit(key(1), LABEL, OPENED, 20_000, THEIRS);
    gateway.transit.handle_control(gateway.far, &credit, later);
    let counters = *gateway.transit.counters();
    assert_eq!((counters.parked_flows, counters.parked_ahead_ns), (0, 5000));
    let way = gateway.transit.way(NEAR, FAR);
    assert_eq!((way.parked_flows, way.parked_ahead_ns), (0, 5000));

    // The destination promises plenty, and this gateway has no memory for it.
    let mut gateway = Gateway::new(64 << 10);
    gateway.open(1, 1 << 30);
    let passage = gateway.transit.passage(gateway.near, key(1), LABEL, NOW);
    let granted = OPENED + passage.unwrap().promised;
    gateway.run(1, OPENED, granted, Lane::Bulk).unwrap();
    let taken = gateway.take(Lane::Bulk, usize::MAX);
    gateway.transit.handle_departure(&taken[0].1, later);
    let counters = *gateway.transit.counters();
    assert_eq!(
        (counters.parked_flows, counters.parked_memory_ns),
        (0, 5000)
    );
    assert_eq!(counters.parked_ahead_ns, 0);
    let way = gateway.transit.way(NEAR, FAR);
    assert_eq!((way.parked_ahead_ns, way.parked_memory_ns), (0, 5000));
    // Nothing has passed the other ways.
    for (from, to) in [(FAR, NEAR), (NEAR, NEAR), (NEAR, 7)] {
        assert_eq!(gateway.transit.way(from, to), Way::default());
    }

    // One that is forgotten meanwhile is parked no longer.
    let passage = gateway.transit.passage(gateway.near, key(1), LABEL, NOW);
    let end = granted + passage.unwrap().promised;
    gateway.run(1, granted, end, Lane::Bulk).unwrap();
    assert_eq!(gateway.transit.counters().parked_flows, 1);
    let _ = gateway.transit.remove_link(gateway.far);
    assert_eq!(gateway.transit.counters().parked_flows, 0);
    assert_eq!(gateway.transit.way(NEAR, FAR).parked_flows, 0);
}

#[test]
fn a_source_whose_next_frame_may_not_fit_is_told_of_room() {
    let (mut gateway, granted) = short_of_memory(16 << 10);
    // It leaves 3000 unused, which is less than a small frame may take.
    gateway.run(1, OPENED, granted - 3000, Lane::Bulk).unwrap();
    gateway.forward(Lane::Bulk);
    assert!(gateway.granted() >= granted - 3000 + GUARANTEED_BYTES);
}

#[test]
fn the_answer_to_a_bare_opening_says_where_to_go_on() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open_with(&bare_header(1, LABEL, 500));
    gateway.forward(Lane::Urgent);
    gateway.credit(1, 7000, 20_000);
    assert_eq!(gateway.granted(), 20_000);
    gateway.run(1, 7000, 20_000, Lane::Bulk).unwrap();
    // Later credit cannot jump over what has not arrived.
    assert_eq!(gateway.credit(1, 20_001, 30_000), Outcome::Dropped);
}

#[test]
fn what_a_destination_said_last_is_passed_on_before_it_is_said_that_its_link_is_lost() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 50_000);
    gateway.run(1, OPENED, 9000, Lane::Urgent).unwrap();
    gateway.forward(Lane::Urgent);
    // It has everything, and leaves before that has gone on.
    gateway.credit(1, 9000, 59_000);
    gateway.transit.remove_link(gateway.far);
    let told = gateway.control(gateway.near);
    assert_eq!((told[0].kind, told[0].position), (Kind::Credit, 9000));
    assert_eq!(told[1].reason(), Some(Refusal::LinkLost));
    assert_eq!(told.len(), 2);
}

#[test]
fn credit_waits_once_per_flow_and_the_newest_goes() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 5000);
    for granted in [6000, 7000, 8000] {
        gateway.credit(1, OPENED, granted);
    }
    assert_eq!(gateway.granted(), 8000);
}
