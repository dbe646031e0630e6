//! What commands print.

use std::io::{self, Write as _};
use std::path::Path;

use crate::failure::{Context as _, Failure};
use crate::logging;

/// Says something on stderr, behind what was logged. Nothing can be said of it when nobody takes
/// that. It may have lines; other control characters are escaped, as some words are a peer's.
pub(crate) fn say(text: &str) {
    let mut lines = String::new();
    for line in text.split('\n') {
        lines += &escaped(line);
        lines.push('\n');
    }
    logging::settle();
    let _ = io::stderr().lock().write_all(lines.as_bytes());
}

/// A path for people.
pub(crate) fn shown(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// Words of others, for people. Control characters are escaped: a name cannot pass for lines of its
/// own, nor drive a terminal.
pub(crate) fn escaped(words: &str) -> String {
    let mut line = String::new();
    for character in words.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_on_their_line() {
        assert_eq!(shown(Path::new("a/ä b")), "a/ä b");
        let forged = Path::new("x\u{1b}[31m\nmadgate: all is well");
        assert_eq!(shown(forged), r"x\u{1b}[31m\nmadgate: all is well");
    }
}
