//! A link's output in the hands of somebody who looks at it, and does not send.
//!
//! Who finds the output locked leaves what there is to send to whoever holds it. Those who send
//! look again when they have unlocked it ([`Engine::serve`]); for all others, dropping
//! [`Held`] does.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};

use crate::engine::{Engine, Hub, Touched};
use crate::link::{Link, Output};

/// A locked output. What others wanted to send meanwhile is not lost when it is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    // Fields are dropped in this order: the output is unlocked first, then it is looked.
    output: MutexGuard<'a, Output>,
    _look: Look<'a>,
}

/// Looks, when it is dropped, whether somebody wanted to send.
#[derive(Debug)]
struct Look<'a> {
    link: &'a Arc<Link>,
    server: Server<'a>,
}

/// Who sends then.
#[derive(Debug)]
pub(crate) enum Server<'a> {
    /// The sender's thread of the link's network.
    Sender(&'a Hub),
    /// The caller, when it serves next what it has touched: soon, and in any case.
    Caller(&'a mut Touched),
}

impl<'a> Held<'a> {
    pub(crate) const fn new(
        output: MutexGuard<'a, Output>,
        link: &'a Arc<Link>,
        server: Server<'a>,
    ) -> Self {
        Self {
            output,
            _look: Look { link, server },
        }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        if !self.link.is_wanted() || self.link.is_closed() {
            return;
        }
        match &mut self.server {
            Server::Sender(hub) => hub.hand_over(self.link),
            Server::Caller(touched) => touched.add(self.link),
        }
    }
}

impl Deref for Held<'_> {
    type Target = Output;

    fn deref(&self) -> &Output {
        &self.output
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Output {
        &mut self.output
    }
}

impl Engine {
    /// The output of a link, as soon as nobody else has it. What others want to send meanwhile
    /// is left to its sender's thread.
    pub(crate) fn hold<'a>(&'a self, link: &'a Arc<Link>) -> Held<'a> {
        let server = Server::Sender(&self.networks[link.network]);
        Held::new(link.output(), link, server)
    }

    /// The same, if nobody else has it.
    pub(crate) fn try_hold<'a>(&'a self, link: &'a Arc<Link>) -> Option<Held<'a>> {
        let server = Server::Sender(&self.networks[link.network]);
        Some(Held::new(link.try_output()?, link, server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, want};

    #[test]
    fn who_finds_an_output_locked_is_not_forgotten() {
        let fixture = Fixture::new();
        let (engine, link) = (&fixture.engine, fixture.link());
        for _ in 0..2 {
            let held = engine.hold(&link);
            assert!(want(&link));
            assert!(engine.try_hold(&link).is_none());
            drop(held);
            assert!(fixture.is_handed_over(&link));

            let held = engine.try_hold(&link);
            assert!(want(&link));
            drop(held);
            assert!(fixture.is_handed_over(&link));
        }
        let mut touched = Touched::default();
        let held = Held::new(link.output(), &link, Server::Caller(&mut touched));
        assert!(want(&link));
        drop(held);
        assert!(touched.next().is_some_and(|one| Arc::ptr_eq(&one, &link)));
        assert!(!fixture.is_handed_over(&link));
    }

    #[test]
    fn where_nobody_wanted_to_send_nobody_is_woken() {
        let fixture = Fixture::new();
        let link = fixture.link();
        drop(fixture.engine.hold(&link));
        assert!(!fixture.is_handed_over(&link));
        // Nor for a link that is closed: nothing leaves by it any more.
        let held = fixture.engine.hold(&link);
        assert!(want(&link));
        link.close();
        drop(held);
        assert!(!fixture.is_handed_over(&link));
    }

    #[test]
    fn who_looks_at_every_link_forgets_nobody() {
        let fixture = Fixture::new();
        let link = fixture.link();
        link.want();
        fixture.engine.detach_all();
        assert!(fixture.is_handed_over(&link));
        let drained = crate::drain::drain(&fixture.engine, std::time::Instant::now());
        assert_eq!(drained.dropped_bytes, 0);
        assert!(fixture.is_handed_over(&link));
    }
}
