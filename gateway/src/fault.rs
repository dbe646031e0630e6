//! What a member can do wrong; its link is closed for it, and nothing else.

use std::io::ErrorKind;

use madgate_bmm::OutboxError;
use madgate_gtm::wire::WireError;
use madgate_gtm::{Kind, Violation};
use madgate_tm::LaneError;

/// Why a link cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The lane itself.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// Something could not be sent on it.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// Bytes that are no frame.
    #[error("it sent what is no frame: {0}")]
    Wire(#[from] WireError),
    /// More than it was granted.
    #[error("it broke a promise: {0}")]
    Violation(#[from] Violation),
    /// A frame that belongs to the other lane.
    #[error("it sent a {0:?} frame on a lane that carries none")]
    WrongLane(Kind),
    /// An opening whose payload nobody can check.
    #[error("it opened a flow without a checksum over what it asks for")]
    WithoutChecksum,
    /// A header that is not as its source made it, so that nothing behind it can be trusted either.
    #[error("a header from it is damaged: memory or a card on the way changes bytes")]
    DamagedHeader,
    /// A frame that is larger than the next network carries, or any channel's fragments.
    #[error("it sent a frame of {bytes} bytes where at most {most} are carried")]
    TooLong {
        /// The frame.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// A source that does not come this way.
    #[error("it sent a frame of rank {0}, whose route does not use this link")]
    WrongSource(u32),
    /// A slot that does not end with a frame.
    #[error("it sent a slot that does not end where a frame does")]
    SplitFrame,
    /// Another connection of the same peer takes its place.
    #[error("another connection of the same peer takes its place")]
    Replaced,
    /// The peer was restarted, and the new process has taken its name.
    #[error("another process has taken its name")]
    PeerReplaced,
}

impl Fault {
    /// Whether what came was changed on its way.
    pub(crate) const fn is_damage(&self) -> bool {
        matches!(self, Self::DamagedHeader)
    }

    /// Whether the connection broke: the peer did not close it.
    pub(crate) const fn is_breakage(&self) -> bool {
        matches!(
            self,
            Self::Lane(LaneError::Broken(_))
                | Self::Outbox(OutboxError::Lane(LaneError::Broken(_)))
        )
    }

    /// Whether it broke in the way in which it also does when the peer closes it too early.
    pub(crate) fn is_reset(&self) -> bool {
        let (Self::Lane(LaneError::Broken(error))
        | Self::Outbox(OutboxError::Lane(LaneError::Broken(error)))) = self
        else {
            return false;
        };
        matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        )
    }

    /// Whether the peer has closed the connection, early or in order: it may have said something before.
    pub(crate) fn has_left(&self) -> bool {
        let is_closed = matches!(
            self,
            Self::Lane(LaneError::Closed) | Self::Outbox(OutboxError::Lane(LaneError::Closed))
        );
        is_closed || self.is_reset()
    }

    /// Whether the peer did what no node of this version does.
    pub(crate) const fn is_misbehaviour(&self) -> bool {
        matches!(
            self,
            Self::Wire(_)
                | Self::Violation(_)
                | Self::WrongLane(_)
                | Self::WithoutChecksum
                | Self::TooLong { .. }
                | Self::WrongSource(_)
                | Self::SplitFrame
                | Self::Lane(LaneError::Peer { .. })
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_reset_is_told_from_other_breakages() {
        let broken = |kind: ErrorKind| LaneError::Broken(io::Error::from(kind));
        for kind in [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe] {
            assert!(Fault::from(broken(kind)).is_reset());
            assert!(Fault::from(OutboxError::Lane(broken(kind))).is_reset());
        }
        let silent = Fault::from(broken(ErrorKind::TimedOut));
        assert!(silent.is_breakage() && !silent.is_reset());
        assert!(!Fault::from(LaneError::Closed).is_reset());
        assert!(Fault::from(LaneError::Closed).has_left());
        assert!(Fault::from(OutboxError::Lane(LaneError::Closed)).has_left());
        assert!(!silent.has_left() && !Fault::Replaced.has_left());
        assert!(!Fault::Replaced.is_reset());
    }
}
