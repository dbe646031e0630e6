//! What a gateway says of frames that wait there.

use std::time::Duration;

use super::*;

#[test]
fn a_probe_of_what_is_still_here_is_answered_and_goes_on() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 50_000);
    let probe = Header::new(Kind::Probe, key(1), LABEL);
    let ask = |gateway: &mut Gateway| {
        let outcome = gateway.transit.handle_control(gateway.near, &probe, NOW);
        let [near, far] = [gateway.near, gateway.far].map(|link| gateway.kinds(link));
        (outcome, near, far)
    };
    gateway.run(1, OPENED, OPENED + 1128, Lane::Bulk).unwrap();
    let both = Outcome::SendBoth([gateway.near, gateway.far]);
    let held = (both, vec![Kind::Held], vec![Kind::Probe]);
    assert_eq!(ask(&mut gateway), held);
    let taken = gateway.take(Lane::Bulk, usize::MAX);
    assert_eq!(ask(&mut gateway), held);
    gateway.transit.handle_departure(&taken[0].1, NOW);
    let passed = (Outcome::Send(gateway.far), vec![], vec![Kind::Probe]);
    assert_eq!(ask(&mut gateway), passed);
}

/// Whoever waits behind a neighbour that takes nothing is to find out.
#[test]
fn what_waits_for_a_neighbour_that_takes_nothing_is_not_said_to_be_held() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open(1, 50_000);
    gateway.run(1, OPENED, OPENED + 1128, Lane::Bulk).unwrap();
    let probe = Header::new(Kind::Probe, key(1), LABEL);
    for (seconds, is_held) in [(4, true), (6, false)] {
        let later = NOW + Duration::from_secs(seconds);
        gateway.transit.handle_control(gateway.near, &probe, later);
        assert_eq!(gateway.kinds(gateway.near).len(), usize::from(is_held));
        gateway.control(gateway.far);
    }
    // The opening of another flow waits there too.
    let opening = opening_header(2, LABEL, 0);
    gateway.open_with(&opening);
    let later = NOW + Duration::from_secs(6);
    let to = Ok(gateway.far);
    let again =
        gateway
            .transit
            .handle_opening(gateway.near, &opening, &opening_of(7), to, 0, later);
    assert_eq!(again, Outcome::Dropped);
}

#[test]
fn a_gateway_ahead_that_holds_something_is_heard_by_the_source() {
    let mut gateway = Gateway::new(1 << 20);
    gateway.open_with(&opening_header(1, LABEL, 0));
    gateway.forward(Lane::Urgent);
    let held = |label| Header::new(Kind::Held, key(1), label);
    let (near, far) = (gateway.near, gateway.far);
    let mut hear = |link, label| {
        let outcome = gateway.transit.handle_control(link, &held(label), NOW);
        (outcome, gateway.kinds(gateway.near))
    };
    assert_eq!(hear(far, LABEL), (Outcome::Send(near), vec![Kind::Held]));
    assert_eq!(hear(far, LABEL + 1), (Outcome::Dropped, vec![]));
    assert_eq!(hear(near, LABEL), (Outcome::Dropped, vec![]));
}
