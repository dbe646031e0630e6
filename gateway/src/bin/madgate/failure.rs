//! How a command fails: one line that says what did not work, with the causes behind it.

use std::error::Error;
use std::fmt;

/// Why a command ended without doing what it was asked to.
pub(crate) struct Failure {
    what: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure that needs no cause to be understood.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            cause: None,
        }
    }

    /// A failure with what caused it.
    pub(crate) fn caused(
        what: impl Into<String>,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            what: what.into(),
            cause: Some(cause.into()),
        }
    }
}

/// Says what was being done when something failed.
pub(crate) trait Context<T> {
    /// Turns an error into a failure to do `what`.
    fn or_fail(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Context<T> for Result<T, E> {
    fn or_fail(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure::caused(what(), error))
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let what = error.to_string();
        match error.source() {
            None => Self::new(what),
            Some(_) => Self {
                what: String::new(),
                cause: Some(Box::new(error)),
            },
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let mut said = self.what.clone();
        let mut cause: Option<&dyn Error> = self.cause.as_deref().map(|cause| cause as &dyn Error);
        while let Some(error) = cause {
            let words = error.to_string();
            // Some errors repeat their cause in their own words.
            if !said.contains(&words) {
                let separator = if said.is_empty() { "" } else { ": " };
                write!(f, "{separator}{words}")?;
                said.push_str(&words);
            }
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let failure = Failure::caused("cannot read x", std::io::Error::other("it is gone"));
        assert_eq!(failure.to_string(), "cannot read x: it is gone");
        let outer = Failure::caused("it is gone, so there", std::io::Error::other("it is gone"));
        assert_eq!(outer.to_string(), "it is gone, so there");
        assert_eq!(Failure::new("no").to_string(), "no");
    }
}
