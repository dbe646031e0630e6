//! What can go wrong in a handshake, and how one side tells the other.

use std::fmt;
use std::io;
use std::time::Duration;

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer is some other program.
    #[error("the peer is not madgate")]
    NotMadgate,
    /// The peer is another release.
    #[error(
        "the peer speaks version {theirs} of the protocol and this is version {ours}; \
         run the same release on every node"
    )]
    Version {
        /// What the peer speaks.
        theirs: u16,
        /// What we speak.
        ours: u16,
    },
    /// The cluster files differ in what they mean.
    #[error(
        "the peer has another cluster file; every node needs the same session, networks, \
         nodes and channels in it: compare the digests that `madgate check` prints"
    )]
    OtherCluster,
    /// The session keys differ.
    #[error("the peer has another session key; copy the same key file to every node")]
    WrongKey,
    /// The peer sent what the protocol does not allow.
    #[error("the peer breaks the protocol: {0}")]
    Malformed(&'static str),
    /// The peer says it is a node that the cluster file does not have.
    #[error("the peer says it is the node of rank {0}, which does not exist")]
    UnknownNode(u32),
    /// One side wants another node than the one that it reached.
    #[error("{wanted} was dialled and {found} answers; is an address in the cluster file wrong?")]
    WrongNode {
        /// The node that was dialled.
        wanted: String,
        /// The node that was reached.
        found: String,
    },
    /// A node claims a network that it is not on, or not the one that it came over.
    #[error("{node} is not on the network that the connection came over")]
    NotOnNetwork {
        /// The node.
        node: String,
    },
    /// The link's kind does not suit the nodes at its ends.
    #[error("{node} is no gateway, and only gateways have such a link")]
    KindNotAllowed {
        /// The node that is none.
        node: String,
    },
    /// The process has nobody whom such a link is for.
    #[error("{peer} asks for the {party}, which this process does not run")]
    NoSuchParty {
        /// The node that asks.
        peer: String,
        /// What it asks for.
        party: crate::conductor::Party,
    },
    /// Another process is the node that the peer says it is.
    #[error("another process that is {node} is present, and answers")]
    NamePresent {
        /// The node.
        node: String,
    },
    /// The peer refuses.
    #[error("the peer refuses: {0}")]
    Refused(Refusal),
    /// The peer closed the connection in the middle.
    #[error("the peer closed the connection during the handshake")]
    Closed,
    /// The peer did not say enough in time.
    #[error("the handshake was not over within {}", crate::cluster::format_duration(*.0))]
    Timeout(Duration),
    /// The name of the peer's host was not resolved in time.
    #[error("the name of its host was not resolved within {}", crate::cluster::format_duration(*.0))]
    Unresolved(Duration),
    /// The network failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl HandshakeError {
    /// Whether one of the two ends does not want the other, so that somebody has to mend
    /// something; `false` where nobody answered, which may pass.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Refused(Refusal::Busy)
                | Self::Closed
                | Self::Timeout(_)
                | Self::Unresolved(_)
                | Self::Io(_)
        )
    }

    /// What the other side is told, where it is told more than that the connection closes.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::WrongKey => Some(Refusal::WrongKey),
            Self::Malformed(_) => Some(Refusal::Malformed),
            Self::UnknownNode(_) => Some(Refusal::UnknownNode),
            Self::WrongNode { .. } => Some(Refusal::WrongNode),
            Self::NotOnNetwork { .. } => Some(Refusal::NotOnNetwork),
            Self::KindNotAllowed { .. } => Some(Refusal::KindNotAllowed),
            Self::NoSuchParty { .. } => Some(Refusal::NoSuchParty),
            Self::NamePresent { .. } => Some(Refusal::NamePresent),
            _ => None,
        }
    }
}

/// Why the other side does not want the link, as it stands in messages and alerts: one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// 1: the session keys differ.
    WrongKey,
    /// 2: what it received breaks the protocol.
    Malformed,
    /// 3: there is no such node.
    UnknownNode,
    /// 4: it is not the node that was dialled.
    WrongNode,
    /// 5: the link's network is not the one of the connection.
    NotOnNetwork,
    /// 6: such a link needs a gateway at its end.
    KindNotAllowed,
    /// 7: the process has nobody whom such a link is for.
    NoSuchParty,
    /// 8: another process of this name is present, and answers.
    NamePresent,
    /// 9: it has as many members waiting as it takes.
    Busy,
    /// A reason of a later version.
    Other(u8),
}

impl Refusal {
    /// What stands in a verdict for "none".
    pub(super) const NONE: u8 = 0;

    pub(super) fn code(self) -> u8 {
        match self {
            Self::WrongKey => 1,
            Self::Malformed => 2,
            Self::UnknownNode => 3,
            Self::WrongNode => 4,
            Self::NotOnNetwork => 5,
            Self::KindNotAllowed => 6,
            Self::NoSuchParty => 7,
            Self::NamePresent => 8,
            Self::Busy => 9,
            Self::Other(code) => code,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            Self::NONE => return None,
            1 => Self::WrongKey,
            2 => Self::Malformed,
            3 => Self::UnknownNode,
            4 => Self::WrongNode,
            5 => Self::NotOnNetwork,
            6 => Self::KindNotAllowed,
            7 => Self::NoSuchParty,
            8 => Self::NamePresent,
            9 => Self::Busy,
            code => Self::Other(code),
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WrongKey => "it has another session key; copy the same key file to every node",
            Self::Malformed => "what it received breaks the protocol",
            Self::UnknownNode => "it knows no node of this rank",
            Self::WrongNode => "it is not the node that was dialled; is an address wrong?",
            Self::NotOnNetwork => "the connection came over another network than the link's",
            Self::KindNotAllowed => "such a link needs a gateway at its end",
            Self::NoSuchParty => {
                "nothing there is for such links; is it started in the right role?"
            }
            Self::NamePresent => "a process with this node's name is present already, and answers",
            Self::Busy => "too many members are joining at once",
            Self::Other(code) => {
                return write!(f, "for reason {code}, which this release does not know");
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_absent_does_not_refuse() {
        assert!(HandshakeError::WrongKey.is_refusal());
        assert!(HandshakeError::Refused(Refusal::WrongKey).is_refusal());
        for passing in [
            HandshakeError::Refused(Refusal::Busy),
            HandshakeError::Closed,
            HandshakeError::Timeout(Duration::from_secs(5)),
            HandshakeError::Io(io::ErrorKind::ConnectionRefused.into()),
        ] {
            assert!(!passing.is_refusal(), "{passing}");
        }
    }

    #[test]
    fn refusals_have_codes() {
        assert_eq!(Refusal::from_code(Refusal::NONE), None);
        for code in 1..=u8::MAX {
            let refusal = Refusal::from_code(code).unwrap();
            assert_eq!(refusal.code(), code);
            assert_eq!(matches!(refusal, Refusal::Other(_)), code > 9);
        }
    }
}
