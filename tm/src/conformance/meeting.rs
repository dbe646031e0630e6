//! Strangers, and how the suite gets its lanes.

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::AsFd;

use super::{Rig, SILENCE};
use crate::{
    Interest, Lane, LaneClass, LaneError, Listener, Poller, Room, Stranger, Tuning, connect, listen,
};

/// Two ends of one lane.
pub(super) struct Pair {
    pub(super) dialer: Lane,
    pub(super) acceptor: Lane,
}

impl Pair {
    pub(super) fn new(rig: &Rig, class: LaneClass) -> Self {
        let mut listener = listen(&rig.endpoint, &rig.tuning).expect("listening");
        Self::through(listener.as_mut(), &rig.tuning, class)
    }

    pub(super) fn through(listener: &mut dyn Listener, tuning: &Tuning, class: LaneClass) -> Self {
        let [dialer, acceptor] = introduced(listener, tuning);
        Self::established(dialer, acceptor, class)
    }

    /// One of which the side that dials fills so many bytes ahead.
    #[cfg(test)]
    pub(super) fn limited(rig: &Rig, class: LaneClass, ahead_bytes: usize) -> Self {
        let mut listener = listen(&rig.endpoint, &rig.tuning).expect("listening");
        let [mut dialer, acceptor] = introduced(listener.as_mut(), &rig.tuning);
        dialer.limit_ahead(ahead_bytes);
        Self::established(dialer, acceptor, class)
    }

    fn established(
        dialer: Box<dyn Stranger>,
        acceptor: Box<dyn Stranger>,
        class: LaneClass,
    ) -> Self {
        let mut dialer = dialer.establish(class).expect("establishing");
        let mut acceptor = acceptor.establish(class).expect("establishing");
        let (mut dialing, mut accepting) = (None, None);
        while dialing.is_none() || accepting.is_none() {
            if dialing.is_none() {
                dialing = dialer.advance().expect("advancing");
            }
            if accepting.is_none() {
                accepting = acceptor.advance().expect("advancing");
            }
        }
        match (dialing, accepting) {
            (Some(dialer), Some(acceptor)) => Self { dialer, acceptor },
            _ => unreachable!("both are there"),
        }
    }
}

/// Both ends of a connection over which bytes have gone both ways.
fn introduced(listener: &mut dyn Listener, tuning: &Tuning) -> [Box<dyn Stranger>; 2] {
    let mut dialer = connect(&listener.local_endpoint(), tuning).expect("connecting");
    let mut acceptor = accept(listener);
    introduce(dialer.as_mut(), acceptor.as_mut());
    [dialer, acceptor]
}

/// Sleeps until `source` is ready, which is of `whose` making.
pub(super) fn wait_for(source: impl AsFd, interest: Interest, whose: &dyn fmt::Debug) {
    let mut poller = Poller::new().expect("a poller");
    poller.add(&source, 0, interest).expect("adding");
    let heard = !poller.wait(Some(SILENCE)).expect("waiting").is_empty();
    assert!(heard, "nothing happened within {SILENCE:?}: {whose:#?}");
}

pub(super) fn accept(listener: &mut dyn Listener) -> Box<dyn Stranger> {
    loop {
        match listener.try_accept().expect("accepting") {
            Some(stranger) => return stranger,
            None => wait_for(listener.as_fd(), Interest::Readable, listener),
        }
    }
}

/// A minimal handshake: a byte each way, which also shows that they are connected.
fn introduce(dialer: &mut dyn Stranger, acceptor: &mut dyn Stranger) {
    write_all(dialer, b"?");
    assert_eq!(read_exact::<1>(acceptor), *b"?");
    write_all(acceptor, b"!");
    assert_eq!(read_exact::<1>(dialer), *b"!");
}

pub(super) fn write_all(stranger: &mut dyn Stranger, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match stranger.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_for(stranger.as_fd(), Interest::Writable, &stranger);
            }
            Err(error) => panic!("writing to a stranger: {error}"),
        }
    }
}

pub(super) fn read_exact<const N: usize>(stranger: &mut dyn Stranger) -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match stranger.try_read(&mut bytes[filled..]) {
            Ok(0) => panic!("the stranger closed after {filled} of {N} bytes"),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_for(stranger.as_fd(), Interest::Readable, &stranger);
            }
            Err(error) => panic!("reading from a stranger: {error}"),
        }
    }
    bytes
}

/// Handshake bytes pass both ways and nothing else does; a stranger that leaves is noticed.
pub fn handshake_bytes(rig: &Rig) {
    let mut listener = listen(&rig.endpoint, &rig.tuning).expect("listening");
    assert!(
        listener.try_accept().expect("accepting").is_none(),
        "nobody has come"
    );
    let mut dialer = connect(&listener.local_endpoint(), &rig.tuning).expect("connecting");
    let mut acceptor = accept(listener.as_mut());
    assert!(!dialer.describe().is_empty() && !acceptor.describe().is_empty());
    let error = acceptor
        .try_read(&mut [0; 8])
        .expect_err("nothing has been said");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);

    write_all(dialer.as_mut(), &[1; 300]);
    assert_eq!(read_exact(acceptor.as_mut()), [1; 300]);
    write_all(acceptor.as_mut(), &[2; 300]);
    assert_eq!(read_exact(dialer.as_mut()), [2; 300]);

    drop(dialer);
    wait_for(acceptor.as_fd(), Interest::Readable, &acceptor);
    assert_eq!(acceptor.try_read(&mut [0; 8]).expect("the end"), 0);
    let mut waiting = acceptor.establish(LaneClass::Urgent).expect("establishing");
    // Where setting up needs the peer, its absence is noticed; where not, the lane ends.
    match waiting.advance() {
        Ok(Some(mut lane)) => {
            let mut batch = bytes::BytesMut::with_capacity(8);
            assert!(matches!(
                lane.receiver.try_receive(Room::default(), &mut batch),
                Err(LaneError::Closed)
            ));
        }
        Ok(None) => panic!("waits for a peer that has gone"),
        Err(error) => assert!(
            matches!(error, LaneError::Closed | LaneError::Broken(_)),
            "{error}"
        ),
    }
}

/// Connecting where nobody listens fails, at once or when it is first used.
pub fn absent_peer(rig: &Rig) {
    let listener = listen(&rig.endpoint, &rig.tuning).expect("listening");
    let endpoint = listener.local_endpoint();
    drop(listener);
    let Ok(mut stranger) = connect(&endpoint, &rig.tuning) else {
        return;
    };
    loop {
        match stranger.try_write(b"?") {
            Ok(_) => panic!("somebody answers at {endpoint}"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_for(stranger.as_fd(), Interest::Writable, &stranger);
            }
            Err(_) => return,
        }
    }
}
