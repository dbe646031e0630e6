//! How TCP peers meet: listening, connecting, and the stranger that comes of it.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::buffers;
use super::congestion::Congestion;
use super::lane::{TcpReceiver, TcpSender};
use super::{ADDRESSES_MAX, BACKLOG};
use crate::lane::{Establishing, Lane, LaneClass, LaneError, Listener, Stranger, Upgrade};
use crate::protocol::{Endpoint, TcpTuning};

/// Listens on the first address of `host` that can be listened on.
pub(crate) fn listen(host: &str, port: u16, tuning: &TcpTuning) -> io::Result<Box<dyn Listener>> {
    let upgrade = TcpLanes(tuning.clone());
    listen_for(
        host,
        port,
        tuning,
        |host, port| Endpoint::Tcp { host, port },
        upgrade,
    )
}

/// The same, for connections that become something else; `endpoint` is what others call a place.
pub(crate) fn listen_for<U: Upgrade>(
    host: &str,
    port: u16,
    tuning: &TcpTuning,
    endpoint: fn(String, u16) -> Endpoint,
    upgrade: U,
) -> io::Result<Box<dyn Listener>> {
    let (socket, address, congestion) = first_that_works(&resolve(host, port)?, |address| {
        let (socket, congestion) = socket_for(address, tuning)?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let address = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok((socket, address, congestion))
    })?;
    Ok(Box::new(TcpListener {
        socket,
        address,
        congestion,
        tuning: tuning.clone(),
        endpoint,
        upgrade,
    }))
}

/// Begins to connect to the first address of `host` that does not fail at once, beginning
/// with the one whose turn it is.
pub(crate) fn connect(host: &str, port: u16, tuning: &TcpTuning) -> io::Result<Box<dyn Stranger>> {
    connect_for(host, port, tuning, TcpLanes(tuning.clone()))
}

/// The same, for a connection that becomes something else.
pub(crate) fn connect_for<U: Upgrade>(
    host: &str,
    port: u16,
    tuning: &TcpTuning,
    upgrade: U,
) -> io::Result<Box<dyn Stranger>> {
    let mut addresses = resolve(host, port)?;
    let turn = Turn::of(host, port);
    turn.apply(&mut addresses);
    let (socket, address, congestion) = first_that_works(&addresses, |address| {
        let (socket, congestion) = socket_for(address, tuning)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        Ok((socket, address, congestion))
    })?;
    prepare(&socket, tuning)?;
    let turn = Some(turn);
    Ok(Box::new(TcpStranger {
        socket,
        peer: Some(address),
        congestion,
        turn,
        upgrade,
    }))
}

fn socket_for(address: SocketAddr, tuning: &TcpTuning) -> io::Result<(Socket, Congestion)> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    let congestion = Congestion::prepare(&socket, tuning)?;
    Ok((socket, congestion))
}

fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in (host, port).to_socket_addrs()? {
        if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// The result for the first address that gives one, or the last failure.
fn first_that_works<T>(
    addresses: &[SocketAddr],
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for &address in addresses {
        match attempt(address) {
            Ok(result) => return Ok(result),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// What both ends of a connection want from the beginning.
fn prepare(socket: &Socket, tuning: &TcpTuning) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let interval = tuning.keepalive / KEEPALIVE_PROBES;
    let keepalive = TcpKeepalive::new()
        .with_time(kept_alive(tuning.keepalive))
        .with_interval(kept_alive(interval))
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(tuning.user_timeout))
}

/// Probes that a silent connection gets before it is given up, spread over as long as it
/// was silent.
const KEEPALIVE_PROBES: u32 = 3;

/// The longest time that the kernel takes (its `MAX_TCP_KEEPIDLE`).
const KEEPALIVE_MOST: Duration = Duration::from_secs(32_767);

/// The nearest time that the kernel takes for such probes: whole seconds, up to nine hours.
fn kept_alive(time: Duration) -> Duration {
    time.clamp(Duration::from_secs(1), KEEPALIVE_MOST)
}

/// Whose turn it is among a host's addresses. Endpoints that hash alike share a turn, which
/// is harmless: every address is tried in the end.
static TURNS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// An attempt to connect of which is not known yet whether the address works. Dropped so,
/// it moves the turn on.
#[derive(Debug)]
struct Turn {
    whose: &'static AtomicUsize,
    works: bool,
}

impl Turn {
    fn of(host: &str, port: u16) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((host, port));
        let place = usize::try_from(hash % 64).unwrap_or(0);
        Self {
            whose: &TURNS[place],
            works: false,
        }
    }

    fn apply(&self, addresses: &mut [SocketAddr]) {
        if !addresses.is_empty() {
            addresses.rotate_left(self.whose.load(Ordering::Relaxed) % addresses.len());
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.works {
            self.whose.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
struct TcpListener<U> {
    socket: Socket,
    address: SocketAddr,
    congestion: Congestion,
    tuning: TcpTuning,
    endpoint: fn(String, u16) -> Endpoint,
    upgrade: U,
}

impl<U> AsFd for TcpListener<U> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<U: Upgrade> Listener for TcpListener<U> {
    fn try_accept(&mut self) -> io::Result<Option<Box<dyn Stranger>>> {
        loop {
            match self.socket.accept() {
                Ok((socket, peer)) => {
                    // What fails here is one connection's trouble: it is dropped.
                    if socket.set_nonblocking(true).is_err()
                        || prepare(&socket, &self.tuning).is_err()
                    {
                        continue;
                    }
                    let (peer, upgrade) = (peer.as_socket(), self.upgrade.clone());
                    return Ok(Some(Box::new(TcpStranger {
                        socket,
                        peer,
                        congestion: self.congestion,
                        turn: None,
                        upgrade,
                    })));
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(None),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    // Errors of the connection that accept(2) passes on.
                    ErrorKind::NetworkDown
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::HostUnreachable => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn local_endpoint(&self) -> Endpoint {
        (self.endpoint)(self.address.ip().to_string(), self.address.port())
    }
}

#[derive(Debug)]
struct TcpStranger<U> {
    socket: Socket,
    peer: Option<SocketAddr>,
    congestion: Congestion,
    /// Of one that connects.
    turn: Option<Turn>,
    upgrade: U,
}

impl<U> TcpStranger<U> {
    /// Keeps the address's turn when a transfer shows that it works.
    fn judge(&mut self, transfer: rustix::io::Result<usize>) -> io::Result<usize> {
        if transfer.is_ok()
            && let Some(turn) = &mut self.turn
        {
            turn.works = true;
        }
        Ok(transfer?)
    }
}

impl<U> AsFd for TcpStranger<U> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<U: Upgrade> Stranger for TcpStranger<U> {
    fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = rustix::net::recv(&self.socket, into, RecvFlags::empty());
        self.judge(read.map(|(count, _)| count))
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL);
        self.judge(written)
    }

    fn describe(&self) -> String {
        self.peer
            .map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string())
    }

    fn establish(self: Box<Self>, class: LaneClass) -> Result<Box<dyn Establishing>, LaneError> {
        let connects = self.turn.is_some();
        self.congestion.settle(&self.socket, self.peer);
        self.upgrade.establish(self.socket.into(), connects, class)
    }
}

/// Connections that become lanes of TCP.
#[derive(Debug, Clone)]
struct TcpLanes(TcpTuning);

impl Upgrade for TcpLanes {
    fn establish(
        &self,
        socket: OwnedFd,
        _connects: bool,
        class: LaneClass,
    ) -> Result<Box<dyn Establishing>, LaneError> {
        let Self(tuning) = self;
        let socket = Socket::from(socket);
        if class == LaneClass::Bulk && tuning.bulk_buffer_bytes > 0 {
            buffers::set(&socket, tuning.bulk_buffer_bytes)?;
        }
        socket.set_tcp_notsent_lowat(tuning.unsent_bytes(class))?;
        Ok(Box::new(TcpEstablishing {
            socket,
            low_water: tuning.low_water,
        }))
    }
}

/// A lane that is ready at once.
#[derive(Debug)]
struct TcpEstablishing {
    socket: Socket,
    low_water: bool,
}

impl AsFd for TcpEstablishing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Establishing for TcpEstablishing {
    fn advance(&mut self) -> Result<Option<Lane>, LaneError> {
        let receiver = TcpReceiver::new(self.socket.try_clone()?, self.low_water);
        Ok(Some(Lane {
            sender: Box::new(TcpSender::new(self.socket.try_clone()?)),
            receiver: Box::new(receiver),
        }))
    }
}
