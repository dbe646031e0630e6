//! What a bench tells to programs.

use std::io::{self, Write};

use serde::Serialize;

/// Prints a line of JSON for each.
///
/// # Errors
/// When nobody takes it.
pub fn print_lines(lines: impl IntoIterator<Item = impl Serialize>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    for line in lines {
        writeln!(stdout, "{}", serde_json::to_string(&line)?)?;
    }
    Ok(())
}
