//! Two processes and one socket between them.

use std::io;

use madgate_benches::children::{Place, any_loopback, stage_plain};
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Point, Stage, Timing};

/// A TCP connection on loopback.
#[derive(Debug)]
pub(crate) struct DirectTcp(pub(crate) Wait);

impl Contestant for DirectTcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let place = Place::Tcp(any_loopback());
        stage_plain(point, timing, self.0, &place, |sink| Ok((None, sink)))
    }
}

/// A Unix stream socket.
#[derive(Debug)]
pub(crate) struct DirectUnix {
    name: &'static str,
    wait: Wait,
}

impl DirectUnix {
    /// Whose ends wait like all others.
    pub(crate) const fn new(wait: Wait) -> Self {
        Self { name: "unix", wait }
    }

    /// Whose ends sleep in the kernel, as those of ordinary programs do.
    pub(crate) const fn asleep() -> Self {
        Self {
            name: "unix-asleep",
            wait: Wait::Sleep,
        }
    }
}

impl Contestant for DirectUnix {
    fn name(&self) -> &'static str {
        self.name
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let files = madgate_benches::scratch::folder()?;
        let place = Place::Unix(files.path().join("sink"));
        let stage = stage_plain(point, timing, self.wait, &place, |sink| Ok((None, sink)))?;
        Ok(Stage {
            files: Some(files),
            ..stage
        })
    }
}
