//! What keeps a connection from sending more than its way takes.
//!
//! That is for the system to choose, with one exception. A control that paces (BBR) lets a timer wake
//! it up for every few segments, to go easy on a network. Over loopback there is none, and the timers
//! take as much processor time as carrying the bytes does. So where the system's control paces,
//! connections within the host have another one, unless the file names one for all of its network.
//!
//! A connection that has paced once does so for ever. So sockets get the other control before they
//! connect or listen, and connections that turn out to leave the host get the system's back before
//! they carry anything but a handshake.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

use crate::protocol::TcpTuning;

/// What the names of controls that pace begin with.
const PACES: &[u8] = b"bbr";

/// The control within the host where the system's paces: it is part of every system.
const WITHIN_HOST: &str = "reno";

/// The congestion control of connections that are not made yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Congestion {
    /// Whether they have another one than the system's, for the time being.
    is_replaced: bool,
}

impl Congestion {
    /// Prepares a socket that is to connect, or to listen.
    pub(super) fn prepare(socket: &Socket, tuning: &TcpTuning) -> io::Result<Self> {
        if let Some(name) = &tuning.congestion {
            set(socket, name)?;
            return Ok(Self { is_replaced: false });
        }
        let paces = socket
            .tcp_congestion()
            .is_ok_and(|name| name.starts_with(PACES));
        // What a strange system refuses stays as it is.
        let is_replaced = paces && socket.set_tcp_congestion(WITHIN_HOST.as_bytes()).is_ok();
        Ok(Self { is_replaced })
    }

    /// Gives a connection to `peer` back what the system has for it, if it leaves the host.
    pub(super) fn settle(self, socket: &Socket, peer: Option<SocketAddr>) {
        let local = socket.local_addr().ok().and_then(|local| local.as_socket());
        let (Some(local), Some(peer)) = (local, peer) else {
            return;
        };
        if self.is_replaced && !is_within_host(local, peer) {
            give_back(socket, peer);
        }
    }
}

/// Gives a connection the control that new ones have now. A route may have one of its own: that is
/// left alone.
fn give_back(socket: &Socket, peer: SocketAddr) {
    let is_ours = socket
        .tcp_congestion()
        .is_ok_and(|name| name.starts_with(WITHIN_HOST.as_bytes()));
    if !is_ours {
        return;
    }
    let of_system = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))
        .and_then(|fresh| fresh.tcp_congestion());
    // Some systems do not let everybody have their own choice back, nor root on a route that has a
    // locked one: the connection then keeps what it has, and works.
    let _ = of_system.and_then(|name| socket.set_tcp_congestion(&name));
}

fn set(socket: &Socket, name: &str) -> io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
        let message = format!(
            "the congestion control \"{name}\" is not to be had: {error}; the system's \
             net.ipv4.tcp_available_congestion_control says which there are, and \
             tcp_allowed_congestion_control which everybody may use"
        );
        // Nothing is wrong with the address.
        io::Error::new(io::ErrorKind::Unsupported, message)
    })
}

/// Whether what one end sends to the other goes over loopback: to a loopback address, or to the
/// sender's own.
fn is_within_host(local: SocketAddr, peer: SocketAddr) -> bool {
    let (local, peer) = (local.ip().to_canonical(), peer.ip().to_canonical());
    peer.is_loopback() || local == peer
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn fresh() -> Socket {
        Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap()
    }

    fn name_of(socket: &Socket) -> String {
        let name = String::from_utf8(socket.tcp_congestion().unwrap()).unwrap();
        name.trim_end_matches('\0').to_owned()
    }

    /// A socket that was prepared and is connected within the host, what it has, and its peer.
    fn connected() -> (Socket, Congestion, SocketAddr, TcpListener) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = fresh();
        let congestion = Congestion::prepare(&socket, &TcpTuning::default()).unwrap();
        let peer = listener.local_addr().unwrap();
        socket.connect(&peer.into()).unwrap();
        (socket, congestion, peer, listener)
    }

    #[test]
    fn a_control_that_paces_is_replaced_within_the_host_and_no_other() {
        let of_system = name_of(&fresh());
        let (socket, congestion, peer, _listener) = connected();
        congestion.settle(&socket, Some(peer));
        let paces = of_system.as_bytes().starts_with(PACES);
        let expected = if paces { WITHIN_HOST } else { &of_system };
        assert_eq!(name_of(&socket), expected);
        assert_eq!(congestion.is_replaced, paces);
    }

    #[test]
    fn a_connection_that_leaves_the_host_has_the_control_of_the_system() {
        let of_system = name_of(&fresh());
        let (socket, _, _, _listener) = connected();
        set(&socket, WITHIN_HOST).unwrap();
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 7100));
        let congestion = Congestion { is_replaced: true };
        congestion.settle(&socket, Some(elsewhere));
        assert_eq!(name_of(&socket), of_system);
    }

    #[test]
    fn connections_to_loopback_and_to_oneself_stay_within_the_host() {
        for (local, peer, expected) in [
            ("127.0.0.1:1", "127.0.0.1:2", true),
            ("127.0.0.1:1", "127.9.0.1:2", true),
            ("[::1]:1", "[::1]:2", true),
            ("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:2", true),
            ("10.0.0.1:1", "10.0.0.1:2", true),
            ("10.0.0.1:1", "[::ffff:10.0.0.1]:2", true),
            ("10.0.0.1:1", "10.0.0.2:2", false),
            ("[fd00::1]:1", "[fd00::1]:2", true),
            ("[fd00::1]:1", "[fd00::2]:2", false),
        ] {
            let within = is_within_host(local.parse().unwrap(), peer.parse().unwrap());
            assert_eq!(within, expected, "{local} to {peer}");
        }
    }

    #[test]
    fn what_is_named_is_used_everywhere() {
        let socket = fresh();
        let tuning = TcpTuning {
            congestion: Some("reno".to_owned()),
            ..TcpTuning::default()
        };
        let congestion = Congestion::prepare(&socket, &tuning).unwrap();
        assert_eq!(name_of(&socket), "reno");
        assert!(!congestion.is_replaced);
    }

    #[test]
    fn what_is_not_to_be_had_is_named() {
        let tuning = TcpTuning {
            congestion: Some("carrier-pigeon".to_owned()),
            ..TcpTuning::default()
        };
        let error = Congestion::prepare(&fresh(), &tuning).unwrap_err();
        assert!(error.to_string().contains("carrier-pigeon"), "{error}");
    }
}
