//! HAProxy on one thread, which splices: always, or when it thinks that it pays.
//!
//! Always costs the relay less; which of the two is faster depends on the machine.

use std::io;

use madgate_benches::children::{Place, any_loopback, stage_plain};
use madgate_benches::haproxy::{self, Splice};
use madgate_benches::waiting::Wait;
use madgate_benches::{Contestant, Point, Stage, Timing};

/// HAProxy that splices so, between ends that wait so.
#[derive(Debug)]
pub(crate) struct Haproxy(pub(crate) Splice, pub(crate) Wait);

impl Contestant for Haproxy {
    fn name(&self) -> &'static str {
        match self.0 {
            Splice::Always => "haproxy",
            Splice::LargePipes => "haproxy-pipes",
            Splice::Auto => "haproxy-auto",
        }
    }

    fn missing(&self) -> Option<String> {
        haproxy::missing()
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let files = madgate_benches::scratch::folder()?;
        let place = Place::Tcp(any_loopback());
        let stage = stage_plain(point, timing, self.1, &place, |sink| {
            let Place::Tcp(sink) = sink else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            let (relay, at) = haproxy::start(self.0, 1, sink, files.path())?;
            Ok((Some(relay), Place::Tcp(at)))
        })?;
        Ok(Stage {
            files: Some(files),
            ..stage
        })
    }
}
