//! What keeps a connection from sending more than its way takes.
//!
//! The system's choice is made for ways through networks. Within a host there is none to protect,
//! and a control that paces (BBR) lets a timer wake it up for every few segments: that takes more
//! processor time than carrying them does. So connections within one host have a control that
//! does not pace, unless the file names one for all of the network.
//!
//! A connection that paces once does so for ever. New sockets therefore begin with the one that
//! does not, and those that turn out to leave the host get the system's before they carry
//! anything but a handshake.

use std::io;
use std::net::SocketAddr;

use socket2::Socket;

use crate::protocol::TcpTuning;

/// The control within one host: every system has it, and lets everybody use it.
const WITHIN_HOST: &str = "reno";

/// The congestion control of connections that are not made yet.
#[derive(Debug, Clone)]
pub(super) struct Congestion {
    /// What those that leave the host get, if that is to be changed then.
    beyond_host: Option<Vec<u8>>,
}

impl Congestion {
    /// Prepares a socket that is to connect, or to listen.
    pub(super) fn prepare(socket: &Socket, tuning: &TcpTuning) -> io::Result<Self> {
        if let Some(name) = &tuning.congestion {
            set(socket, name)?;
            return Ok(Self { beyond_host: None });
        }
        let of_system = socket.tcp_congestion()?;
        // What a strange system refuses stays as it is.
        let is_set = socket.set_tcp_congestion(WITHIN_HOST.as_bytes()).is_ok();
        Ok(Self {
            beyond_host: is_set.then_some(of_system),
        })
    }

    /// Settles what a connection has, now that both of its ends are known.
    pub(super) fn settle(&self, socket: &Socket) -> io::Result<()> {
        match is_within_host(socket)? {
            true => Ok(()),
            false => self.leave_host(socket),
        }
    }

    fn leave_host(&self, socket: &Socket) -> io::Result<()> {
        match &self.beyond_host {
            Some(of_system) => socket.set_tcp_congestion(of_system),
            None => Ok(()),
        }
    }
}

fn set(socket: &Socket, name: &str) -> io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
        let message = format!(
            "the congestion control \"{name}\" is not to be had: {error}; the system's \
             net.ipv4.tcp_allowed_congestion_control says which are"
        );
        io::Error::new(error.kind(), message)
    })
}

fn is_within_host(socket: &Socket) -> io::Result<bool> {
    let ends = (
        socket.local_addr()?.as_socket(),
        socket.peer_addr()?.as_socket(),
    );
    Ok(match ends {
        (Some(local), Some(peer)) => is_local(peer) || local.ip() == peer.ip(),
        _ => false,
    })
}

fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    fn name_of(socket: &Socket) -> String {
        let name = socket.tcp_congestion().unwrap();
        String::from_utf8(name)
            .unwrap()
            .trim_end_matches('\0')
            .to_owned()
    }

    /// A connection within this host, and its other end.
    fn connection() -> (Socket, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near.into(), listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_within_the_host_is_not_paced() {
        let (socket, _far) = connection();
        let congestion = Congestion::prepare(&socket, &TcpTuning::default()).unwrap();
        congestion.settle(&socket).unwrap();
        assert_eq!(name_of(&socket), WITHIN_HOST);
    }

    #[test]
    fn a_connection_that_leaves_the_host_has_the_control_of_the_system() {
        let (socket, _far) = connection();
        let of_system = name_of(&socket);
        let congestion = Congestion::prepare(&socket, &TcpTuning::default()).unwrap();
        congestion.leave_host(&socket).unwrap();
        assert_eq!(name_of(&socket), of_system);
    }

    #[test]
    fn what_is_named_is_used_everywhere() {
        let (socket, _far) = connection();
        let tuning = TcpTuning {
            congestion: Some("reno".to_owned()),
            ..TcpTuning::default()
        };
        let congestion = Congestion::prepare(&socket, &tuning).unwrap();
        congestion.leave_host(&socket).unwrap();
        assert_eq!(name_of(&socket), "reno");
    }

    #[test]
    fn what_is_not_to_be_had_is_named() {
        let (socket, _far) = connection();
        let tuning = TcpTuning {
            congestion: Some("carrier-pigeon".to_owned()),
            ..TcpTuning::default()
        };
        let error = Congestion::prepare(&socket, &tuning).unwrap_err();
        assert!(error.to_string().contains("carrier-pigeon"), "{error}");
    }
}
