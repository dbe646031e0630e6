//! Logs, to stderr: levels from `--log`, else from `MADGATE_LOG`, else the command's own.

use std::env;
use std::io;

use tracing_subscriber::EnvFilter;

use crate::failure::{Context, Failure};

/// The variable that says what is logged.
const VARIABLE: &str = "MADGATE_LOG";

/// Starts logging; `usual` is the level of a command that nobody has told otherwise.
pub(crate) fn start(told: Option<&str>, usual: &str) -> Result<(), Failure> {
    let variable = env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    let wanted = told.or(variable.as_deref()).unwrap_or(usual);
    let filter = EnvFilter::try_new(wanted).or_fail(|| {
        let origin = if told.is_some() { "--log" } else { VARIABLE };
        format!(
            "{origin} {wanted:?} is no log filter; try \"info\", or \"warn,madgate_gateway=debug\""
        )
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .with_target(false)
        .init();
    Ok(())
}
