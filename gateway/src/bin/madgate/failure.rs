//! How a command fails: one line that says what did not work, with the causes behind it.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// Why a command ended without doing what it was asked to.
pub(crate) struct Failure {
    /// Whether the command line is at fault.
    is_usage: bool,
    what: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure that needs no cause to be understood.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            is_usage: false,
            what: what.into(),
            cause: None,
        }
    }

    /// Arguments that do not fit together: nothing was done.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self {
            is_usage: true,
            ..Self::new(what)
        }
    }

    /// How the process ends: operation.md says which code is what.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.is_usage { 2 } else { 1 })
    }

    /// With what to do about it.
    pub(crate) fn advising(&self, advice: &str) -> Self {
        Self {
            is_usage: self.is_usage,
            ..Self::new(format!("{self}; {advice}"))
        }
    }

    /// A failure with what caused it.
    pub(crate) fn caused(
        what: impl Into<String>,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            cause: Some(cause.into()),
            ..Self::new(what)
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
            Some(_) => Self::caused("", error),
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
