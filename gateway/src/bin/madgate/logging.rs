//! Logs, to stderr: levels from `--log`, else from `MADGATE_LOG`, else the command's own.

use std::env;
use std::io;

use tracing_subscriber::EnvFilter;

use crate::failure::{Context, Failure};

/// The variable that says what is logged.
const VARIABLE: &str = "MADGATE_LOG";

/// What a filter looks like.
const FILTER: &str = "log filter; try \"info\", or \"warn,madgate_gateway=debug\"";

/// Reads what `--log` says: wrong usage, if it is no filter.
pub(crate) fn read_filter(told: &str) -> Result<String, String> {
    match EnvFilter::try_new(told) {
        Ok(_) => Ok(told.to_owned()),
        Err(error) => Err(format!("no {FILTER}: {error}")),
    }
}

/// Starts logging; `usual` is the level of a command that nobody has told otherwise.
pub(crate) fn start(told: Option<&str>, usual: &str) -> Result<(), Failure> {
    let variable = env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    let wanted = told.or(variable.as_deref()).unwrap_or(usual);
    let filter =
        EnvFilter::try_new(wanted).or_fail(|| format!("{VARIABLE} {wanted:?} is no {FILTER}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .with_target(false)
        .init();
    Ok(())
}
