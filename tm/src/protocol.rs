//! Which protocols there are, where their nodes listen, and how they are tuned.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::Stores;
use crate::lane::{LaneClass, Listener, Stranger};
use crate::local::{SOCKET_PATH_BYTES_MAX, meeting};
use crate::{hsl, shm, tcp};

/// A protocol that networks can be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Protocol {
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// Memory shared between the processes of one host.
    Shm,
    /// Remote write: messages are stored in the receiver's memory.
    Hsl,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Shm, Self::Hsl];

    /// Whether its nodes are processes of one host, which meet in a folder. (Those of remote
    /// write need not be, with a card that reaches others.)
    #[must_use]
    pub fn is_local(self) -> bool {
        match self {
            Self::Tcp => false,
            Self::Shm | Self::Hsl => true,
        }
    }

    /// Its name in the cluster file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Shm => "shm",
            Self::Hsl => "hsl",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(text: &str) -> Result<Self, UnknownProtocol> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.name() == text)
            .ok_or_else(|| UnknownProtocol(text.to_owned()))
    }
}

/// A name that is no protocol's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown protocol {0:?}; there are \"tcp\", \"shm\" and \"hsl\"")]
pub struct UnknownProtocol(pub String);

/// Where a node listens on a network. Two that are equal are the same place, as far as can
/// be told without asking the network.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Endpoint {
    /// A TCP port.
    Tcp {
        /// IPv4 address, IPv6 address (without brackets), or host name, in lower case.
        host: String,
        /// Port; zero lets the system choose (only useful to listen on).
        port: u16,
    },
    /// A name in a folder where the nodes of one host meet.
    Shm {
        /// The folder.
        directory: PathBuf,
        /// The name.
        name: String,
    },
    /// A name in a folder where the nodes of a network of remote write meet.
    Hsl {
        /// The folder.
        directory: PathBuf,
        /// The name.
        name: String,
    },
    /// Where the nodes of a network of remote write meet that are on different hosts: a TCP port.
    HslHost {
        /// As with TCP.
        host: String,
        /// Port; zero lets the system choose (only useful to listen on).
        port: u16,
    },
}

/// Longest host name (RFC 1035).
const HOST_BYTES_MAX: usize = 253;

impl Endpoint {
    /// Reads an address of the cluster file. `directory` is the network's, for protocols
    /// that have one: nodes of a network of remote write that has none are on different hosts.
    ///
    /// # Errors
    /// When the text is no address of this protocol.
    pub fn parse(
        protocol: Protocol,
        text: &str,
        directory: Option<&Path>,
    ) -> Result<Self, EndpointError> {
        match protocol {
            Protocol::Tcp => Self::parse_tcp(protocol, text),
            Protocol::Hsl if directory.is_none() => Self::parse_tcp(protocol, text),
            Protocol::Shm | Protocol::Hsl => Self::parse_name(protocol, text, directory),
        }
    }

    /// Which protocol it belongs to.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Tcp { .. } => Protocol::Tcp,
            Self::Shm { .. } => Protocol::Shm,
            Self::Hsl { .. } | Self::HslHost { .. } => Protocol::Hsl,
        }
    }

    /// The host whose port it is, where it is one.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp { host, .. } | Self::HslHost { host, .. } => Some(host),
            Self::Shm { .. } | Self::Hsl { .. } => None,
        }
    }

    fn parse_tcp(protocol: Protocol, text: &str) -> Result<Self, EndpointError> {
        let error = |what| EndpointError {
            protocol,
            text: text.to_owned(),
            what,
        };
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| error("expected HOST:PORT, but there is no port"))?;
        let host = if let Some(bracketed) = host.strip_prefix('[') {
            let address = bracketed
                .strip_suffix(']')
                .ok_or_else(|| error("the bracket is not closed; expected [IPv6]:PORT"))?;
            let address: Ipv6Addr = address
                .parse()
                .map_err(|_| error("what is in brackets is no IPv6 address"))?;
            address.to_string()
        } else if host.contains(':') {
            return Err(error("an IPv6 address belongs in brackets: [IPv6]:PORT"));
        } else if let Ok(address) = host.parse::<Ipv4Addr>() {
            address.to_string()
        } else if is_host_name(host) {
            host.to_ascii_lowercase()
        } else {
            return Err(error("the host is neither an address nor a host name"));
        };
        match port.parse::<u16>() {
            Ok(port) if port != 0 && protocol == Protocol::Hsl => Ok(Self::HslHost { host, port }),
            Ok(port) if port != 0 => Ok(Self::Tcp { host, port }),
            _ => Err(error("the port is not a number from 1 to 65535")),
        }
    }

    /// A name in a folder.
    fn parse_name(
        protocol: Protocol,
        text: &str,
        directory: Option<&Path>,
    ) -> Result<Self, EndpointError> {
        let error = |what| EndpointError {
            protocol,
            text: text.to_owned(),
            what,
        };
        let directory =
            directory.ok_or_else(|| error("its network has no directory where nodes meet"))?;
        if text.is_empty() || text.starts_with('.') || text.contains(['/', ':', '\0']) {
            return Err(error(
                "expected a name without '/' and ':' that does not start with '.'",
            ));
        }
        if meeting::socket_path(directory, text).as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(error(
                "directory and name together are too long for a socket's path",
            ));
        }
        let (directory, name) = (directory.to_owned(), text.to_owned());
        Ok(match protocol {
            Protocol::Hsl => Self::Hsl { directory, name },
            _ => Self::Shm { directory, name },
        })
    }
}

