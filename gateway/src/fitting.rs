//! What stands between the lanes of a gateway and its engine.

use std::fmt;

use madgate_vchannel::conductor::EstablishedLink;

/// What becomes of each link before the engine uses it.
pub(crate) struct Fitting(Box<dyn FnMut(EstablishedLink) -> EstablishedLink + Send>);

impl Fitting {
    pub(crate) fn new(
        fit: impl FnMut(EstablishedLink) -> EstablishedLink + Send + 'static,
    ) -> Self {
        Self(Box::new(fit))
    }

    /// Links as the conductor has them.
    pub(crate) fn none() -> Self {
        Self::new(|link| link)
    }

    pub(crate) fn fit(&mut self, link: EstablishedLink) -> EstablishedLink {
        (self.0)(link)
    }
}

impl fmt::Debug for Fitting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Fitting")
    }
}
