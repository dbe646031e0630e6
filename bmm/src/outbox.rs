//! The queue in front of one lane.

use std::collections::VecDeque;

use madgate_tm::{LaneError, LaneSender, LentSlot, Piece, Shape};

use crate::buffer::{Body, Buffer};

/// When buffers leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// One at a time, in a call (or slot) of its own.
    Eager,
    /// As many as there are, together.
    #[default]
    Gathering,
}

/// What a flush did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flushed {
    /// Bytes that the lane took.
    pub bytes: usize,
    /// Whether the lane takes no more now.
    pub blocked: bool,
}

/// What an outbox has done; the counters only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Calls that offered bytes to the lane: sends, or commits.
    pub sends: u64,
    /// Bytes handed over.
    pub bytes: u64,
    /// Copies made: of units into slots, and of the rests of borrowed units.
    pub copies: u64,
    /// Bytes of them, heads included.
    pub copied_bytes: u64,
}

/// Copies that were made of one buffer while it waited in an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copies {
    /// How many.
    pub times: u64,
    /// Bytes of them, heads included.
    pub bytes: u64,
}

impl Copies {
    /// One of so many bytes.
    #[must_use]
    pub const fn one(bytes: u64) -> Self {
        Self { times: 1, bytes }
    }

    /// So many more.
    pub const fn add(&mut self, more: Self) {
        self.times += more.times;
        self.bytes += more.bytes;
    }
}

/// A buffer's tag, and the copies that were made of the buffer so far.
#[derive(Debug)]
pub(crate) struct Tagged<T> {
    pub(crate) tag: T,
    pub(crate) copies: Copies,
}

impl<T> Tagged<T> {
    const fn new(tag: T) -> Self {
        Self {
            tag,
            copies: Copies { times: 0, bytes: 0 },
        }
    }
}

/// Why an outbox cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The lane failed.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// A unit is larger than a slot: the sender was told another fragment size than the
    /// network carries. The units before it have left, nothing of this one has.
    #[error("a unit of {unit_bytes} bytes does not fit in a slot of {slot_bytes}")]
    TooLarge {
        /// Bytes of the unit.
        unit_bytes: usize,
        /// Bytes that a slot holds.
        slot_bytes: usize,
    },
    /// A slot of another lane was given to be sent on this one, or one to a dynamic lane.
    /// The buffers before it have left.
    #[error("a lent slot was given to a lane that did not lend it")]
    ForeignSlot,
}

/// The queue in front of one lane: buffers go in, each with a tag of the caller's, and leave
/// in the way that the lane likes, in order. (Slots of the lane itself that were filled
/// before pass those that wait for a slot: they need none, and give the peer one to return.)
///
/// Its owner bounds it: it takes from a flow only when [`queued_bytes`](Self::queued_bytes)
/// is low.
#[derive(Debug)]
pub struct Outbox<T> {
    shape: Shape,
    policy: Policy,
    /// Length of the unit at the front of some bytes.
    unit_length: fn(&[u8]) -> usize,
    pub(crate) queue: VecDeque<(Buffer, Tagged<T>)>,
    /// Bytes of the first buffer that have left.
    pub(crate) progress: usize,
    /// Static: the slot being filled, and how far.
    pub(crate) filling: Option<(LentSlot, usize)>,
    /// Static: tags of the buffers that are in the slot being filled.
    pub(crate) in_slot: Vec<Tagged<T>>,
    /// Static: buffers of the queue that are slots of the lane.
    pub(crate) lent: usize,
    queued_bytes: usize,
    pub(crate) counters: Counters,
}

impl<T> Outbox<T> {
    /// An empty queue in front of a lane of this shape. `unit_length` tells the length of
    /// the unit (header and payload) that some bytes start with; it is only asked about
    /// bytes that were pushed.
    #[must_use]
    pub const fn new(shape: Shape, policy: Policy, unit_length: fn(&[u8]) -> usize) -> Self {
        Self {
            shape,
            policy,
            unit_length,
            queue: VecDeque::new(),
            progress: 0,
            filling: None,
            in_slot: Vec::new(),
            lent: 0,
            queued_bytes: 0,
            counters: Counters {
                sends: 0,
                bytes: 0,
                copies: 0,
                copied_bytes: 0,
            },
        }
    }

    /// Queues a buffer; `tag` comes back when it has left.
    pub fn push(&mut self, mut buffer: Buffer, tag: T) {
        let mut tagged = Tagged::new(tag);
        if matches!(self.shape, Shape::Static { .. }) && buffer.is_piped() {
            let bytes = buffer.detach() as u64;
            self.note_copy(bytes);
            tagged.copies.add(Copies::one(bytes));
        }
        self.queued_bytes += buffer.len();
        self.lent += usize::from(buffer.is_lent());
        self.queue.push_back((buffer, tagged));
    }

