//! Two ends that do not share a processor.

use std::io;

use madgate_benches::{Contestant, Point, Stage, Timing};

/// A contestant whose ends are kept on a processor each, where there are two.
pub(crate) struct Apart(pub(crate) Box<dyn Contestant>);

impl Contestant for Apart {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn missing(&self) -> Option<String> {
        self.0.missing()
    }

    fn stage(&self, point: Point, timing: Timing) -> io::Result<Stage> {
        let stage = self.0.stage(point, timing)?;
        stage.keep_apart()?;
        Ok(stage)
    }
}
