//! What those who drive wait for, and how they learn that it is there: whoever changes something
//! while driving looks for it in the same lock ([`Goal`]), and what it takes in may be just that
//! ([`Sought::offer`]).

use super::core::Core;
use super::input::Straight;
use super::whole::WholeMessage;

/// What a caller waits for.
pub(crate) trait Sought {
    /// What becomes of it.
    type Found;

    /// Looks whether it is there.
    fn look(&mut self, core: &mut Core) -> Option<Self::Found>;

    /// A small message that came whole is on its way to its flow's inbox: takes it instead, if it is
    /// what is waited for.
    fn offer(&mut self, _core: &mut Core, _message: &WholeMessage<'_>) -> Option<Self::Found> {
        None
    }

    /// It was found, and since then more has changed, which may say more about what follows from it.
    fn settle(&mut self, _core: &mut Core, _found: &mut Self::Found) {}
}

impl<R, F: FnMut(&mut Core) -> Option<R>> Sought for F {
    type Found = R;

    fn look(&mut self, core: &mut Core) -> Option<R> {
        self(core)
    }
}

/// As [`Sought`], whatever becomes of it: whether it is found.
pub(super) trait Seek {
    fn look(&mut self, core: &mut Core) -> bool;

    fn offer(&mut self, _core: &mut Core, _message: &WholeMessage<'_>) -> bool {
        false
    }

    fn settle(&mut self, _core: &mut Core) {}
}

#[cfg(test)]
impl<F: FnMut(&mut Core) -> bool> Seek for F {
    fn look(&mut self, core: &mut Core) -> bool {
        self(core)
    }
}

/// Waiting for nothing, as the progress thread does.
pub(super) struct Nothing;

impl Seek for Nothing {
    fn look(&mut self, _core: &mut Core) -> bool {
        false
    }
}

/// A caller inside a wait.
pub(super) struct Waiting<S: Sought> {
    sought: S,
    pub(super) found: Option<S::Found>,
    /// Whether the ticker is to look at the session again, now that the caller has left.
    pub(super) is_unwatched: bool,
}

impl<S: Sought> Waiting<S> {
    pub(super) const fn new(sought: S) -> Self {
        Self {
            sought,
            found: None,
            is_unwatched: false,
        }
    }

    /// The wait is over if `found` is something.
    fn note(&mut self, core: &mut Core, found: Option<S::Found>) -> bool {
        self.found = found;
        if self.found.is_some() {
            self.is_unwatched = core.leave();
        }
        self.found.is_some()
    }
}

impl<S: Sought> Seek for Waiting<S> {
    fn look(&mut self, core: &mut Core) -> bool {
        let found = self.sought.look(core);
        self.note(core, found)
    }

    fn offer(&mut self, core: &mut Core, message: &WholeMessage<'_>) -> bool {
        let found = self.sought.offer(core, message);
        self.note(core, found)
    }

    fn settle(&mut self, core: &mut Core) {
        if let Some(found) = &mut self.found {
            self.sought.settle(core, found);
        }
    }
}

/// What a driving thread waits for. Whoever changes something while driving looks for it in the
/// same lock.
pub(crate) struct Goal<'g, 'b> {
    /// The block that the thread is unpacking.
    pub(super) straight: Option<&'g mut Straight<'b>>,
    seek: &'g mut dyn Seek,
    pub(super) is_reached: bool,
}

impl<'g, 'b> Goal<'g, 'b> {
    pub(super) fn new(straight: Option<&'g mut Straight<'b>>, seek: &'g mut dyn Seek) -> Self {
        Self {
            straight,
            seek,
            is_reached: false,
        }
    }

    /// Looks whether what is waited for is there, until it is. To be called at the end of what was
    /// changed under one lock.
    pub(super) fn look(&mut self, core: &mut Core) {
        if self.is_reached {
            self.seek.settle(core);
        } else {
            self.is_reached = self.seek.look(core);
        }
    }

    /// Whether the message is what is waited for: it is taken then.
    pub(super) fn offer(&mut self, core: &mut Core, message: &WholeMessage<'_>) -> bool {
        if !self.is_reached {
            self.is_reached = self.seek.offer(core, message);
            return self.is_reached;
        }
        false
    }

    /// Whether the block that is being unpacked is full.
    pub(super) fn is_filled(&self) -> bool {
        self.straight
            .as_ref()
            .is_some_and(|straight| straight.is_filled())
    }

    /// Whether there is nothing more to wait for: its caller may be about to say where the next
    /// payload belongs.
    pub(super) fn is_over(&self) -> bool {
        self.is_reached || self.is_filled()
    }
}
