//! What is sent.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use madgate_tm::{LentSlot, Piece, Pipe, ReceivedSlot};

/// Bytes that a buffer's head holds at most.
pub const HEAD_BYTES: usize = 64;

/// Where the bytes behind the head are.
#[derive(Debug)]
pub enum Body {
    /// In memory that is shared by count: the sender's own, or a batch that arrived.
    Shared(Bytes),
    /// In a slot that arrived from another lane, which gets it back when this is sent.
    Received {
        /// The slot.
        slot: ReceivedSlot,
        /// The bytes of it.
        range: Range<usize>,
        /// Shared with whoever counts the slots that are not back ([`Arc::strong_count`]).
        counted: Arc<()>,
    },
    /// In a slot of the lane that this leaves by, filled with the first `length` bytes.
    /// A buffer with such a body has no head of its own.
    Lent {
        /// The slot.
        slot: LentSlot,
        /// Bytes to send.
        length: usize,
    },
    /// In a pipe, all that it holds: one unit, which no memory of this process has seen. A
    /// buffer with such a body has no head of its own. Static lanes have it copied.
    Piped(Pipe),
}

/// Something to send: a head of a few bytes, then a body.
///
/// On static lanes a buffer is one *unit*, or several that the outbox can tell apart: a
/// unit is never split over two slots.
#[derive(Debug)]
pub struct Buffer {
    head: [u8; HEAD_BYTES],
    head_length: usize,
    pub(crate) body: Body,
}

impl Buffer {
    /// Shared memory without a head: one unit, or several one after the other.
    #[must_use]
    pub const fn shared(bytes: Bytes) -> Self {
        Self::of(Body::Shared(bytes))
    }

    /// A body without a head.
    #[must_use]
    pub const fn of(body: Body) -> Self {
        Self {
            head: [0; HEAD_BYTES],
            head_length: 0,
            body,
        }
    }

    /// A copy of one unit, or of several one after the other: in the head where it fits, so that
    /// a single short one takes no memory of its own.
    #[must_use]
    pub fn copied(units: &[u8]) -> Self {
        if units.len() <= HEAD_BYTES {
            Self::with_head(units, Bytes::new())
        } else {
            Self::shared(Bytes::copy_from_slice(units))
        }
    }

    /// One unit: `head`, then `body`.
    ///
    /// # Panics
    /// When the head is longer than [`HEAD_BYTES`].
    #[must_use]
    pub fn with_head(head: &[u8], body: Bytes) -> Self {
        Self::unit(head, Body::Shared(body))
    }

    /// One unit: `head`, then `body`, which is neither a lent slot nor a pipe.
    ///
    /// # Panics
    /// When the head is longer than [`HEAD_BYTES`], or the body is a lent slot or a pipe.
    #[must_use]
    pub fn unit(head: &[u8], body: Body) -> Self {
        let mut buffer = Self::of(body);
        let holds_its_head = buffer.is_lent() || buffer.is_piped();
        assert!(!holds_its_head, "lent slots and pipes hold their own heads");
        buffer.head[..head.len()].copy_from_slice(head);
        buffer.head_length = head.len();
        buffer
    }

    /// Bytes of head and body.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head_length + self.body_len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the body out of memory that others wait for (a batch or slot that arrived, a
    /// pipe), so that the buffer can wait. Returns how many bytes were copied.
    pub fn detach(&mut self) -> usize {
        let copy = match &mut self.body {
            // Nobody else refers to it: it is in memory of its own already.
            Body::Shared(bytes) if bytes.is_unique() => return 0,
            Body::Shared(bytes) => Bytes::copy_from_slice(bytes),
            Body::Received { slot, range, .. } => {
                let mut copy = vec![0; range.len()];
                slot.copy_out(range.start, &mut copy);
                copy.into()
            }
            Body::Lent { .. } => return 0,
            Body::Piped(pipe) => {
                // Bytes that have left already keep their place, so that others keep theirs.
                let taken = pipe.taken();
                let mut copy = vec![0; taken + pipe.len()];
                // The pipe is ours and holds them: there is nothing that could fail. If it did,
                // the checksum would not be right.
                let copied = pipe.read(&mut copy[taken..]).unwrap_or(0);
                self.body = Body::Shared(copy.into());
                return copied;
            }
        };
        let copied = copy.len();
        self.body = Body::Shared(copy);
        copied
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.head[..self.head_length]
    }

    pub(crate) const fn is_lent(&self) -> bool {
        matches!(self.body, Body::Lent { .. })
    }

    /// Whether its bytes are in a pipe.
    #[must_use]
    pub const fn is_piped(&self) -> bool {
        matches!(self.body, Body::Piped(_))
    }

    pub(crate) fn body_len(&self) -> usize {
        match &self.body {
            Body::Shared(bytes) => bytes.len(),
            Body::Received { range, .. } => range.len(),
            Body::Lent { length, .. } => *length,
            Body::Piped(pipe) => pipe.taken() + pipe.len(),
        }
    }

    /// Head and body as pieces to send; a lent slot is none, nor is a pipe.
    pub(crate) fn pieces(&self) -> [Piece<'_>; 2] {
        let body = match &self.body {
            Body::Shared(bytes) => Piece::new(bytes),
            Body::Received { slot, range, .. } => slot.piece(range.clone()),
            Body::Lent { .. } | Body::Piped(_) => Piece::default(),
        };
        [Piece::new(self.head()), body]
    }
}
