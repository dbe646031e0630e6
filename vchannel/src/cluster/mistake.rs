//! What is wrong with a cluster file, where, and what to do about it.

use std::fmt;
use std::ops::Range;

use super::suggestion::did_you_mean;

/// One thing that is wrong with a cluster file (or, as a warning, looks wrong).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The line that it is on, from 1; `None` when it is about the file as a whole.
    pub line: Option<u32>,
    /// The column, from 1, in characters.
    pub column: Option<u32>,
    /// What is wrong, and what was expected.
    pub message: String,
    /// What to do; empty when the message says it all.
    pub help: String,
}

/// Everything that is wrong with a cluster file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterError {
    /// The file, as it was named.
    pub file: String,
    /// The mistakes, in the order of their lines; at most [`MAX_MISTAKES`] of each run.
    pub mistakes: Vec<Mistake>,
    /// What looks wrong without being an error.
    pub warnings: Vec<Mistake>,
    /// How many more mistakes there are than `mistakes` holds.
    pub unlisted: usize,
}

/// Characters of a message that are kept, and of its help: what they quote may be of any length.
const LONGEST_MESSAGE: usize = 1000;

/// How many mistakes, and how many warnings, are listed one by one.
pub const MAX_MISTAKES: usize = 100;

impl Mistake {
    /// The mistake as one line: `cluster.toml:12: unknown network "lfet"; did you mean "left"?`
    #[must_use]
    pub fn display_in<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        MistakeIn {
            mistake: self,
            file,
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display_in("cluster file").fmt(f)
    }
}

struct MistakeIn<'a> {
    mistake: &'a Mistake,
    file: &'a str,
}

impl fmt::Display for MistakeIn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file)?;
        if let Some(line) = self.mistake.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.mistake.message)?;
        if !self.mistake.help.is_empty() {
            write!(f, "; {}", self.mistake.help)?;
        }
        Ok(())
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            mistake.display_in(&self.file).fmt(f)?;
        }
        if self.unlisted > 0 {
            let plural = if self.unlisted == 1 { "" } else { "s" };
            let (file, more) = (&self.file, self.unlisted);
            write!(f, "\n{file}: and {more} more mistake{plural}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ClusterError {}

/// Collects mistakes and warnings while a file is read.
#[derive(Debug)]
pub(crate) struct Report {
    line_starts: Vec<usize>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
    unlisted: usize,
}

impl Report {
    pub(crate) fn new(text: &str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0)
            .chain(newlines.map(|(at, _)| at + 1))
            .collect();
        Self {
            line_starts,
            mistakes: Vec::new(),
            warnings: Vec::new(),
            unlisted: 0,
        }
    }

    /// Notes a mistake at the bytes `span`.
    pub(crate) fn mistake(
        &mut self,
        span: &Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if self.mistakes.len() == MAX_MISTAKES {
            self.unlisted += 1;
            return;
        }
        let mistake = self.locate(Some(span), message.into(), help.into());
        self.mistakes.push(mistake);
    }

    /// What a name that is a mistake was probably meant to be, as [`did_you_mean`] says it; of the mistakes
    /// that are only counted nobody reads that.
    pub(crate) fn did_you_mean<'a>(
        &self,
        name: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Option<String> {
        if self.mistakes.len() >= MAX_MISTAKES {
            return None;
        }
        did_you_mean(name, known)
    }

    /// Notes a mistake of the file as a whole.
    pub(crate) fn mistake_of_file(&mut self, message: impl Into<String>, help: impl Into<String>) {
        let mistake = self.locate(None, message.into(), help.into());
        self.mistakes.push(mistake);
    }

    /// Notes what looks wrong, at `span`.
    pub(crate) fn warning(
        &mut self,
        span: &Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if self.warnings.len() < MAX_MISTAKES {
            let warning = self.locate(Some(span), message.into(), help.into());
            self.warnings.push(warning);
        }
    }

    /// The line, from 1, of the byte at `offset`.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// How many mistakes there are, listed or not.
    pub(crate) fn mistakes(&self) -> usize {
        self.mistakes.len() + self.unlisted
    }

    pub(crate) fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    pub(crate) fn into_warnings(self) -> Vec<Mistake> {
        self.warnings
    }

    pub(crate) fn into_error(mut self, file: &str) -> ClusterError {
        self.mistakes.sort_by_key(|mistake| mistake.line);
        ClusterError {
            file: on_one_line(file),
            mistakes: self.mistakes,
            warnings: self.warnings,
            unlisted: self.unlisted,
        }
    }

    fn locate(&self, span: Option<&Range<usize>>, message: String, help: String) -> Mistake {
        let line = span.map(|span| self.line(span.start));
        let column = span
            .zip(line)
            .and_then(|(span, line)| Some(span.start - self.line_starts.get(line - 1)? + 1));
        Mistake {
            line: line.and_then(|line| u32::try_from(line).ok()),
            column: column.and_then(|column| u32::try_from(column).ok()),
            message: shortened(&on_one_line(&message)),
            help: shortened(&on_one_line(&help)),
        }
    }
}

/// What is quoted from a file may contain anything: control characters are escaped, so that it
/// cannot pass for lines of its own, nor drive a terminal.
fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// What is too long to be read loses its middle.
fn shortened(text: &str) -> String {
    let length = text.chars().count();
    if length <= LONGEST_MESSAGE {
        return text.to_owned();
    }
    let half = LONGEST_MESSAGE / 2;
    let front = text.chars().take(half);
    let back = text.chars().skip(length - half);
    front.chain(" … ".chars()).chain(back).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_stays_on_its_line_and_has_an_end() {
        let mut report = Report::new("a");
        report.mistake(&(0..1), "\"a\n\u{1b}[31mb\" is no name", "");
        report.mistake_of_file("é".repeat(100_000), "x".repeat(100_000));
        let error = report.into_error("c\n.toml");
        let [long, quoted] = &error.mistakes[..] else {
            panic!("{error}");
        };
        assert_eq!(quoted.message, r#""a\n\u{1b}[31mb" is no name"#);
        let bound = LONGEST_MESSAGE + " … ".chars().count();
        let lengths = [&long.message, &long.help].map(|text| text.chars().count());
        assert_eq!(lengths, [bound; 2]);
        assert!(long.message.starts_with('é') && long.message.ends_with('é'));
        assert!(!error.file.contains('\n'), "{:?}", error.file);
    }

    #[test]
    fn lines_are_counted_from_one() {
        let report = Report::new("a\nbc\n\nd");
        assert_eq!(
            [0, 1, 2, 4, 5, 6].map(|at| report.line(at)),
            [1, 1, 2, 2, 3, 4]
        );
    }
}
