//! What can go wrong, one enum per operation; each says who is at fault and what to do.

use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use madgate_gtm::Failure;
use madgate_gtm::outgoing::SILENT_TIMES;
use madgate_gtm::wire::{ReceiveMode, Refusal};
use rustix::io::Errno;

use crate::cluster::UnknownName;
use crate::conductor::StartError;
use crate::handshake::KeyError;
use crate::session::Packed;

/// Why a node cannot join its session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The cluster file has no such node.
    #[error(transparent)]
    UnknownNode(UnknownName),
    /// The cluster file has no such channel.
    #[error(transparent)]
    UnknownChannel(UnknownName),
    /// The channel exists, but not on this node's networks.
    #[error("node {node} is on none of the networks of channel {channel:?}")]
    NotInChannel {
        /// This node.
        node: String,
        /// The channel.
        channel: String,
    },
    /// The session key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The node's addresses cannot be listened on, or its threads not started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system refuses a descriptor or a thread.
    #[error("the system refuses what a session needs{}", remedy(.0))]
    System(#[source] io::Error),
}

/// What to do where the system has no more of what a node needs: to be said right after what that
/// was. Empty where nothing more is known than the error says.
#[must_use]
pub fn remedy(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => ", as this process may open no more files: raise `ulimit -n`",
        Some(Errno::NFILE) => ", as all files are open that `sysctl fs.file-max` allows: raise it",
        Some(Errno::AGAIN) => ", as this user may start no more threads: raise `ulimit -u`",
        _ => "",
    }
}

/// Not everything was delivered when the session was closed.
#[derive(Debug, thiserror::Error)]
pub struct CloseError {
    /// The nodes that some messages had not reached in the end.
    pub nodes: Vec<String>,
    /// How long they were waited for.
    pub within: Duration,
    /// What was lost before, and no call has told.
    pub lost: Vec<PackError>,
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            nodes,
            within,
            lost,
        } = self;
        for (place, error) in lost.iter().enumerate() {
            let between = if place > 0 { "; " } else { "" };
            write!(f, "{between}{error}")?;
        }
        if !nodes.is_empty() {
            let between = if lost.is_empty() { "" } else { "; " };
            let nodes = nodes.join(", ");
            write!(
                f,
                "{between}messages to {nodes} were not delivered within {within:?}"
            )?;
        }
        Ok(())
    }
}

/// Why a message cannot be packed or delivered.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// No node with this rank is in the cluster.
    #[error("rank {rank} is no node of this cluster")]
    UnknownNode {
        /// The rank.
        rank: u32,
    },
    /// A node does not send to itself.
    #[error("{node} cannot send to itself")]
    ToItself {
        /// This node.
        node: String,
    },
    /// No route of the channel leads there.
    #[error("no route of channel {channel:?} leads to {node}")]
    NoRoute {
        /// The destination.
        node: String,
        /// The channel.
        channel: String,
    },
    /// This thread packs a message to the same node over the same channel already.
    #[error(
        "this thread is packing a message to {node} already; end it before the next one begins"
    )]
    AlreadyPacking {
        /// The destination.
        node: String,
    },
    /// A block is larger than a block can be (2^48 − 1 bytes).
    #[error("a block of {bytes} bytes is larger than a block can be")]
    TooLong {
        /// Bytes of the block.
        bytes: u64,
    },
    /// The destination could not be reached for the link timeout.
    #[error(
        "{node} was not reached for {within:?}{}; {} not delivered",
        because(.reason), undelivered(.messages)
    )]
    Unreachable {
        /// The destination.
        node: String,
        /// The link timeout.
        within: Duration,
        /// What the last attempt met, if that is known.
        reason: Option<String>,
        /// Numbers of the messages (of this flow, from 0) that were not delivered.
        messages: Range<u32>,
    },
    /// The destination was restarted, and the messages on their way to it are lost.
    #[error("{node} was restarted; {} not delivered to it", undelivered(.messages))]
    Restarted {
        /// The destination.
        node: String,
        /// Numbers of the messages (of this flow, from 0) that were not delivered.
        messages: Range<u32>,
    },
    /// A node on the way does not agree that this is the way.
    #[error("a node on the way to {node} refuses: the nodes disagree about the cluster; {} not delivered", undelivered(.messages))]
    Disagreement {
        /// The destination.
        node: String,
        /// Numbers of the messages (of this flow, from 0) that were not delivered.
        messages: Range<u32>,
    },
    /// The message failed with an earlier part of it, which was reported then.
    #[error("the message to {node} failed before")]
    Failed {
        /// The destination.
        node: String,
    },
}

fn because(reason: &Option<String>) -> String {
    reason
        .as_ref()
        .map(|reason| format!(" ({reason})"))
        .unwrap_or_default()
}

/// Which messages, with their verb: `messages 3 to 5 were`.
fn undelivered(messages: &Range<u32>) -> String {
    match messages.end.wrapping_sub(messages.start) {
        1 => format!("message {} was", messages.start),
        _ => format!(
            "messages {} to {} were",
            messages.start,
            messages.end.wrapping_sub(1)
        ),
    }
}

