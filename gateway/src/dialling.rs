//! Which links are to be dialled: those that flows ask for.
//!
//! The conductor does what it was told last. So that this is never the older of two decisions,
//! what is asked for is looked at and the conductor told under one lock, which is taken before
//! [`Shared`] and for nothing else: telling it may be a system call.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use madgate_gtm::Time;
use madgate_vchannel::conductor::{LinkRequest, Party};

use crate::engine::{Engine, Shared};

/// A link that nobody has asked for in this time is not dialled any longer.
const INTEREST: Duration = Duration::from_secs(60);

/// A link that flows have asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked {
    /// When one last did.
    pub(crate) at: Time,
    /// Since when one waits for it; not while it is there.
    pub(crate) needed_since: Option<Time>,
}

/// Locked while the conductor is told what to dial.
#[derive(Debug, Default)]
pub(crate) struct Dialling(Mutex<()>);

impl Dialling {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Has a link dialled, if it is asked for still and no other serves as well. Not to be called
    /// with [`Shared`] locked.
    pub(crate) fn dial(&self, request: LinkRequest) {
        let _dialling = self.dialling.lock();
        let is_needed = self.lock().needs(request);
        if is_needed {
            self.conductor.dial(Party::Engine, request);
        }
    }

    /// A link could not be had. Goes on dialling it, unless it is not needed: that was decided just
    /// before another was accepted that serves as well, or nobody asks any more. Returns whether it
    /// goes on.
    pub(crate) fn go_on_dialling(&self, request: LinkRequest) -> bool {
        let _dialling = self.dialling.lock();
        let is_needed = self.lock().needs(request);
        if !is_needed {
            self.conductor.cancel(Party::Engine, request);
        }
        is_needed
    }

    /// Forgets links that nobody has asked for in a while, and has them dialled no longer.
    pub(crate) fn stop_dialling(&self, now: Time) {
        let _dialling = self.dialling.lock();
        let mut dropped = Vec::new();
        let mut shared = self.lock();
        let Shared { asked, ways, .. } = &mut *shared;
        asked.retain(|request, asked| {
            let is_kept = ways.contains_key(request) || now.since(asked.at) < INTEREST;
            if !is_kept {
                dropped.push(*request);
            }
            is_kept
        });
        drop(shared);
        for request in dropped {
            self.conductor.cancel(Party::Engine, request);
        }
    }
}

impl Shared {
    /// Whether flows wait for a link, and no other serves as well.
    fn needs(&self, request: LinkRequest) -> bool {
        self.asked.contains_key(&request) && !self.ways.contains_key(&request)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use madgate_gtm::transit::LinkId;
    use madgate_tm::LaneError;
    use madgate_vchannel::conductor::LinkEvent;

    use super::*;
    use crate::engine::Touched;
    use crate::fault::Fault;
    use crate::fixture::Fixture;
    use crate::link::Link;

    /// When whoever asks at the beginning has been forgotten.
    const LATER: Time = Time(120_000_000_000);

    /// Whether something is dialled: nobody is there, which is told.
    fn is_dialled(fixture: &Fixture, within: Duration) -> bool {
        let event = fixture.events.recv_timeout(within);
        matches!(event, Ok(LinkEvent::DialFailed { .. }))
    }

    fn ask(fixture: &Fixture) {
        let mut shared = fixture.engine.lock();
        shared.asked.insert(fixture.request(), Asked::default());
    }

    #[test]
    fn only_what_is_asked_for_is_dialled() {
        let fixture = Fixture::new();
        ask(&fixture);
        fixture.engine.stop_dialling(LATER);
        // Decided before it was forgotten: nobody would ever cancel it.
        fixture.engine.dial(fixture.request());
        assert!(!is_dialled(&fixture, Duration::from_millis(50)));
        ask(&fixture);
        fixture.engine.dial(fixture.request());
        assert!(is_dialled(&fixture, Duration::from_secs(30)));
    }

    fn close(fixture: &Fixture, link: &Arc<Link>, fault: &Fault) {
        let engine = &fixture.engine;
        engine.close_link(link, fault, &mut Touched::default());
    }

    fn closed() -> Fault {
        Fault::Lane(LaneError::Closed)
    }

    /// The link that new flows to b0 leave by.
    fn way(fixture: &Fixture) -> Option<LinkId> {
        let shared = fixture.engine.lock();
        shared.ways.get(&fixture.request()).map(|link| link.transit)
    }

    #[test]
    fn a_link_that_is_lost_is_dialled_when_a_flow_asks_for_it_again() {
        let fixture = Fixture::new();
        ask(&fixture);
        let accepted = fixture.accepted_link();
        assert_eq!(way(&fixture), Some(accepted.transit));
        close(&fixture, &accepted, &closed());
        assert_eq!(way(&fixture), None);
        // Decided before.
        fixture.engine.dial(fixture.request());
        assert!(!is_dialled(&fixture, Duration::from_millis(50)));
        ask(&fixture);
        fixture.engine.dial(fixture.request());
        assert!(is_dialled(&fixture, Duration::from_secs(30)));
    }

    #[test]
    fn flows_leave_by_another_link_that_serves_when_one_is_lost() {
        let fixture = Fixture::new();
        let (accepted, own) = (fixture.accepted_link(), fixture.link());
        assert_eq!(way(&fixture), Some(accepted.transit), "the first");
        ask(&fixture);
        close(&fixture, &accepted, &closed());
        assert_eq!(way(&fixture), Some(own.transit));
        let next = fixture.accepted_link();
        close(&fixture, &next, &Fault::Replaced);
        assert_eq!(way(&fixture), Some(own.transit));
        close(&fixture, &own, &closed());
        assert_eq!(way(&fixture), None);
    }

    #[test]
    fn what_is_served_is_not_dialled() {
        let fixture = Fixture::new();
        ask(&fixture);
        let accepted = fixture.accepted_link();
        // Decided before that was there.
        fixture.engine.dial(fixture.request());
        assert!(!is_dialled(&fixture, Duration::from_millis(50)));
        let goes_on = || fixture.engine.go_on_dialling(fixture.request());
        assert!(!goes_on());
        close(&fixture, &accepted, &closed());
        assert!(!goes_on());
        ask(&fixture);
        assert!(goes_on());
    }

    #[test]
    fn what_is_told_last_is_what_was_decided_last() {
        let fixture = Fixture::new();
        let engine = &fixture.engine;
        ask(&fixture);
        thread::scope(|scope| {
            // Somebody tells the conductor something.
            let dialling = engine.dialling.lock();
            let sweep = scope.spawn(|| engine.stop_dialling(LATER));
            thread::sleep(Duration::from_millis(50));
            // So nothing has been decided yet that could be told too late.
            assert!(engine.lock().asked.contains_key(&fixture.request()));
            drop(dialling);
            sweep.join().unwrap();
        });
        assert!(engine.lock().asked.is_empty());
    }
}
