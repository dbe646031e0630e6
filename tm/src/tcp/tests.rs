//! What is TCP's own; the rest is in the conformance suite.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use socket2::SockRef;

use super::{connect, listen};
use crate::conformance::SILENCE;
use crate::protocol::TcpTuning;
use crate::{Endpoint, Gather, Interest, Lane, LaneClass, LaneError, Piece, Poller, Room};

/// A lane over a connection to an ordinary listener, and the socket at its other end.
fn lane(class: LaneClass) -> (Lane, TcpStream) {
    lane_with(class, &TcpTuning::default())
}

fn lane_with(class: LaneClass, tuning: &TcpTuning) -> (Lane, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let stranger = connect("127.0.0.1", port, tuning).unwrap();
    let (far, _) = listener.accept().unwrap();
    (
        stranger
            .establish(class)
            .unwrap()
            .advance()
            .unwrap()
            .unwrap(),
        far,
    )
}

fn wait(source: impl AsFd, interest: Interest, timeout: Option<Duration>) -> bool {
    let mut poller = Poller::new().unwrap();
    poller.add(source, 0, interest).unwrap();
    !poller.wait(timeout).unwrap().is_empty()
}

#[test]
fn sockets_are_tuned() {
    let tuning = TcpTuning::default();
    for class in [LaneClass::Urgent, LaneClass::Bulk] {
        let (lane, _far) = lane(class);
        let (descriptor, _) = lane.sender.descriptor();
        let socket = SockRef::from(&descriptor);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(
            socket.tcp_user_timeout().unwrap(),
            Some(tuning.user_timeout)
        );
        assert_eq!(
            socket.tcp_notsent_lowat().unwrap(),
            tuning.unsent_bytes(class)
        );
    }
}

#[test]
fn both_ends_within_the_host_have_a_control_that_does_not_pace() {
    let tuning = TcpTuning::default();
    let mut listener = listen("127.0.0.1", 0, &tuning).unwrap();
    let Endpoint::Tcp { host, port } = listener.local_endpoint() else {
        panic!("not TCP");
    };
    let connected = connect(&host, port, &tuning).unwrap();
    wait(&listener, Interest::Readable, None);
    let accepted = listener.try_accept().unwrap().unwrap();
    for stranger in [connected, accepted] {
        let lane = stranger.establish(LaneClass::Bulk).unwrap().advance();
        let lane = lane.unwrap().unwrap();
        let (descriptor, _) = lane.sender.descriptor();
        let congestion = SockRef::from(&descriptor).tcp_congestion().unwrap();
        assert!(!congestion.starts_with(b"bbr"), "{congestion:?}");
    }
}

#[test]
fn low_water_keeps_from_waking_early() {
    let tuning = TcpTuning {
        low_water: true,
        ..TcpTuning::default()
    };
    let (mut lane, mut far) = lane_with(LaneClass::Bulk, &tuning);
    lane.receiver.set_low_water(1000).unwrap();
    far.write_all(&[1; 999]).unwrap();
    let (descriptor, interest) = lane.receiver.descriptor();
    assert!(!wait(descriptor, interest, Some(Duration::ZERO)));
    far.write_all(&[1]).unwrap();
    assert!(wait(descriptor, interest, None));
    let mut batch = BytesMut::with_capacity(2000);
    assert_eq!(
        lane.receiver
            .try_receive(Room::default(), &mut batch)
            .unwrap(),
        1000
    );

    lane.receiver.set_low_water(0).unwrap();
    far.write_all(&[1]).unwrap();
    let (descriptor, interest) = lane.receiver.descriptor();
    assert!(
        wait(descriptor, interest, None),
        "back to waking at each arrival"
    );
    lane.receiver.set_low_water(1 << 20).unwrap();
    drop(far);
    let (descriptor, interest) = lane.receiver.descriptor();
    assert!(wait(descriptor, interest, None), "the end always wakes");
}

#[test]
fn without_low_water_each_arrival_wakes() {
    let (mut lane, mut far) = lane(LaneClass::Bulk);
    let mut gather = Gather::new();
    gather.expect(&mut *lane.receiver, 1 << 20, Duration::ZERO);
    assert!(gather.is_off());
    far.write_all(&[1]).unwrap();
    let (descriptor, interest) = lane.receiver.descriptor();
    assert!(wait(descriptor, interest, None));
}

#[test]
fn a_reset_is_told_from_an_end() {
    let (mut lane, far) = lane(LaneClass::Urgent);
    SockRef::from(&far)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(far);
    let (descriptor, interest) = lane.receiver.descriptor();
    wait(descriptor, interest, None);
    let mut batch = BytesMut::with_capacity(10);
    let error = lane
        .receiver
        .try_receive(Room::default(), &mut batch)
        .unwrap_err();
    assert!(matches!(error, LaneError::Broken(_)), "{error}");
    let error = lane.sender.try_send(&[Piece::new(b"x")]).unwrap_err();
    assert!(matches!(error, LaneError::Closed), "{error}");
}

#[test]
fn unsent_bytes_are_bounded() {
    let (mut lane, mut far) = lane(LaneClass::Urgent);
    let block = vec![7; 1 << 20];
    let mut sent = 0;
    while wait(
        lane.sender.descriptor().0,
        Interest::Writable,
        Some(Duration::ZERO),
    ) {
        sent += lane.sender.try_send(&[Piece::new(&block)]).unwrap();
    }
    // The kernel stops at the packet with which it passes the mark.
    let bound = u64::from(TcpTuning::default().urgent_unsent_bytes) + (128 << 10);
    let unsent = || sent as u64 - rustix::io::ioctl_fionread(&far).unwrap();
    // What was sent may still be on its way to the other socket.
    let since = Instant::now();
    while unsent() > bound {
        assert!(since.elapsed() < SILENCE, "{} bytes stay unsent", unsent());
        std::thread::yield_now();
    }
    let mut received = vec![0; sent];
    far.read_exact(&mut received).unwrap();
    assert!(received.iter().all(|&byte| byte == 7));
}

#[test]
fn host_names_try_their_addresses() {
    // `localhost` is often ::1 first; this listens on 127.0.0.1 alone.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut reached = false;
    // Twice as many attempts as there can be addresses.
    for _ in 0..16 {
        let Ok(mut stranger) = connect("localhost", port, &TcpTuning::default()) else {
            continue;
        };
        wait(stranger.as_fd(), Interest::Writable, None);
        match stranger.try_write(b"x") {
            Ok(_) => {
                reached = true;
                break;
            }
            Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert!(reached);
}

#[test]
fn listening_by_name_says_where() {
    let listener = listen("localhost", 0, &TcpTuning::default()).unwrap();
    let Endpoint::Tcp { host, port } = listener.local_endpoint() else {
        panic!("not TCP")
    };
    assert!(port > 0 && (host == "127.0.0.1" || host == "::1"), "{host}");
    let taken = listen(&host, port, &TcpTuning::default()).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    assert!(listen("no-such-host.invalid", 1, &TcpTuning::default()).is_err());
}

#[test]
fn whatever_the_time_between_probes_is_the_system_takes_it() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    for keepalive in [
        Duration::ZERO,
        Duration::from_secs(1),
        Duration::from_secs(2),
        Duration::from_secs(9 * 3600),
        Duration::MAX,
    ] {
        let tuning = TcpTuning {
            keepalive,
            ..TcpTuning::default()
        };
        let connected = connect("127.0.0.1", port, &tuning);
        assert!(connected.is_ok(), "{keepalive:?}: {connected:?}");
    }
}