/// Whether `text` can be a host name: labels of letters, digits, '-' and '_', not all of
/// them numbers (that would be a mistyped IPv4 address).
fn is_host_name(text: &str) -> bool {
    let labels = || text.strip_suffix('.').unwrap_or(text).split('.');
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    text.len() <= HOST_BYTES_MAX
        && labels().all(is_label)
        && !labels().all(|label| label.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } | Self::HslHost { host, port } if host.contains(':') => {
                write!(f, "[{host}]:{port}")
            }
            Self::Tcp { host, port } | Self::HslHost { host, port } => write!(f, "{host}:{port}"),
            Self::Shm { directory, name } | Self::Hsl { directory, name } => {
                f.write_str(&directory.join(name).to_string_lossy())
            }
        }
    }
}

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {protocol} address: {what}")]
pub struct EndpointError {
    /// The protocol that it should be an address of.
    pub protocol: Protocol,
    /// The text.
    pub text: String,
    /// What is wrong, or was expected.
    pub what: &'static str,
}

/// How protocols are tuned. The defaults suit one host and local networks alike.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tuning {
    /// For TCP.
    pub tcp: TcpTuning,
    /// For shared memory.
    pub shm: ShmTuning,
    /// For remote write.
    pub hsl: HslTuning,
}

/// How TCP is tuned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpTuning {
    /// Kernel buffer of a bulk lane, in each direction; zero leaves it to the kernel, which
    /// adapts it. So does far more than the system lets anybody have, where it adapts to more than
    /// that. Default: 2 MiB.
    pub bulk_buffer_bytes: usize,
    /// Bytes of a bulk lane that the kernel may hold unsent. Default: 2 MiB.
    pub bulk_unsent_bytes: u32,
    /// Bytes of an urgent lane that the kernel may hold unsent. Default: 64 KiB.
    pub urgent_unsent_bytes: u32,
    /// Whether a receiver that knows how much is coming is woken for a good part of it rather than
    /// for each arrival (`SO_RCVLOWAT`, see [`Gather`](crate::Gather)). Default: no, since the
    /// kernel acknowledges at once what does not fill it, and each of these is work for the sender.
    pub low_water: bool,
    /// The congestion control of its connections, by the system's name for it (`TCP_CONGESTION`).
    /// Default: the system's, and over loopback one that does not pace.
    pub congestion: Option<String>,
    /// A connection that is silent for so long is probed: a second at least, nine hours at most.
    /// Default: 10 s.
    pub keepalive: Duration,
    /// A connection whose peer acknowledges nothing for so long is given up. Default: 30 s.
    pub user_timeout: Duration,
}

impl Default for TcpTuning {
    fn default() -> Self {
        Self {
            bulk_buffer_bytes: 2 << 20,
            bulk_unsent_bytes: 2 << 20,
            urgent_unsent_bytes: 64 << 10,
            low_water: false,
            congestion: None,
            keepalive: Duration::from_secs(10),
            user_timeout: Duration::from_secs(30),
        }
    }
}