    /// Sends what the lane takes now, and hands the tag of each buffer that has left
    /// entirely to `left`, with the copies that were made of it here.
    ///
    /// # Errors
    /// When the lane failed or something cannot be sent on it; the lane is to be closed.
    pub fn flush(
        &mut self,
        lane: &mut dyn LaneSender,
        mut left: impl FnMut(T, Copies),
    ) -> Result<Flushed, OutboxError> {
        let before = self.queued_bytes;
        let mut left = |gone: Tagged<T>| left(gone.tag, gone.copies);
        let blocked = match self.shape {
            Shape::Dynamic { gather_limit } => self.flush_dynamic(lane, gather_limit, &mut left),
            Shape::Static { .. } => self.flush_static(lane, &mut left),
        }?;
        Ok(Flushed {
            bytes: before - self.queued_bytes,
            blocked,
        })
    }

    /// Sends one unit from memory that is only lent for this call, if the queue is empty
    /// and the lane takes it: dynamic lanes gather it where it is, and static ones that can;
    /// others copy it.
    /// What the lane did not take of a unit that it began is copied and queued with `tag`.
    ///
    /// Returns the tag if nothing was taken: try again when the lane takes more.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn send_borrowed(
        &mut self,
        lane: &mut dyn LaneSender,
        unit: &[Piece<'_>],
        tag: T,
    ) -> Result<Borrowed<T>, OutboxError> {
        if !self.is_empty() {
            return Ok(Borrowed::NotNow(tag));
        }
        match self.shape {
            _ if unit.iter().all(Piece::is_empty) => Ok(Borrowed::Left(tag)),
            Shape::Dynamic { gather_limit } => {
                self.send_borrowed_dynamic(lane, gather_limit, unit, tag)
            }
            Shape::Static { .. } => self.send_borrowed_static(lane, unit, tag),
        }
    }

    /// As [`send_borrowed`](Self::send_borrowed), for one small unit.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn send_small(
        &mut self,
        lane: &mut dyn LaneSender,
        unit: &[u8],
        tag: T,
    ) -> Result<Borrowed<T>, OutboxError> {
        if matches!(self.shape, Shape::Dynamic { .. }) || !self.is_empty() {
            return self.send_borrowed(lane, &[Piece::new(unit)], tag);
        }
        if !lane.try_send_copy(unit)? {
            return Ok(Borrowed::NotNow(tag));
        }
        self.note_sent(unit.len(), !lane.gathers());
        Ok(Borrowed::Left(tag))
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Bytes that wait of buffers with such tags.
    #[must_use]
    pub fn queued_bytes_of(&self, mut is_counted: impl FnMut(&T) -> bool) -> usize {
        let mut bytes = 0;
        for (place, (buffer, tagged)) in self.queue.iter().enumerate() {
            let left = if place == 0 { self.progress } else { 0 };
            if is_counted(&tagged.tag) {
                bytes += buffer.len().saturating_sub(left);
            }
        }
        bytes
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.filling.is_none()
    }

    /// Looks at every buffer that waits, so that the caller can have some copied
    /// ([`Buffer::detach`]) and note that with its tag.
    pub fn for_each_queued(&mut self, mut look: impl FnMut(&mut Buffer, &mut T)) {
        for (buffer, tagged) in &mut self.queue {
            look(buffer, &mut tagged.tag);
        }
    }

    /// Which copies were made, and how the lane was used.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes that a slot of the lane holds; none of a dynamic one.
    pub(crate) const fn slot_bytes(&self) -> usize {
        match self.shape {
            Shape::Static { slot_bytes, .. } => slot_bytes,
            Shape::Dynamic { .. } => 0,
        }
    }

    pub(crate) fn is_eager(&self) -> bool {
        self.policy == Policy::Eager
    }

    /// Length of the unit that `bytes`, of which there are some, start with. Whatever the
    /// caller's function says, it lies within them, and it is never none.
    pub(crate) fn unit_at(&self, bytes: &[u8]) -> usize {
        (self.unit_length)(bytes).clamp(1, bytes.len())
    }

    /// The lane has taken bytes that waited.
    pub(crate) fn note_left(&mut self, bytes: usize) {
        self.note_lost(bytes);
        self.counters.bytes += bytes as u64;
    }

    /// Bytes wait no more.
    pub(crate) fn note_lost(&mut self, bytes: usize) {
        self.queued_bytes -= bytes;
    }

    /// One unit that did not wait has been sent, and copied into a slot for it or not.
    pub(crate) const fn note_sent(&mut self, bytes: usize, copied: bool) {
        self.counters.sends += 1;
        self.counters.bytes += bytes as u64;
        if copied {
            self.note_copy(bytes as u64);
        }
    }

    pub(crate) const fn note_copy(&mut self, bytes: u64) {
        self.counters.copies += 1;
        self.counters.copied_bytes += bytes;
    }

    pub(crate) fn queue_rest(&mut self, rest: Vec<u8>, tag: T) {
        self.queued_bytes += rest.len();
        self.note_copy(rest.len() as u64);
        let mut tagged = Tagged::new(tag);
        tagged.copies.add(Copies::one(rest.len() as u64));
        self.queue
            .push_back((Buffer::of(Body::Shared(rest.into())), tagged));
    }
}

/// What became of a borrowed unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Borrowed<T> {
    /// It has left entirely.
    Left(T),
    /// It has begun to leave, and the rest of it is queued.
    Queued,
    /// Nothing of it was taken.
    NotNow(T),
}
