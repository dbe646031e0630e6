//! What commands print.

use std::io::{self, Write as _};

use crate::failure::{Context as _, Failure};
use crate::logging;

/// Says something on stderr, behind what was logged. Nothing can be said of it when nobody takes
/// that.
pub(crate) fn say(text: &str) {
    logging::settle();
    let _ = io::stderr()
        .lock()
        .write_all(format!("{text}\n").as_bytes());
}

/// Prints to stdout. A reader that has gone (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.or_fail(|| "cannot print".to_owned()),
    }
}