impl TcpTuning {
    pub(crate) fn unsent_bytes(&self, class: LaneClass) -> u32 {
        match class {
            LaneClass::Urgent => self.urgent_unsent_bytes,
            LaneClass::Bulk => self.bulk_unsent_bytes,
        }
    }
}

/// How shared memory is tuned. Memory is only taken from the system when it is first used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShmTuning {
    /// Bytes that a slot of a bulk lane holds, and so the largest frame. Default: 512 KiB and 128,
    /// a fragment of 512 KiB with its header and descriptors.
    pub bulk_slot_bytes: usize,
    /// Slots of a bulk lane. A quarter of them, 16 at least, are used in turn, and the others while none of these is free.
    /// Default: 64, as many fragments of 64 KiB as the window of a flow by default: what was promised a place
    /// finds one, though its reader is not running just now. Of large frames there may be
    /// [fewer](crate::Stranger::limit_ahead) under way.
    pub bulk_slots: usize,
    /// Bytes that a slot of an urgent lane holds. Default: 4.5 KiB, a small frame of 4 KiB
    /// with its header and descriptors.
    pub urgent_slot_bytes: usize,
    /// Slots of an urgent lane. Default: 64.
    pub urgent_slots: usize,
    /// How units are copied to slots. Default: adaptive.
    pub stores: Stores,
}

impl Default for ShmTuning {
    fn default() -> Self {
        Self {
            bulk_slot_bytes: (512 << 10) + 128,
            bulk_slots: 64,
            urgent_slot_bytes: (4 << 10) + 512,
            urgent_slots: 64,
            stores: Stores::default(),
        }
    }
}

/// How remote write is tuned. Memory is only taken from the system when it is first used. Control
/// slots are used in turn, and buffers as the slots of shared memory are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HslTuning {
    /// Bytes of the largest message of a bulk lane, and so the largest frame. Default: as with
    /// shared memory; a card of libfabric's locks four times this for each slot, so that less may be better
    /// there.
    pub bulk_slot_bytes: usize,
    /// Messages of a bulk lane that can be on their way. Default: as with shared memory.
    pub bulk_slots: usize,
    /// Bytes of the largest message of an urgent lane. Default: 4.5 KiB.
    pub urgent_slot_bytes: usize,
    /// Messages of an urgent lane that can be on their way. Default: 64.
    pub urgent_slots: usize,
    /// Bytes of the largest control message; what is larger goes by rendezvous. Default:
    /// 16 KiB, as in paper 000.
    pub threshold_bytes: usize,
    /// How this side learns that something has come. Default: adaptive.
    pub mode: hsl::Mode,
    /// How the emulated card stores what it puts. Default: adaptive.
    pub stores: Stores,
    /// Which card the network has. Default: the emulated one.
    pub card: hsl::Card,
}

impl Default for HslTuning {
    fn default() -> Self {
        let ShmTuning {
            bulk_slot_bytes,
            bulk_slots,
            urgent_slot_bytes,
            urgent_slots,
            stores,
        } = ShmTuning::default();
        Self {
            bulk_slot_bytes,
            bulk_slots,
            urgent_slot_bytes,
            urgent_slots,
            threshold_bytes: 16 << 10,
            mode: hsl::Mode::default(),
            stores,
            card: hsl::Card::default(),
        }
    }
}

/// Whether what is sent never leaves the memory of one host: no cable and no card that could change
/// it lies between two nodes of a network.
#[must_use]
pub fn stays_in_memory(protocol: Protocol, tuning: &Tuning) -> bool {
    match protocol {
        Protocol::Tcp => false,
        Protocol::Shm => true,
        Protocol::Hsl => tuning.hsl.card == hsl::Card::Host,
    }
}

/// The largest frame, header included, that the bulk lane of a protocol carries whole.
#[must_use]
pub fn largest_frame(protocol: Protocol, tuning: &Tuning) -> usize {
    match protocol {
        Protocol::Tcp => tcp::FRAME_BYTES_MAX,
        Protocol::Shm => tuning.shm.bulk_slot_bytes,
        Protocol::Hsl => tuning.hsl.bulk_slot_bytes,
    }
}