impl PackError {
    pub(crate) fn of_failure(
        failure: Failure,
        node: String,
        within: Duration,
        link_error: Option<String>,
        gateways: &[String],
        messages: Range<u32>,
    ) -> Self {
        match failure {
            Failure::Unreachable { last } => {
                let reason = Some(why_unreachable(link_error, last, gateways));
                Self::Unreachable {
                    node,
                    within,
                    reason,
                    messages,
                }
            }
            Failure::Silent => Self::Unreachable {
                node,
                within: within * SILENT_TIMES,
                reason: Some(why_unreachable(link_error, None, gateways)),
                messages,
            },
            Failure::Restarted => Self::Restarted { node, messages },
            Failure::NoRoute | Failure::NoChannel => Self::Disagreement { node, messages },
        }
    }
}

/// Why a node is not reached, as far as is known: what the link to it has met, or what was said last
/// on the way, over one of `gateways`.
pub(crate) fn why_unreachable(
    link_error: Option<String>,
    last: Option<Refusal>,
    gateways: &[String],
) -> String {
    link_error
        .or_else(|| last.map(|last| say(last, gateways)))
        .unwrap_or_else(|| SILENT.to_owned())
}

/// What is known of a node from which nothing comes though all links hold.
const SILENT: &str = "nothing comes back: its process is stopped, or a network on the way is cut";

/// What a refusal means, for people; a gateway that refuses is one of `gateways`.
fn say(refusal: Refusal, gateways: &[String]) -> String {
    let gateway = match gateways {
        [] => "a gateway on the way".to_owned(),
        [gateway] => gateway.clone(),
        gateways => format!("one of the gateways {}", gateways.join(", ")),
    };
    let what = match refusal {
        Refusal::LinkLost => return format!("the link of {gateway} was lost"),
        Refusal::LinkDown => {
            return format!("{gateway} has no link onwards, or is being ended; its log says why");
        }
        Refusal::NoRoom => "a node on the way has no memory for another flow",
        Refusal::Unknown => "a node on the way keeps forgetting the flow",
        Refusal::OtherIncarnation => "the node was restarted",
        Refusal::Corrupt => "frames arrive corrupt",
        Refusal::NoRoute => "a node on the way knows no route",
        Refusal::NoChannel => "the node has no such channel",
        Refusal::GivenUp => "the node has given up the message that was on its way to it",
    };
    what.to_owned()
}

/// Why a message could not be sent without waiting, or in time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// Another thread packs a message to this node, or the flow keeps as much as it may.
    #[error("the flow takes no message now; try again, or pack, which waits")]
    NotNow,
    /// It will not be possible later either.
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// Why a message cannot be unpacked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// A message of this node to itself: there are none.
    #[error("{node} cannot receive from itself")]
    FromItself {
        /// This node.
        node: String,
    },
    /// No node with this rank is in the cluster.
    #[error("rank {rank} is no node of this cluster")]
    UnknownNode {
        /// The rank.
        rank: u32,
    },
    /// The ends disagree about the next block. Nothing of it was unpacked.
    #[error(
        "block {block} of a message of {source_node}: {} was packed, {} was to be unpacked",
        describe(.packed), describe(.unpacked)
    )]
    Mismatch {
        /// The sender.
        source_node: String,
        /// Number of the block in the message, from 0.
        block: u32,
        /// What the sender packed.
        packed: Packed,
        /// What was asked for here.
        unpacked: Packed,
    },
    /// The sender gave the message up half-packed.
    #[error("{source_node} gave the message up before it was complete")]
    Aborted {
        /// The sender.
        source_node: String,
    },
    /// The sender was restarted before the message was complete.
    #[error("{source_node} was restarted before the message was complete")]
    SourceRestarted {
        /// The sender.
        source_node: String,
    },
    /// The sender has left or stood still in the middle of the message, or the way to it was lost, and
    /// nothing was back in time.
    #[error(
        "{source_node} has left or stands still in the middle of a message, or the way to it is lost: nothing more has come within {within:?}"
    )]
    SourceLost {
        /// The sender.
        source_node: String,
        /// The link timeout; of one that stands still nothing had come for three minutes before that.
        within: Duration,
    },
    /// The sender broke the protocol in the middle of the message.
    #[error("{source_node} broke the protocol in the middle of the message")]
    Misbehaved {
        /// The sender.
        source_node: String,
    },
    /// The message failed with an earlier block, which was reported then.
    #[error("the message of {source_node} failed before")]
    Failed {
        /// The sender.
        source_node: String,
    },
}

fn describe(packed: &Packed) -> String {
    match packed {
        Packed::Block { length, receive } => {
            let mode = match receive {
                ReceiveMode::Express => "express",
                ReceiveMode::Cheaper => "cheaper",
            };
            let plural = if *length == 1 { "" } else { "s" };
            format!("a block of {length} byte{plural} ({mode})")
        }
        Packed::End => "the end of the message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_has_no_more_of_is_named_with_what_to_raise() {
        for (error, what) in [
            (Errno::MFILE, "raise `ulimit -n`"),
            (Errno::NFILE, "`sysctl fs.file-max`"),
            (Errno::AGAIN, "raise `ulimit -u`"),
        ] {
            let said = OpenError::System(error.into()).to_string();
            assert!(said.contains(what), "{said}");
        }
        let other = io::Error::from(Errno::IO);
        assert_eq!(remedy(&other), "");
        assert_eq!(remedy(&io::Error::other("no number")), "");
    }

    #[test]
    fn one_message_and_several() {
        let restarted = |messages| {
            let node = "b0".to_owned();
            PackError::Restarted { node, messages }.to_string()
        };
        let one = "b0 was restarted; message 136 was not delivered to it";
        assert_eq!(restarted(136..137), one);
        let several = "b0 was restarted; messages 3 to 5 were not delivered to it";
        assert_eq!(restarted(3..6), several);
    }
}