/// Says what is wrong with the memory that each lane of a network would take, if it is more than
/// can be.
///
/// # Errors
/// Which limit is passed.
pub fn check_memory(protocol: Protocol, tuning: &Tuning) -> Result<(), &'static str> {
    let lanes = [LaneClass::Urgent, LaneClass::Bulk];
    match protocol {
        Protocol::Tcp => Ok(()),
        Protocol::Shm => lanes
            .iter()
            .try_for_each(|class| shm::check(&tuning.shm, *class)),
        Protocol::Hsl => lanes
            .iter()
            .try_for_each(|class| hsl::check(&tuning.hsl, *class)),
    }
}

/// Listens for peers. Resolving a host name may block; nothing else does.
///
/// # Errors
/// When the endpoint is not this host's, or is in use.
pub fn listen(endpoint: &Endpoint, tuning: &Tuning) -> io::Result<Box<dyn Listener>> {
    match endpoint {
        Endpoint::Tcp { host, port } => tcp::listen(host, *port, &tuning.tcp),
        Endpoint::Shm { directory, name } => shm::listen(directory, name, &tuning.shm),
        Endpoint::Hsl { directory, name } => hsl::listen(directory, name, &tuning.hsl),
        Endpoint::HslHost { host, port } => hsl::listen_on_host(host, *port, tuning),
    }
}

/// Begins to connect to a peer. Resolving a host name may block; nothing else does.
///
/// A host name that has several addresses: those that fail at once are passed over; when
/// one fails later, the next call for the same endpoint begins with the one after it.
///
/// # Errors
/// When connecting fails at once.
pub fn connect(endpoint: &Endpoint, tuning: &Tuning) -> io::Result<Box<dyn Stranger>> {
    match endpoint {
        Endpoint::Tcp { host, port } => tcp::connect(host, *port, &tuning.tcp),
        Endpoint::Shm { directory, name } => shm::connect(directory, name, &tuning.shm),
        Endpoint::Hsl { directory, name } => hsl::connect(directory, name, &tuning.hsl),
        Endpoint::HslHost { host, port } => hsl::connect_to_host(host, *port, tuning),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(text: &str) -> Result<String, String> {
        Endpoint::parse(Protocol::Tcp, text, None)
            .map(|endpoint| endpoint.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn tcp_addresses() {
        for text in [
            "10.0.0.1:7100",
            "[::1]:7100",
            "gw-1.left.example:7100",
            "gw_1:1",
        ] {
            assert_eq!(tcp(text).as_deref(), Ok(text));
        }
        assert_eq!(
            tcp("[0:0::1]:7").as_deref(),
            Ok("[::1]:7"),
            "one spelling of an address"
        );
        assert_eq!(tcp("GW:7").as_deref(), Ok("gw:7"));
    }

    #[test]
    fn tcp_mistakes_are_named() {
        for (text, expected) in [
            ("10.0.0.1", "no port"),
            ("10.0.0.1:0", "port"),
            ("10.0.0.1:65536", "port"),
            ("10.0.0.1:+", "port"),
            ("10.0.0.256:1", "neither"),
            ("::1:7100", "brackets"),
            ("[::1:7100", "not closed"),
            ("[10.0.0.1]:7100", "no IPv6"),
            (":7100", "neither"),
            ("a b:7100", "neither"),
            ("", "no port"),
        ] {
            let error = tcp(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn shm_names() {
        let directory = Some(Path::new("/run/madgate/right"));
        let gw = Endpoint::parse(Protocol::Shm, "gw", directory).unwrap();
        assert_eq!(gw.to_string(), "/run/madgate/right/gw");
        assert_eq!(gw.protocol(), Protocol::Shm);
        for name in ["", ".", "..", ".hidden", "a/b", "a\0b"] {
            assert!(
                Endpoint::parse(Protocol::Shm, name, directory).is_err(),
                "{name:?}"
            );
        }
        assert!(Endpoint::parse(Protocol::Shm, "gw", None).is_err());
        assert!(Endpoint::parse(Protocol::Shm, &"n".repeat(100), directory).is_err());
    }

    #[test]
    fn protocols_have_names() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.name().parse(), Ok(protocol));
        }
        assert!("quic".parse::<Protocol>().is_err());
    }
}
